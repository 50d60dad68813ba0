"""The files of the log of events: appended to by one writer, rolled by size and age, bounded in all.

A file is named for the time it was begun, the host, the process and a number, so that names sort by time and several
workers share a folder. It ends in ``.jsonl.part`` while it is written, and its writer holds a lock on it. It is synced
and renamed to ``.jsonl`` when it is finished. A file whose writer was killed has no lock any more: the first to see it
renames it. Not every shared disk has locks: a file of another host must also have been left alone for long.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from listwright.ranking.plain_file import is_plain

FINISHED, PART = ".jsonl", ".jsonl.part"
MODE, GROUP_MODE = 0o600, 0o640
"""Of a file that its owner reads, and of one that the group reads, too: events are of persons."""

ROLL_BYTES, ROLL_S = 64 * 2**20, 600.0
"""A file is finished when it has so many bytes, or was begun so long ago."""

STALE_S = 2 * ROLL_S
"""After its last event; a writer would have finished the file by then."""

_NAME = re.compile(rf"events-\d{{8}}T\d+-(.+)-\d+-\d{{6}}{re.escape(PART)}")


class EventFiles:
    """The files of one writer. For one thread.

    Args:
        folder: made where it is not there.
        most_bytes: of all files in it, never exceeded: the oldest finished ones are removed before a write.
        writers: that write into it at the same time.
        most_s: seconds after its last event that a finished file is kept; None: no such limit.
        mode: of the files.
        removed: told how many files were removed.
        clock: seconds since 1970.
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
        """Look at the folder, and let this writer write at least ``size`` bytes before it looks again."""
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
            self._path.rename(_finished(self._path))
        finally:
            os.close(descriptor)
        self.tidy()

    def tidy(self, room: int | None = None) -> int:
        """Rename what killed writers left, and remove the oldest finished files beyond the bounds.

        Args:
            room: bytes that this writer has room for afterwards, if finished files can make it; None: those of a file.

        Returns:
            Bytes of all files that are left.
        """
        most_bytes = self._most_bytes - self._others_bytes - (self._roll_bytes if room is None else room)
        for part in self._folder.glob(f"events-*{PART}"):
            if is_plain(part) and self._is_left(part):
                _adopt(part)
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
        """Whether nobody can be writing it, as far as its name and its age tell; the lock has the last word."""
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
        """Remove what a failed write left behind the last whole line; without success, begin another file."""
        assert self._descriptor is not None
        try:
            os.ftruncate(self._descriptor, self._size)
        except OSError:
            descriptor, self._descriptor = self._descriptor, None
            os.close(descriptor)  # it has no lock any more: the next tidying finishes it


def _host() -> str:
    return re.sub(r"[^A-Za-z0-9-]", "-", socket.gethostname())[:64] or "host"


def _finished(part: Path) -> Path:
    return part.with_suffix("")


def _adopt(part: Path) -> None:
    """Finish a file whose writer is gone."""
    try:
        descriptor = os.open(part, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # somebody writes it; or this disk has no locks, and nobody can say
        os.close(descriptor)
        return
    try:
        part.rename(_finished(part))
    except FileNotFoundError:  # another worker was quicker
        return
    finally:
        os.close(descriptor)
