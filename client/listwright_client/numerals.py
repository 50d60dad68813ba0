"""Numbers as JSON writes them: by orjson if it is installed, else by Python's own encoder.

What either writes reads back as the same numbers. A float32 is written with as few digits as tell it from its
neighbours: the service computes in float32, so that such a matrix loses nothing and is half as long.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

try:
    import orjson
except ImportError:
    FAST = False
else:
    FAST = True
"""Whether the extra ``[fast]`` is there."""

Cell: TypeAlias = float | int | str | None
"""A value as JSON has it."""


MOST_BITS = 1024
"""Most bits of a whole number: larger ones are beyond float64, and Python refuses to write thousands of digits."""


def whole(value: int, place: str) -> int:
    """Return a whole number, checked.

    Raises:
        ValueError: with its place, if it has more than :data:`MOST_BITS` bits, which no service reads.
    """
    if value.bit_length() > MOST_BITS:
        raise ValueError(f"{place} is a whole number of {value.bit_length()} bits: give at most {MOST_BITS}")
    return value


def of_array(array: NDArray[Any]) -> bytes:
    """Encode whole numbers, float32 or float64 without infinities; NaN becomes null."""
    if FAST:
        native = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("="))
        return orjson.dumps(native, option=orjson.OPT_SERIALIZE_NUMPY)
    if array.dtype == np.float32:
        array = array.astype(str).astype(np.float64)
    return json.dumps(array.tolist(), separators=(",", ":")).replace("NaN", "null").encode()


def of_rows(rows: list[list[Cell]]) -> bytes:
    """Encode rows of values that JSON has; NaN is not among them."""
    if FAST:
        with suppress(orjson.JSONEncodeError):  # of an integer beyond 64 bits, and of half a character
            return orjson.dumps(rows)
    return json.dumps(rows, separators=(",", ":"), allow_nan=False).encode()


def cells(column: NDArray[Any]) -> list[Cell]:
    """Convert a column to the numbers that :func:`of_array` writes, one by one."""
    text = of_array(column)
    read: list[Cell] = orjson.loads(text) if FAST else json.loads(text)
    return read
