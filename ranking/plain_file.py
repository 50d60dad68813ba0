"""Reading a file that somebody else may have put there: a plain one, bounded, and never waiting for a writer."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence
from pathlib import Path


class NotPlainError(Exception):
    """The path leads to something that is not read. Says why, without its content."""


def read(path: Path, most: int, inside: Sequence[Path] = ()) -> bytes:
    """The content of a plain file.

    A FIFO, a socket or a device is never opened: it could hold whoever opens or reads it for ever.

    Args:
        path: where; links are followed.
        most: bytes; a larger file is refused before it is read.
        inside: folders; the file itself must lie below one of them, wherever links lead. Empty: it may lie anywhere.

    Raises:
        NotPlainError: if it is no plain file, is too large, or lies elsewhere.
        OSError: if it cannot be read.
    """
    try:
        found = path.resolve(strict=True)
    except RuntimeError as error:  # Python before 3.13, of a loop of links
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP)) from error
    if inside and not any(found.is_relative_to(folder.resolve()) for folder in inside):
        raise NotPlainError("is a link that leads out of its folder")
    _check(found.stat(), most)
    descriptor = os.open(found, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        _check(os.fstat(descriptor), most)  # it may have been replaced meanwhile
        return _read(descriptor, most)
    finally:
        os.close(descriptor)


def _check(found: os.stat_result, most: int) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(found.st_mode):
        raise NotPlainError("is not a plain file")
    if found.st_size > most:
        raise NotPlainError(f"has {found.st_size} bytes; the limit is {most}")


def _read(descriptor: int, most: int) -> bytes:
    """Up to the end; the size is only a guess, and in some file systems 0."""
    pieces, left = [], most + 1
    while left and (piece := os.read(descriptor, min(left, max(os.fstat(descriptor).st_size, 2**16)))):
        pieces.append(piece)
        left -= len(piece)
    if not left:
        raise NotPlainError(f"has more than {most} bytes")
    return b"".join(pieces)
