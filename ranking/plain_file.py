"""Reading untrusted files: plain files, without waiting for a writer, and small JSON and TOML."""

from __future__ import annotations

import codecs
import errno
import json
import os
import re
import stat
import tomllib
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, BinaryIO

from listwright.ranking.errors import DataError

Report = Callable[[str], object]
"""Shows a line of text to whoever gave a command."""


class NotPlainError(Exception):
    """The path leads to something that is not read; the message says why, without its content."""


def read(path: Path, most: int, inside: Sequence[Path] = ()) -> bytes:
    """Read the content of a plain file.

    A FIFO, a socket or a device is never opened: it could hold whoever opens or reads it for ever.

    Args:
        path: Path of the file; links are followed.
        most: Most bytes; a larger file is refused before it is read.
        inside: Folders; the file itself must lie below one of them, wherever links lead. Empty: it may lie anywhere.

    Raises:
        NotPlainError: if it is no plain file, is too large, or lies elsewhere.
        OSError: if it cannot be read.
    """
    try:
        target = path.resolve(strict=True)
    except RuntimeError as error:  # Python before 3.13, of a loop of links
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP)) from error
    if inside and not any(target.is_relative_to(folder.resolve()) for folder in inside):
        raise NotPlainError("is a link that leads out of its folder")
    _check(target.stat(), most)
    descriptor = os.open(target, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        _check(os.fstat(descriptor), most)  # it may have been replaced meanwhile
        return _read(descriptor, most)
    finally:
        os.close(descriptor)


def open_file(path: Path) -> BinaryIO:
    """Open a plain file of any size for reading.

    Raises:
        DataError: if it is no plain file, or cannot be read; of a file that is not there it has the cause.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            _check(os.fstat(descriptor))
            return os.fdopen(descriptor, "rb")
        except BaseException:
            os.close(descriptor)
            raise
    except NotPlainError as error:
        raise DataError(path, f"{error}: move it elsewhere") from error
    except OSError as error:
        raise DataError(path, f"cannot be read: {error.strerror or error}") from error


def files_below(path: Path, patterns: Sequence[str], report: Report | None = None) -> list[Path]:
    """Return a file, or the files of a folder and of the folders in it, by path.

    Names that begin with ``.`` or ``_`` are left out, and links to folders are not followed.

    Args:
        path: Path of a file, or of a folder.
        patterns: Patterns of file names, in lower case, as a shell has them.
        report: Function that gets one line that names what is left out of a folder, if anything is.
    """
    if not path.is_dir():
        return [path]
    files, others = list[Path](), list[Path]()
    for entry in sorted(_entries(path)):
        matches = entry.name[0] not in "._" and any(fnmatchcase(entry.name.lower(), pattern) for pattern in patterns)
        (files if matches else others).append(entry)
    if others and report is not None:
        names = ", ".join(str(entry.relative_to(path)) for entry in others[:10]) + (" …" if len(others) > 10 else "")
        report(f"{path}: {len(others)} left out, of another name than {', '.join(patterns)}: {names}")
    return files


def _entries(folder: Path) -> Iterator[Path]:
    for entry in folder.iterdir():
        is_read = entry.is_dir() and not entry.is_symlink() and entry.name[0] not in "._"
        yield from _entries(entry) if is_read else (entry,)


def is_plain(path: Path) -> bool:
    """Return whether a path is a plain file itself, and no link."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False


def to_text(content: bytes) -> str:
    """Decode a text file: UTF-8, which may begin with a byte order mark.

    Raises:
        ValueError: if it is in another encoding, or holds a NUL, as UTF-16 does and libraries in C take for the end.
    """
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or b"\0" in content:
        raise ValueError("it is UTF-16, or no text: save it as UTF-8")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"it is no UTF-8 (byte {error.start}): save it as UTF-8") from None


def check_values(text: str | bytes, most: int) -> None:
    """Raise ValueError if a JSON text has more than so many commas and opening brackets, before it is parsed."""
    count = sum(map(text.count, ",[{")) if isinstance(text, str) else sum(map(text.count, b",[{"))
    if count > most:
        raise ValueError(f"it has more than {most:,} values")


def from_json(text: str | bytes, most_values: int | None = None) -> Any:
    """Parse a JSON text.

    Args:
        text: The JSON text; UTF-8 if it is bytes.
        most_values: Most commas and opening brackets; every value but one has its own. None: any number.

    Raises:
        ValueError: if it is none, has more values, or goes beyond what Python reads: nested too deeply, numbers of
            thousands of digits.
    """
    if most_values is not None:
        check_values(text, most_values)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _unread(error) from error


MOST_JSON_BYTES, MOST_JSON_VALUES = 64 * 2**20, 1_000_000
"""Bytes and values of a JSON file that is read whole: a report, the state of a run, a golden list."""

MOST_KEY_PARTS = 16
"""Parts of a dotted key of TOML: Python needs time that grows with their square."""

_LONG_KEY = re.compile(
    rf"""(?:(?:(?<![\w-])[\w-]++|(?<!\\)"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){{{MOST_KEY_PARTS}}}"""
)


def from_toml(content: bytes) -> dict[str, Any]:
    """Parse a TOML text.

    Raises:
        ValueError: as :func:`to_text` and :func:`from_json`, or if a key has more than :data:`MOST_KEY_PARTS` parts.
    """
    text = to_text(content)
    if (key := _LONG_KEY.search(text)) is not None:
        line = text.count("\n", 0, key.start()) + 1
        raise ValueError(f"line {line} has a dotted key of more than {MOST_KEY_PARTS} parts")
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise _unread(error) from error


def read_object(path: Path) -> dict[str, Any]:
    """Read the object of a JSON file that an earlier run has left.

    Raises:
        DataError: if it cannot be read, or holds something else.
    """
    try:
        value = from_json(read(path, MOST_JSON_BYTES), MOST_JSON_VALUES)
    except OSError as error:
        raise DataError(path, f"cannot be read: {error.strerror or error}") from error
    except (ValueError, NotPlainError) as error:
        raise DataError(path, f"is no JSON: {error}: it was damaged; delete it, or the folder of that run") from error
    if not isinstance(value, dict):
        raise DataError(path, "holds no JSON object: it was damaged; delete it, or the folder of that run")
    return value


def _unread(error: ValueError | RecursionError) -> ValueError:
    if isinstance(error, RecursionError):
        return ValueError("it is nested too deeply")
    if type(error) is ValueError:  # of both parsers only their own classes say more
        return ValueError("a number has too many digits")
    return error


def _check(status: os.stat_result, most: int | None = None) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(status.st_mode):
        raise NotPlainError("is not a plain file")
    if most is not None and status.st_size > most:
        raise NotPlainError(f"has {status.st_size} bytes; the limit is {most}")


def _read(descriptor: int, most: int) -> bytes:
    """Read up to the end; the size is only a guess, and in some file systems 0."""
    pieces, left = [], most + 1
    while left and (piece := os.read(descriptor, min(left, max(os.fstat(descriptor).st_size, 2**16)))):
        pieces.append(piece)
        left -= len(piece)
    if not left:
        raise NotPlainError(f"has more than {most} bytes")
    return b"".join(pieces)
