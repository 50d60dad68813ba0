"""Where data files lie: in a folder, or inside an archive that is read without unpacking it."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import BinaryIO, cast

from listwright.ranking.errors import DataError

_GZIP = b"\x1f\x8b"
_BYTE_ORDER_MARKS = (b"\xff\xfe", b"\xfe\xff")
_OTHERS = {
    b"\xfd7zXZ\0": "is compressed with xz: unpack it first, with xz -d",
    b"BZh": "is compressed with bzip2: unpack it first, with bunzip2",
    b"\x28\xb5\x2f\xfd": "is compressed with Zstandard: unpack it first, with zstd -d",
}
"""What a file begins with that is not read, and what to do about it."""

_UNREADABLE = (OSError, EOFError, zlib.error, tarfile.TarError, zipfile.BadZipFile, RuntimeError, NotImplementedError)
"""What zipfile and tarfile raise for damaged, encrypted and unknown archives."""


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
        return tuple(sorted(self._sizes))

    @cached_property
    def _sizes(self) -> dict[str, int]:
        """Bytes of every file as it lies in the folder or archive; one pass, for a tar has no table of contents."""
        try:
            if self.path.is_dir():
                files = (path for path in self.path.rglob("*") if path.is_file())
                return {path.relative_to(self.path).as_posix(): path.stat().st_size for path in files}
            if zipfile.is_zipfile(self.path):
                with zipfile.ZipFile(self.path) as archive:
                    return {entry.filename: entry.file_size for entry in archive.infolist() if not entry.is_dir()}
            with tarfile.open(self.path) as tape:
                return {member.name: member.size for member in tape if member.isfile()}
        except _UNREADABLE as error:
            raise DataError(self.path, f"cannot be read as a folder or archive: {error}") from error

    @contextmanager
    def open(self, name: str) -> Iterator[tuple[BinaryIO, int | None]]:
        """One file, decompressed if it is gzip, and how many bytes it will give (None if only the end will tell)."""
        if self.path.is_dir():
            with open_plain(self.path / name) as opened:
                yield opened
            return
        with ExitStack() as stack:
            try:
                raw = stack.enter_context(self._archived(name, stack))
                opened = _gunzipped(raw, self._sizes[name], stack, f"{self.path}:{name}")
            except _UNREADABLE as error:
                raise DataError(f"{self.path}:{name}", f"cannot be read: {error}") from error
            yield opened

    def _archived(self, name: str, stack: ExitStack) -> io.BufferedReader:
        if zipfile.is_zipfile(self.path):
            member = stack.enter_context(zipfile.ZipFile(self.path)).open(name)
            return io.BufferedReader(cast("io.RawIOBase", member))
        tape = stack.enter_context(tarfile.open(self.path))  # noqa: SIM115 - the stack closes it
        entry = next(entry for entry in tape if entry.name == name)  # getmember() would read on to the end first
        return io.BufferedReader(cast("io.RawIOBase", tape.extractfile(entry)))

    def digest(self, name: str) -> str:
        """sha256 of the file or of the archive around it: what :meth:`open` gives depends on it and the name alone."""
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
    except _UNREADABLE:
        return False


@contextmanager
def open_plain(path: Path) -> Iterator[tuple[BinaryIO, int | None]]:
    """A file, decompressed if it is gzip (told by its first bytes, not by its name), and its size if that is known.

    Raises:
        DataError: if it cannot be opened, is compressed otherwise, or is text as UTF-16 has it.
    """
    with ExitStack() as stack:
        try:
            file = stack.enter_context(path.open("rb"))
            opened = _gunzipped(file, path.stat().st_size, stack, path)
        except OSError as error:
            raise DataError(path, f"cannot be opened: {error.strerror or error}") from error
        yield opened


def file_digest(path: Path) -> str:
    """sha256 of a file as it lies on disk."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DataError(path, f"cannot be read: {error.strerror or error}") from error


def _gunzipped(
    stream: io.BufferedReader, size: int, stack: ExitStack, source: Path | str
) -> tuple[BinaryIO, int | None]:
    found: gzip.GzipFile | io.BufferedReader = stream
    if stream.peek(2)[:2] == _GZIP:
        found = stack.enter_context(gzip.GzipFile(fileobj=stream))
    try:
        head = found.peek(8)[:8]
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(source, f"cannot be read: {error}") from error
    for other, said in _OTHERS.items():
        if head.startswith(other):
            raise DataError(source, said)
    if head.startswith(_BYTE_ORDER_MARKS) or b"\0" in head[:4]:
        raise DataError(source, "is no UTF-8 text, but perhaps UTF-16: convert it with iconv -f UTF-16 -t UTF-8")
    return cast("BinaryIO", found), size if found is stream else None
