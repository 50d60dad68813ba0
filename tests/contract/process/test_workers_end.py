"""The end of several workers: what is asked until then is answered, and the exit code says how it was."""

import os
import signal
import threading
import time

import httpx
import pytest

from support.http.processes import Process, free_port
from support.http.rerank_requests import BODY
from support.http.worker_processes import both_ready, workers
from support.waiting import NEVER_S, PATIENCE_S, until

pytestmark = pytest.mark.nightly  # processes start and stop


class Traffic:
    """Requests from a few threads, each over a connection that it keeps as long as the service lets it."""

    def __init__(self, url, threads=4):
        self.failed, self.answered, self._done = [], 0, threading.Event()
        self._threads = [threading.Thread(target=self._ask, args=(url,)) for _ in range(threads)]
        for thread in self._threads:
            thread.start()

    def _ask(self, url):
        with httpx.Client(timeout=PATIENCE_S) as client:
            while not self._done.is_set():
                try:
                    status = client.post(url + "/rerank", json=BODY).status_code
                except httpx.ConnectError:
                    return  # refused at once: the service has gone
                except httpx.TransportError as error:
                    status = repr(error)
                if status == 200:
                    self.answered += 1
                else:
                    self.failed.append(status)

    def end(self):
        self._done.set()
        for thread in self._threads:
            thread.join()
        return self.failed


@pytest.mark.parametrize("count", [1, 2])
def test_a_drain_loses_nothing(models, serve, count):
    """Whoever asks until the very end is answered, and then refused at once; nobody is reset."""
    service = serve(models=models, workers=count, drain_s=3.0)
    if count > 1:
        both_ready(service)
    traffic = Traffic(service.url)
    until(lambda: traffic.answered > 50)
    service.process.terminate()
    until(lambda: httpx.get(service.url + "/readyz").status_code == 503)
    before = traffic.answered
    until(lambda: traffic.answered > before + 20)
    code, log = service.wait()
    assert traffic.end() == []
    assert code == 0, log


def test_a_second_sigterm_ends_the_drain_of_all_workers(models, serve):
    service = both_ready(serve(models=models, workers=2, drain_s=NEVER_S))
    service.process.terminate()
    until(lambda: httpx.get(service.url + "/readyz").status_code == 503)
    time.sleep(0.2)
    assert service.stop()[0] == 0


def test_ctrl_c_does_not_drain(models, serve):
    service = both_ready(serve(models=models, workers=2, drain_s=NEVER_S))
    os.kill(service.process.pid, signal.SIGINT)
    code, log = service.wait()
    assert code == 0
    assert "Traceback" not in log


def test_a_stop_while_workers_still_load_is_clean(models):
    service = Process(models=models, workers=2, port=free_port())
    until(lambda: workers(service))
    code, log = service.stop()
    assert code == 0, log
