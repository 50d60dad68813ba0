"""Writing files and folders in one step: a reader finds the old content or all of the new."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


def atomic_write(path: Path, content: str | bytes, *, mode: int | None = None, sync: bool = False) -> None:
    """Write a file, or replace it, in one step.

    Args:
        path: Path of the file.
        content: Whole content of the file; a string is written as UTF-8.
        mode: Permissions of the file; None for those that the umask leaves.
        sync: Whether the content is on the disk before the file appears.
    """
    with atomic_file(path, mode=mode, sync=sync) as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextmanager
def atomic_file(path: Path, *, mode: int | None = None, sync: bool = False) -> Iterator[BinaryIO]:
    """Open a new file for writing, which replaces the one at a path when the block ends; after an error it is removed.

    Until then it has a hidden name in the same folder, which begins with ``.NAME.`` and ends in ``.new``. What
    :func:`is_written_in_place` is written at once, without ``mode`` and ``sync``.

    Args:
        path: Path of the file.
        mode: Permissions of the file; None for those that the umask leaves.
        sync: Whether the content is on the disk before the file appears.
    """
    new = path.with_name(f".{path.name}.{secrets.token_hex(4)}.new")
    try:
        if is_written_in_place(path):
            with path.open("ab") as file:
                yield file
            return
        with new.open("xb") as file:
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            yield file
            if sync:
                file.flush()
                os.fsync(file.fileno())
        new.replace(path)
    except BaseException as error:
        with suppress(OSError):
            new.unlink()
        if isinstance(error, OSError) and error.errno is not None and error.filename in (None, str(new)):
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise


def is_written_in_place(path: Path) -> bool:
    """Return whether no new file may replace what is at a path: a device, a FIFO, a socket, or an open descriptor."""
    place = path.parent.resolve()
    return str(place) in ("/dev", "/dev/fd") or place.is_relative_to("/proc") or (path.exists() and not path.is_file())


@contextmanager
def atomic_folder(path: Path, temporary: Path, *, mode: int = 0o777) -> Iterator[Path]:
    """Make a folder that gets its name when the block ends; after an error it is removed.

    Args:
        path: Path of the finished folder.
        temporary: Path of the folder until then, in the same file system; whatever a killed process left there goes.
        mode: Permissions of the folder, less those that the umask takes away.
    """
    remove(temporary)
    temporary.mkdir(mode=mode)
    try:
        yield temporary
        temporary.replace(path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def remove(path: Path) -> None:
    """Remove a folder with all that is in it, a file, or a link itself; nothing if nothing is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
