"""NumPy's ``.npy`` format, as far as a float matrix needs it: a magic, a header of Python literals, raw numbers.

Read without evaluating anything: no pickles, no objects, no structured types; the numbers stay where they arrived.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import numpy as np
from jaxtyping import Float

from listwright.ranking.errors import CandidateError
from listwright.ranking.features import FeatureSchema
from listwright.service.admission.body import Limit
from listwright.service.errors import UndecodableBodyError
from listwright.service.wire.json_parse import why
from listwright.service.wire.raw_matrix import check_shape, value_bytes

MEDIA_TYPE = "application/x-npy"

MAX_HEADER = 1024
"""Bytes of a header; NumPy's own for a matrix has 118."""

_MAGIC = b"\x93NUMPY"
_LENGTH_BYTES = {1: 2, 2: 4, 3: 4}
"""Of the header's length, by format version."""

_ENTRY = re.compile(r"""['"](\w{1,20})['"] ?: ?(True|False|'[^'"]*'|"[^'"]*"|\((?:\d+, ?)*(?:\d+)?\))(?:, ?|(?=\}))""")
_SHAPE = re.compile(r"\((?:\d{1,18}, ?)*(?:\d{1,18})?\)", re.ASCII)
_TYPES: dict[str, np.dtype[Any]] = {"<f4": np.dtype("<f4"), "<f8": np.dtype("<f8")}
_ALIGNED = 64


@lru_cache
def body_limit(candidates: int, features: int) -> Limit:
    """Of a body: the longest list, with its header."""
    size = len(_MAGIC) + 2 + max(_LENGTH_BYTES.values()) + MAX_HEADER + value_bytes(candidates, features)
    return Limit(size, why(candidates, features))


def decode(body: bytes, schema: FeatureSchema, limit: int) -> Float[np.ndarray, "L D"]:
    """The matrix that a body holds, as a read-only view of it.

    Args:
        body: of the request.
        schema: which width the matrix must have.
        limit: most candidates.

    Raises:
        UndecodableBodyError: if it is no ``.npy`` file, or holds fewer or more bytes than its header says.
        CandidateError: if it is no matrix of little-endian float32 or float64 in C order.
        EmptyListError, TooLargeError, SchemaMismatchError: if its shape does not fit; the data is not looked at.
    """
    fields, start = _header(body)
    kind = _TYPES.get(fields["descr"][1:-1])
    if kind is None:
        raise CandidateError(f"the array's dtype is {fields['descr']}: send float32 ('<f4') or float64 ('<f8')")
    if not _SHAPE.fullmatch(fields["shape"]):
        raise UndecodableBodyError("the .npy header's shape is no tuple of whole numbers of at most 18 digits")
    if fields["fortran_order"] != "False":
        raise CandidateError("the array is in Fortran order: send it in C order (numpy.ascontiguousarray)")
    sides = [int(side) for side in fields["shape"].strip("() ,").split(",") if side]
    if len(sides) != 2:
        raise CandidateError(f"the array's shape is {fields['shape']}: send one (L, D) matrix, a row per candidate")
    length, width = sides
    check_shape(length, width, schema, limit)
    expected, found = length * width * kind.itemsize, len(body) - start
    if expected != found:
        raise UndecodableBodyError(f"the array is announced with {expected} bytes of data, and has {found}")
    return np.frombuffer(body, kind, offset=start).reshape(length, width)


def _header(body: bytes) -> tuple[dict[str, str], int]:
    """The header's literals as they stand there, and where the data starts."""
    if not body.startswith(_MAGIC):
        raise UndecodableBodyError("the body is no .npy file: write it with numpy.save")
    size = _LENGTH_BYTES.get(body[6]) if len(body) > 6 else None  # body[7] is the minor version
    if size is None:
        raise UndecodableBodyError("the .npy format's version is none of 1, 2 and 3")
    start = 8 + size
    end = start + int.from_bytes(body[8:start], "little")
    if end - start > MAX_HEADER:
        raise UndecodableBodyError(f"the .npy header has {end - start} bytes, a matrix' needs at most {MAX_HEADER}")
    if end > len(body):
        raise UndecodableBodyError("the body ends within its .npy header")
    text = body[start:end].decode("latin-1").strip()
    fields: dict[str, str] = {}
    at = 1
    while entry := _ENTRY.match(text, at):
        fields[entry[1]] = entry[2]
        at = entry.end()
    if text[:1] != "{" or text[at:].strip() != "}" or set(fields) != {"descr", "fortran_order", "shape"}:
        raise UndecodableBodyError("the .npy header is not that of a plain array: no objects, no structured types")
    return fields, end


def encode(values: Float[np.ndarray, " L"]) -> bytes:
    """A ``.npy`` file of one float32 vector."""
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({len(values)},), }}"
    padding = -(len(_MAGIC) + 4 + len(header) + 1) % _ALIGNED
    length = len(header) + padding + 1
    head = _MAGIC + b"\x01\x00" + length.to_bytes(2, "little") + header.encode() + b" " * padding + b"\n"
    return head + values.astype("<f4").tobytes()
