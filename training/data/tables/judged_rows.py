"""Judged rows: what ``listwright join`` writes, one row for each candidate that was shown."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import polars as pl

from listwright.ranking.errors import DataError
from listwright.training.data.sources import check_exists
from listwright.training.data.tables.frames import is_parquet, listed
from listwright.training.data.tables.judged import said_of

UNREADABLE = (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException)
"""What polars raises for a file that it cannot read."""


def scan_judged(path: Path, columns: Iterable[str]) -> pl.LazyFrame:
    """Judged rows, read where they are asked for.

    Args:
        path: a Parquet file, or a folder of them.
        columns: that are needed, by their names without a prefix.

    Returns:
        Some of the columns, unread, by these names.

    Raises:
        DataError: if there is nothing to read, a column is missing, the file is no Parquet, or shown candidates are
            missing; names the remedy.
    """
    check_exists(str(path))
    if path.is_file() and not is_parquet(path):
        raise DataError(path, "is no Parquet file: give the rows that listwright join writes")
    if path.is_dir() and not any(path.glob("*.parquet")):
        raise DataError(path, "is a folder without Parquet files: give the rows that listwright join writes")
    try:
        rows = pl.scan_parquet(path if path.is_file() else path / "*.parquet", glob=path.is_dir())
        there = rows.collect_schema().names()
    except UNREADABLE as error:
        raise DataError(path, f"cannot be read as Parquet: {_first_line(error)}") from error
    said = said_of(path if path.is_file() else min(path.glob("*.parquet"))) or {}
    if said.get("seen", False):
        raise DataError(path, "lacks shown candidates that nobody saw: join again, without seen in the file of labels")
    prefix = said.get("prefix", "")
    wanted = {name: prefix + name if prefix + name in there else name for name in columns}
    missing = [name for name, column in wanted.items() if column not in there]
    if missing:
        raise DataError(
            path,
            f"has no column {' and no column '.join(map(repr, missing))}: give the rows that listwright join writes; "
            f"it has {listed(there)}",
        )
    return rows.select(pl.col(column).alias(name) for name, column in wanted.items())


def collected(rows: pl.LazyFrame, path: Path) -> pl.DataFrame:
    """The result of a plan over judged rows, in bounded memory where the plan allows it.

    Raises:
        DataError: if the rows cannot be read, or a column holds something else than the plan needs.
    """
    try:
        found: pl.DataFrame = rows.collect(engine="streaming")
    except UNREADABLE as error:
        raise DataError(path, f"cannot be read as judged rows: {_first_line(error)}") from error
    return found


def _first_line(error: BaseException) -> str:
    """What polars says before it prints the plan."""
    return str(error).partition("\n")[0]
