"""An acknowledged event outlives its process."""

import json
import signal
import threading

import httpx
import pytest

from support.http.worker_processes import family
from support.waiting import PATIENCE_S, until

EVENTS, CALLERS = 10_000, 8


def read(folder):
    """Events of whole lines: a kill may tear the last line of a file, which nobody was told of."""
    found = []
    for path in folder.iterdir():
        for line in path.read_bytes().splitlines(keepends=True):
            if line.endswith(b"\n"):
                found.append(json.loads(line)["event_id"])
    return found


def event(key):
    return {
        "event_id": key,
        "action_name": "click",
        "timestamp": "2026-11-25T12:00:00Z",
        "query_id": "q",
        "event_attributes": {"object": {"object_id": "sku-1"}},
    }


@pytest.mark.nightly
@pytest.mark.parametrize("workers", [1, 2])
def test_acknowledged_events_survive_a_kill(serve, bundle_folder, tmp_path, workers):
    service = serve(bundle=bundle_folder, events_log=tmp_path, workers=workers)
    acknowledged, ended = [set() for _ in range(CALLERS)], threading.Event()

    def post(caller):
        with httpx.Client(base_url=service.url, timeout=PATIENCE_S) as client:
            number = 0
            while not ended.is_set():
                keys = [f"{caller}-{number + n}" for n in range(25)]
                number += 25
                try:
                    answer = client.post("/ubi/events", json=[event(key) for key in keys])
                except httpx.TransportError:
                    return
                if answer.status_code == 202:
                    acknowledged[caller].update(keys)

    callers = [threading.Thread(target=post, args=(caller,)) for caller in range(CALLERS)]
    for caller in callers:
        caller.start()
    try:
        until(lambda: sum(map(len, acknowledged)) >= EVENTS)
        for process in family(service):  # in the middle of requests
            process.send_signal(signal.SIGKILL)
    finally:
        ended.set()
    for caller in callers:
        caller.join()
    sent = set.union(*acknowledged)
    assert len(sent) >= EVENTS
    assert sent <= set(read(tmp_path))


@pytest.mark.nightly
def test_a_new_process_finishes_the_files_of_one_that_was_killed(serve, bundle_folder, tmp_path):
    first = serve(bundle=bundle_folder, events_log=tmp_path)
    assert httpx.post(first.url + "/ubi/events", json=event("one")).status_code == 202
    first.process.kill()
    first.process.wait()
    second = serve(bundle=bundle_folder, events_log=tmp_path)
    assert httpx.post(second.url + "/ubi/events", json=event("two")).status_code == 202
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".jsonl", ".part"]
    second.stop()
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".jsonl", ".jsonl"]
    assert sorted(read(tmp_path)) == ["one", "two"]
