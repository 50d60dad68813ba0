"""From NumPy and frames to JSON: a matrix under shared names, or rows by name; NaN becomes null."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from listwright_client import numerals
from listwright_client.frames import is_frame, read
from listwright_client.numerals import Cell
from listwright_client.options import Features, Id, Value, id_text

_NULLABLE = ("candidates", "context", "features")
"""Fields whose values may be missing; a null in any other would leave out a part of what was asked."""


def encode(
    features: Features,
    ids: Sequence[Id] | None = None,
    feature_names: Sequence[str] | None = None,
    envelope: Mapping[str, Any] | None = None,
) -> tuple[bytes, int]:
    """Encode a request as a JSON object; return it with its number of candidates.

    Raises:
        ValueError: if the features are no matrix, a number is infinite or has thousands of digits, names or ids do
            not fit, or NaN stands where nothing may be missing.
        TypeError: if a value is neither number nor string nor None, or names have no order.
    """
    fields = {name: _text(value, name) for name, value in (envelope or {}).items()}
    if _are_rows(features):
        if feature_names is not None:
            raise ValueError("feature_names go with a matrix: each row by name has its own")
        fields["candidates"] = _text(_candidates(features, ids), "candidates")
        count = len(features)
    else:
        names, values, count = _names_and_values(features, feature_names)
        if names is not None:
            fields["feature_names"] = _text(names, "feature_names")
        if ids is not None:
            _check_count("ids", ids, count, "candidates")
            fields["ids"] = _text(list(map(id_text, ids)), "ids")
        fields["features"] = _values(values)
    return b"{" + b",".join(b'"%s":%s' % (name.encode(), text) for name, text in fields.items()) + b"}", count


def _are_rows(features: Features) -> TypeGuard[Sequence[Mapping[str, Value]]]:
    return isinstance(features, Sequence) and len(features) > 0 and isinstance(features[0], Mapping)


def _candidates(rows: Sequence[Mapping[str, Value]], ids: Sequence[Id] | None) -> list[dict[str, Any]]:
    if ids is None:
        return [{"features": row} for row in rows]
    _check_count("ids", ids, len(rows), "candidates")
    return [{"id": id_text(name), "features": row} for name, row in zip(ids, rows, strict=True)]


def read_ids(ids: Any, place: str = "ids") -> tuple[Id, ...]:
    """Return ids or names in their order, as plain text and numbers; TypeError if they have none or are neither."""
    if isinstance(ids, str | bytes | set | frozenset | Mapping):
        raise TypeError(f"{place} is a {type(ids).__name__}: give a list or an array")
    own = list[Id]()
    for position, value in enumerate(ids):
        if isinstance(value, bool) or not isinstance(value, str | int | np.integer):
            raise TypeError(f"{place}[{position}] is a {type(value).__name__}: give text or a whole number")
        own.append(str.__str__(value) if isinstance(value, str) else int(value))  # of an enumeration, its value
    return tuple(own)


def _check_count(name: str, values: Sequence[Id], count: int, of: str) -> None:
    if len(values) != count:
        raise ValueError(f"{len(values)} {name} for {count} {of}")


def _names_and_values(
    features: Features, names: Sequence[str] | None
) -> tuple[list[str] | None, NDArray[Any] | list[list[Cell]], int]:
    """Return names of the columns, values, and number of candidates."""
    if is_frame(features):
        if names is not None:
            raise ValueError("feature_names go with a matrix: a frame's columns have their own")
        return *read(features), features.shape[0]
    matrix = _matrix(features)
    if names is None:
        return None, matrix, len(matrix)
    texts = list(map(id_text, read_ids(names, "feature_names")))
    _check_count("feature_names", texts, matrix.shape[1], "columns")
    return texts, matrix, len(matrix)


def _matrix(features: Any) -> NDArray[Any]:
    """Return the features as an array of two dimensions; values that are not NumPy's stay Python objects."""
    if isinstance(features, list | tuple) and any(isinstance(row, np.ma.MaskedArray) for row in features):
        features = np.ma.stack(features)  # np.array would show what is masked
    matrix = features if isinstance(features, np.ndarray) else np.array(features, dtype=object)
    if isinstance(matrix, np.ma.MaskedArray):
        mask = np.ma.getmaskarray(matrix)
        matrix = np.array(matrix.data, dtype=matrix.dtype if matrix.dtype.kind in "fmM" else object)
        matrix[mask] = "NaT" if matrix.dtype.kind in "mM" else np.nan
    if matrix.ndim != 2:
        raise ValueError(f"features have shape {matrix.shape}: give (candidates, features), all rows of one length")
    return matrix


def _values(values: NDArray[Any] | list[list[Cell]]) -> bytes:
    if isinstance(values, list):
        return numerals.of_rows(values)
    return _encode_numbers(values) if values.dtype.kind in "fiu" else _text([list(row) for row in values], "features")


def _encode_numbers(matrix: NDArray[Any]) -> bytes:
    """Encode a matrix of numbers."""
    if matrix.dtype.kind == "f":
        infinite = np.argwhere(np.isinf(matrix))
        if len(infinite):
            row, column = infinite[0]
            raise ValueError(f"features[{row}][{column}] is {matrix[row, column]}: send NaN for a missing value")
        matrix = matrix.astype({2: np.float32, 4: np.float32}.get(matrix.dtype.itemsize, np.float64))
    return numerals.of_array(matrix)


def _text(value: Any, place: str) -> bytes:
    """Encode any other value."""
    return json.dumps(_plain(value, place), separators=(",", ":"), allow_nan=False).encode()


def _plain(value: Any, place: str) -> Any:
    """Convert a value to plain Python: NumPy's types and NaN, which JSON does not have, are replaced."""
    if isinstance(value, Mapping):
        are_texts = set(map(type, value)) <= {str}  # as nearly always, and in a tenth of the time
        names = value if are_texts else map(id_text, read_ids(list(value), f"names of {place}"))
        plain = {name: _plain(inner, f"{place}.{name}") for name, inner in zip(names, value.values(), strict=True)}
        if len(plain) < len(value):
            raise ValueError(f"{place} has two names that are written alike: {list(value)[:20]}")
        return plain
    if isinstance(value, list | tuple):
        return [_plain(inner, f"{place}[{position}]") for position, inner in enumerate(value)]
    if isinstance(value, np.float32):
        value = float(str(value))  # as few digits as tell it from its neighbours
    if isinstance(value, np.generic) and value.dtype.kind not in "mM":  # nanoseconds would become whole numbers
        value = value.item()
    if isinstance(value, float):
        if math.isinf(value):
            raise ValueError(f"{place} is {value}: send NaN for a missing value")
        if math.isnan(value) and not place.startswith(_NULLABLE):
            raise ValueError(f"{place} is {value}: give a number, or leave it out")
        return None if math.isnan(value) else value
    if isinstance(value, int):
        return numerals.whole(value, place)
    if value is None or isinstance(value, str):
        return value
    raise TypeError(f"{place} is a {type(value).__name__}: send a number, a string or None")
