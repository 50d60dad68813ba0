"""The sources that ``--data`` names: which file is which split, and files in folders and archives."""

from __future__ import annotations

import codecs
import gzip
import hashlib
import io
import re
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import BinaryIO, cast

from listwright.ranking.errors import DataError, RecipeError

SPLITS = ("train", "valid", "test")
"""Names of the splits on the command line and in files' names, in this order."""

_INDEX = re.compile(r"|Unnamed: \d+(?:\.\d+)*|__index_level_\d+__")

SPLIT_SOURCES = "train=FILE valid=FILE test=FILE"

_GZIP = b"\x1f\x8b"

_UTF16 = re.compile(rb"\xff\xfe|\xfe\xff|.\0.\0|\0.\0.", re.DOTALL)

_CONVERT = "Parquet, CSV with commas and LETOR text are read; convert it, for example with "

_EXCEL = f"is a spreadsheet: {_CONVERT}polars.read_excel(FILE).write_parquet(OTHER) (pip install fastexcel)"

_OTHERS = {
    rb"\xfd7zXZ\0": "is compressed with xz: unpack it first, with xz -d",
    rb"BZh": "is compressed with bzip2: unpack it first, with bunzip2",
    rb"\x28\xb5\x2f\xfd": "is compressed with Zstandard: unpack it first, with zstd -d",
    rb"\xd0\xcf\x11\xe0": _EXCEL,
    rb"ARROW1|FEA1": f"is Arrow or Feather: {_CONVERT}polars.read_ipc(FILE).write_parquet(OTHER)",
    rb"ORC[^\w ,;]": f"is ORC: {_CONVERT}pandas.read_orc(FILE).to_parquet(OTHER)",
    rb"PAR1": "is Parquet, which is read as a table: name recipe table, or none",
}
"""First bytes of files that are not supported, as expressions, with the remedy."""

_OTHER_TEXTS = {
    rb"\s*\[\s*(?:[{\[]|$)": f"is JSON: {_CONVERT}polars.read_json(FILE).write_parquet(OTHER)",
    rb'\s*\{\s*(?:"|$)': f"is JSON: {_CONVERT}polars.read_ndjson(FILE).write_parquet(OTHER)",
}
"""First lines of texts that are not supported, as expressions, with the remedy."""

_SEPARATED = re.compile(rb"[^#,:][^,:]*?([\t;|])[^,:]*$")  # a line of LETOR text has a colon

UNREADABLE = (OSError, EOFError, zlib.error, tarfile.TarError, zipfile.BadZipFile, RuntimeError)
"""Exceptions of zipfile and tarfile for damaged, encrypted and unknown archives."""


def files_by_split(sources: Sequence[str]) -> dict[str, str] | None:
    """Return the file of each split in the order of :data:`SPLITS`, or None where the sources do not name splits.

    Raises:
        RecipeError: if some sources name a split and others do not, or a split is missing or named twice.
    """
    files = [(split, file) for split, same, file in (source.partition("=") for source in sources) if same]
    files = [(split, file) for split, file in files if split in SPLITS]
    if not files:
        return None
    missing = [split for split in SPLITS if split not in dict(files)]
    if missing or len(files) != len(SPLITS):
        wrong = f"no {missing[0]}=FILE" if missing else "a split twice"
        raise RecipeError(f"--data names {wrong}: give {SPLIT_SOURCES}, each once")
    if len(files) != len(sources):
        other = next(source for source in sources if source.partition("=")[0] not in SPLITS)
        raise RecipeError(f"--data does not say which split {other} is: give {SPLIT_SOURCES}, each once")
    return {split: dict(files)[split] for split in SPLITS}


def check_exists(source: str) -> None:
    """Raise DataError unless the path exists."""
    if not Path(source).exists():
        split, same, _ = source.partition("=")
        hint = f"; {split!r} is no split: train=, valid= and test= are" if same else ""
        raise DataError(source, f"does not exist{hint}")


def path_of(source: str) -> Path:
    """Return the path of a source, without the name of a split before it."""
    split, _, file = source.partition("=")
    return Path(file if split in SPLITS and file else source)


def is_index(name: str) -> bool:
    """Return whether a column has no name of its own, as the index that pandas writes before the others."""
    return _INDEX.fullmatch(name) is not None


@dataclass(frozen=True)
class Container:
    """A folder, a ``.zip`` or a ``.tar[.gz|.bz2|.xz]`` with data files in it.

    Args:
        path: The folder or the archive.

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
        except UNREADABLE as error:
            raise DataError(self.path, f"cannot be read as a folder or archive: {error}") from error

    @contextmanager
    def open(self, name: str) -> Iterator[tuple[BinaryIO, int | None]]:
        """Open one file, decompressed if it is gzip; yield it with its size (None if only the end will tell)."""
        if self.path.is_dir():
            with open_plain(self.path / name) as opened:
                yield opened
            return
        with ExitStack() as stack:
            try:
                raw = stack.enter_context(self._archived(name, stack))
                opened = _gunzipped(raw, self._sizes[name], stack, f"{self.path}:{name}")
            except UNREADABLE as error:
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
        """Return the sha256 of the file, or of its archive with the name: :meth:`open` depends on these alone."""
        if self.path.is_dir():
            return file_digest(self.path / name)
        return f"{self._archive_digest}/{name}"

    @cached_property
    def _archive_digest(self) -> str:
        return file_digest(self.path)


def is_archive(path: Path) -> bool:
    """Return whether a file is a zip or tar archive, whatever its name; raise DataError for a spreadsheet."""
    if not path.is_file() or not zipfile.is_zipfile(path):
        return path.is_file() and _is_tar(path)
    if {"xl/workbook.xml", "xl/workbook.bin", "content.xml"} & set(Container(path).names):
        raise DataError(path, _EXCEL)
    return True


def check_kind(path: Path) -> None:
    """Raise DataError for a file that is neither Parquet, CSV, LETOR text nor an archive, as its first line tells."""
    if not path.is_file() or is_archive(path):
        return
    with open_plain(path) as (stream, _):
        line = next(stream, b"").removeprefix(codecs.BOM_UTF8)
    for other, remedy in _OTHER_TEXTS.items():
        if re.match(other, line):
            raise DataError(path, remedy)
    if separated := _SEPARATED.match(line):
        comma = ", decimal_comma=True" if separated[1] == b";" else ""
        call = f"polars.read_csv(FILE, separator={separated[1].decode()!r}{comma}).write_parquet(OTHER)"
        raise DataError(path, f"is separated by {separated[1].decode()!r}: {_CONVERT}{call}")


def _is_tar(path: Path) -> bool:
    try:
        return tarfile.is_tarfile(path)
    except UNREADABLE:
        return False


@contextmanager
def open_plain(path: Path) -> Iterator[tuple[BinaryIO, int | None]]:
    """Open a file, decompressed if its first bytes are gzip's; yield it with its size if that is known.

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
    """Return the sha256 of a file's bytes on disk."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DataError(path, f"cannot be read: {error.strerror or error}") from error


def _gunzipped(
    stream: io.BufferedReader, size: int, stack: ExitStack, source: Path | str
) -> tuple[BinaryIO, int | None]:
    plain: gzip.GzipFile | io.BufferedReader = stream
    if stream.peek(2)[:2] == _GZIP:
        plain = stack.enter_context(gzip.GzipFile(fileobj=stream))
    try:
        head = plain.peek(64)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(source, f"cannot be read: {error}") from error
    for other, remedy in _OTHERS.items():
        if re.match(other, head):
            raise DataError(source, remedy)
    if _UTF16.match(head):
        raise DataError(source, "is no UTF-8 text, but perhaps UTF-16: convert it with iconv -f UTF-16 -t UTF-8")
    return cast("BinaryIO", plain), size if plain is stream else None
