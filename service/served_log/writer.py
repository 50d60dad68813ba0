"""The served log of a worker: the event loop queues answered requests, another thread encodes and writes them.

Both threads compete for Python's lock. Hence records are encoded several at a time, and written in blocks.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import math
import os
import sys
import time
from collections import deque
from dataclasses import dataclass, field
from threading import Event, Thread, get_native_id
from typing import TYPE_CHECKING

from listwright.ranking.served_log.encoding import SYNC_BYTES, Block, header
from listwright.ranking.served_log.record import Columns
from listwright.service.served_log.entry import Drops, LogEntry, columns_of, to_record
from listwright.service.served_log.folder import LogFolder, OpenFile
from listwright.service.settings import Settings
from listwright.service.telemetry.metrics import Telemetry

if TYPE_CHECKING:
    from listwright.service.served_log.stream import RedisStream


POLL_S = 0.02
"""Seconds between looks at the buffer while records arrive: larger batches cost less."""

IDLE_S = 0.2
"""Seconds that the thread sleeps after a look at an empty buffer, unless a record wakes it, or something is due."""

MOST_AT_ONCE = 256
"""Records that are encoded before blocks and files are checked."""

NICENESS = 10
"""Niceness of the thread, which gives way to the one that answers."""

RETRY_S = 1.0
"""Seconds after a failed write in which nothing is written."""

TIDY_S = 30.0
"""Seconds between looks at the whole folder."""

BLOCK_BYTES = 2**19
"""Bytes at which a block is full: each write releases Python's lock and takes it again."""

INDEX_BYTES = 40
"""Bytes for each candidate that a rule touched."""

CANDIDATE_BYTES = 80
"""Bytes of a candidate's scores and place, and of Python's overhead for its id."""

FRAME_BYTES = 64
"""Most bytes around a block in a file: two numbers before it, and the sync marker after it."""

CLOSE_WITHIN_S = 3.0
"""Seconds that the end of the process waits for the last records."""

_FULL = frozenset((errno.ENOSPC, errno.EDQUOT))

_log = logging.getLogger("listwright.served")


@dataclass(slots=True)
class PendingBlock:
    """Records of one schema that are to be written.

    Args:
        columns: Columns of the records.
        block: Bytes of the records.
        since: Time at which the block was begun, on the clock of ``time.monotonic``.
    """

    columns: Columns
    block: Block = field(default_factory=Block)
    since: float = field(default_factory=time.monotonic)


class LogWriter:
    """The served log of one worker. :meth:`note` belongs to the event loop's thread.

    Args:
        settings: Settings of the service.
        telemetry: Metrics that count records, bytes and drops.
    """

    def __init__(self, settings: Settings, telemetry: Telemetry) -> None:
        self._settings = settings
        self._records, self._bytes = telemetry.log_records, telemetry.log_bytes
        self._drops = Drops(telemetry.log_dropped)
        self._buffer = Buffer(settings.served_buffer_bytes)
        self._below = round(settings.served_share * 2**64)
        self._mode = 0o640 if settings.served_group_reads else 0o600
        self._folder: LogFolder | None = None
        if settings.served_log is not None:
            self._folder = LogFolder(
                settings.served_log,
                most_bytes=settings.served_max_bytes,
                most_age_s=86_400.0 * settings.served_max_days,
                stale_s=2 * settings.served_file_s + TIDY_S,
                removed=telemetry.log_removed_files,
            )
        self._stream: RedisStream | None = None
        if settings.served_stream is not None:
            from listwright.service.served_log.stream import RedisStream  # noqa: PLC0415 - not each log has a stream

            self._stream = RedisStream(settings, telemetry, self._drops)
        self._salt = None if settings.unit_salt is None else settings.unit_salt.get_secret_value().encode()
        self._pending: dict[str, PendingBlock] = {}  # this and the open files by the fingerprint of their schema
        self._open: dict[str, OpenFile] = {}
        self._writing = self._room = 0
        self._grant = min(settings.served_file_bytes // 4, settings.served_max_bytes // (4 * settings.workers))
        self._retry_at = self._tidy_at = 0.0
        self._failure = ("", "")
        self._idle_s = min(IDLE_S, settings.served_flush_s)  # a block that is begun meanwhile is not due sooner
        self._sleeps = False
        self._stop, self._wake = Event(), Event()
        self._thread = Thread(target=self._run, name="served-log", daemon=True)
        self._thread.start()

    def note(self, entry: LogEntry) -> None:
        """Queue a request if its query is in the share, or drop it and count."""
        if self._below < 2**64 and not in_share(entry.query_id, self._below):
            return
        if self._stop.is_set():
            self._drops.note("closing", 1, "they were answered after the log had been closed")
            return
        if not self._buffer.put(entry):
            why = "their buffer is full: the disk or the stream is too slow, or LISTWRIGHT_SERVED_SHARE too large"
            self._drops.note("buffer_full", 1, why)
        elif self._sleeps:
            self._wake.set()

    def close(self) -> None:
        """Write the waiting records and finish the files; those not written in time are dropped and counted."""
        self._stop.set()
        self._wake.set()
        until = time.monotonic() + CLOSE_WITHIN_S
        self._thread.join(CLOSE_WITHIN_S)
        if self._stream is not None:
            self._stream.close(max(0.0, until - time.monotonic()))
        pending = sum(pending.block.records for pending in list(self._pending.values()))
        lost = len(self._buffer) + self._writing + pending  # including records that came while the thread ended
        self._drops.note("closing", lost, f"they could not be written within {CLOSE_WITHIN_S:g} s of the end")

    def _run(self) -> None:
        if sys.platform == "linux":  # elsewhere a thread has no priority of its own
            os.setpriority(os.PRIO_PROCESS, get_native_id(), NICENESS)
        while True:
            stopping, empty = self._stop.is_set(), len(self._buffer) == 0
            try:
                self._take()
                self._write_due(stopping=stopping)
                self._roll_due(stopping=stopping)
                self._tidy_due()
            except Exception:  # no caller waits for this thread, so the log has it
                _log.exception("the served log's writer failed; it goes on")
                self._drops.note("write_failed", self._writing, "the writer failed: see the log")
                self._writing = 0
                self._stop.wait(RETRY_S)
            if len(self._buffer) == 0:
                if stopping:
                    return
                self._wait(sleeps=empty)

    def _wait(self, *, sleeps: bool) -> None:
        """Wait until the next look; without records, until one comes or something is due."""
        if not sleeps:
            self._stop.wait(POLL_S)
            return
        self._wake.clear()
        self._sleeps = True  # before the look at the buffer: a record that comes behind it wakes
        if len(self._buffer) == 0 and not self._stop.is_set():
            began = min((pending.since for pending in self._pending.values()), default=math.inf)
            due_s = began + self._settings.served_flush_s - time.monotonic()
            self._wake.wait(max(0.0, min(self._idle_s, due_s)))
        self._sleeps = False

    def _take(self) -> None:
        """Encode waiting requests, up to :data:`MOST_AT_ONCE`."""
        for _ in range(MOST_AT_ONCE):
            if (entry := self._buffer.take()) is None:
                return
            key = entry.manifest.fingerprint
            self._encode(key, entry)
            if key in self._pending and self._pending[key].block.size >= BLOCK_BYTES:
                self._write(key)

    def _encode(self, key: str, entry: LogEntry) -> None:
        """Add a record to the block of its schema, or drop it."""
        pending = self._pending.get(key) or PendingBlock(columns_of(entry.manifest))
        try:
            pending.block.add(to_record(entry, self._salt))
        except Exception as error:  # a request that cannot be encoded must not stop the log
            self._drops.note("encode_failed", 1, f"query {entry.query_id!r} cannot be encoded ({error!r})")
            return
        if self._stream is not None:
            self._stream.put(pending.columns, pending.block.last())
        if self._folder is not None:
            self._pending[key] = pending

    def _write_due(self, *, stopping: bool) -> None:
        begun_by = math.inf if stopping else time.monotonic() - self._settings.served_flush_s
        for key, pending in list(self._pending.items()):
            if pending.since <= begun_by:
                self._write(key)

    def _write(self, key: str) -> None:
        """Write a block, or drop its records and pause."""
        pending = self._pending.pop(key)
        block = pending.block
        if time.monotonic() < self._retry_at:
            self._drops.note(self._failure[0], block.records, self._failure[1])
            return
        self._writing = block.records
        try:
            assert self._folder is not None
            most = block.size + len(header(pending.columns, bytes(SYNC_BYTES))) + FRAME_BYTES
            self._make_room(self._folder, most)
            if key not in self._open:
                self._open[key] = OpenFile(self._folder.path, pending.columns, self._mode)
            size = self._open[key].append(block)
        except OSError as error:
            self._failed(key, block.records, error)
        else:
            self._records.labels("file").inc(block.records)
            self._bytes.labels("file").inc(size)
            self._room -= most
        self._writing = 0
        if key in self._open and self._open[key].size >= self._settings.served_file_bytes:
            self._finish(key)

    def _make_room(self, folder: LogFolder, size: int) -> None:
        """Make room before a write: the folder never exceeds its limit, however many workers write at a time."""
        if size <= self._room:
            return
        settings, room = self._settings, max(size, self._grant)
        others = (settings.workers - 1) * self._grant  # that they may write before this worker looks again
        if folder.tidy(others + room) + others + size > settings.served_max_bytes:
            for key in list(self._open):
                self._finish(key)
            if folder.tidy(others + room) + others + size > settings.served_max_bytes:
                raise OSError(errno.ENOSPC, "the folder is at its limit, LISTWRIGHT_SERVED_MAX_BYTES")
        self._room = room

    def _failed(self, key: str, count: int, error: OSError) -> None:
        self._retry_at = time.monotonic() + RETRY_S
        reason = "disk_full" if error.errno in _FULL else "write_failed"
        remedy = "make room, or lower LISTWRIGHT_SERVED_MAX_BYTES" if reason == "disk_full" else "see the folder"
        self._failure = (reason, f"{self._settings.served_log}: {error.strerror}; {remedy}")
        self._drops.note(reason, count, self._failure[1])
        if key in self._open:
            self._finish(key)

    def _finish(self, key: str) -> None:
        file = self._open.pop(key)
        try:
            file.finish()
        except OSError as error:
            _log.warning("%s could not be finished: %s; it is recovered later", file.path, error.strerror)

    def _roll_due(self, *, stopping: bool) -> None:
        now = time.monotonic()
        for key, file in list(self._open.items()):
            if stopping or now - file.began >= self._settings.served_file_s:
                self._finish(key)

    def _tidy_due(self) -> None:
        now = time.monotonic()
        if self._folder is None or now < self._tidy_at:
            return
        self._tidy_at = now + TIDY_S
        try:
            self._folder.tidy(self._settings.workers * self._grant)
        except OSError as error:
            _log.warning("%s could not be tidied: %s", self._folder.path, error.strerror)


def in_share(query_id: str, below: int) -> bool:
    """Return whether a query is logged: its hash, of 64 bits, is below a bound. The same for each retry and worker.

    Args:
        query_id: Id of the query.
        below: Bound of the hash: the share times 2**64.
    """
    digest = hashlib.blake2b(query_id.encode("utf-8", "surrogatepass"), digest_size=8, person=b"served").digest()
    return int.from_bytes(digest, "big") < below


def size_of(entry: LogEntry) -> int:
    """Estimate the bytes that a request holds while it waits."""
    features, ids = entry.candidates.features, entry.candidates.ids
    touched = sum(len(rule.candidates) for rule in entry.ranking.rules)
    more = INDEX_BYTES * touched + (0 if ids is None else sum(map(len, ids)))
    return features.nbytes + CANDIDATE_BYTES * len(features) + more


class Buffer:
    """Requests that wait, bounded in bytes. One thread puts, one takes, and neither waits for the other.

    Each of the two counts has one thread that changes it, so that there is no lock.

    Args:
        most: Number of bytes that may wait.
    """

    def __init__(self, most: int) -> None:
        self._most, self._waiting = most, deque[tuple[int, LogEntry]]()
        self._put = self._got = 0

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def held(self) -> int:
        """Bytes that wait."""
        return self._put - self._got

    def put(self, entry: LogEntry) -> bool:
        """Add a request; return False if there is no room."""
        size = size_of(entry)
        if self._put - self._got + size > self._most:
            return False
        self._put += size
        self._waiting.append((size, entry))
        return True

    def take(self) -> LogEntry | None:
        """Remove the oldest and return it; None if there is none."""
        if not self._waiting:
            return None
        size, entry = self._waiting.popleft()
        self._got += size
        return entry
