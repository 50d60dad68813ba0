"""What the queries of one table are split by: the time of their first row, or the split that a column names."""

from __future__ import annotations

import numpy as np
import polars as pl
from jaxtyping import Int

from listwright.training.data.cells import names_in
from listwright.training.data.dataset import Dataset
from listwright.training.data.fault import Fault
from listwright.training.data.tables.frames import Table
from listwright.training.data.times import Time, times_of
from listwright.training.recipe.data import TableSplit

_SPLIT_OF = {"train": "train", "test": "test"} | dict.fromkeys(("valid", "validation", "vali", "dev"), "valid")
"""What the rows of a table may say of their split."""


def marks_of(split: TableSplit, table: Table, dataset: Dataset, order: Int[np.ndarray, " R"]) -> list[Time]:
    """What each query is split by.

    Raises:
        DataError: if a query has no time, a row no split, or a query stands in two splits; names the line.
    """
    if split.by == "random":
        return []
    column, first = table.frame[str(split.column)], order[dataset.offsets[:-1]]
    if split.by == "time":
        times = times_of(column, first, table.fault)
        if None in times:
            said = "the first row of a query has no time: give it one, or leave the query out"
            raise table.fault(column, said, int(first[times.index(None)]))
        return [time for time in times if time is not None]
    of_row = np.array(_names(column, table.fault))[order]
    of_query = of_row[dataset.offsets[:-1]]
    other = np.flatnonzero(of_row != np.repeat(of_query, dataset.lengths))
    if len(other):
        query = int(np.searchsorted(dataset.offsets, other[0], side="right")) - 1
        row, before = int(order[other[0]]), int(first[query])
        told = (
            f"query {dataset.qids[query]!r} is {column[row]!r} here and {column[before]!r} in line {table.line(before)}"
        )
        raise table.fault(column, f"{told}: all rows of a query belong into one split", row)
    names: list[Time] = of_query.tolist()
    return names


def _names(column: pl.Series, fault: Fault) -> list[str]:
    """The split of every row."""
    wanted = "expected 'train', 'valid' or 'test'"
    names = names_in(column).replace_strict(_SPLIT_OF, default=None)
    if names.null_count():
        row = int(names.is_null().arg_max() or 0)
        raise fault(column, f"{wanted}; found {column[row]!r}", row)
    return names.to_list()
