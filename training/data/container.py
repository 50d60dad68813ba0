"""Where data files lie: in a folder, or inside an archive that is read without unpacking it."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
import zipfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import BinaryIO, cast

from ranking.errors import DataError

_GZIP = b"\x1f\x8b"


@dataclass(frozen=True)
class Container:
    """A folder, a ``.zip`` or a ``.tar[.gz|.bz2|.xz]`` with data files in it.

    Args:
        path: the folder or the archive.

    Raises:
        DataError: if there is nothing at the path, or the archive is damaged.
    """

    path: Path

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of all files, sorted, with ``/`` between folders."""
        try:
            if self.path.is_dir():
                return tuple(sorted(p.relative_to(self.path).as_posix() for p in self.path.rglob("*") if p.is_file()))
            if zipfile.is_zipfile(self.path):
                with zipfile.ZipFile(self.path) as archive:
                    return tuple(sorted(name for name in archive.namelist() if not name.endswith("/")))
            with tarfile.open(self.path) as archive:
                return tuple(sorted(member.name for member in archive if member.isfile()))
        except (OSError, tarfile.TarError, zipfile.BadZipFile, EOFError) as error:
            raise DataError(self.path, f"cannot be read as a folder or archive: {error}") from error

    def open(self, name: str) -> BinaryIO:
        """One file, decompressed if it is gzip."""
        if self.path.is_dir():
            return open_plain(self.path / name)
        if zipfile.is_zipfile(self.path):
            archive = zipfile.ZipFile(self.path)
            return _gunzipped(io.BufferedReader(cast("io.RawIOBase", archive.open(name))))
        member = tarfile.open(self.path).extractfile(name)  # noqa: SIM115 - closed with the stream that it gives
        if member is None:
            raise DataError(self.path, f"{name} is no plain file")
        return _gunzipped(io.BufferedReader(cast("io.RawIOBase", member)))

    def digest(self, name: str) -> str:
        """sha256 of what :meth:`open` gives depends on this alone."""
        if self.path.is_dir():
            return file_digest(self.path / name)
        return f"{self._archive_digest}/{name}"

    @cached_property
    def _archive_digest(self) -> str:
        return file_digest(self.path)


def is_archive(path: Path) -> bool:
    """Whether a file is a zip or tar archive, whatever its name."""
    return path.is_file() and (zipfile.is_zipfile(path) or _is_tar(path))


def _is_tar(path: Path) -> bool:
    try:
        return tarfile.is_tarfile(path)
    except (OSError, EOFError, tarfile.TarError):
        return False


def open_plain(path: Path) -> BinaryIO:
    """A file, decompressed if it is gzip (told by its first bytes, not by its name).

    Raises:
        DataError: if it cannot be opened.
    """
    try:
        return _gunzipped(path.open("rb"))
    except OSError as error:
        raise DataError(path, f"cannot be opened: {error.strerror or error}") from error


def file_digest(path: Path) -> str:
    """sha256 of a file as it lies on disk."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DataError(path, f"cannot be read: {error.strerror or error}") from error


def _gunzipped(stream: io.BufferedReader) -> BinaryIO:
    if stream.peek(2)[:2] == _GZIP:
        return cast("BinaryIO", gzip.GzipFile(fileobj=stream))
    return stream
