"""Where the blocks of an Avro object container file begin and end.

A file that was cut off, by a full disk or a killed process, is whole up to the end of its last whole block. The format:
Apache Avro specification, "Object Container Files": a header (magic, metadata, sync marker of 16 bytes), then blocks
(number of records, number of bytes, the bytes, the sync marker).
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import BinaryIO

from listwright.ranking.errors import DataError

MAGIC = b"Obj\x01"
SYNC_BYTES = 16
MOST_METADATA = 16 * 2**20
"""Bytes of one value of the metadata: a larger number is no length."""

_LONGEST_VARINT, _CHUNK = 10, 2**16


class CutOffError(Exception):
    """The file ends in the middle of what is read."""


@dataclass(frozen=True, slots=True)
class Frame:
    """What of a container file is whole.

    Args:
        metadata: of the header; empty where the header itself is cut off.
        until: bytes up to the end of the last whole block; 0 where the header is cut off.
        records: of the whole blocks.
        size: bytes of the file when it was looked at.
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
    """What of a file is whole. Reads the header and the frame of each block, not the records.

    Args:
        file: open at its beginning; can be sought.
        source: its name, for errors.

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
    """Raise DataError if a block that seems cut off is not the last: then its length is wrong, as more blocks end."""
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
    found = file.read(length)
    if len(found) < length:
        raise CutOffError
    return found


def _long(file: BinaryIO) -> int:
    """A variable-length, zigzag-coded whole number."""
    coded = 0
    for place in range(_LONGEST_VARINT):
        byte = _exactly(file, 1)[0]
        coded |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            break
    return (coded >> 1) ^ -(coded & 1)


def long_bytes(value: int) -> bytes:
    """A whole number that is not negative, as Avro writes it."""
    coded, out = value << 1, bytearray()
    while coded >= 0x80:
        out.append((coded & 0x7F) | 0x80)
        coded >>= 7
    out.append(coded)
    return bytes(out)
