"""The served log of a worker: a thread of its own encodes records and writes them, many at a time.

The thread that answers only hands a request over. One record after the other is encoded in a third of the time that
each alone would take behind its answer, where caches hold other code.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Event, Thread, get_native_id
from typing import TYPE_CHECKING

from listwright.ranking.manifest import Manifest
from listwright.ranking.served.encoding import Block, new_block
from listwright.ranking.served.record import Columns
from listwright.service.served_log.buffer import Buffer
from listwright.service.served_log.conversion import columns_of, to_served
from listwright.service.served_log.drops import Drops
from listwright.service.served_log.files import OpenFile
from listwright.service.served_log.folder import LogFolder
from listwright.service.served_log.taken import Taken
from listwright.service.settings import Settings
from listwright.service.telemetry.metrics import Telemetry

if TYPE_CHECKING:
    from listwright.service.served_log.stream import RedisStream

POLL_S = 0.005
"""Seconds between looks at the buffer. Requests that come while many records are written are answered later."""

BUSY_POLL_S = 0.02
"""The same while requests wait for their turn: longer rows of records cost less."""

IDLE_LOOKS, IDLE_S = 10, 0.2
"""After so many looks at an empty buffer, the thread sleeps until a record wakes it, or something else is due."""

MOST_AT_ONCE = 256
"""Records that are taken before anything else is looked at."""

BLOCK_BYTES = 2**19
"""Bytes at which a block is written, whatever its age: each write gives Python's lock away and takes it again."""

NICENESS = 10
"""Of the thread: it gives way to the one that answers."""

RETRY_S = 1.0
"""After a failed write nothing is tried for so long."""

TIDY_S = 30.0
"""Seconds between looks at the whole folder."""

CLOSE_WITHIN_S = 3.0
"""The end of the process waits no longer for the last records."""

_FULL = frozenset((errno.ENOSPC, errno.EDQUOT))

_log = logging.getLogger("listwright.served")


@dataclass(slots=True)
class _Pending:
    """Records of one schema that make up the next block."""

    columns: Columns
    block: Block
    since: float = field(default_factory=time.monotonic)


class LogWriter:
    """The served log of one worker. :meth:`note` belongs to the event loop's thread; all else is the writer's own.

    Args:
        settings: of the service.
        telemetry: where records, bytes and drops are counted.
        queued: how many requests wait for their turn.
    """

    def __init__(self, settings: Settings, telemetry: Telemetry, queued: Callable[[], int] = lambda: 0) -> None:
        self._settings = settings
        self._records, self._bytes = telemetry.served_records, telemetry.served_bytes
        self._drops = Drops(telemetry.served_dropped)
        self._salt = None if settings.unit_salt is None else settings.unit_salt.get_secret_value().encode()
        self._buffer = Buffer(settings.served_buffer_bytes)
        self._below = round(settings.served_share * 2**64)
        self._mode = 0o640 if settings.served_group_reads else 0o600
        self._folder = None if settings.served_log is None else _folder(settings)
        self._stream = _opened_stream(settings, telemetry, self._drops)
        self._pending: dict[str, _Pending] = {}
        self._spare: Block | None = None
        self._open: dict[str, OpenFile] = {}
        self._retry_at = self._tidy_at = 0.0
        self._failure = ("", "")
        self._unseen = self._empty_looks = 0
        self._queued = queued
        self._sleeps = False
        self._stop, self._wake = Event(), Event()
        self._thread = Thread(target=self._run, name="served-log", daemon=True)
        self._thread.start()

    def note(self, taken: Taken) -> None:
        """Log a request if its query is in the share, or drop it and count."""
        if self._below < 2**64 and not in_share(taken.query_id, self._below):
            return
        if self._stop.is_set():
            self._drops.note("closing", 1, "they were answered after the log had been closed")
            return
        if not self._buffer.put(taken):
            why = "their buffer is full: the disk or the stream is too slow, or LISTWRIGHT_SERVED_SHARE too large"
            self._drops.note("buffer_full", 1, why)
        elif self._sleeps:
            self._wake.set()

    def close(self) -> None:
        """Write what waits and finish the files; what is not done in time is dropped and counted."""
        self._stop.set()
        self._wake.set()
        until = time.monotonic() + CLOSE_WITHIN_S
        self._thread.join(CLOSE_WITHIN_S)
        if self._stream is not None:
            self._stream.close(max(0.0, until - time.monotonic()))
        if self._thread.is_alive():
            lost = len(self._buffer) + sum(pending.block.records for pending in list(self._pending.values()))
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
                self._stop.wait(RETRY_S)
            if len(self._buffer) == 0:
                if stopping:
                    return
                self._empty_looks = self._empty_looks + 1 if empty else 0
                self._rest()

    def _rest(self) -> None:
        """Until the next look."""
        if self._empty_looks < IDLE_LOOKS:
            self._stop.wait(BUSY_POLL_S if self._queued() else POLL_S)
            return
        self._wake.clear()
        self._sleeps = True  # before the look at the buffer: a record that comes behind it wakes
        if len(self._buffer) == 0 and not self._stop.is_set():
            flush_s = self._settings.served_flush_s
            due_s = [pending.since + flush_s - time.monotonic() for pending in self._pending.values()]
            self._wake.wait(max(0.0, min([IDLE_S, *due_s])))
        self._sleeps = False

    def _take(self) -> None:
        """Collect what waits into blocks; but not without end, as blocks and files have their time."""
        for _ in range(MOST_AT_ONCE):
            if (taken := self._buffer.take()) is None:
                return
            try:
                pending = self._pending_of(taken.manifest)
                pending.block.add(to_served(taken, self._salt))
            except Exception as error:  # whatever a caller sent, the next request is logged
                self._drops.note("encode_failed", 1, f"query {taken.query_id!r} cannot be encoded ({error!r})")
                continue
            if self._stream is not None:
                self._stream.put(pending.columns, pending.block.last())
            if self._folder is None:
                pending.block.clear()
            elif pending.block.size >= BLOCK_BYTES:
                self._write(taken.manifest.fingerprint)

    def _pending_of(self, manifest: Manifest) -> _Pending:
        """The next block of a bundle's records."""
        pending = self._pending.get(manifest.fingerprint)
        if pending is None:
            block, self._spare = self._spare or new_block(), None
            pending = self._pending[manifest.fingerprint] = _Pending(columns_of(manifest), block)
        return pending

    def _write_due(self, *, stopping: bool) -> None:
        now = time.monotonic()
        for key, pending in list(self._pending.items()):
            if self._folder is None or pending.block.records == 0:
                self._forget(key)
            elif stopping or now - pending.since >= self._settings.served_flush_s:
                self._write(key)

    def _write(self, key: str) -> None:
        """Write a block, or drop its records and try nothing for a while."""
        pending = self._pending[key]
        if time.monotonic() < self._retry_at:
            self._drops.note(self._failure[0], pending.block.records, self._failure[1])
            self._forget(key)
            return
        try:
            if key not in self._open:
                assert self._folder is not None
                self._open[key] = OpenFile(self._folder.path, pending.columns, self._mode)
            size = self._open[key].append(pending.block)
        except OSError as error:
            self._failed(key, pending.block.records, error)
        else:
            self._records.labels("file").inc(pending.block.records)
            self._bytes.labels("file").inc(size)
            self._unseen += size
        self._forget(key)
        if key in self._open and self._open[key].size >= self._settings.served_file_bytes:
            self._finish(key)

    def _forget(self, key: str) -> None:
        """Have the room of a block used for the next one."""
        self._spare = self._pending.pop(key).block
        self._spare.clear()

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
        if self._folder is None or (now < self._tidy_at and self._unseen < self._settings.served_file_bytes // 4):
            return
        self._tidy_at, self._unseen = now + TIDY_S, 0
        try:
            self._folder.tidy()
        except OSError as error:
            _log.warning("%s could not be looked after: %s", self._folder.path, error.strerror)


def _opened_stream(settings: Settings, telemetry: Telemetry, drops: Drops) -> RedisStream | None:
    if settings.served_stream is None:
        return None
    from listwright.service.served_log.stream import RedisStream  # noqa: PLC0415 - not each log has a stream

    return RedisStream(settings, telemetry, drops)


def _folder(settings: Settings) -> LogFolder:
    assert settings.served_log is not None
    growth = settings.workers * settings.served_file_bytes // 4  # before the next look, see _tidy_due
    return LogFolder(
        settings.served_log,
        most_bytes=max(settings.served_file_bytes, settings.served_max_bytes - growth),
        most_age_s=86_400.0 * settings.served_max_days,
        stale_s=2 * settings.served_file_s + TIDY_S,
    )


def in_share(query_id: str, below: int) -> bool:
    """Whether a query is logged: its hash, of 64 bits, is below a bound. The same for each try and each worker.

    Args:
        query_id: of the query.
        below: the share times 2**64.
    """
    digest = hashlib.blake2b(query_id.encode("utf-8", "surrogatepass"), digest_size=8, person=b"served").digest()
    return int.from_bytes(digest, "big") < below
