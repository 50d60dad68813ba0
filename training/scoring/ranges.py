"""Rows of stored files by their place: what a worker reads for itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import polars as pl
from polars.selectors import by_name

from listwright.ranking.features import FeatureSchema
from listwright.training.data.tables.frames import UNREADABLE, unreadable
from listwright.training.scoring.part_files import ARROW


class RowRange(NamedTuple):
    """Rows of a Parquet or Arrow file that follow each other: the first of them, counted from 0, and how many."""

    path: Path
    first: int
    rows: int


def read(ranges: Sequence[RowRange], names: frozenset[str] | None) -> pl.DataFrame:
    """The rows of some files, one behind the other.

    Args:
        ranges: what is read.
        names: see :func:`only`.

    Raises:
        DataError: if a file cannot be read.
    """
    frames = []
    for path, first, rows in ranges:
        try:
            scan = pl.scan_ipc(path) if path.suffix == ARROW else pl.scan_parquet(path, glob=False)
            frames.append(only(scan, names).slice(first, rows).collect())
        except UNREADABLE as error:
            raise unreadable(path, error) from error
    return pl.concat(frames)


def needed(schema: FeatureSchema, qid: str, columns: Sequence[str] | None) -> frozenset[str] | None:
    """Names of the columns that are read; None for all."""
    return None if columns is None else frozenset((qid, *schema.names, *columns))


def only(rows: pl.LazyFrame, names: frozenset[str] | None) -> pl.LazyFrame:
    """Those of the columns that are there, in their order; None for all."""
    if names is None:
        return rows
    return rows.select(by_name([name for name in rows.collect_schema().names() if name in names]))
