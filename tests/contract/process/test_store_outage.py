"""Two workers on a store that is down for a minute: no request fails, a worker starts again, and the next swap comes."""

import os
import signal
import threading
import time

import httpx
import pytest

from listwright.ranking.remote import Url
from listwright.service.bundles import folder
from listwright.service.commands import publish as publishing
from support.http.rerank_requests import BODY
from support.http.worker_processes import both_ready, log_messages, versions, workers
from support.object_store import S3
from support.waiting import until

pytestmark = pytest.mark.nightly  # processes start and stop, and a fixed wait

DOWN_S = 62.0


def test_a_store_that_is_down_for_a_minute_fails_no_request(library, tmp_path, serve, monkeypatch):
    store, url = S3(), Url("s3://models/outage")  # no other test has it in this process
    for name, value in {**store.environment, "LISTWRIGHT_CACHE": str(tmp_path / "cache")}.items():
        monkeypatch.setenv(name, value)
    for number in (1, 2):
        publishing.publish_as(library / "shop" / str(number), url / "shop" / str(number))
    folder.point(url, "shop", "1")
    service = both_ready(serve(models=url, workers=2, poll_s=0.2))
    statuses, ended = [], threading.Event()

    def ask():
        while not ended.is_set():
            try:
                statuses.append(httpx.post(service.url + "/rerank", json=BODY).status_code)
            except httpx.TransportError as error:  # of the worker that is killed
                statuses.append(type(error).__name__)
            time.sleep(0.02)

    asking = threading.Thread(target=ask)
    asking.start()
    store.stop()
    try:
        time.sleep(DOWN_S)
        before = len(statuses)
        assert statuses == [200] * before, "no request fails"
        assert 2 <= len(log_messages(service, "what is served stays")) <= 4, "of two workers, one a minute"
        os.kill(workers(service)[0].pid, signal.SIGKILL)
        until(lambda: len(log_messages(service, "the last time is")) >= 1)
    finally:
        store.start()
    folder.point(url, "shop", "2")
    until(lambda: versions(service) == {"2"})
    ended.set()
    asking.join()
    assert before > 100
    code, log = service.stop()
    store.stop()
    assert code == 0
    assert "wJalrXUtnFEMI" not in log
