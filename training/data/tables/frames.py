"""Files of tables as frames: CSV (also gzip) and Parquet, their columns, and where a fault in them stands."""

from __future__ import annotations

import csv
import difflib
import io
import zlib
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Protocol, runtime_checkable

import polars as pl

from listwright.ranking.errors import DataError, RecipeError
from listwright.training.data.container import is_archive, open_plain
from listwright.training.data.sources import check_exists

MISSING_WORDS = ["NULL", "NaN", "nan"]

_NAMED_BY = {
    "--qid": "column of query ids",
    "--label": "column of relevance labels",
    "--time-column": "column of times",
    "--split-column": "column of splits",
}


@runtime_checkable
class Columns(Protocol):
    """What is asked of the columns of a table: a frame has it, and a file of which columns are read one by one."""

    @property
    def columns(self) -> list[str]:
        """Their names."""

    @property
    def height(self) -> int:
        """R."""

    def __getitem__(self, name: str) -> pl.Series:
        """One of them."""

    def select(self, names: list[str]) -> Columns:
        """Some of them."""


@dataclass(frozen=True)
class Table:
    """A file and its columns.

    Args:
        path: of the file.
        frame: its columns; at least one row.
    """

    path: Path
    frame: Columns

    def select(self, names: list[str]) -> Table:
        """The same file with some of its columns."""
        return Table(self.path, self.frame.select(names))

    def named(self, name: str | None, option: str) -> str:
        """The column of that name.

        Raises:
            RecipeError: if no name was given, or there is no such column; lists those there are.
        """
        columns = self.frame.columns
        if name is None:
            what = _NAMED_BY[option]
            raise RecipeError(f"the {what} is not named: pass {option} COL; {self.path} has {listed(columns)}")
        if name not in columns:
            near = difflib.get_close_matches(name, columns, n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise RecipeError(f"{option}: no column {name!r} in {self.path}; {hint}it has {listed(columns)}")
        return name

    def fault(self, column: pl.Series, expected: str, row: int | None = None) -> DataError:
        """A fault in a column, or in one of its rows counted from 0."""
        return DataError(self.path, expected, line=None if row is None else self.line(row), column=column.name)

    def line(self, row: int) -> int:
        """Where a row counted from 0 stands: in CSV the header is line 1, in Parquet the first row is."""
        return row + (1 if is_parquet(self.path) else 2)


def read_table(path: Path, *, as_text: frozenset[str] = frozenset()) -> Table:
    """A CSV or Parquet file.

    Args:
        path: of the file; told by its first bytes, not by its name.
        as_text: columns that are read as they stand in CSV, whatever they look like; Parquet says itself what they are.

    Raises:
        DataError: if it cannot be read, or has no rows.
    """
    try:
        frame = pl.read_parquet(path) if is_parquet(path) else _csv(path, as_text)
    except (OSError, EOFError, zlib.error, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise DataError(path, f"cannot be read as CSV or Parquet: {error}") from error
    if frame.height == 0:
        raise DataError(path, "has no rows")
    return Table(path, frame)


def check_table(path: Path) -> None:
    """Raise unless a file is there that may be a table: RecipeError for a folder, DataError for none or an archive."""
    check_exists(str(path))
    if path.is_dir():
        raise RecipeError(f"{path} is a folder: name the table itself with --data")
    if not is_parquet(path) and is_archive(path):
        raise DataError(path, "is an archive: unpack it, and name the table in it with --data")


def is_parquet(path: Path) -> bool:
    """Whether a file says that it is Parquet."""
    with path.open("rb") as file:
        return file.read(4) == b"PAR1"


def listed(names: list[str]) -> str:
    """Names of columns, shortened where there are many."""
    return ", ".join(names[:20]) + (" …" if len(names) > 20 else "")


def _csv(path: Path, as_text: frozenset[str]) -> pl.DataFrame:
    types = dict.fromkeys(as_text, pl.String)
    try:
        frame = pl.read_csv(path, infer_schema_length=None, null_values=MISSING_WORDS, schema_overrides=types)
    except pl.exceptions.PolarsError:
        check_fields(path)
        raise
    if (
        frame.height and frame.to_series(frame.width - 1).null_count()
    ):  # a short line ends in nulls: see if there is one
        check_fields(path)
    elif any(name.endswith("_duplicated_0") for name in frame.columns):
        check_fields(path, lines=1)
    return frame


def check_fields(path: Path, lines: int | None = None) -> None:
    """Find the line with too few or too many fields; polars fills up the one and does not say where the other is."""
    with open_plain(path) as (stream, _):
        rows = csv.reader(io.TextIOWrapper(stream, encoding="utf-8-sig", newline=""))
        try:
            names = next(rows, [])
            twice = next((name for n, name in enumerate(names) if name in names[:n]), None)
            if twice is not None:
                raise DataError(path, f"column {twice!r} is named twice", line=1)
            for row in islice(rows, lines):
                if row and len(row) != len(names):
                    raise DataError(path, f"expected {len(names)} fields, found {len(row)}", line=rows.line_num)
        except (csv.Error, UnicodeDecodeError, OSError, EOFError, zlib.error) as error:
            raise DataError(path, f"cannot be read as CSV: {error}", line=rows.line_num + 1) from error
