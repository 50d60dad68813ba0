"""The log of events: one thread writes, many wait, and a file system that fails or stalls keeps nobody for ever."""

import asyncio
import errno
import json
import threading

import pytest
from fastapi.exceptions import RequestValidationError

from listwright.service import events as event_log
from listwright.service.errors import EventsNotKeptError, TooLargeError, UndecodableBodyError
from listwright.service.events import MAX_LINE_BYTES, EventFiles, EventWriter, lines_of
from listwright.service.telemetry.metrics import Telemetry
from support.waiting import PATIENCE_S, until, until_async

EVENT = {"action_name": "click", "timestamp": "2026-11-25T12:00:00Z", "query_id": "q"}


class StandInFiles(EventFiles):
    """Keeps what is written, or fails, or waits."""

    def __init__(self):
        self.written, self.error, self.gate = [], None, threading.Event()
        self.gate.set()
        self.finished, self.tidied = False, 0

    def append(self, lines):
        assert self.gate.wait(PATIENCE_S)
        if self.error is not None:
            raise self.error
        self.written.append(lines)

    def roll_if_due(self):
        pass

    def tidy(self):
        self.tidied += 1

    def finish(self):
        self.finished = True


@pytest.fixture
def files():
    return StandInFiles()


@pytest.fixture
def telemetry():
    return Telemetry()


@pytest.fixture
def log(files, telemetry):
    log = EventWriter(files, telemetry)
    yield log
    files.gate.set()
    log.close()


def body(*events):
    return json.dumps(list(events)).encode()


def count(telemetry, name, **labels):
    return telemetry.registry.get_sample_value(name, labels or None) or 0.0


def test_bodies_that_come_together_are_written_together(log, files, telemetry):
    async def several():
        files.gate.clear()
        first = asyncio.create_task(log.add(body(EVENT), PATIENCE_S))
        await asyncio.sleep(0)
        others = [asyncio.create_task(log.add(body(EVENT, EVENT), PATIENCE_S)) for _ in range(20)]
        await asyncio.sleep(0)
        files.gate.set()
        return await asyncio.gather(first, *others)

    assert asyncio.run(several()) == [1] + [2] * 20
    assert sum(lines.count(b"\n") for lines in files.written) == 41
    assert len(files.written) <= 3
    assert count(telemetry, "listwright_events_total") == 41


def test_a_wrong_body_costs_its_sender_alone(log, files, telemetry):
    async def both():
        return await asyncio.gather(
            log.add(body(EVENT, {}), PATIENCE_S), log.add(body(EVENT), PATIENCE_S), return_exceptions=True
        )

    wrong, right = asyncio.run(both())
    assert isinstance(wrong, RequestValidationError)
    assert [fault["loc"] for fault in wrong.errors()] == [("body", 1, "action_name"), ("body", 1, "timestamp")]
    assert right == 1
    assert b"".join(files.written).count(b"\n") == 1
    assert count(telemetry, "listwright_refused_events_total", reason="invalid") == 1


def test_what_cannot_be_written_is_refused_and_later_events_are_taken(log, files, telemetry):
    files.error = OSError(errno.ENOSPC, "no space left on device")
    with pytest.raises(EventsNotKeptError, match="no space left"):
        asyncio.run(log.add(body(EVENT), PATIENCE_S))
    files.error = None
    assert asyncio.run(log.add(body(EVENT), PATIENCE_S)) == 1
    assert count(telemetry, "listwright_refused_events_total", reason="disk") == 1


def test_a_stalled_disk_refuses_in_time_and_bounds_what_waits(log, files, telemetry, monkeypatch):
    monkeypatch.setattr(event_log, "MAX_WAITING_BYTES", 3 * len(body(EVENT)))

    async def stalled():
        files.gate.clear()
        found = [await asyncio.gather(log.add(body(EVENT), 0.01), return_exceptions=True) for _ in range(5)]
        files.gate.set()
        while log._waiting:
            await asyncio.sleep(0.01)
        return [type(error) for (error,) in found], await log.add(body(EVENT), PATIENCE_S)

    refused, later = asyncio.run(stalled())
    assert refused == [EventsNotKeptError] * 5
    assert later == 1
    assert count(telemetry, "listwright_refused_events_total", reason="late") == 3
    assert count(telemetry, "listwright_refused_events_total", reason="full") == 2


def test_the_folder_is_looked_after_though_no_event_comes(files, telemetry, monkeypatch):
    monkeypatch.setattr(event_log, "LOOK_S", 0.01)
    monkeypatch.setattr(event_log, "TIDY_S", 0.02)
    log = EventWriter(files, telemetry)
    until(lambda: files.tidied >= 3)
    log.close()


def test_the_end_writes_what_waits(log, files):
    """Also where the end arrives together with the last body."""

    async def ended():
        files.gate.clear()
        first = asyncio.create_task(log.add(body(EVENT), PATIENCE_S))
        await until_async(lambda: log._waiting and log._queue.empty())  # it is being written
        second = asyncio.create_task(log.add(body(EVENT, EVENT), PATIENCE_S))
        closing = asyncio.create_task(asyncio.to_thread(log.close))
        await until_async(lambda: log._queue.qsize() == 2)
        files.gate.set()
        await closing
        return await first, await second

    assert asyncio.run(ended()) == (1, 2)
    assert files.finished
    assert not log._thread.is_alive()


def test_lines_hold_all_that_was_sent():
    sent = EVENT | {"event_attributes": {"object": {"object_id": 5, "ünïcode": [1.5, None]}, "x": {"y": 1}}}
    (line,) = lines_of(json.dumps(sent).encode())
    kept = json.loads(line)
    assert kept.pop("received_at")
    assert kept == sent


@pytest.mark.parametrize("text", [b"", b"{", b"5", b'"x"', b"null", b"[" * 5000, b'{"a": NaN}', b"\xff"])
def test_what_is_no_json_of_events(text):
    with pytest.raises(UndecodableBodyError):
        lines_of(text)


def test_too_much_at_a_time():
    with pytest.raises(TooLargeError, match="1001 events"):
        lines_of(body(*[EVENT] * 1001))
    with pytest.raises(TooLargeError) as caught:
        lines_of(body(EVENT, EVENT | {"event_attributes": {"x": "y" * MAX_LINE_BYTES}}))
    assert caught.value.path == (1,)
    assert lines_of(b"[]") == []
