"""Feature matrices whose rows are read on access: a dataset's features beyond memory.

Everything downstream reads through one method, :meth:`Rows.pick`, or through the functions below, which take an array
just as well. A view computes what it shows while it is read, so nothing as large as the data is ever held.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from jaxtyping import Float, Int

CHUNK_ROWS = 2**16
"""Rows that are read at a time in a pass over all."""

HELD_BYTES = 2**29
"""Bytes of the columns held at a time in a pass over columns, where rows are not in memory."""

_COLUMNS = 16
"""Columns of an array that are copied at a time, so that the values of one lie side by side."""


class Rows(ABC):
    """``(R, D)`` float32 on disk, indexed like an array: the indexed rows are read into one.

    Args:
        count: Number of rows, R.
        width: Number of columns, D.
    """

    dtype = np.dtype(np.float32)
    ndim = 2

    def __init__(self, count: int, width: int) -> None:
        self.shape = (count, width)

    def __len__(self) -> int:
        return self.shape[0]

    @abstractmethod
    def pick(self, rows: Int[np.ndarray, " M"]) -> Float[np.ndarray, "M D"]:
        """Return some rows by their numbers, in the order given, as an array of the caller's own."""

    def __getitem__(self, key: Any) -> Any:
        """Read rows as an array is indexed: by a number, a slice, or numbers, and after a comma columns."""
        rows, columns = key if isinstance(key, tuple) else (key, slice(None))
        if isinstance(rows, slice):
            start, stop, step = rows.indices(len(self))
            numbers = np.arange(start, stop, step)
            if len(numbers) > CHUNK_ROWS and not isinstance(columns, slice):
                return np.concatenate([self.pick(part)[:, columns] for part in _parts(numbers)])
            return self.pick(numbers)[:, columns]
        if np.ndim(rows) == 0:
            return self.pick(np.arange(len(self))[[rows]])[0, columns]
        numbers = np.asarray(rows)
        numbers = np.flatnonzero(numbers) if numbers.dtype == bool else numbers.astype(np.int64)
        return self.pick(numbers)[:, columns]


Features = Float[np.ndarray, "_ _"] | Rows
"""``(R, D)`` in memory, or read on access."""


def _parts(numbers: Int[np.ndarray, " M"]) -> Iterator[Int[np.ndarray, " S"]]:
    for start in range(0, len(numbers), CHUNK_ROWS):
        yield numbers[start : start + CHUNK_ROWS]


def chunks(features: Features) -> Iterator[tuple[slice, Float[np.ndarray, "M D"]]]:
    """Yield all rows in order, :data:`CHUNK_ROWS` at a time, each with its slice."""
    for start in range(0, len(features), CHUNK_ROWS):
        rows = slice(start, min(start + CHUNK_ROWS, len(features)))
        yield rows, features[rows]


def columns(features: Features) -> Iterator[Float[np.ndarray, " R"]]:
    """Yield every column in order, each contiguous in memory; rows are read as often as :data:`HELD_BYTES` requires."""
    count, width = features.shape
    several = max(1, HELD_BYTES // max(1, 4 * count)) if isinstance(features, Rows) else _COLUMNS
    for first in range(0, width, several):
        held = np.empty((min(several, width - first), count), dtype=np.float32)
        for rows, chunk in chunks(features):
            held[:, rows] = chunk[:, first : first + several].T
        yield from held


def by_chunk(
    features: Features, function: Callable[[Float[np.ndarray, "M D"]], Float[np.ndarray, " M"]]
) -> Float[np.ndarray, " R"]:
    """Return ``(R,)`` float64: a function's values for each row, a chunk of rows at a time."""
    result = np.empty(len(features), dtype=np.float64)
    for rows, chunk in chunks(features):
        result[rows] = function(chunk)
    return result


def take_rows(features: Features, rows: Int[np.ndarray, " M"]) -> Features:
    """Return some rows by their numbers, in the order given: a copy of an array, a view of :class:`Rows`."""
    return SelectedRows(features, rows) if isinstance(features, Rows) else features[rows]


def map_rows(
    features: Features, width: int, function: Callable[[Float[np.ndarray, "M D"]], Float[np.ndarray, "M E"]]
) -> Features:
    """Apply a function to each row: at once to an array, on access to :class:`Rows`.

    Args:
        features: ``(R, D)`` rows.
        width: Number of columns of the result, E.
        function: Function of ``(M, D)`` rows; it may change its argument.
    """
    return MappedRows(features, width, function) if isinstance(features, Rows) else function(features)


def join_rows(parts: Sequence[Features]) -> Features:
    """Return the rows of several matrices of one width, one after the other."""
    if any(isinstance(part, Rows) for part in parts):
        return JoinedRows(parts)
    return np.concatenate([np.asarray(part) for part in parts])


def with_column(features: Features, values: Float[np.ndarray, " R"]) -> Features:
    """Return the same rows with one more column at the end."""
    if isinstance(features, Rows):
        return WithColumn(features, values.astype(np.float32))
    return np.column_stack([features, values.astype(np.float32)])


class SelectedRows(Rows):
    """Selected rows of other rows, in the order of the selection."""

    def __init__(self, base: Rows, rows: Int[np.ndarray, " M"]) -> None:
        super().__init__(len(rows), base.shape[1])
        self._base: Rows = base._base if isinstance(base, SelectedRows) else base
        self._rows: Int[np.ndarray, " M"] = base._rows[rows] if isinstance(base, SelectedRows) else rows

    def pick(self, rows: Int[np.ndarray, " M"]) -> Float[np.ndarray, "M D"]:
        """Return some rows by their numbers; see :meth:`Rows.pick`."""
        return self._base.pick(self._rows[rows])


class MappedRows(Rows):
    """A function applied to each row of other rows."""

    def __init__(
        self, base: Rows, width: int, function: Callable[[Float[np.ndarray, "M D"]], Float[np.ndarray, "M E"]]
    ) -> None:
        super().__init__(len(base), width)
        self._base, self._function = base, function

    def pick(self, rows: Int[np.ndarray, " M"]) -> Float[np.ndarray, "M D"]:
        """Return some rows by their numbers; see :meth:`Rows.pick`."""
        return self._function(self._base.pick(rows))


class WithColumn(Rows):
    """The same rows with one more column at the end, which is in memory."""

    def __init__(self, base: Rows, values: Float[np.ndarray, " R"]) -> None:
        super().__init__(len(base), base.shape[1] + 1)
        self._base, self._values = base, values

    def pick(self, rows: Int[np.ndarray, " M"]) -> Float[np.ndarray, "M D"]:
        """Return some rows by their numbers; see :meth:`Rows.pick`."""
        return np.column_stack([self._base.pick(rows), self._values[rows]])


class MappedLists(Rows):
    """A function applied to each whole list of other rows; a list is read whole for any of its rows.

    Args:
        base: Rows of the lists.
        offsets: ``(N + 1,)`` bounds of the lists: list n has rows ``offsets[n] : offsets[n + 1]``.
        width: Number of columns that the function returns.
        function: Function from ``(L, D)`` to ``(L, width)``.
    """

    def __init__(
        self,
        base: Rows,
        offsets: Int[np.ndarray, " O"],
        width: int,
        function: Callable[[Float[np.ndarray, "L D"]], Float[np.ndarray, "L E"]],
    ) -> None:
        super().__init__(len(base), width)
        self._base, self._offsets, self._function = base, offsets, function

    def pick(self, rows: Int[np.ndarray, " M"]) -> Float[np.ndarray, "M D"]:
        """Return some rows by their numbers; see :meth:`Rows.pick`."""
        lists, list_of = np.unique(np.searchsorted(self._offsets, rows, side="right") - 1, return_inverse=True)
        starts, lengths = self._offsets[lists], np.diff(self._offsets)[lists]
        places = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        whole = self._base.pick(np.repeat(starts - places[:-1], lengths) + np.arange(places[-1]))
        values = np.empty((len(whole), self.shape[1]), dtype=np.float32)
        for first, last in pairwise(places.tolist()):
            values[first:last] = self._function(whole[first:last])
        selected: Float[np.ndarray, "M D"] = values[places[list_of] + rows - starts[list_of]]
        return selected


class JoinedRows(Rows):
    """The rows of several matrices, one after the other."""

    def __init__(self, parts: Sequence[Features]) -> None:
        super().__init__(sum(len(part) for part in parts), parts[0].shape[1])
        self._parts = tuple(parts)
        self._starts = np.concatenate([[0], np.cumsum([len(part) for part in parts])]).astype(np.int64)

    def pick(self, rows: Int[np.ndarray, " M"]) -> Float[np.ndarray, "M D"]:
        """Return some rows by their numbers; see :meth:`Rows.pick`."""
        part_of = np.searchsorted(self._starts, rows, side="right") - 1
        touched = np.unique(part_of)
        if len(touched) == 1:
            part = self._parts[touched[0]]
            return part[rows - self._starts[touched[0]]]  # type: ignore[no-any-return]
        out = np.empty((len(rows), self.shape[1]), dtype=np.float32)
        for number in touched:
            here = part_of == number
            out[here] = self._parts[number][rows[here] - self._starts[number]]
        return out


def runs(rows: Int[np.ndarray, " M"]) -> Iterator[tuple[int, int]]:
    """Yield the bounds ``first : last`` of consecutive rows."""
    if len(rows) == 0:
        return
    breaks = np.flatnonzero(np.diff(rows) != 1) + 1
    yield from zip([0, *breaks.tolist()], [*breaks.tolist(), len(rows)], strict=True)
