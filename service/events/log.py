"""The log of events: bodies go into a queue, and one thread validates and writes them, many at a time.

The event loop only passes a body on and waits. A file system that stalls holds the thread, and no request to rank.
"""

from __future__ import annotations

import asyncio
import logging
import math
import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from listwright.service.admission.body import BodyBudget
from listwright.service.errors import EventsNotKeptError
from listwright.service.events.files import GROUP_MODE, MODE, EventFiles
from listwright.service.events.lines import Lines, lines_of
from listwright.service.settings import PREFIX, Settings
from listwright.service.telemetry.metrics import Telemetry

MAX_WAITING_BYTES = 8 * 2**20
"""Of bodies that wait for the thread; more are refused."""

MAX_BATCH_BYTES = 2**20
"""Of bodies that are written at a time."""

LOOK_S = 5.0
"""Between two looks at the age of the file, while no event comes."""

TIDY_S = 60.0
"""Between two looks at the whole folder: its limits hold, and files of killed workers are finished, without events."""

RETRY_AFTER_S = 1
LOG_S = 10.0
"""Seconds between two log lines about writes that fail."""

STOP_WITHIN_S = 5.0

_log = logging.getLogger("listwright.events")


class _Sent(NamedTuple):
    """A body on its way."""

    body: bytes
    future: asyncio.Future[int]
    loop: asyncio.AbstractEventLoop


class EventsLog:
    """Takes events of one process, and looks after the folder though none come.

    Args:
        files: where they go.
        telemetry: counts them.
    """

    def __init__(self, files: EventFiles, telemetry: Telemetry) -> None:
        self.bodies = BodyBudget(MAX_WAITING_BYTES, lambda: RETRY_AFTER_S)
        self._files, self._telemetry = files, telemetry
        self._queue: queue.SimpleQueue[_Sent | None] = queue.SimpleQueue()
        self._waiting = 0  # the event loop's alone
        self._said, self._since = -math.inf, 0
        self._tidied = -math.inf
        self._thread = threading.Thread(target=self._run, name="events", daemon=True)
        self._thread.start()

    async def add(self, body: bytes, within_s: float) -> int:
        """Write the events of a body; how many they are. When this returns, they are with the operating system.

        Args:
            body: JSON, one event or an array.
            within_s: seconds after which it is given up. The events may then be written later, or not.

        Raises:
            EventsNotKeptError: if they could not be written, or not in time, or too many wait.
            ListwrightError, RequestValidationError: of :func:`lines_of`; nothing of the body is written.
        """
        if self._waiting + len(body) > MAX_WAITING_BYTES:
            self._telemetry.events_refused.labels("full").inc()
            raise EventsNotKeptError("more events wait than can be written", RETRY_AFTER_S)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[int] = loop.create_future()
        self._waiting += len(body)
        future.add_done_callback(partial(self._settled, len(body)))
        self._queue.put(_Sent(body, future, loop))
        try:
            async with asyncio.timeout(within_s):
                return await asyncio.shield(future)  # a body whose caller has gone waits on, and counts
        except TimeoutError as error:
            self._telemetry.events_refused.labels("late").inc()
            raise EventsNotKeptError("the events were not written in time", RETRY_AFTER_S) from error

    def close(self) -> None:
        """Write what waits, finish the file, end the thread; waits for :data:`STOP_WITHIN_S` at most."""
        self._queue.put(None)
        self._thread.join(STOP_WITHIN_S)
        if self._thread.is_alive():
            _log.error("the file system of LISTWRIGHT_EVENTS_LOG does not answer: its file is not finished")

    def _settled(self, size: int, future: asyncio.Future[int]) -> None:
        self._waiting -= size
        if not future.cancelled():
            future.exception()  # read, or asyncio would complain of a caller that was told something else

    def _run(self) -> None:
        while True:
            batch = self._next_batch()
            if batch is None:
                break
            if batch:
                self._write(batch)
            else:
                self._quietly(self._files.roll_if_due)
            if time.monotonic() - self._tidied >= TIDY_S:
                self._quietly(self._files.tidy)
                self._tidied = time.monotonic()
        self._quietly(self._files.finish)

    def _next_batch(self) -> list[_Sent] | None:
        """All bodies that wait, up to a size; empty if none came for a while, None at the end."""
        try:
            first = self._queue.get(timeout=LOOK_S)
        except queue.Empty:
            return []
        batch, size = [], 0
        while first is not None:
            batch.append(first)
            size += len(first.body)
            if size >= MAX_BATCH_BYTES:
                return batch
            try:
                first = self._queue.get_nowait()
            except queue.Empty:
                return batch
        if batch:
            self._queue.put(None)  # the end comes after what was before it
            return batch
        return None

    def _write(self, batch: list[_Sent]) -> None:
        found: list[tuple[_Sent, Lines]] = []
        for sent in batch:
            try:
                found.append((sent, lines_of(sent.body)))
            except Exception as error:  # also a bug's: the caller is told, and the thread goes on
                self._telemetry.events_refused.labels("invalid").inc()
                _settle(sent, partial(sent.future.set_exception, error))
        if not found:
            return
        try:
            self._files.append(b"".join(lines.text for _, lines in found))
        except OSError as error:
            self._telemetry.events_refused.labels("disk").inc(len(found))
            self._complain(error)
            told = f"the events could not be written ({error.strerror or error})"
            for sent, _ in found:
                _settle(sent, partial(sent.future.set_exception, EventsNotKeptError(told, RETRY_AFTER_S)))
            return
        self._telemetry.events.inc(sum(lines.events for _, lines in found))
        for sent, lines in found:
            _settle(sent, partial(sent.future.set_result, lines.events))

    def _quietly(self, call: Callable[[], object]) -> None:
        try:
            call()
        except OSError as error:
            self._complain(error)

    def _complain(self, error: OSError) -> None:
        """Log it, one line at most in :data:`LOG_S`, which counts those since the last."""
        self._since += 1
        now = time.monotonic()
        if now - self._said >= LOG_S:
            self._said, count, self._since = now, self._since, 0
            _log.error("events cannot be written: %s", error, extra={"facts": {"failures": count}})


def _settle(sent: _Sent, settle: Callable[[], None]) -> None:
    """Tell the event loop, which may have ended."""

    def tell() -> None:
        if not sent.future.done():
            settle()

    with suppress(RuntimeError):
        sent.loop.call_soon_threadsafe(tell)


def opened(settings: Settings, telemetry: Telemetry) -> EventsLog:
    """The log that the settings name."""
    assert settings.events_log is not None

    def removed(count: int) -> None:
        telemetry.events_removed_files.inc(count)
        most, old = f"{PREFIX}EVENTS_MAX_BYTES", f"{PREFIX}EVENTS_MAX_AGE_S, by this machine's clock"
        _log.info("removed files of events beyond %s or %s", most, old, extra={"facts": {"files": count}})

    files = EventFiles(
        settings.events_log,
        most_bytes=settings.events_max_bytes,
        writers=settings.workers,
        most_s=settings.events_max_age_s,
        mode=GROUP_MODE if settings.served_group_reads else MODE,
        removed=removed,
    )
    return EventsLog(files, telemetry)
