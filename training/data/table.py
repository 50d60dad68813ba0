"""Tables with one row per candidate: CSV (also gzip) and Parquet."""

from __future__ import annotations

import difflib
from pathlib import Path

import numpy as np
import polars as pl
from jaxtyping import Float, Int

from ranking.errors import DataError, RecipeError
from ranking.features import Feature, FeatureSchema
from training.config import TableData
from training.data.dataset import Dataset

_MAX_LABEL = 31


def read(spec: TableData, source: str) -> tuple[Dataset, str]:
    """Read a table.

    Text, boolean and categorical columns are categories; numbers are numeric unless ``spec.categorical`` names them (a
    whole number is then spelled without a decimal point). A null or NaN is a missing value. Rows of a query need not
    stand together: queries come in the order of their first row, candidates in row order.

    Args:
        spec: column names.
        source: the table, or the folder that holds ``spec.file``.

    Returns:
        The dataset, with categories sorted by name, and the name of the file.

    Raises:
        RecipeError: if the id or the label column is not named, or there is no column of a name.
        DataError: if the file or a value in it cannot be used; names column and row.
    """
    path = Path(source)
    if path.is_dir():
        if spec.file is None:
            raise RecipeError(f"{path} is a folder: name the table itself with --data")
        path /= spec.file
    frame = _frame(path)
    qid, label = _named(spec.qid, "--qid", frame, path), _named(spec.label, "--label", frame, path)
    for option, names in (("--categorical", spec.categorical), ("--ignore", spec.ignore)):
        for name in names:
            _named(name, option, frame, path)
    columns = [name for name in frame.columns if name not in (qid, label, *spec.ignore)]
    if not columns:
        raise DataError(path, f"has no feature columns besides {qid!r} and {label!r}")
    order, offsets, qids = _grouped(frame[qid], path)
    features, schema = _features(frame.select(columns), frozenset(spec.categorical), path)
    labels = _labels(frame[label], path)
    return Dataset(features[order], labels[order], offsets, qids, schema), path.name


def _frame(path: Path) -> pl.DataFrame:
    if not path.is_file():
        raise DataError(path, "does not exist")
    try:
        with path.open("rb") as file:
            parquet = file.read(4) == b"PAR1"
        frame = pl.read_parquet(path) if parquet else pl.read_csv(path, infer_schema_length=None)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise DataError(path, f"cannot be read as CSV or Parquet: {error}") from error
    if frame.height == 0:
        raise DataError(path, "has no rows")
    return frame


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
    if column.null_count():
        row = int(column.is_null().arg_max() or 0)
        raise DataError(path, "the query id is missing", line=row + 2, column=column.name)
    ids = column.to_list()
    position = {qid: n for n, qid in enumerate(dict.fromkeys(ids))}
    query_of = np.array([position[qid] for qid in ids], dtype=np.int64)
    lengths = np.bincount(query_of, minlength=len(position))
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return np.argsort(query_of, kind="stable"), offsets, tuple(str(qid) for qid in position)


def _labels(column: pl.Series, path: Path) -> Int[np.ndarray, " R"]:
    expected = f"expected a relevance label, a whole number from 0 to {_MAX_LABEL}"
    if not (column.dtype.is_numeric() or column.dtype == pl.Boolean):
        raise DataError(path, f"{expected}; the column holds {column.dtype}", column=column.name)
    values = column.cast(pl.Float64).to_numpy()
    bad = ~((values >= 0) & (values <= _MAX_LABEL) & (values % 1 == 0))
    if bad.any():
        row = int(np.argmax(bad))
        raise DataError(path, f"{expected}; found {column[row]!r}", line=row + 2, column=column.name)
    return values.astype(np.int32)


def _features(frame: pl.DataFrame, named: frozenset[str], path: Path) -> tuple[Float[np.ndarray, "R D"], FeatureSchema]:
    features = np.empty((frame.height, frame.width), dtype=np.float32)
    schema = []
    for d, column in enumerate(frame.iter_columns()):
        if column.name in named or not (column.dtype.is_numeric() or column.dtype == pl.Null):
            codes, categories = _categories(column, path)
            features[:, d] = codes
            schema.append(Feature(name=column.name, kind="categorical", categories=categories))
        else:
            features[:, d] = _numbers(column, path)
            schema.append(Feature(name=column.name))
    return features, FeatureSchema(features=tuple(schema))


def _numbers(column: pl.Series, path: Path) -> Float[np.ndarray, " R"]:
    values = column.cast(pl.Float64).to_numpy()
    with np.errstate(over="ignore"):
        numbers: Float[np.ndarray, " R"] = values.astype(np.float32)
    infinite = np.isinf(numbers)
    if infinite.any():
        row = int(np.argmax(infinite))
        raise DataError(
            path, f"expected a number that fits float32; found {column[row]!r}", line=row + 2, column=column.name
        )
    return numbers


def _categories(column: pl.Series, path: Path) -> tuple[Float[np.ndarray, " R"], tuple[str, ...]]:
    if column.dtype.is_nested() or column.dtype == pl.Binary:
        raise DataError(path, f"holds {column.dtype}, neither numbers nor text: --ignore it", column=column.name)
    values = [None if value is None else spelled(value) for value in column.to_list()]
    categories = tuple(sorted({value for value in values if value is not None}))
    code = {category: n for n, category in enumerate(categories, start=1)}
    return np.array([0 if value is None else code[value] for value in values], dtype=np.float32), categories


def spelled(value: object) -> str | None:
    """The name of a category, as a request spells it: 2, 2.0 and "2" are one; NaN is a missing one."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        if value != value:  # noqa: PLR0124 - NaN
            return None
        return str(int(value)) if value.is_integer() else str(value)
    return str(value)
