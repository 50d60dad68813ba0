"""The files of the served log that one worker has open."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from listwright.ranking.served.encoding import SYNC_BYTES, Block, framed, header
from listwright.ranking.served.files import OPEN_SUFFIX, SUFFIX
from listwright.ranking.served.record import Columns
from listwright.service.served_log.folder import new_stem


class OpenFile:
    """A file that grows by blocks. It has the suffix ``.avro.part`` until it is finished.

    It is made under a hidden name, locked, and then renamed: nobody takes an open file for one that was left behind.

    Args:
        folder: where it stands.
        columns: of its records.
        mode: permissions.

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
        """Write a block: the whole of it, or nothing. Its bytes.

        Raises:
            OSError: if it cannot be written; the file then ends where it did.
        """
        parts = framed(block.records, block.encoded(), self._sync)
        try:
            written = _write_all(self._file, parts)
        except OSError:
            os.ftruncate(self._file, self.size)
            os.lseek(self._file, self.size, os.SEEK_SET)
            raise
        self.size += written
        self.records += block.records
        return written

    def finish(self) -> None:
        """Bring the file to the disk and give it its name; one without records is removed.

        Raises:
            OSError: if that fails; whoever finds the file later may recover it.
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
    """Write a few buffers one after the other, without joining them; bytes."""
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
