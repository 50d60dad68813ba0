"""Files of tables as frames: CSV (also gzip) and Parquet, their columns, and the lines of faults in them.

Columns of CSV are text: :mod:`listwright.training.data.cells` interprets it.
"""

from __future__ import annotations

import copy
import csv
import difflib
import json
import re
import sys
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import overload

import numpy as np
import polars as pl
from polars.selectors import by_name

from listwright.ranking.errors import DataError, RecipeError
from listwright.ranking.features import PADDING
from listwright.training.data.sources import check_exists, check_kind, is_archive, open_plain

UNREADABLE = (OSError, EOFError, zlib.error, pl.exceptions.PolarsError, pl.exceptions.PanicException)
"""Exceptions of polars for a file that it cannot read."""

BATCH_ROWS = 50_000
"""Rows that are read at a time."""

BLOCK_CELLS = 2**22
"""Cells that are read at a time of a file with many columns."""

MOST_COLUMNS = 10_000
"""Most columns of a table."""

_PIECE_BYTES = 2**18

_UNQUOTED = re.compile(rb'(?:^|,)[^",]+"')

_NAMED_BY = {
    "--qid": "column of query ids",
    "--label": "column of relevance labels",
    "--time-column": "column of times",
    "--split-column": "column of splits",
}


class ColumnFile:
    """A Parquet file of which one column at a time is read; methods shared with a frame have the same names.

    Args:
        path: Path of the file.
        source: Path of the file that it was made from, for errors.

    Attributes:
        columns: Names of the visible columns.
        height: Number of rows, R.
    """

    def __init__(self, path: Path, source: Path) -> None:
        self._path, self._source = path, source
        try:
            self._stamp = _stamp(path)
            rows = pl.scan_parquet(path, glob=False)
            self.columns = rows.collect_schema().names()
            self.height = int(rows.select(pl.len()).collect().item())
        except UNREADABLE as error:
            raise unreadable(self._source, error) from error
        check_width(source, len(self.columns))

    def __getitem__(self, name: str) -> pl.Series:
        return self._read([name]).to_series()

    def iter_columns(self) -> Iterator[pl.Series]:
        """Yield every column; several are read at a time, as a reading takes as long as there are columns."""
        at_a_time = max(1, BLOCK_CELLS // max(1, self.height))
        for first in range(0, len(self.columns), at_a_time):
            yield from self._read(self.columns[first : first + at_a_time]).iter_columns()

    def _read(self, names: list[str]) -> pl.DataFrame:
        self._check_unchanged()
        try:
            return pl.scan_parquet(self._path, glob=False).select(by_name(names)).collect()
        except UNREADABLE as error:
            raise unreadable(self._source, error) from error

    def select(self, names: Sequence[str]) -> ColumnFile:
        """Return some columns."""
        other = copy.copy(self)
        other.columns = list(names)
        return other

    def batches(self, first: int) -> Iterator[pl.DataFrame]:
        """Yield all rows from ``first`` on, :data:`BATCH_ROWS` or fewer at a time."""
        self._check_unchanged()
        rows = pl.scan_parquet(self._path, glob=False).select(by_name(self.columns)).slice(first)
        try:
            yield from rows.collect_batches(chunk_size=BATCH_ROWS, maintain_order=True)
        except UNREADABLE as error:
            raise unreadable(self._source, error) from error
        self._check_unchanged()

    def _check_unchanged(self) -> None:
        """Raise DataError if the file has changed since its columns were read."""
        try:
            stamp = _stamp(self._path)
        except FileNotFoundError as error:
            raise DataError(self._source, "was deleted while it was read") from error
        if stamp != self._stamp:
            raise DataError(self._source, "changed while it was read")


Columns = pl.DataFrame | ColumnFile
"""Columns of a table: a frame, or a file of which they are read one by one."""


def _stamp(path: Path) -> tuple[int, int, int]:
    """Identify a file's current state: its inode, size and time of change."""
    status = path.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns


@dataclass(frozen=True)
class Table:
    """A file and its columns.

    Args:
        path: Path of the file.
        frame: Columns of the file, with at least one row.
    """

    path: Path
    frame: Columns

    @cached_property
    def categories(self) -> frozenset[str]:
        """Columns that pandas wrote as categories, of which Parquet itself holds numbers or booleans."""
        if not is_parquet(self.path):
            return frozenset()
        written = json.loads(pl.read_parquet_metadata(self.path).get("pandas", "{}"))
        columns = written.get("columns", [])
        return frozenset(column["field_name"] for column in columns if column["pandas_type"] == "categorical")

    def select(self, names: list[str]) -> Table:
        """Return the same file with some of its columns."""
        return Table(self.path, self.frame.select(names))

    def find_column(self, name: str | None, option: str) -> str:
        """Return the column of that name.

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
        """Return the error for a fault in a column, or in one of its rows counted from 0."""
        return DataError(self.path, expected, line=None if row is None else line_of(self.path, row), column=column.name)


def read_table(path: Path) -> Table:
    """Read a CSV file, or open a Parquet file, whose columns are read one by one; its first bytes tell which it is.

    Raises:
        DataError: if it cannot be read, or has no rows.
    """
    frame: Columns
    if is_parquet(path):
        frame = ColumnFile(path, path)
    else:
        try:
            frame = _csv(path)
        except UNREADABLE as error:
            raise unreadable(path, error) from error
    if frame.height == 0:
        raise DataError(path, "has no rows")
    return Table(path, frame)


def check_table(path: Path) -> None:
    """Raise unless a path may be a table: RecipeError for a folder, DataError for a missing file or another kind."""
    check_exists(str(path))
    if path.is_dir():
        raise RecipeError(f"{path} is a folder: name the table itself with --data")
    if not is_parquet(path) and is_archive(path):
        raise DataError(path, "is an archive: unpack it, and name the table in it with --data")


def is_parquet(path: Path) -> bool:
    """Return whether a file begins as Parquet does."""
    with path.open("rb") as file:
        return file.read(4) == b"PAR1"


def check_width(path: Path, columns: int) -> None:
    """Raise DataError for a table with more than :data:`MOST_COLUMNS` columns."""
    if columns > MOST_COLUMNS:
        raise DataError(path, f"has {columns:,} columns, and a table may have {MOST_COLUMNS:,}: leave some out")


def listed(names: list[str]) -> str:
    """Join names of columns, shortened where there are many."""
    return ", ".join(names[:20]) + (" …" if len(names) > 20 else "")


def unreadable(path: Path, error: BaseException) -> DataError:
    """Return the error for a table that polars cannot read, without polars' own advice; in CSV with its line."""
    if not is_parquet(path):
        check_fields(path, strict=True)
        _, (begin, _) = islice(_records(path), 2)  # in the header they may stand alone
        inside = False
        with open_plain(path) as (stream, _):
            for number, line in enumerate(islice(stream, begin - 1, None), start=begin):
                odd = line.count(b'"') % 2 == 1
                if odd and not inside and _UNQUOTED.search(line):
                    fault = 'has a quotation mark in a cell without quotes: write "5"" wide" for 5" wide'
                    return DataError(path, fault, line=number)
                inside = inside != odd
    return DataError(path, f"cannot be read as CSV or Parquet: {str(error).partition(chr(10))[0]}")


def index_note(names: list[str]) -> str:
    """Return a note on columns without a name."""
    has = "has no name of its own, and is" if len(names) == 1 else "have no names of their own, and are"
    note = f"{listed([repr(name) for name in names])} {has} left out, as the index that pandas writes"
    return f"{note}: give a column that you need a name"


def line_of(path: Path, row: int) -> int:
    """Return the place of a row counted from 0: in CSV its first line, from 1; in Parquet the first row is 1."""
    if is_parquet(path):
        return row + 1
    return next(islice(_records(path), row + 1, None))[0]


@dataclass(frozen=True)
class CsvLines(Sequence[int]):
    """Lines of consecutive rows of a CSV file; the file is read for each lookup, so look up few.

    Args:
        path: Path of the file.
        rows: Row numbers, from 0.
    """

    path: Path
    rows: range

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, place: int) -> int: ...
    @overload
    def __getitem__(self, place: slice) -> CsvLines: ...
    def __getitem__(self, place: int | slice) -> int | CsvLines:
        if isinstance(place, slice):
            return CsvLines(self.path, self.rows[place])
        return line_of(self.path, self.rows[place])


def scan_csv(path: Path) -> pl.LazyFrame:
    """Return the rows of a CSV file as a lazy frame: all columns are text, and lines without any value are left out.

    Raises:
        DataError: if the header cannot be read, or names a column twice.
    """
    check_kind(path)
    records = list(islice(_records(path), 2))
    if not records:
        raise DataError(path, "cannot be read as CSV or Parquet: it is empty")
    (line, names), *body = records
    check_width(path, len(names))
    if names[0].startswith("#") and body and (len(body[0][1]) != len(names) or body[0][1][0].startswith("#")):
        raise DataError(path, "does not begin with the names of the columns: delete comments before them", line=line)
    names = [name.strip(PADDING) for name in names]
    twice = next((name for name, count in Counter(names).items() if name and count > 1), None)
    if twice is not None:
        raise DataError(path, f"column {twice!r} is named twice", line=line)
    for place in [place for place, name in enumerate(names) if not name]:
        names[place] = f"Unnamed: {place}"
        while names.count(names[place]) > 1:
            names[place] += ".1"
    schema = dict.fromkeys(names, pl.String())
    if not body:
        return pl.LazyFrame(schema=schema)
    _check_text(path)
    begin = body[0][0] - 1  # polars never sees the header, in which quotation marks may stand alone
    rows = pl.scan_csv(path, has_header=False, schema=schema, infer_schema=False, glob=False, skip_lines=begin)
    return rows.map_batches(
        _without_blank, projection_pushdown=False, predicate_pushdown=False, slice_pushdown=False, streamable=True
    )


def check_fields(path: Path, *, strict: bool = False) -> None:
    """Raise DataError for the first line with too few or too many fields; polars fills up the one, and does not say
    where the other is. With ``strict``, quotes are checked, too.
    """
    records = _records(path, strict=strict)
    _, names = next(records)
    for line, row in records:
        if len(row) != len(names):
            raise DataError(path, f"expected {len(names)} fields, found {len(row)}", line=line)


def _check_text(path: Path) -> None:
    """Raise DataError for line ends and quotation marks that polars reads differently from how they were written."""
    quotes, returns, escapes, rest = 0, False, False, b""
    with open_plain(path) as (stream, _):
        while piece := stream.read(_PIECE_BYTES):
            quotes += piece.count(b'"')
            piece = rest + piece
            rest = piece[-1:] if piece.endswith((b"\r", b"\\")) else b""  # what follows it is in the next piece
            escapes = escapes or b'\\"' in piece
            if not returns and b"\r" in piece:
                returns = piece.count(b"\r") - (rest == b"\r") > piece.count(b"\r\n")
    if not (quotes % 2 or returns or escapes):
        return
    try:
        check_fields(path, strict=True)
    except DataError as error:
        if error.line is None or b'\\"' not in _line(path, error.line):  # a backslash may end a cell, too
            raise
        fault = (
            'has \\" where CSV has "" for a quotation mark in a cell: write "", in Spark with .option("escape", \'"\')'
        )
        raise DataError(path, fault, line=error.line) from error


def _line(path: Path, number: int) -> bytes:
    with open_plain(path) as (stream, _):
        return next(islice(stream, number - 1, None))


def _csv(path: Path) -> pl.DataFrame:
    frame = scan_csv(path).collect()
    if frame.height and frame.to_series(-1).null_count():  # a short line ends in nulls: see if there is one
        check_fields(path)
    return frame


def _without_blank(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the rows that have a value."""
    rows = np.arange(frame.height)
    for column in reversed(frame.get_columns()):
        text = column if len(rows) == frame.height else column.gather(rows)
        rows = rows[(text.is_null() | (text.str.strip_chars(PADDING) == "")).to_numpy()]
        if len(rows) == 0:
            return frame
    return frame[np.delete(np.arange(frame.height), rows)]


def _records(path: Path, *, strict: bool = False) -> Iterator[tuple[int, list[str]]]:
    """Yield the first line of each CSV record, and its fields; records without any value are left out."""
    csv.field_size_limit(sys.maxsize)  # polars has no limit
    with open_plain(path) as (stream, _):
        text = (part.decode("utf-8" if number else "utf-8-sig") for number, part in enumerate(stream))  # ends are \n
        rows = csv.reader(text, strict=strict)
        line = 1
        try:
            for row in rows:
                if line == 1 and row == ["sep=", ""]:  # Excel's own line
                    line = rows.line_num + 1
                    continue
                if any(field.strip(PADDING) for field in row):
                    yield line, row
                line = rows.line_num + 1
        except UnicodeDecodeError as error:
            raise _not_utf8(path) from error
        except (csv.Error, OSError, EOFError, zlib.error) as error:
            if "new-line character" in str(error):
                fault = "has a carriage return without a line feed: convert it with tr '\\r' '\\n'"
                raise DataError(path, fault, line=line) from error
            raise DataError(path, f"cannot be read as CSV: {error}", line=line) from error


def _not_utf8(path: Path) -> DataError:
    """Return the error for text in another encoding, with its line: a text reader decodes many at a time."""
    with open_plain(path) as (stream, _):
        for number, line in enumerate(stream, start=1):
            try:
                line.decode()
            except UnicodeDecodeError as error:
                excerpt = line[max(0, error.start - 10) : error.start + 10].decode("utf-8", "backslashreplace")
                remedy = "convert it with iconv -f LATIN1 -t UTF-8, or whatever its encoding is"
                return DataError(path, f"is no UTF-8 text: found {excerpt!r}; {remedy}", line=number)
    raise AssertionError("every line is UTF-8")
