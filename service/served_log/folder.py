"""The folder of the served log: file names, open files, recovery after a killed worker, limits of size and age."""

from __future__ import annotations

import fcntl
import logging
import os
import re
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from prometheus_client import Counter

from listwright.ranking.errors import DataError
from listwright.ranking.plain_file import is_plain
from listwright.ranking.served_log.encoding import SYNC_BYTES, Block, frame_block, header
from listwright.ranking.served_log.files import DAMAGED_SUFFIX, OPEN_SUFFIX, SUFFIX, frame_of
from listwright.ranking.served_log.record import Columns
from listwright.service.disk import locked

_NAME = re.compile(r"served-(\d{8}T\d{6}\.\d{6})Z-(.+)-(\d+)(\.avro|\.avro\.part|\.avro\.damaged)")
_HIDDEN = re.compile(r"\.served-.+(\.new|\.without|\.without\.part)")
"""Hidden names: of a file that begins, and of one that ``listwright served forget`` rewrites."""

_TIME = "%Y%m%dT%H%M%S.%f"

_log = logging.getLogger("listwright.served")


def new_stem() -> str:
    """Return the name of a new file without its suffix: time, machine, process."""
    host = re.sub(r"[^\w.]", "_", socket.gethostname())
    return f"served-{datetime.now(UTC).strftime(_TIME)}Z-{host}-{os.getpid()}"


class LogFolder:
    """Folder of the served log. Workers of several machines may share it; each tidies all of it.

    Args:
        path: Path of the folder.
        most_bytes: Largest size of all files together and of what is written next, in bytes.
        most_age_s: Largest age of a file, from its beginning, in seconds.
        stale_s: Seconds without a write after which a file of another machine counts as abandoned.
        removed: Counter of the files that are removed, by reason: ``age`` or ``bytes``.
    """

    def __init__(self, path: Path, *, most_bytes: int, most_age_s: float, stale_s: float, removed: Counter) -> None:
        self.path, self._removed = path, removed
        self._most_bytes, self._most_age_s, self._stale_s = most_bytes, most_age_s, stale_s

    def tidy(self, room: int = 0) -> int:
        """Recover files of killed workers, then remove the oldest files beyond the limits.

        Args:
            room: Bytes that may be written before the next look, if finished files can make room for them.

        Returns:
            Bytes of all remaining files.

        Raises:
            OSError: if the folder cannot be read.
        """
        for path in self._ours():
            if path.name.endswith(OPEN_SUFFIX) and self._is_left(path):
                _recover(path)
        for path in filter(is_plain, self.path.glob(".served-*")):
            with suppress(FileNotFoundError):  # of files that were never finished, and are old
                if _HIDDEN.fullmatch(path.name) and time.time() - path.stat().st_mtime > self._stale_s:
                    path.unlink()
        return self._remove_old(room)

    def _ours(self) -> list[Path]:
        """Return files of a served log, the oldest first."""
        return sorted(path for path in self.path.iterdir() if _NAME.fullmatch(path.name) and is_plain(path))

    def _is_left(self, path: Path) -> bool:
        """Return whether a file seems abandoned, by its name and age; the file lock decides, where there are locks."""
        name = _NAME.fullmatch(path.name)
        host = _NAME.fullmatch(new_stem() + SUFFIX)
        assert name is not None
        assert host is not None
        if name[2] == host[2]:
            return True
        try:
            return time.time() - path.stat().st_mtime > self._stale_s
        except FileNotFoundError:
            return False

    def _remove_old(self, room: int) -> int:
        sizes: dict[Path, int] = {}
        for path in self._ours():
            with suppress(FileNotFoundError):
                sizes[path] = path.stat().st_size
        total, oldest = sum(sizes.values()), datetime.now(UTC).timestamp() - self._most_age_s
        removed_sizes: dict[str, list[int]] = {"age": [], "bytes": []}
        for path, size in sizes.items():
            if path.name.endswith(OPEN_SUFFIX):
                continue  # it is being written
            old = _began(path) < oldest
            if old or total + room > self._most_bytes:
                with suppress(FileNotFoundError):
                    path.unlink()
                    removed_sizes["age" if old else "bytes"].append(size)
                total -= size
        for reason, sizes_of_reason in removed_sizes.items():
            if sizes_of_reason:
                self._removed.labels(reason).inc(len(sizes_of_reason))
                facts = {"files": len(sizes_of_reason), "bytes": sum(sizes_of_reason)}
                _log.info("removed files of the served log: %s", self._why(reason), extra={"facts": facts})
        return total

    def _why(self, reason: str) -> str:
        if reason == "bytes":
            return f"the folder has more than {self._most_bytes} bytes (LISTWRIGHT_SERVED_MAX_BYTES)"
        now = datetime.now(UTC).isoformat(timespec="seconds")
        days = self._most_age_s / 86_400.0
        return f"they began {days:g} days (LISTWRIGHT_SERVED_MAX_DAYS) before {now}, which this machine's clock says"


def _began(path: Path) -> float:
    name = _NAME.fullmatch(path.name)
    assert name is not None
    return datetime.strptime(name[1], _TIME).replace(tzinfo=UTC).timestamp()


def _recover(path: Path) -> None:
    """Finish an abandoned file: truncate it after its last whole block, or remove it if it has none."""
    stem = path.name.removesuffix(OPEN_SUFFIX)
    with locked(path) as descriptor:
        if descriptor is None:
            return
        try:
            with os.fdopen(os.dup(descriptor), "rb") as file:
                frame = frame_of(file, str(path))
        except DataError as error:
            _log.warning("%s: kept as %s", error, stem + DAMAGED_SUFFIX)
            path.rename(path.with_name(stem + DAMAGED_SUFFIX))
            return
        if frame.records == 0:
            path.unlink()
            return
        os.ftruncate(descriptor, frame.until)
        os.fsync(descriptor)
        path.rename(path.with_name(stem + SUFFIX))
        facts = {"records": frame.records, "lost_bytes": frame.size - frame.until}
        _log.info("recovered %s, which a worker left open", stem + SUFFIX, extra={"facts": facts})


class OpenFile:
    """A file that grows by blocks. It has the suffix ``.avro.part`` until it is finished.

    It is made under a hidden name, locked, and then renamed: so no open file is taken for an abandoned one.

    Args:
        folder: Folder of the file.
        columns: Columns of the file's records.
        mode: Permissions of the file.

    Raises:
        OSError: if it cannot be made.
    """

    def __init__(self, folder: Path, columns: Columns, mode: int) -> None:
        stem = new_stem()
        self.path, self.began, self.records = folder / (stem + OPEN_SUFFIX), time.monotonic(), 0
        self._sync = os.urandom(SYNC_BYTES)
        hidden = folder / f".{stem}.new"
        self._file = os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        try:
            os.fchmod(self._file, mode)
            with suppress(OSError):  # some shared disks have no locks: see LogFolder
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.size = _write_all(self._file, [header(columns, self._sync)])
            hidden.rename(self.path)
        except OSError:
            os.close(self._file)
            hidden.unlink(missing_ok=True)
            raise

    def append(self, block: Block) -> int:
        """Write a whole block, or nothing; return its bytes.

        Raises:
            OSError: if it cannot be written; the file then ends where it did.
        """
        parts = frame_block(block.records, block.encoded(), self._sync)
        try:
            size = _write_all(self._file, parts)
        except OSError:
            os.ftruncate(self._file, self.size)
            os.lseek(self._file, self.size, os.SEEK_SET)
            raise
        self.size += size
        self.records += block.records
        return size

    def finish(self) -> None:
        """Sync and rename the file; one without records is removed.

        Raises:
            OSError: if that fails; the file may be recovered later.
        """
        try:
            if self.records == 0:
                self.path.unlink(missing_ok=True)
                return
            os.fsync(self._file)
            self.path.rename(self.path.with_name(self.path.name.removesuffix(OPEN_SUFFIX) + SUFFIX))
        finally:
            os.close(self._file)


def _write_all(descriptor: int, parts: Sequence[bytes]) -> int:
    """Write a few buffers one after the other, without joining them; return the bytes."""
    total = 0
    rest: list[bytes | memoryview] = list(parts)
    while rest:
        count = os.writev(descriptor, rest)
        total += count
        while rest and count >= len(rest[0]):
            count -= len(rest.pop(0))
        if count:
            rest[0] = memoryview(rest[0])[count:]
    return total
