"""Whole lists in parts of the same size, however the file was read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from listwright.ranking.errors import DataError
from listwright.training.scoring.frames import FileRows
from listwright.training.scoring.job import PART_ROWS
from listwright.training.scoring.ranges import RowRange


class Part(NamedTuple):
    """Some lists, whole and in the order of the file.

    Args:
        number: from 0.
        rows: as the batches have them.
        columns: of all that are needed.
        ranges: where the rows stand.
    """

    number: int
    rows: pl.DataFrame
    columns: Sequence[str]
    ranges: Sequence[RowRange]


def parts(batches: Iterator[FileRows], qid: str, rows: int = PART_ROWS) -> Iterator[Part]:
    """Lists that follow each other, cut where one ends.

    The cuts depend on the rows and on nothing else, so a run that is resumed has the same parts.

    Args:
        batches: rows in order.
        qid: column with the query id.
        rows: a part ends with the list in which this many rows are reached.

    Raises:
        DataError: if a query id is missing, or rows of a query stand apart; with the line. Queries are known again by
            64 bits of their id: among ten million queries, two are taken for one with a probability of 3e-6.
    """
    held, number, places, seen = pl.DataFrame(), 0, list[_Place](), set[int]()
    columns: Sequence[str] = ()
    for batch in batches:
        columns = tuple(batch.schema)
        places.append(_Place(batch.path, batch.lines, batch.first))
        held = pl.concat([held, batch.rows]) if held.height else batch.rows
        while (cut := _end_of_list(held[qid], rows)) is not None:
            yield Part(number, _checked(held[:cut], qid, places, seen), columns, _ranges(places, cut))
            held, number = held[cut:], number + 1
            places = _behind(places, cut)
    if held.height:
        yield Part(number, _checked(held, qid, places, seen), columns, _ranges(places, held.height))


class _Place(NamedTuple):
    """Where rows that are held stand: a file, the line of each, and the number of the first."""

    path: Path
    lines: Sequence[int]
    first: int


def _behind(places: list[_Place], rows: int) -> list[_Place]:
    """The places without those of the first ``rows`` rows."""
    left = []
    for path, lines, first in places:
        if len(lines) > rows:
            left.append(_Place(path, lines[rows:], first + rows))
        rows = max(0, rows - len(lines))
    return left


def _fault(places: list[_Place], row: int, qid: str, said: str) -> DataError:
    place = _behind(places, row)[0]
    return DataError(place.path, said, line=place.lines[0], column=qid)


def _ranges(places: list[_Place], rows: int) -> list[RowRange]:
    """Where the first ``rows`` rows stand, a range for each file."""
    found = list[RowRange]()
    for path, lines, first in places:
        here = min(rows, len(lines))
        if found and found[-1].path == path:
            found[-1] = RowRange(path, found[-1].first, found[-1].rows + here)
        elif here:
            found.append(RowRange(path, first, here))
        rows -= here
    return found


def _end_of_list(ids: pl.Series, rows: int) -> int | None:
    """The first row from ``rows`` on that begins another list; None if none does yet."""
    if len(ids) <= rows:
        return None
    behind = ids[rows:]
    begins = behind.ne_missing(ids[rows - 1 : -1])
    return rows + int(begins.arg_max() or 0) if begins.any() else None


def _checked(part: pl.DataFrame, qid: str, places: list[_Place], seen: set[int]) -> pl.DataFrame:
    """The rows of a part, none of whose queries was seen before."""
    ids = part[qid]
    if ids.null_count():
        raise _fault(places, int(ids.is_null().arg_max() or 0), qid, "the query id is missing")
    starts = np.flatnonzero(np.concatenate([[True], ids[1:].ne_missing(ids[:-1]).to_numpy()]))
    for row, key in zip(starts.tolist(), ids.gather(starts).hash(seed=0).to_list(), strict=True):
        if key in seen:
            said = f"query {ids[row]!r} has rows before, and others between: sort the file by its query ids"
            raise _fault(places, row, qid, said)
        seen.add(key)
    return part
