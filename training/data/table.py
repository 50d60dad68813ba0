"""Tables with one row per candidate: CSV (also gzip) and Parquet."""

from __future__ import annotations

import csv
import difflib
import io
import zlib
from functools import partial
from itertools import islice
from pathlib import Path

import polars as pl

from ranking.errors import DataError, RecipeError
from training.data.cache import cached
from training.data.columns import features_of, grouped, whole_labels
from training.data.container import file_digest, is_archive, open_plain
from training.data.dataset import Dataset
from training.data_config import TableData

_MISSING_WORDS = ["NULL", "NaN", "nan"]


def read(spec: TableData, source: str) -> tuple[Dataset, str]:
    """Read a table.

    Text, boolean and categorical columns are categories; numbers are numeric unless ``spec.categorical`` names them (a
    whole number is then spelled without a decimal point). A null or NaN, in CSV also an empty field and the words NULL,
    NaN and nan, is a missing value. Rows of a query need not stand together: queries come in the order of their first
    row, candidates in row order.

    Args:
        spec: column names.
        source: the table, or the folder that holds ``spec.file``.

    Returns:
        The dataset, with categories sorted by name, and the name of the file.

    Raises:
        RecipeError: if the id or the label column is not named, or there is no column of a name.
        DataError: if the file or a value in it cannot be used; names the column, and the line (in Parquet the row,
            from 1).
    """
    path = Path(source)
    if path.is_dir():
        if spec.file is None:
            raise RecipeError(f"{path} is a folder: name the table itself with --data")
        path /= spec.file
    if not path.is_file():
        raise DataError(path, "does not exist")
    if not _is_parquet(path) and is_archive(path):
        raise DataError(path, "is an archive: unpack it, and name the table in it with --data")
    # how types are inferred is the library's: another version of it may read the same text otherwise
    digest = f"{file_digest(path)}/{pl.__version__}/{spec.model_dump_json()}"
    return cached(digest, path.name, lambda: _parse(spec, path)), path.name


def _parse(spec: TableData, path: Path) -> Dataset:
    frame = _frame(path)
    qid, label = _named(spec.qid, "--qid", frame, path), _named(spec.label, "--label", frame, path)
    for option, names in (("--categorical", spec.categorical), ("--ignore", spec.ignore)):
        for name in names:
            _named(name, option, frame, path)
    columns = [name for name in frame.columns if name not in (qid, label, *spec.ignore)]
    if not columns:
        raise DataError(path, f"has no feature columns besides {qid!r} and {label!r}")
    fault = partial(_fault, path)
    order, offsets, qids = grouped(frame[qid], fault)
    labels = whole_labels(frame[label], fault)
    features, schema = features_of(frame.select(columns), frozenset(spec.categorical), fault, leave_out="--ignore it")
    return Dataset(features[order], labels[order], offsets, qids, schema)


def _frame(path: Path) -> pl.DataFrame:
    try:
        frame = pl.read_parquet(path) if _is_parquet(path) else _csv(path)
    except (OSError, EOFError, zlib.error, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise DataError(path, f"cannot be read as CSV or Parquet: {error}") from error
    if frame.height == 0:
        raise DataError(path, "has no rows")
    return frame


def _is_parquet(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"PAR1"


def _csv(path: Path) -> pl.DataFrame:
    try:
        frame = pl.read_csv(path, infer_schema_length=None, null_values=_MISSING_WORDS)
    except pl.exceptions.PolarsError:
        _check_fields(path)
        raise
    if (
        frame.height and frame.to_series(frame.width - 1).null_count()
    ):  # a short line ends in nulls: see if there is one
        _check_fields(path)
    elif any(name.endswith("_duplicated_0") for name in frame.columns):
        _check_fields(path, lines=1)
    return frame


def _check_fields(path: Path, lines: int | None = None) -> None:
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
        except (csv.Error, UnicodeDecodeError) as error:
            raise DataError(path, f"cannot be read as CSV: {error}", line=rows.line_num + 1) from error


def _named(name: str | None, option: str, frame: pl.DataFrame, path: Path) -> str:
    if name is None:
        raise RecipeError(f"which column is it? pass {option} COL; {path} has {_listed(frame.columns)}")
    if name not in frame.columns:
        near = difflib.get_close_matches(name, frame.columns, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise RecipeError(f"{option}: no column {name!r} in {path}; {hint}it has {_listed(frame.columns)}")
    return name


def _listed(names: list[str]) -> str:
    return ", ".join(names[:20]) + (" …" if len(names) > 20 else "")


def _fault(path: Path, column: pl.Series, expected: str, row: int | None = None) -> DataError:
    """A fault in a column, or in one of its rows counted from 0: in CSV the header is line 1."""
    line = None if row is None else row + (1 if _is_parquet(path) else 2)
    return DataError(path, expected, line=line, column=column.name)
