"""pandas and polars frames, by what both can do: neither library is needed, and none is imported.

A frame of numbers becomes one matrix, the form that is written fastest; any other becomes rows. A cell is spelled as in
training: what is missing is null, and booleans are the categories true and false.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any, Protocol, TypeAlias, TypeGuard, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from listwright_client.numerals import Cell, cells, whole

_Column: TypeAlias = NDArray[Any] | list[Cell]
"""Numbers with NaN, or values as JSON has them."""

_NUMERIC = re.compile(r"(u?int|float)(8|16|32|64)|(u?int(8|16|32|64)|float|double)\[pyarrow\]", re.IGNORECASE)
"""Types that NumPy has, too, as pandas and polars call them."""

_EXACT = {np.float32: 2**24, np.float64: 2**53}
"""Up to here a float holds every whole number."""

_MISSING = ("NAType", "NaTType")
"""Types of pandas' missing values, by name: pandas need not be installed."""


@runtime_checkable
class Frame(Protocol):
    """Interface that pandas and polars frames have in common."""

    @property
    def columns(self) -> Any:
        """Names."""

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""


def is_frame(features: object) -> TypeGuard[Frame]:
    """Return whether features are a frame of pandas (``iloc``) or of polars (``iter_columns``)."""
    return isinstance(features, Frame) and (hasattr(features, "iloc") or hasattr(features, "iter_columns"))


def read(frame: Frame) -> tuple[list[str], NDArray[Any] | list[list[Cell]]]:
    """Return names of the columns, and their values: ``(L, D)`` numbers, or L rows where not all are numbers.

    Raises:
        ValueError: if two columns have one name, or a number is infinite; names the column.
        TypeError: if a column holds what cannot be sent; names it.
    """
    columns: dict[str, _Column] = {}
    for name, series in _series(frame):
        if name in columns:
            raise ValueError(f"two columns of the frame are called {name!r}: rename one")
        columns[name] = _column(name, series)
    matrix = _matrix(list(columns.values()))
    if matrix is not None:
        return list(columns), matrix
    listed = (column if isinstance(column, list) else cells(column) for column in columns.values())
    return list(columns), [list(row) for row in zip(*listed, strict=True)]


def _series(frame: Any) -> Iterator[tuple[str, Any]]:
    """Yield names and columns, by position: names may be repeated, and need not be text."""
    if hasattr(frame, "iloc"):
        for position, name in enumerate(frame.columns):
            yield str(name), frame.iloc[:, position]
    else:
        for series in frame.iter_columns():
            yield series.name, series


def _column(name: str, series: Any) -> _Column:
    if _NUMERIC.fullmatch(str(series.dtype)):
        array = np.asarray(series.to_numpy())
        if array.dtype.kind in "iu":
            return array
        whole = str(series.dtype).lower().startswith(("int", "uint"))  # with gaps, which float64 may not hold exactly
        if array.dtype.kind == "f" and not (whole and (np.abs(array) >= _EXACT[np.float64]).any()):
            infinite = np.flatnonzero(np.isinf(array))
            if len(infinite):
                raise _infinite(name, int(infinite[0]), array[infinite[0]])
            return array.astype(np.float32) if array.dtype == np.float16 else array
    values = series.to_list()
    if str(series.dtype) == "category" and series.cat.categories.dtype == np.float32:
        values = [np.float32(value) for value in values]  # whose digits are fewer
    return [_cell(value, name, row) for row, value in enumerate(values)]


def _cell(value: Any, name: str, row: int) -> Cell:
    """Convert a cell to a value of JSON; ValueError if it is infinite, TypeError if it cannot be sent."""
    if value is None or type(value) is str:
        return value
    if isinstance(value, bool | np.bool_):
        return str(value).lower()
    if isinstance(value, float | np.floating | Decimal):
        number = float(str(value)) if isinstance(value, np.float32) else float(value)
        if math.isinf(number):
            raise _infinite(name, row, number)
        return None if math.isnan(number) else number
    if isinstance(value, int | np.integer):
        return whole(int(value), f"features[{name!r}][{row}]")
    if isinstance(value, str):
        return str(value)
    if type(value).__name__ in _MISSING or (isinstance(value, np.datetime64 | np.timedelta64) and np.isnat(value)):
        return None
    raise TypeError(
        f"features[{name!r}][{row}] is a {type(value).__name__}: make the column numbers or text, as it was in "
        "training, or leave it out of the frame"
    )


def _infinite(name: str, row: int, number: Any) -> ValueError:
    return ValueError(f"features[{name!r}][{row}] is {number}: give NaN or None for a missing value")


def _matrix(columns: Sequence[_Column]) -> NDArray[Any] | None:
    """Return ``(L, D)`` of one type that holds every number exactly; None if there is none."""
    numeric_columns = [column if isinstance(column, np.ndarray) else _to_numbers(column) for column in columns]
    arrays = [array for array in numeric_columns if array is not None]
    if len(arrays) < len(columns) or not columns:
        return None
    whole = [array for array in arrays if array.dtype.kind != "f"]
    if len(whole) == len(arrays):
        matrix = np.column_stack(arrays)
        return None if matrix.dtype.kind == "f" else matrix  # int64 beside uint64
    single = all(array.dtype == np.float32 for array in arrays if array.dtype.kind == "f")
    for kind in (np.float32, np.float64) if single else (np.float64,):
        if all(_fits(array, _EXACT[kind]) for array in whole):
            return np.column_stack([_wide(array) if kind is np.float64 else array.astype(kind) for array in arrays])
    return None


def _to_numbers(cells: list[Cell]) -> NDArray[Any] | None:
    """Convert values to numbers; None if one is no number, or too large to stay exact."""
    present = [cell for cell in cells if cell is not None]
    if any(isinstance(cell, str) or (isinstance(cell, int) and abs(cell) > _EXACT[np.float64]) for cell in present):
        return None
    return np.array([math.nan if cell is None else cell for cell in cells], np.float64 if present else np.float32)


def _fits(array: NDArray[Any], limit: int) -> bool:
    return not len(array) or bool(-limit <= array.min() and array.max() <= limit)


def _wide(array: NDArray[Any]) -> NDArray[np.float64]:
    """Convert to float64; float32 by its shortest decimal form (0.1), as a category of that name is spelled."""
    return np.array(cells(array), np.float64) if array.dtype == np.float32 else array.astype(np.float64)
