"""Tables with one row per candidate: CSV (also gzip) and Parquet."""

from __future__ import annotations

import csv
import difflib
import io
import zlib
from itertools import islice
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl
from jaxtyping import Float, Int
from pydantic import ValidationError

from ranking.errors import DataError, RecipeError
from ranking.features import Feature, FeatureSchema
from training.data.cache import cached
from training.data.container import file_digest, open_plain
from training.data.dataset import Dataset
from training.data.letor_fast import MAX_LABEL
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
    order, offsets, qids = _grouped(frame[qid], path)
    labels = _labels(frame[label], path)
    features, schema = _features(frame.select(columns), frozenset(spec.categorical), path)
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


def _grouped(column: pl.Series, path: Path) -> tuple[Int[np.ndarray, " R"], Int[np.ndarray, " N+1"], tuple[str, ...]]:
    """Row order that brings queries together, their offsets and ids, by first appearance."""
    ids = [None if value is None else spelled(value) for value in column.to_list()]
    if None in ids:
        raise _at(path, ids.index(None), column, "the query id is missing")
    position = {qid: n for n, qid in enumerate(dict.fromkeys(ids))}
    query_of = np.array([position[qid] for qid in ids], dtype=np.int64)
    lengths = np.bincount(query_of, minlength=len(position))
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return np.argsort(query_of, kind="stable"), offsets, tuple(str(qid) for qid in position)


def _labels(column: pl.Series, path: Path) -> Int[np.ndarray, " R"]:
    expected = f"expected a relevance label, a whole number from 0 to {MAX_LABEL}"
    if not (column.dtype.is_numeric() or column.dtype in (pl.Boolean, pl.String, pl.Null)):
        raise DataError(path, f"{expected}; the column holds {column.dtype}", column=column.name)
    values = column.cast(pl.Float64, strict=False).to_numpy()
    bad = ~((values >= 0) & (values <= MAX_LABEL) & (np.floor(values) == values))
    if bad.any():
        row = int(np.argmax(bad))
        raise _at(path, row, column, f"{expected}; found {column[row]!r}")
    return values.astype(np.int32)


def _at(path: Path, row: int, column: pl.Series, expected: str) -> DataError:
    """A fault in one row, counted from 0: in CSV the header is line 1."""
    return DataError(path, expected, line=row + (1 if _is_parquet(path) else 2), column=column.name)


def _features(frame: pl.DataFrame, named: frozenset[str], path: Path) -> tuple[Float[np.ndarray, "R D"], FeatureSchema]:
    features = np.empty((frame.height, frame.width), dtype=np.float32)
    schema = []
    for d, column in enumerate(frame.iter_columns()):
        if column.dtype.is_nested() or column.dtype == pl.Binary:
            raise DataError(path, f"holds {column.dtype}, neither numbers nor text: --ignore it", column=column.name)
        if column.dtype.is_temporal() and column.name not in named:
            raise DataError(path, f"holds {column.dtype}: make it a number, or --ignore it", column=column.name)
        empty = column.null_count() == len(column)  # CSV cannot tell of what kind: as in Parquet, it is a number
        if column.name in named or not (column.dtype.is_numeric() or empty):
            codes, categories = _categories(column)
            features[:, d] = codes
            schema.append(_feature(path, column.name, categories))
        else:
            features[:, d] = _numbers(column, path)
            schema.append(_feature(path, column.name, None))
    return features, FeatureSchema(features=tuple(schema))


def _feature(path: Path, name: str, categories: tuple[str, ...] | None) -> Feature:
    kind: Literal["numeric", "categorical"] = "numeric" if categories is None else "categorical"
    try:
        return Feature(name=name, kind=kind, categories=categories or ())
    except ValidationError as error:
        raise DataError(path, f"{name!r} cannot name a feature: {error.errors()[0]['msg']}", column=name) from error


def _numbers(column: pl.Series, path: Path) -> Float[np.ndarray, " R"]:
    values = column.cast(pl.Float64).to_numpy()
    with np.errstate(over="ignore"):
        numbers: Float[np.ndarray, " R"] = values.astype(np.float32)
    infinite = np.isinf(numbers)
    if infinite.any():
        row = int(np.argmax(infinite))
        raise _at(path, row, column, f"expected a number that fits float32; found {column[row]!r}")
    return numbers


def _categories(column: pl.Series) -> tuple[Float[np.ndarray, " R"], tuple[str, ...]]:
    single = column.dtype == pl.Float32  # as a person would write it: 0.1, not the nearest double of the nearest float
    given = (np.float32(value) if single and value is not None else value for value in column.to_list())
    values = [None if value is None else spelled(value) for value in given]
    categories = tuple(sorted({value for value in values if value is not None}))
    code = {category: n for n, category in enumerate(categories, start=1)}
    return np.array([0 if value is None else code[value] for value in values], dtype=np.float32), categories


def spelled(value: object) -> str | None:
    """The name of a category, as a request spells it: 2, 2.0 and "2" are one; NaN is a missing one."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (float, np.float32)):
        if value != value:  # noqa: PLR0124 - NaN
            return None
        return str(int(value)) if value.is_integer() else str(value)
    return str(value)
