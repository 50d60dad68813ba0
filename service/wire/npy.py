"""NumPy's ``.npy`` format, as far as a float matrix needs it: a magic, a header of Python literals, raw numbers.

NumPy reads and writes the header, which it takes for literals and never runs. No pickles, no objects, no structured
types; the numbers stay where they arrived.
"""

from __future__ import annotations

from functools import lru_cache
from io import BytesIO
from tokenize import TokenError
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.lib import format as npy_format

from listwright.ranking.errors import CandidateError
from listwright.ranking.features import FeatureSchema
from listwright.service.admission.body import Limit
from listwright.service.errors import UndecodableBodyError
from listwright.service.wire.json_codec import why
from listwright.service.wire.raw_matrix import check_shape, value_bytes

MEDIA_TYPE = "application/x-npy"

MAX_HEADER = 1024
"""Bytes of a header; NumPy's own for a matrix has 118."""

_PREFIX = len(npy_format.MAGIC_PREFIX) + 2
"""Bytes of the magic, with the format's version."""

_LENGTH_BYTES = {1: 2, 2: 4, 3: 4}
"""Bytes of the header's length, by format version."""

_KNOWN_HEADERS = 1024
"""Parsed headers that are cached: NumPy takes as long for one as the scorer for a short list."""

_TYPES = (np.dtype("<f4"), np.dtype("<f8"), np.dtype("<f2"))
_LARGEST_SIDE = 10**18

_UNREADABLE = (ValueError, TypeError, SyntaxError, MemoryError, RecursionError, TokenError)
"""Errors of Python's parser for a malicious header."""


@lru_cache
def body_limit(candidates: int, features: int) -> Limit:
    """Return the limit of a body: the longest list, with its header."""
    size = _PREFIX + max(_LENGTH_BYTES.values()) + MAX_HEADER + value_bytes(candidates, features)
    return Limit(size, why(candidates, features))


def decode(body: bytes, schema: FeatureSchema, limit: int) -> Float[np.ndarray, "L D"]:
    """Decode a body to a matrix, a read-only view of it.

    Args:
        body: Body of the request.
        schema: Schema that has the width of the matrix.
        limit: Largest number of candidates.

    Raises:
        UndecodableBodyError: if it is no ``.npy`` file, or holds fewer or more bytes than its header says.
        CandidateError: if it is no matrix of little-endian float32, float64 or float16 in C order.
        EmptyListError, TooLargeError, SchemaMismatchError: if its shape does not fit; the data is not looked at.
    """
    start = _end_of_header(body)
    sides, by_columns, kind = _header(body[:start])
    if kind not in _TYPES:
        raise CandidateError(f"the array's dtype is {kind.str!r}: send float32, float64 or float16 (<f4, <f8, <f2)")
    if by_columns:
        raise CandidateError("the array is in Fortran order: send it in C order (numpy.ascontiguousarray)")
    if len(sides) != 2:
        raise CandidateError(f"the array's shape is {sides}: send one (L, D) matrix, a row per candidate")
    length, width = sides
    check_shape(length, width, schema, limit)
    expected, actual = length * width * kind.itemsize, len(body) - start
    if expected != actual:
        raise UndecodableBodyError(f"the array is announced with {expected} bytes of data, and has {actual}")
    return np.frombuffer(body, kind, offset=start).reshape(length, width)


def _end_of_header(body: bytes) -> int:
    """Return where the data starts."""
    if not body.startswith(npy_format.MAGIC_PREFIX):
        raise UndecodableBodyError("the body is no .npy file: write it with numpy.save")
    size = _LENGTH_BYTES.get(body[6]) if len(body) > 6 else None  # body[7] is the minor version
    if size is None:
        raise UndecodableBodyError("the .npy format's version is none of 1, 2 and 3")
    start = _PREFIX + size
    end = start + int.from_bytes(body[_PREFIX:start], "little")
    if end - start > MAX_HEADER:
        raise UndecodableBodyError(f"the .npy header has {end - start} bytes, a matrix' needs at most {MAX_HEADER}")
    if end > len(body):
        raise UndecodableBodyError("the body ends within its .npy header")
    return end


@lru_cache(_KNOWN_HEADERS)
def _header(head: bytes) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Parse a header: shape, whether in Fortran order, and type; an exception is not cached."""
    file = BytesIO(head)
    file.seek(_PREFIX)
    # 3 has the layout of 2
    read = npy_format.read_array_header_1_0 if head[6] == 1 else npy_format.read_array_header_2_0
    try:
        shape, by_columns, kind = read(file, max_header_size=MAX_HEADER)
    except _UNREADABLE as error:
        raise UndecodableBodyError("the .npy header is not that of a plain array") from error
    if not all(type(side) is int and 0 <= side < _LARGEST_SIDE for side in shape):
        raise UndecodableBodyError("the .npy header's shape is no tuple of whole numbers of at most 18 digits")
    return shape, by_columns, kind


def encode(values: Float[np.ndarray, " *shape"]) -> bytes:
    """Encode one vector or matrix as a ``.npy`` file of float32."""
    return _header_of(values.shape) + values.astype("<f4").tobytes()


@lru_cache(_KNOWN_HEADERS)
def _header_of(shape: tuple[int, ...]) -> bytes:
    file = BytesIO()
    npy_format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": shape})
    return file.getvalue()
