"""Rows of stored files by their place: what a worker reads for itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import polars as pl

from listwright.ranking.errors import DataError
from listwright.ranking.features import FeatureSchema
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
            scan = pl.scan_ipc(path) if path.suffix == ARROW else pl.scan_parquet(path)
            frames.append(only(scan, names).slice(first, rows).collect())
        except (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
            raise unreadable(path, error) from error
    return pl.concat(frames)


def unreadable(path: Path, error: BaseException) -> DataError:
    """The error of a table that polars cannot read."""
    return DataError(path, f"cannot be read as CSV or Parquet: {error}")


def needed(schema: FeatureSchema, qid: str, columns: Sequence[str] | None) -> frozenset[str] | None:
    """Names of the columns that are read; None for all."""
    return None if columns is None else frozenset((qid, *schema.names, *columns))


def only(rows: pl.LazyFrame, names: frozenset[str] | None) -> pl.LazyFrame:
    """Those of the columns that are there, in their order; None for all."""
    return rows if names is None else rows.select(name for name in rows.collect_schema().names() if name in names)
