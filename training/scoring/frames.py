"""Rows of Parquet, CSV and LETOR files: a bounded number at a time in their order, or by their place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
from polars.selectors import by_name

from listwright.ranking.errors import DataError, RecipeError
from listwright.ranking.features import FeatureSchema
from listwright.ranking.plain_file import Report, files_below
from listwright.training.data.cells import is_text, names_in
from listwright.training.data.letor.fast import Block
from listwright.training.data.letor.text import blocks_of
from listwright.training.data.sources import check_exists, check_kind, open_plain
from listwright.training.data.tables.columns import fitted_numbers
from listwright.training.data.tables.frames import (
    BATCH_ROWS,
    UNREADABLE,
    CsvLines,
    Table,
    check_fields,
    check_table,
    check_width,
    is_parquet,
    line_of,
    scan_csv,
    unreadable,
)
from listwright.training.recipe.options import TABLES

ARROW = ".arrow"
"""File name endings of Arrow's own format."""

LETOR_QID, LETOR_LABEL = "qid", "label"


class FileRows(NamedTuple):
    """Some rows of a file.

    Args:
        path: Path of the file.
        rows: Rows in their order, with all columns that are needed, or with the query ids alone.
        lines: Line of each row in the file, for errors.
        first: Number of the first row in the file, from 0.
        kinds: Types of all columns that are needed; None for those of ``rows``.
    """

    path: Path
    rows: pl.DataFrame
    lines: Sequence[int]
    first: int = 0
    kinds: Mapping[str, object] | None = None

    @property
    def schema(self) -> Mapping[str, object]:
        """Schema of all columns that are needed."""
        return self.rows.schema if self.kinds is None else self.kinds


class Batches(NamedTuple):
    """The rows of a file or a folder.

    Args:
        qid: Name of the column of query ids.
        rows: Batches of a bounded number of rows.
        ids_only: Whether they are the query ids alone: :func:`~listwright.training.scoring.frames.read` reads the rest.
    """

    qid: str
    rows: Iterator[FileRows]
    ids_only: bool


def is_table(path: Path) -> bool:
    """Return whether a file is CSV or Parquet: by its name, or by its first bytes."""
    return path.name.lower().endswith(TABLES) or (path.is_file() and is_parquet(path))


def files_of(data: Path, report: Report | None = None) -> list[Path]:
    """Return a file, or the files of a folder; see :func:`listwright.ranking.plain_file.files_below`.

    Raises:
        DataError: if there is nothing at the path, or no file in the folder.
    """
    check_exists(str(data))
    files = files_below(data, ["*"], report)
    if not files:
        raise DataError(data, "has no files: name a folder of Parquet, CSV or LETOR files, or one such file")
    return files


def batches(
    data: Path,
    schema: FeatureSchema,
    qid: str | None,
    columns: Sequence[str] | None = None,
    *,
    ids_only: bool = False,
) -> Batches:
    """Return the rows of a file or a folder in their order.

    Args:
        data: File, or a folder whose files are read by name; a list may go on in the next file.
        schema: Schema of the bundle, by which features in CSV are read; all other columns of CSV are text.
        qid: Column of a table with the query id; LETOR text has a place of its own for it.
        columns: Names of the columns that are needed beside features and query ids; None for all. Others are perhaps
            not read.
        ids_only: Whether to read the query ids alone if all files are Parquet.

    Raises:
        RecipeError: if the column of query ids is not named, or not there.
        DataError: if a file is not there, or cannot be read, or has other columns than the first; also later, with the
            line, while rows are read.
    """
    files = files_of(data)
    ids_only = ids_only and all(is_parquet(path) for path in files)
    opened = [_opened(path, schema, qid, columns, ids_only=ids_only) for path in files]
    names = {name for name, _ in opened}
    if len(names) > 1:
        raise DataError(data, "holds tables and LETOR text: score them one after the other")
    return Batches(names.pop(), _check_columns(data, [rows for _, rows in opened]), ids_only)


def _check_columns(data: Path, files: list[Iterator[FileRows]]) -> Iterator[FileRows]:
    """Yield the batches of all files, which must have the columns of the first."""
    first: FileRows | None = None
    for batch in chain.from_iterable(files):
        if batch.rows.height == 0:
            continue
        first = first or batch
        if batch.schema != first.schema:
            raise DataError(batch.path, _difference(first, batch))
        yield batch
    if first is None:
        raise DataError(data, "has no rows")


def _difference(first: FileRows, batch: FileRows) -> str:
    before, after = first.schema, batch.schema
    for name in [*before, *after]:
        if before.get(name) != after.get(name):
            has, had = (f"{name} as {kinds[name]}" if name in kinds else f"no {name}" for kinds in (after, before))
            return f"has {has}, and {first.path.name} has {had}: the files of a folder need the same columns"
    return f"has its columns in another order than {first.path.name}"


def _opened(
    path: Path, schema: FeatureSchema, qid: str | None, columns: Sequence[str] | None, *, ids_only: bool
) -> tuple[str, Iterator[FileRows]]:
    check_table(path)
    if not is_table(path):
        check_kind(path)
        if qid is not None:
            raise RecipeError(f"--qid {qid}: LETOR text has query ids of its own; leave --qid out")
        return LETOR_QID, _letor(path, schema)
    rows, names = _scanned(path)
    column = names.find_column(qid, "--qid")
    if not is_parquet(path):
        return column, _csv(path, rows, schema, column)
    rows = select_existing(rows, columns_to_read(schema, column, columns))
    return column, _parquet(path, rows, column, ids_only=ids_only)


def _scanned(path: Path) -> tuple[pl.LazyFrame, Table]:
    """Return the rows of a table, unread, and its columns."""
    try:
        rows = pl.scan_parquet(path, glob=False) if is_parquet(path) else scan_csv(path)
        names = rows.collect_schema().names()
    except UNREADABLE as error:
        raise unreadable(path, error) from error
    check_width(path, len(names))
    return rows, Table(path, pl.DataFrame(schema=dict.fromkeys(names, pl.String)))


def columns_of(path: Path) -> Table:
    """Return the columns of a table without its rows.

    Raises:
        DataError: if it cannot be read.
    """
    check_table(path)
    return _scanned(path)[1]


def _parquet(path: Path, rows: pl.LazyFrame, qid: str, *, ids_only: bool) -> Iterator[FileRows]:
    first, kinds = 0, rows.collect_schema()
    if ids_only:
        rows = rows.select(by_name(qid))
    try:
        for frame in rows.collect_batches(chunk_size=BATCH_ROWS, maintain_order=True):
            lines = range(first + 1, first + 1 + frame.height)
            as_names = is_text(frame[qid]) or frame.schema[qid] == pl.Binary
            yield FileRows(path, _with_names(frame, qid) if as_names else frame, lines, first, kinds)
            first += frame.height
    except UNREADABLE as error:
        raise unreadable(path, error) from error


def _csv(path: Path, rows: pl.LazyFrame, schema: FeatureSchema, qid: str) -> Iterator[FileRows]:
    first, checked = 0, False
    try:
        for frame in rows.collect_batches(chunk_size=BATCH_ROWS, maintain_order=True):
            if not checked and frame.to_series(-1).null_count():  # a short line ends in nulls
                check_fields(path)
                checked = True
            typed = _typed(_with_names(frame, qid), path, schema, qid, first)
            yield FileRows(path, typed, CsvLines(path, range(first, first + frame.height)), first)
            first += frame.height
    except UNREADABLE as error:
        raise unreadable(path, error) from error


def _with_names(frame: pl.DataFrame, name: str) -> pl.DataFrame:
    return frame.with_columns(names_in(frame[name]).alias(name))


def _typed(frame: pl.DataFrame, path: Path, schema: FeatureSchema, qid: str, first: int) -> pl.DataFrame:
    """Convert CSV's text to features and categories; ``first`` is the number of the frame's first row."""

    def fault(column: pl.Series, expected: str, row: int | None = None) -> DataError:
        line = None if row is None else line_of(path, first + row)
        return DataError(path, expected, line=line, column=column.name)

    columns = []
    for feature in schema.features:
        if feature.name not in frame.columns or feature.name == qid:
            continue
        column = frame[feature.name]
        columns.append(names_in(column) if feature.kind == "categorical" else fitted_numbers(column, fault))
    return frame.with_columns(columns)


def _letor(path: Path, schema: FeatureSchema) -> Iterator[FileRows]:
    first = 0
    with open_plain(path) as (stream, _):
        for block in blocks_of(stream, str(path)):
            if len(block.labels):
                yield FileRows(path, _frame(block, schema), block.lines.tolist(), first)
                first += len(block.labels)


def _frame(block: Block, schema: FeatureSchema) -> pl.DataFrame:
    """Return rows of LETOR text: query id and label, and the features of the bundle, 0 where a line leaves them out."""
    width, rows = block.features.shape[1], len(block.labels)
    columns: dict[str, object] = {
        LETOR_QID: np.repeat(np.array(block.qids, dtype=object), block.runs),
        LETOR_LABEL: block.labels,
    }
    for name in schema.names:
        number = int(name[1:]) if name[:1] == "f" and name[1:].isdecimal() else 0
        if number == 0:
            raise RecipeError(f"the bundle has a feature {name!r}, which LETOR text cannot name: give a table")
        columns[name] = block.features[:, number - 1] if number <= width else np.zeros(rows, dtype=np.float32)
    return pl.DataFrame(columns, schema_overrides={LETOR_QID: pl.String})


class RowRange(NamedTuple):
    """Consecutive rows of a Parquet or Arrow file: the number of the first, from 0, and how many there are."""

    path: Path
    first: int
    rows: int


def read(ranges: Sequence[RowRange], names: frozenset[str] | None) -> pl.DataFrame:
    """Return the rows of some files, one behind the other.

    Args:
        ranges: Ranges of rows to read.
        names: Names of the columns; see :func:`only`.

    Raises:
        DataError: if a file cannot be read.
    """
    frames = []
    for path, first, rows in ranges:
        try:
            scan = pl.scan_ipc(path) if path.suffix == ARROW else pl.scan_parquet(path, glob=False)
            frames.append(select_existing(scan, names).slice(first, rows).collect())
        except UNREADABLE as error:
            raise unreadable(path, error) from error
    return pl.concat(frames)


def columns_to_read(schema: FeatureSchema, qid: str, columns: Sequence[str] | None) -> frozenset[str] | None:
    """Return the names of the columns to read; None for all."""
    return None if columns is None else frozenset((qid, *schema.names, *columns))


def select_existing(rows: pl.LazyFrame, names: frozenset[str] | None) -> pl.LazyFrame:
    """Return those of the columns that exist, in their order; None for all."""
    if names is None:
        return rows
    return rows.select(by_name([name for name in rows.collect_schema().names() if name in names]))
