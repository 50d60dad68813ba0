"""The log of events: bodies go into a queue, and one thread validates and writes them, many at a time.

The event loop only passes a body on and waits; ``POST /ubi/events`` answers once an event is with the operating system.
A file system that stalls holds the thread, and no request to rank. Nothing imports this module unless
``LISTWRIGHT_EVENTS_LOG`` is set.

A file is named for the time it was begun, the host, the process and a number, so that names sort by time and several
workers share a folder. It ends in ``.jsonl.part`` while it is written, and its writer holds a lock on it. It is synced
and renamed to ``.jsonl`` when it is finished. A file whose writer was killed has no lock any more: the first process
that sees it renames it. Not every shared disk has locks: a file of another host must also be unchanged for long.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import logging
import math
import os
import queue
import re
import socket
import threading
import time
from codecs import BOM_UTF8
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import NamedTuple

from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from pydantic_core import from_json, to_json

from listwright.ranking.plain_file import is_plain
from listwright.ranking.served_log.events import MAX_EVENTS, Event, event_of
from listwright.service.admission.body import BodyBudget
from listwright.service.disk import locked
from listwright.service.errors import EventsNotKeptError, TooLargeError, UndecodableBodyError, why_no_json
from listwright.service.problems import faults_of
from listwright.service.settings import PREFIX, Settings
from listwright.service.telemetry.logs import Repeats
from listwright.service.telemetry.metrics import Telemetry

MAX_WAITING_BYTES = 8 * 2**20
"""Bytes of bodies that may wait for the thread; more are refused."""

MAX_BATCH_BYTES = 2**20
"""Bytes of bodies that are written at a time."""

LOOK_S = 5.0
"""Seconds between two checks of the file's age, while no event comes."""

TIDY_S = 60.0
"""Seconds between two checks of the whole folder, for its limits and for files of killed workers."""

RETRY_AFTER_S = 1
LOG_S = 10.0
"""Seconds between two log lines about writes that fail."""

STOP_WITHIN_S = 5.0

MAX_LINE_BYTES = 16 * 2**10
"""Most bytes of one event: UBI does not limit it."""

MAX_FAULTY = 20
"""Events of a body whose faults an error lists."""

FINISHED, PART = ".jsonl", ".jsonl.part"
MODE, GROUP_MODE = 0o600, 0o640
"""File modes, for the owner alone and for the group, too: events are personal data."""

ROLL_BYTES, ROLL_S = 64 * 2**20, 600.0
"""A file is finished when it has so many bytes, or was begun so long ago."""

STALE_S = 2 * ROLL_S
"""Seconds after its last event at which a file counts as abandoned: a writer would have finished it by then."""

_NAME = re.compile(rf"events-\d{{8}}T\d+-(.+)-\d+-\d{{6}}{re.escape(PART)}")

_log = logging.getLogger("listwright.events")


class _Sent(NamedTuple):
    """A body in the queue."""

    body: bytes
    future: asyncio.Future[int]
    loop: asyncio.AbstractEventLoop


class EventWriter:
    """Writer of the events of one process, in a thread of its own, which keeps the folder tidy.

    Args:
        files: Files that the events go into.
        telemetry: Metrics that count the events.
    """

    def __init__(self, files: EventFiles, telemetry: Telemetry) -> None:
        self.bodies = BodyBudget(MAX_WAITING_BYTES, lambda: RETRY_AFTER_S)
        self._files, self._telemetry = files, telemetry
        self._queue: queue.SimpleQueue[_Sent | None] = queue.SimpleQueue()
        self._waiting = 0  # changed by the event loop only
        self._failures, self._tidied = Repeats(LOG_S), -math.inf
        self._thread = threading.Thread(target=self._run, name="events", daemon=True)
        self._thread.start()

    @classmethod
    def open(cls, settings: Settings, telemetry: Telemetry) -> EventWriter:
        """Open the log that the settings name."""
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
        return cls(files, telemetry)

    async def add(self, body: bytes, within_s: float) -> int:
        """Write the events of a body, and return their number; they are with the operating system by then.

        Args:
            body: One event or an array of events, as JSON.
            within_s: Seconds after which the write is given up. The events may then be written later, or not.

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
        """Write what waits, finish the file, end the thread, within :data:`STOP_WITHIN_S`."""
        self._queue.put(None)
        self._thread.join(STOP_WITHIN_S)
        if self._thread.is_alive():
            _log.error("the file system of LISTWRIGHT_EVENTS_LOG does not answer: its file is not finished")

    def _settled(self, size: int, future: asyncio.Future[int]) -> None:
        self._waiting -= size
        if not future.cancelled():
            future.exception()  # read, or asyncio would log it as never retrieved

    def _run(self) -> None:
        while True:
            batch = self._next_batch()
            if batch is None:
                break
            if batch:
                self._write(batch)
            else:
                self._attempt(self._files.roll_if_due)
            if time.monotonic() - self._tidied >= TIDY_S:
                self._attempt(self._files.tidy)
                self._tidied = time.monotonic()
        self._attempt(self._files.finish)

    def _next_batch(self) -> list[_Sent] | None:
        """Return all bodies that wait, up to a size; empty if none came for a while, None at the end."""
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
        valid: list[tuple[_Sent, list[bytes]]] = []
        for sent in batch:
            try:
                valid.append((sent, lines_of(sent.body)))
            except Exception as error:  # the caller gets the error, and the thread goes on
                self._telemetry.events_refused.labels("invalid").inc()
                _settle(sent, partial(sent.future.set_exception, error))
        if not valid:
            return
        try:
            self._files.append(b"".join(line for _, lines in valid for line in lines))
        except OSError as error:
            self._telemetry.events_refused.labels("disk").inc(len(valid))
            self._complain(error)
            message = f"the events could not be written ({error.strerror or error})"
            for sent, _ in valid:
                _settle(sent, partial(sent.future.set_exception, EventsNotKeptError(message, RETRY_AFTER_S)))
            return
        self._telemetry.events.inc(sum(len(lines) for _, lines in valid))
        for sent, lines in valid:
            _settle(sent, partial(sent.future.set_result, len(lines)))

    def _attempt(self, call: Callable[[], object]) -> None:
        try:
            call()
        except OSError as error:
            self._complain(error)

    def _complain(self, error: OSError) -> None:
        """Log a failed write, at most once in :data:`LOG_S`, with the count since the last line."""
        if count := self._failures.note():
            _log.error("events cannot be written: %s", error, extra={"facts": {"failures": count}})


def _settle(sent: _Sent, settle: Callable[[], None]) -> None:
    """Settle a future from the event loop's thread, unless the loop has ended."""

    def settle_pending() -> None:
        if not sent.future.done():
            settle()

    with suppress(RuntimeError):
        sent.loop.call_soon_threadsafe(settle_pending)


class EventFiles:
    """The files of one writer. For one thread.

    Args:
        folder: Folder of the files, which is made if it does not exist.
        most_bytes: Largest size of all files together, in bytes; the oldest finished ones are removed before a write.
        writers: Number of processes that write into the folder at the same time.
        most_s: Seconds after its last event that a finished file is kept; None: no such limit.
        mode: Permissions of the files.
        removed: Function that is called with the number of files that were removed.
        clock: Clock in seconds since 1970.
    """

    def __init__(
        self,
        folder: Path,
        *,
        most_bytes: int,
        writers: int = 1,
        most_s: float | None = None,
        mode: int = MODE,
        removed: Callable[[int], None] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._folder, self._most_bytes, self._most_s = folder, most_bytes, most_s
        self._mode, self._removed, self._clock = mode, removed, clock
        self._roll_bytes = min(ROLL_BYTES, most_bytes // (8 * writers))
        self._others_bytes = (writers - 1) * self._roll_bytes  # that they may write before this one looks again
        self._room = 0
        self._descriptor: int | None = None
        self._path, self._size, self._began, self._count = folder, 0, 0.0, 0

    def append(self, lines: bytes) -> None:
        """Hand whole lines to the operating system: when this returns, they outlive the process.

        Raises:
            OSError: if they cannot be written. Then none of them stands in the file: what was written of them is cut
                off, or, where that fails too, the file is given up with its last line torn.
        """
        if self._size + len(lines) > self._roll_bytes:
            self.finish()
        self.roll_if_due()
        if len(lines) > self._room:
            self._make_room(len(lines))
        if self._descriptor is None:
            self._open()
        assert self._descriptor is not None
        left = memoryview(lines)
        try:
            while left:
                left = left[os.write(self._descriptor, left) :]
        except OSError:
            self._cut_off()
            raise
        self._size += len(lines)
        self._room -= len(lines)

    def _make_room(self, size: int) -> None:
        """Tidy the folder, and reserve at least ``size`` bytes that this writer may write before it tidies again."""
        room = max(size, self._roll_bytes)
        if self.tidy(room) + self._others_bytes + size > self._most_bytes:
            raise OSError(errno.ENOSPC, "the folder is at its limit, LISTWRIGHT_EVENTS_MAX_BYTES")
        self._room = room

    def roll_if_due(self) -> None:
        """Finish the file if it is large or old."""
        if self._descriptor is None:
            return
        if self._size >= self._roll_bytes or self._clock() - self._began >= ROLL_S:
            self.finish()

    def finish(self) -> None:
        """Sync and rename the file, if there is one, and keep the folder within its bounds."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is None:
            return
        try:
            os.fsync(descriptor)
            self._path.rename(self._path.with_suffix(""))
        finally:
            os.close(descriptor)
        self.tidy()

    def tidy(self, room: int | None = None) -> int:
        """Rename what killed writers left, and remove the oldest finished files beyond the bounds.

        Args:
            room: Bytes that this writer has room for afterwards, if finished files can make it; None: those of a file.

        Returns:
            Bytes of all remaining files.
        """
        most_bytes = self._most_bytes - self._others_bytes - (self._roll_bytes if room is None else room)
        for part in self._folder.glob(f"events-*{PART}"):
            if is_plain(part) and self._is_left(part):
                with locked(part) as descriptor, suppress(FileNotFoundError):  # another worker may be quicker
                    if descriptor is not None:
                        part.rename(part.with_suffix(""))
        finished, whole = [], 0
        for path in filter(is_plain, sorted(self._folder.glob("events-*"))):
            with suppress(FileNotFoundError):  # another worker may tidy, too
                stat = path.stat()
                whole += stat.st_size
                if path.suffix == FINISHED:
                    finished.append((path, stat))
        count = 0
        for path, stat in finished:
            old = self._most_s is not None and self._clock() - stat.st_mtime > self._most_s
            if not old and whole <= most_bytes:
                continue
            with suppress(FileNotFoundError):
                path.unlink()
                count += 1
            whole -= stat.st_size
        if count and self._removed is not None:
            self._removed(count)
        return whole

    def _is_left(self, part: Path) -> bool:
        """Return whether a file seems abandoned, by its name and age; the file lock decides."""
        if part == self._path and self._descriptor is not None:
            return False
        name = _NAME.fullmatch(part.name)
        if name is not None and name[1] == _host():
            return True
        try:
            return self._clock() - part.stat().st_mtime > STALE_S
        except FileNotFoundError:
            return False

    def _open(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o750)
        self._began = self._clock()
        began = datetime.fromtimestamp(self._began, UTC).strftime("%Y%m%dT%H%M%S%f")
        name = f"events-{began}-{_host()}-{os.getpid()}-{self._count:06}"
        self._count += 1
        # locked before it has its name: another worker that tidies would take it for one that a killed writer left
        unnamed = self._folder / f".{name}"
        descriptor = os.open(unnamed, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, self._mode)
        try:
            with suppress(OSError):  # see _is_left
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._path = unnamed.rename(self._folder / f"{name}{PART}")
        except OSError:
            os.close(descriptor)
            unnamed.unlink(missing_ok=True)
            raise
        self._descriptor, self._size = descriptor, 0

    def _cut_off(self) -> None:
        """Truncate the file after its last whole line; if that fails, give it up."""
        assert self._descriptor is not None
        try:
            os.ftruncate(self._descriptor, self._size)
        except OSError:
            descriptor, self._descriptor = self._descriptor, None
            os.close(descriptor)  # it has no lock any more: the next tidying finishes it


def _host() -> str:
    return re.sub(r"[^A-Za-z0-9-]", "-", socket.gethostname())[:64] or "host"


def lines_of(body: bytes, now: datetime | None = None) -> list[bytes]:
    """Return the lines of one event, or of an array of events; all that was sent stands in them, and ``received_at``.

    Args:
        body: One event or an array of events, as JSON.
        now: Time of arrival; None: now.

    Raises:
        UndecodableBodyError: if it is no JSON, or neither an object nor an array.
        TooLargeError: if there are more than :data:`MAX_EVENTS` events, or one is too long.
        RequestValidationError: if an event is not one; with the path of each fault.
    """
    body = body.removeprefix(BOM_UTF8)
    try:
        sent = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise UndecodableBodyError(f"the body is not JSON: {why_no_json(body, error)}") from error
    if not isinstance(sent, dict | list):
        raise UndecodableBodyError("expected one event, an object, or an array of events")
    events = sent if isinstance(sent, list) else [sent]
    if len(events) > MAX_EVENTS:
        raise TooLargeError(f"{len(events)} events; the limit is {MAX_EVENTS}: send them in several requests")
    _check(events, several=isinstance(sent, list))
    received_at = (now or datetime.now(UTC)).isoformat(timespec="microseconds")
    written = [to_json({**event, "received_at": received_at}) for event in events]
    for number, line in enumerate(written):
        if len(line) > MAX_LINE_BYTES:
            path = (number,) if isinstance(sent, list) else ()
            raise TooLargeError(f"the event has {len(line)} bytes; the limit is {MAX_LINE_BYTES}", path)
    return [line + b"\n" for line in written]


def _check(events: list[object], *, several: bool) -> None:
    faults = []
    faulty = 0
    for number, event in enumerate(events):
        try:
            event_of(event)
        except ValidationError as error:
            faulty += 1
            place = ("body", number) if several else ("body",)
            faults += faults_of(error, Event, *place)
            if faulty == MAX_FAULTY:
                break
    if faults:
        raise RequestValidationError(faults)
