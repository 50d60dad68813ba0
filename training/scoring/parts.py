"""Whole lists in parts of the same size, however the file was read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from listwright.ranking.errors import DataError
from listwright.training.data.tables.frames import Table

PART_ROWS = 100_000
"""Rows of a part, and those of its last list; a part is what an interrupted run keeps."""


class Part(NamedTuple):
    """Some lists, whole and in the order of the file."""

    number: int
    rows: pl.DataFrame


def parts(path: Path, frames: Iterator[pl.DataFrame], qid: str, rows: int = PART_ROWS) -> Iterator[Part]:
    """Lists that follow each other, cut where one ends.

    The cuts depend on the rows and on nothing else, so a run that is resumed has the same parts.

    Args:
        path: for errors.
        frames: rows in order.
        qid: column with the query id.
        rows: a part ends with the list in which this many rows are reached.

    Raises:
        DataError: if there are no rows, a query id is missing, or rows of a query stand apart; with the line.
    """
    held, number, first, seen = pl.DataFrame(), 0, 0, set[int]()
    for frame in frames:
        held = pl.concat([held, frame]) if held.height else frame
        while (cut := _end_of_list(held[qid], rows)) is not None:
            yield Part(number, _checked(path, held[:cut], qid, first, seen))
            held, number, first = held[cut:], number + 1, first + cut
    if held.height:
        yield Part(number, _checked(path, held, qid, first, seen))
    elif number == 0:
        raise DataError(path, "has no rows")


def _end_of_list(ids: pl.Series, rows: int) -> int | None:
    """The first row from ``rows`` on that begins another list; None if none does yet."""
    if len(ids) <= rows:
        return None
    behind = ids[rows:]
    begins = behind.ne_missing(ids[rows - 1 : -1])
    return rows + int(begins.arg_max() or 0) if begins.any() else None


def _checked(path: Path, part: pl.DataFrame, qid: str, first: int, seen: set[int]) -> pl.DataFrame:
    """The rows of a part, none of whose queries was seen before."""
    ids, place = part[qid], Table(path, part)
    if ids.null_count():
        row = int(ids.is_null().arg_max() or 0)
        raise DataError(path, "the query id is missing", line=place.line(first + row), column=qid)
    starts = np.flatnonzero(np.concatenate([[True], ids[1:].ne_missing(ids[:-1]).to_numpy()]))
    for row, key in zip(starts.tolist(), ids.gather(starts).hash(seed=0).to_list(), strict=True):
        if key in seen:
            said = f"query {ids[row]!r} has rows before, and others between: sort the file by its query ids"
            raise DataError(path, said, line=place.line(first + row), column=qid)
        seen.add(key)
    return part
