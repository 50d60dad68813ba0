"""Files of the served log: their records, and a writer of whole files."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, cast

import fastavro
from fastavro.read import SchemaResolutionError

from listwright.ranking import plain_file
from listwright.ranking.errors import DataError
from listwright.ranking.served.encoding import PARSED, Block, framed, header
from listwright.ranking.served.framing import SYNC_BYTES, Frame, frame_of
from listwright.ranking.served.record import Columns, ServedRecord, columns_of, parsed_columns, to_record
from listwright.ranking.served.schema import CATEGORIES_KEY, FEATURES_KEY, SCHEMA_VERSION, VERSION_KEY

SUFFIX, OPEN_SUFFIX = ".avro", ".avro.part"
"""Of a finished file, and of one that is still written or whose writer was killed."""

DAMAGED_SUFFIX = ".avro.damaged"
"""Of a file that a killed worker left and whose blocks cannot be found."""

BLOCK_RECORDS = 100


class GoneError(DataError):
    """The file has gone: the service removes the oldest ones."""


class _Until(io.RawIOBase):
    """The first bytes of a file."""

    def __init__(self, file: BinaryIO, end: int) -> None:
        super().__init__()
        self._file, self._end = file, end

    def read(self, size: int | None = -1) -> bytes:
        left = self._end - self._file.tell()
        return self._file.read(left if size is None or size < 0 else min(size, left))


def log_files(folder: Path, *, unfinished: bool = True) -> list[Path]:
    """The files of a served log's folder, the oldest first by name.

    Args:
        folder: of the log.
        unfinished: whether files count that are still written, or whose writer was killed.

    Raises:
        DataError: if there is no such folder.
    """
    if not folder.is_dir():
        raise DataError(folder, "is no folder: name the folder of LISTWRIGHT_SERVED_LOG")
    suffixes = (SUFFIX, OPEN_SUFFIX) if unfinished else (SUFFIX,)
    return sorted(path for path in folder.iterdir() if path.name.endswith(suffixes))


def damaged_files(folder: Path) -> list[Path]:
    """Files that the service could not recover after its end; no command reads them."""
    return sorted(path for path in folder.iterdir() if path.name.endswith(DAMAGED_SUFFIX))


def records(paths: Iterable[Path]) -> Iterator[ServedRecord]:
    """The records of files, in the order of the files and as they stand in them.

    Of a file that was cut off, or is still written, all records up to its last whole block.

    Args:
        paths: of files; :func:`log_files` lists a folder's.

    Raises:
        DataError: if a file cannot be read, is none of a served log, is damaged before its end, or is of a newer
            version. Records of the files before have been given by then.
    """
    for path in paths:
        yield from read(path)


def names_of(listed: Path) -> tuple[Path, ...]:
    """Where a file of records or events may be that was listed a while ago: the service finishes it at any moment, and
    then its name has no ``.part`` any more.
    """
    if not listed.name.endswith(".part"):
        return (listed,)
    return listed, listed.with_name(listed.name.removesuffix(".part"))


def read(path: Path) -> Iterator[ServedRecord]:
    """The records of one file; see :func:`records`."""
    with _opened(path) as file:
        frame = frame_of(file, str(path))
        if not frame.until:
            return
        columns = _columns(frame, path)
        file.seek(0)
        for fields in _decoded(file, frame.until, path):
            yield to_record(fields, columns, str(path))


def _decoded(file: BinaryIO, until: int, path: Path) -> Iterator[dict[str, Any]]:
    try:
        found = fastavro.reader(cast(BinaryIO, _Until(file, until)), PARSED)
        while isinstance(fields := next(found, None), dict):
            yield fields
    except (EOFError, ValueError, LookupError, TypeError, SchemaResolutionError) as error:
        raise DataError(path, f"is damaged: a record cannot be decoded ({error})") from error


def frame(path: Path) -> Frame:
    """What of a file is whole.

    Raises:
        DataError: if it cannot be read, is none of a served log, or is damaged before its end.
    """
    with _opened(path) as file:
        return frame_of(file, str(path))


def feature_columns(path: Path) -> Columns | None:
    """The columns of a file's records; None where its header is cut off.

    Raises:
        DataError: as :func:`frame`, and if the file is of a newer version.
    """
    found = frame(path)
    return _columns(found, path) if found.until else None


def write(path: Path, written: Iterable[ServedRecord], *, block_records: int = BLOCK_RECORDS, mode: int = 0o600) -> int:
    """Write a whole file: for records that are made, not served. It appears once it is complete and on the disk.

    Args:
        path: of the file; replaced if it is there.
        written: at least one record; all of the same columns.
        block_records: records of a block.
        mode: permissions of the file.

    Returns:
        The number of records.

    Raises:
        DataError: if there is no record, or one has other columns than the first.
    """
    rest, count = iter(written), 0
    columns, sync, block = None, os.urandom(SYNC_BYTES), Block()
    part = path.with_name(path.name + ".part")  # of no log: the service recovers only names of its own
    part.unlink(missing_ok=True)  # of a run that was stopped
    with part.open("xb") as file:
        os.fchmod(file.fileno(), mode)
        while several := list(islice(rest, block_records)):
            if columns is None:
                columns = columns_of(several[0])
                file.write(header(columns, sync))
            for record in several:
                if record.feature_names != columns.names:
                    raise DataError(path, f"query {record.query_id!r} has other columns than the first record")
                block.add(record)
            file.writelines(framed(block.records, block.encoded(), sync))
            block.clear()
            count += len(several)
        file.flush()
        os.fsync(file.fileno())
    if not count:
        part.unlink()
        raise DataError(path, "there is no record to write")
    part.replace(path)
    return count


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    try:
        file = plain_file.open_file(path)
    except DataError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            raise GoneError(path, "is not there: name a file of a served log") from error.__cause__
        raise
    with file:
        yield file


def _columns(found: Frame, path: Path) -> Columns:
    version = found.metadata.get(VERSION_KEY, b"").decode("ascii", "replace")
    if not version.isdecimal() or FEATURES_KEY not in found.metadata:
        raise DataError(path, f"is no file of a served log: its metadata lacks {VERSION_KEY} or {FEATURES_KEY}")
    if int(version) > SCHEMA_VERSION:
        raise DataError(
            path,
            f"has version {version} of the schema, this Listwright reads {SCHEMA_VERSION} at most: install a newer one",
        )
    try:
        return parsed_columns(found.metadata[FEATURES_KEY], found.metadata.get(CATEGORIES_KEY, b"{}"))
    except ValueError as error:
        raise DataError(path, f"is no file of a served log: {error}") from error
