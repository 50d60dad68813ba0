"""Nobody reads stderr: the service and its supervisor go on."""

import os
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress

import httpx
import psutil
import pytest

from listwright.service.telemetry.logs import MOST_LINES
from support.http.processes import SERVING_ONLY, free_port
from support.http.raw_http import BODY
from support.waiting import PATIENCE_S, until

HEADERS = {"content-type": "application/json"}


@pytest.mark.nightly
@pytest.mark.parametrize("workers", [1, 2])
def test_a_pipe_that_nobody_reads_holds_up_nobody(bundle_folder, workers):
    port = free_port()
    settings = {"bundle": bundle_folder, "port": port, "workers": workers, "log_level": "debug", "queue_ms": 600_000}
    names = {f"LISTWRIGHT_{name.upper()}": str(value) for name, value in settings.items()}
    service = subprocess.Popen(
        [sys.executable, "-m", "service"],
        env={**os.environ, **names, "PYTHONPATH": SERVING_ONLY},
        stderr=subprocess.PIPE,
    )
    with ended(service), httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_S) as client:
        until(lambda: ready(client))
        for _ in range(workers * MOST_LINES + 1000):  # a pipe holds some hundred lines
            assert client.post("/rerank", content=BODY, headers=HEADERS).status_code == 200
        assert client.get("/livez").status_code == 200
        assert dropped(client) > 0
        if workers > 1:
            victim, other = worker_processes(service.pid)
            victim.kill()
            until(lambda: len(set(worker_processes(service.pid)) - {victim, other}) == 1)
            until(lambda: ready(client))
        service.send_signal(signal.SIGTERM)
        assert service.wait(timeout=PATIENCE_S) == 0


@contextmanager
def ended(service):
    """Whatever fails: nobody waits for a process that does not end, and none is left behind."""
    try:
        yield
    finally:
        left = [psutil.Process(service.pid), *psutil.Process(service.pid).children()] if service.poll() is None else []
        for process in left:
            process.kill()
        service.wait()
        service.stderr.close()


def ready(client):
    try:
        return client.get("/readyz").status_code == 200
    except httpx.TransportError:
        return False


def dropped(client):
    (found,) = [
        line.split()[1]
        for line in client.get("/metrics").text.splitlines()
        if line.startswith("listwright_dropped_log_lines_total ")
    ]
    return float(found)


def worker_processes(pid):
    """Not the process that looks after shared resources."""
    found = []
    for child in psutil.Process(pid).children():
        with suppress(psutil.Error):  # it has just ended
            found += [child] if "spawn_main" in " ".join(child.cmdline()) else []
    return found
