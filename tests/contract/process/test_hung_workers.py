"""A worker that lives and serves nobody is ended and replaced."""

import os
import signal
import time
from contextlib import suppress

import httpx
import pytest

from support.http.rerank_requests import BODY
from support.http.worker_processes import ask, log_messages, workers
from support.waiting import PATIENCE_S, until

pytestmark = pytest.mark.nightly  # processes start and stop

HOOK = """
import re

def hangs(query):
    if query.context.get("hang"):
        re.match("(a+)+$", "a" * 60 + "b")  # years, and all of them with Python's global lock
"""


def two_workers(serve, folder, hang_s=1, **settings):
    service = serve(bundle=folder, workers=2, hang_s=hang_s, **settings)
    until(lambda: len(log_messages(service, "serving shop/")) >= 2)
    return service


def replaced(service, pid):
    until(lambda: len(log_messages(service, "serving shop/")) >= 3)
    (line,) = log_messages(service, "has hung for 1 s: killed")
    assert line["message"] == f"the event loop of worker {pid} has hung for 1 s: killed"
    assert line["level"] == "error"
    until(lambda: log_messages(service, f"worker {pid} ended by SIGKILL: another is started in 0 s"))
    assert pid not in {worker.pid for worker in workers(service)}
    assert [ask(service).status_code for _ in range(20)] == [200] * 20
    code, log = service.stop()
    assert code == 0, log


def test_a_stopped_worker_is_replaced(bundle_folder, serve):
    service = two_workers(serve, bundle_folder)
    hung = workers(service)[0].pid
    os.kill(hung, signal.SIGSTOP)
    replaced(service, hung)


def test_a_worker_whose_hook_keeps_the_global_lock_is_replaced(bundle_folder, serve, tmp_path, monkeypatch):
    (tmp_path / "hanging.py").write_text(HOOK)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    service = two_workers(serve, bundle_folder, hook="hanging:hangs")
    with suppress(httpx.TransportError):  # cut off when its worker is killed
        httpx.post(service.url + "/rerank", json={**BODY, "context": {"hang": 1}}, timeout=PATIENCE_S)
    (line,) = until(lambda: log_messages(service, "has hung for 1 s: killed"))  # a thread writes the log
    replaced(service, int(line["message"].split()[5]))


def test_workers_that_turn_are_left_alone(bundle_folder, serve):
    """Also by a supervisor that was stopped for longer than they may hang."""
    service = two_workers(serve, bundle_folder, hang_s=2)
    before = {worker.pid for worker in workers(service)}
    os.kill(service.process.pid, signal.SIGSTOP)
    time.sleep(3)
    os.kill(service.process.pid, signal.SIGCONT)
    time.sleep(3)
    assert {worker.pid for worker in workers(service)} == before
    code, log = service.stop()
    assert code == 0
    assert "killed" not in log
