"""Rows of files as they are needed: Parquet, CSV and LETOR text, a bounded number at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from listwright.ranking.errors import DataError, RecipeError
from listwright.ranking.features import Feature, FeatureSchema
from listwright.training.data.container import open_plain
from listwright.training.data.letor.fast import Block
from listwright.training.data.letor.text import blocks_of
from listwright.training.data.sources import check_exists
from listwright.training.data.tables.columns import spelled
from listwright.training.data.tables.frames import MISSING_WORDS, Table, check_fields, check_table, is_parquet
from listwright.training.recipe.options import TABLES
from listwright.training.scoring.ranges import needed, only, unreadable

BATCH_ROWS = 50_000
"""Rows that are read at a time."""

LETOR_QID, LETOR_LABEL = "qid", "label"


class FileRows(NamedTuple):
    """Some rows of a file.

    Args:
        path: of the file.
        rows: in their order, of all columns that are needed, or of the query ids alone.
        lines: where each row stands in the file, for errors.
        first: of the file's rows, counted from 0.
        kinds: of all columns that are needed; None for those of ``rows``.
    """

    path: Path
    rows: pl.DataFrame
    lines: Sequence[int]
    first: int = 0
    kinds: Mapping[str, object] | None = None

    @property
    def schema(self) -> Mapping[str, object]:
        """Of all columns that are needed."""
        return self.rows.schema if self.kinds is None else self.kinds


class Batches(NamedTuple):
    """The rows of a file or a folder.

    Args:
        qid: column of query ids.
        rows: a bounded number at a time.
        ids_only: whether they are the query ids alone: :func:`~listwright.training.scoring.ranges.read` reads the rest.
    """

    qid: str
    rows: Iterator[FileRows]
    ids_only: bool


def is_table(path: Path) -> bool:
    """Whether a file is CSV or Parquet: by its name, or by its first bytes."""
    return path.name.lower().endswith(TABLES) or (path.is_file() and is_parquet(path))


def files_of(data: Path) -> list[Path]:
    """The file, or the files of a folder by name; files whose name begins with ``.`` or ``_`` hold no rows.

    Raises:
        DataError: if there is nothing at the path, or no file in the folder.
    """
    check_exists(str(data))
    if not data.is_dir():
        return [data]
    found = sorted(path for path in data.iterdir() if path.is_file() and path.name[0] not in "._")
    if not found:
        raise DataError(data, "has no files: name a folder of Parquet, CSV or LETOR files, or one such file")
    return found


def batches(
    data: Path,
    schema: FeatureSchema,
    qid: str | None,
    columns: Sequence[str] | None = None,
    *,
    ids_only: bool = False,
) -> Batches:
    """The rows of a file or a folder in their order.

    Args:
        data: a file, or a folder whose files are read by name; a list may go on in the next file.
        schema: of the bundle. Its features in CSV are read as it says; all other columns of CSV are text.
        qid: column of a table with the query id; LETOR text has a place of its own for it.
        columns: that are needed beside features and query ids; None for all. Others are perhaps not read.
        ids_only: read the query ids alone if all files are Parquet.

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
    return Batches(names.pop(), _alike(data, [rows for _, rows in opened]), ids_only)


def _alike(data: Path, files: list[Iterator[FileRows]]) -> Iterator[FileRows]:
    """The batches of all files, which have the columns of the first."""
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
    before, found = first.schema, batch.schema
    for name in [*before, *found]:
        if before.get(name) != found.get(name):
            has, had = (f"{name} as {kinds[name]}" if name in kinds else f"no {name}" for kinds in (found, before))
            return f"has {has}, and {first.path.name} has {had}: the files of a folder need the same columns"
    return f"has its columns in another order than {first.path.name}"


def _opened(
    path: Path, schema: FeatureSchema, qid: str | None, columns: Sequence[str] | None, *, ids_only: bool
) -> tuple[str, Iterator[FileRows]]:
    check_table(path)
    if not is_table(path):
        if qid is not None:
            raise RecipeError(f"--qid {qid}: LETOR text has query ids of its own; leave --qid out")
        return LETOR_QID, _letor(path, schema)
    try:
        if not is_parquet(path):
            check_fields(path, lines=1)  # polars would rename a column that is named twice
        rows = pl.scan_parquet(path) if is_parquet(path) else pl.scan_csv(path, infer_schema=False)
        names = rows.collect_schema().names()
    except (OSError, pl.exceptions.PolarsError) as error:
        raise unreadable(path, error) from error
    named = Table(path, pl.DataFrame(schema=dict.fromkeys(names, pl.String))).named(qid, "--qid")
    if not is_parquet(path):
        return named, _csv(path, rows, schema, named)
    rows = only(rows, needed(schema, named, columns))
    return named, _parquet(path, rows, named, ids_only=ids_only)


def _parquet(path: Path, rows: pl.LazyFrame, qid: str, *, ids_only: bool) -> Iterator[FileRows]:
    first, kinds = 0, rows.collect_schema()
    if ids_only:
        rows = rows.select(qid)
    try:
        for frame in rows.collect_batches(chunk_size=BATCH_ROWS, maintain_order=True):
            begins = Table(path, frame).line(first)
            yield FileRows(path, frame, range(begins, begins + frame.height), first, kinds)
            first += frame.height
    except (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise unreadable(path, error) from error


def _csv(path: Path, rows: pl.LazyFrame, schema: FeatureSchema, qid: str) -> Iterator[FileRows]:
    first = 0
    try:
        for frame in rows.collect_batches(chunk_size=BATCH_ROWS, maintain_order=True):
            table = Table(path, frame)
            if frame.to_series(frame.width - 1).null_count():  # a short line ends in nulls
                check_fields(path)
            begins = table.line(first)
            yield FileRows(path, _typed(table, schema, qid, first), range(begins, begins + frame.height), first)
            first += frame.height
    except (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        check_fields(path)
        raise unreadable(path, error) from error


def _typed(table: Table, schema: FeatureSchema, qid: str, first: int) -> pl.DataFrame:
    """CSV's text with features as numbers and categories; ``first`` is the row that the frame begins with."""
    made = []
    assert isinstance(table.frame, pl.DataFrame)
    for feature in schema.features:
        if feature.name not in table.frame.columns or feature.name == qid:
            continue
        column = table.frame[feature.name]
        column = column.set(column.is_in(MISSING_WORDS).fill_null(value=False), None)
        made.append(_category(column, feature) if feature.kind == "categorical" else _number(column, table, first))
    return table.frame.with_columns(made)


def _number(column: pl.Series, table: Table, first: int) -> pl.Series:
    numbers = column.cast(pl.Float64, strict=False)
    wrong = numbers.is_null() & column.is_not_null()
    if wrong.any():
        row = int(wrong.arg_max() or 0)
        said = f"expected a number, as was fitted; found {column[row]!r}: leave the cell empty if the value is missing"
        raise DataError(table.path, said, line=table.line(first + row), column=column.name)
    return numbers


def _category(column: pl.Series, feature: Feature) -> pl.Series:
    """Categories as a request spells them: a fit reads 2, 2.0 and 2.00 as one."""
    known = frozenset(feature.categories)
    as_fitted = {value: _spelled(value) for value in column.unique().drop_nulls() if value not in known}
    renamed = {value: name for value, name in as_fitted.items() if name in known}
    return column.replace(renamed) if renamed else column


def _spelled(text: str) -> str | None:
    try:
        return spelled(float(text))
    except ValueError:
        return None


def _letor(path: Path, schema: FeatureSchema) -> Iterator[FileRows]:
    first = 0
    with open_plain(path) as (stream, _):
        for block in blocks_of(stream, str(path)):
            if len(block.labels):
                yield FileRows(path, _frame(block, schema), block.lines.tolist(), first)
                first += len(block.labels)


def _frame(block: Block, schema: FeatureSchema) -> pl.DataFrame:
    """Rows of LETOR text: its query id and label, and the features of the bundle, 0 where a line leaves them out."""
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
