"""Files of the served log: which of their blocks are whole, their records, and a writer of whole files.

A file that is still written, or whose writer was killed, is whole up to the end of its last whole block. The format:
Apache Avro specification, "Object Container Files": a header (magic, metadata, sync marker of 16 bytes), then blocks
(number of records, number of bytes, the bytes, the sync marker).
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import BinaryIO, TypeVar, cast

import fastavro
from fastavro.read import SchemaResolutionError

from listwright.ranking import plain_file
from listwright.ranking.atomic_file import atomic_file
from listwright.ranking.errors import DataError
from listwright.ranking.served_log.encoding import (
    CATEGORIES_KEY,
    FEATURES_KEY,
    PARSED,
    SCHEMA_VERSION,
    SYNC_BYTES,
    VERSION_KEY,
    Block,
    frame_block,
    header,
)
from listwright.ranking.served_log.record import Columns, ServedRecord, columns_of, parsed_columns, to_record

SUFFIX, OPEN_SUFFIX = ".avro", ".avro.part"
"""Of a finished file, and of one that is still written or whose writer was killed."""

DAMAGED_SUFFIX = ".avro.damaged"
"""Of a file that a killed worker left and whose blocks cannot be found."""

BLOCK_RECORDS = 100

MAGIC = b"Obj\x01"
MOST_METADATA = 16 * 2**20
"""Bytes of one value of the metadata: a larger number is no length."""

_LONGEST_VARINT, _CHUNK = 10, 2**16

T = TypeVar("T")


class _Prefix(io.RawIOBase):
    """The first bytes of a file."""

    def __init__(self, file: BinaryIO, end: int) -> None:
        super().__init__()
        self._file, self._end = file, end

    def read(self, size: int | None = -1) -> bytes:
        left = self._end - self._file.tell()
        return self._file.read(left if size is None or size < 0 else min(size, left))


def log_files(folder: Path, report: plain_file.Report | None = None, *, unfinished: bool = True) -> list[Path]:
    """Return the files of a served log's folder and of the folders in it, the oldest first by name.

    Args:
        folder: Folder of the log.
        report: Function that gets one line that names what is left out, if anything is.
        unfinished: Whether files count that are still written, or whose writer was killed.

    Raises:
        DataError: if there is no such folder.
    """
    if not folder.is_dir():
        raise DataError(folder, "is no folder: name the folder of LISTWRIGHT_SERVED_LOG")
    suffixes = (SUFFIX, OPEN_SUFFIX) if unfinished else (SUFFIX,)
    return plain_file.files_below(folder, [f"*{suffix}" for suffix in suffixes], report)


def records(paths: Iterable[Path]) -> Iterator[ServedRecord]:
    """Yield the records of files, in the order of the files and as they stand in them.

    Of a file that is still written, or whose writer was killed, all records up to its last whole block.

    Args:
        paths: Paths of the files; :func:`log_files` lists a folder's.

    Raises:
        DataError: if a file cannot be read, is none of a served log, is damaged, is finished by its name but cut off,
            or is of a newer version. Records of the files before have been given by then.
    """
    for path in paths:
        yield from read(path)


def read_listed(listed: Path, work: Callable[[Path], T]) -> T | None:
    """Call a function on a file of records or events, whatever its name is by now; None if it has disappeared.

    The service finishes a file at any moment, and then its name has no ``.part`` any more; and it removes old ones.
    """
    for path in dict.fromkeys((listed, listed.with_name(listed.name.removesuffix(".part")))):
        try:
            return work(path)
        except DataError as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise
    return None


def read(path: Path) -> Iterator[ServedRecord]:
    """Yield the records of one file; see :func:`records`."""
    with plain_file.open_file(path) as file:
        frame = frame_of(file, str(path))
        columns = _columns(frame, path)
        if columns is None:
            return
        file.seek(0)
        try:
            decoder = fastavro.reader(cast(BinaryIO, _Prefix(file, frame.until)), PARSED)
            while isinstance(fields := next(decoder, None), dict):
                yield to_record(fields, columns, str(path))
        except (EOFError, ValueError, LookupError, TypeError, SchemaResolutionError) as error:
            raise DataError(path, f"is damaged: a record cannot be decoded ({error})") from error


def frame(path: Path) -> Frame:
    """Return the whole part of a file: its metadata, and the end of its last whole block.

    Raises:
        DataError: if it cannot be read, is none of a served log, or is damaged before its end.
    """
    with plain_file.open_file(path) as file:
        return frame_of(file, str(path))


def feature_columns(path: Path) -> Columns | None:
    """Return the columns of a file's records; None where its header is not written yet.

    Raises:
        DataError: as :func:`records`.
    """
    return _columns(frame(path), path)


def check_whole(frame: Frame, path: Path) -> None:
    """Raise DataError if a file is cut off, or without records, that is finished by its name."""
    if path.name.endswith(OPEN_SUFFIX) or (frame.records and not frame.cut_off):
        return
    keep = f"cut it there to keep {frame.records} records (truncate -s {frame.until})" if frame.records else "delete it"
    fault = f"is a finished file, but no whole block follows byte {frame.until} of {frame.size}: records are lost"
    raise DataError(path, f"{fault}. Copy it again, or {keep}")


def write(path: Path, written: Iterable[ServedRecord], *, block_records: int = BLOCK_RECORDS, mode: int = 0o600) -> int:
    """Write a whole file of records that are made, not served; it appears once it is complete and on the disk.

    Args:
        path: Path of the file; replaced if it is there.
        written: Records, at least one, all of the same columns.
        block_records: Number of records in a block.
        mode: Permissions of the file.

    Returns:
        The number of records.

    Raises:
        DataError: if there is no record, or one has other columns than the first.
    """
    rest, count = iter(written), 0
    columns, sync, block = None, os.urandom(SYNC_BYTES), Block()
    with atomic_file(path, mode=mode, sync=True) as file:
        while batch := list(islice(rest, block_records)):
            if columns is None:
                columns = columns_of(batch[0])
                file.write(header(columns, sync))
            for record in batch:
                if record.feature_names != columns.names:
                    raise DataError(path, f"query {record.query_id!r} has other columns than the first record")
                block.add(record)
            file.writelines(frame_block(block.records, block.encoded(), sync))
            block.clear()
            count += len(batch)
        if not count:
            raise DataError(path, "there is no record to write")
    return count


def _columns(frame: Frame, path: Path) -> Columns | None:
    check_whole(frame, path)
    if not frame.until:
        return None
    version = frame.metadata.get(VERSION_KEY, b"").decode("ascii", "replace")
    if not version.isdecimal() or FEATURES_KEY not in frame.metadata:
        raise DataError(path, f"is no file of a served log: its metadata lacks {VERSION_KEY} or {FEATURES_KEY}")
    if int(version) > SCHEMA_VERSION:
        raise DataError(
            path,
            f"has version {version} of the schema, this Listwright reads {SCHEMA_VERSION} at most: install a newer one",
        )
    try:
        return parsed_columns(frame.metadata[FEATURES_KEY], frame.metadata.get(CATEGORIES_KEY, b"{}"))
    except ValueError as error:
        raise DataError(path, f"is no file of a served log: {error}") from error


class CutOffError(Exception):
    """The file ends in the middle of what is read."""


@dataclass(frozen=True, slots=True)
class Frame:
    """The whole part of a container file.

    Args:
        metadata: Metadata in the header; empty where the header itself is cut off.
        until: Number of bytes up to the end of the last whole block; 0 where the header is cut off.
        records: Number of records in the whole blocks.
        size: Number of bytes of the file when it was looked at.
    """

    metadata: Mapping[str, bytes]
    until: int
    records: int
    size: int

    @property
    def cut_off(self) -> bool:
        """Whether bytes follow that are no whole block."""
        return self.until < self.size


def frame_of(file: BinaryIO, source: str) -> Frame:
    """Return the whole part of a file, from its header and the frames of its blocks.

    Args:
        file: Seekable file, open at its beginning.
        source: Name of the file, for errors.

    Raises:
        DataError: if it is no container file, or a block is followed by other bytes than the sync marker. A tail of
            zeros counts as cut off: so a file system may leave a file after a power failure.
    """
    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    try:
        metadata, sync = _header(file, source)
    except CutOffError:
        return Frame({}, 0, 0, size)
    until, records = file.tell(), 0
    try:
        while until < size:
            count, length = _long(file), _long(file)
            end = file.tell() + length + SYNC_BYTES
            if count < 0 or length < 0:
                _check_zeros(file, until, source)
                break
            if end > size:
                _check_last(file, until, size, sync, source)
                break
            file.seek(length, io.SEEK_CUR)
            if _exactly(file, SYNC_BYTES) != sync:
                _check_zeros(file, until, source)
                break
            until, records = end, records + count
    except CutOffError:
        pass  # the last block has not even its lengths: what is before it is whole
    return Frame(metadata, until, records, size)


def _check_zeros(file: BinaryIO, at: int, source: str) -> None:
    """Raise DataError unless all bytes from ``at`` are zero."""
    file.seek(at)
    while chunk := file.read(_CHUNK):
        if chunk.strip(b"\0"):
            raise _damaged(source, at)


def _check_last(file: BinaryIO, at: int, size: int, sync: bytes, source: str) -> None:
    """Raise DataError if sync markers follow a block that seems cut off: its length is then wrong."""
    file.seek(at)
    before = b""
    while chunk := file.read(min(_CHUNK, size - file.tell())):
        if sync in before + chunk:
            raise _damaged(source, at)
        before = (before + chunk)[1 - SYNC_BYTES :]


def _damaged(source: str, at: int) -> DataError:
    return DataError(
        source, f"is damaged at byte {at}: no block begins there. Cut the file there: what is before is whole"
    )


def _header(file: BinaryIO, source: str) -> tuple[dict[str, bytes], bytes]:
    start = file.read(len(MAGIC))
    if start != MAGIC[: len(start)]:
        raise DataError(source, "is no Avro object container file: name the files of a served log")
    if len(start) < len(MAGIC):
        raise CutOffError
    metadata: dict[str, bytes] = {}
    while count := _long(file):
        if count < 0:
            _long(file)  # bytes of the block, which allow to skip it
        for _ in range(abs(count)):
            key = _value(file, source)
            metadata[key.decode("utf-8", "replace")] = _value(file, source)
    return metadata, _exactly(file, SYNC_BYTES)


def _value(file: BinaryIO, source: str) -> bytes:
    length = _long(file)
    if not 0 <= length <= MOST_METADATA:
        raise DataError(source, f"is damaged in its header: a length of {length} bytes")
    return _exactly(file, length)


def _exactly(file: BinaryIO, length: int) -> bytes:
    data = file.read(length)
    if len(data) < length:
        raise CutOffError
    return data


def _long(file: BinaryIO) -> int:
    """Read a variable-length, zigzag-coded whole number."""
    coded = 0
    for place in range(_LONGEST_VARINT):
        byte = _exactly(file, 1)[0]
        coded |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            break
    return (coded >> 1) ^ -(coded & 1)
