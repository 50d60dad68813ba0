"""Arrays and frames in memory: NumPy, pandas, polars, lists."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Set
from dataclasses import replace
from datetime import date, timedelta
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
import polars as pl
from jaxtyping import Float, Int

from listwright.ranking.errors import DataError, SchemaMismatchError
from listwright.ranking.features import Feature, FeatureSchema, spelled
from listwright.training.data.cells import LOOKED_AT, coded_note, count_rounded, numbers_in, rounded_note
from listwright.training.data.dataset import Dataset, Rounding
from listwright.training.data.leaks import rounding_of
from listwright.training.data.letor.text import letor_schema
from listwright.training.data.sources import is_index
from listwright.training.data.tables.columns import amounts, encoded, feature_of, grouped, whole_labels
from listwright.training.data.tables.frames import index_note, listed

Values = Any
"""One value per row, or a matrix: what NumPy, pandas and polars have in common is not a type."""


_NO_VALUES = (bytes, list, tuple, dict, set, np.ndarray, complex, np.complexfloating)

_EXACT = 2**127
"""Whole numbers from here on are no type of polars."""


def read_judged(
    X: Values, y: Values, qid: Values, *, categorical: tuple[str, ...], sample_weight: Values = None
) -> Dataset:
    """Return judged candidates, read as a table of the same columns would be.

    Args:
        X: ``(R, D)``; a frame's column names are the schema's, an array's columns are f1, f2 ... as in LETOR text; a
            sparse matrix of SciPy is the array that it stands for. Columns without a name are left out.
        y: ``(R,)`` or ``(R, 1)`` relevance labels.
        qid: ``(R,)`` or ``(R, 1)`` query ids of any type: whatever is spelled alike is one, so 2, 2.0 and "2". Rows of
            a query need not stand together.
        categorical: Columns to treat as categories whatever they hold; booleans, pandas' categories, and text that is
            no numbers always are.
        sample_weight: ``(R,)`` weight of each row; None: all alike.

    Raises:
        DataError: if a value cannot be used; names it, its row (from 0) and its column.
    """
    frame = _frame(X, None, categorical)
    absent = [name for name in categorical if name not in frame.columns]
    if absent:
        raise DataError("categorical", f"no column {absent[0]!r} in X; it has {listed(frame.columns)}")
    labels, ids = _column("y", y), _ids(qid)
    _check_length("y", labels, frame.height)
    _check_length("qid", ids, frame.height)
    whole = whole_labels(labels, _fault)
    order, offsets, qids = grouped(ids, _fault)
    features, schema, names = np.empty(frame.shape, dtype=np.float32), list[Feature](), frozenset(categorical)
    for d, column in enumerate(frame.iter_columns()):
        features[:, d], feature = feature_of(column, names, _fault_in_x, leave_out="leave it out of X")
        schema.append(feature)
    weights = _weights(sample_weight, order)
    return Dataset(features[order], whole[order], offsets, qids, FeatureSchema(features=tuple(schema)), weights=weights)


def notes_of(X: Values, qid: Values, schema: FeatureSchema) -> tuple[str, ...]:
    """Return notes on rows that :func:`read_judged` read under a schema."""
    ids, unnamed = _ids(qid), _unnamed([str(name) for name in getattr(X, "columns", ())], schema.names)
    notes, rounded = [index_note(unnamed)] if unnamed else [], count_rounded(ids)
    if rounded:
        notes.append(rounded_note("qid", rounded, len(ids)))
    if hasattr(X, "toarray"):
        return tuple(notes)
    frame = _frame(X[:LOOKED_AT], None, schema.names)
    coded = (coded_note(frame[schema.names[d]], "name it in categorical=") for d in schema.numeric)
    return (*notes, *(note for note in coded if note is not None))


def read_unjudged(
    X: Values, qid: Values, schema: FeatureSchema, columns: tuple[str, ...]
) -> tuple[Dataset, Int[np.ndarray, " R"]]:
    """Return candidates without labels (all are 0) under the schema of a bundle, and which row of X each of them is.

    Args:
        X: ``(R, D)`` candidates, of a type that :func:`read_judged` takes; a frame's columns are found by name, an
            array's by position.
        qid: ``(R,)`` or ``(R, 1)`` query ids of any type.
        schema: Schema of the bundle; categories that it lacks are unknown.
        columns: Names of the columns of X in the fit, the schema's names among them; columns that are no features are
            not looked at.

    Raises:
        DataError: as in :func:`read_judged`.
        SchemaMismatchError: if the columns are not those that were fitted, or text stands where numbers were.

    Convention: a frame may lack a feature that has a default, which then stands there, and one that training had
    missing values in, which is then missing.
    """
    frame = _frame(X, columns, columns)
    sent, fitted = set(frame.columns), set(columns)
    absent = [feature for feature in schema.features if feature.name not in sent]
    lacks = [f.name for f in absent if f.default is None and not f.missing_in_training]
    more = [name for name in frame.columns if name not in fitted]
    if lacks or more:
        faults = " and ".join(
            f"{verb} {listed(names)}" for verb, names in (("lacks", lacks), ("has also", more)) if names
        )
        raise SchemaMismatchError(
            f"X {faults}: give the columns that were fitted", expected=schema.names, sent=tuple(frame.columns)
        )
    kinds = {"categorical": pl.String, "numeric": pl.Float64}
    frame = frame.with_columns(pl.lit(f.default, dtype=kinds[f.kind]).alias(f.name) for f in absent)
    ids = _ids(qid)
    _check_length("qid", ids, frame.height)
    order, offsets, qids = grouped(ids, _fault)
    frame = frame.select(schema.names)
    for column, feature in zip(frame.iter_columns(), schema.features, strict=True):
        if feature.kind == "numeric" and len(wrong := numbers_in(column).wrong):
            fault = f"expected numbers, as were fitted; found {column[int(wrong[0])]!r}"
            raise SchemaMismatchError(f"X, row {wrong[0]}, column {feature.name}: {fault}")
    features = encoded(frame, schema, _fault_in_x)
    labels = np.zeros(len(features), dtype=np.int32)
    return Dataset(features[order], labels, offsets, qids, schema), order


def rounding(X: Values, schema: FeatureSchema, names: tuple[str, ...] | None = None) -> tuple[Rounding, ...]:
    """Return what the schema's columns of numbers lose as float32; ``names`` are those of an array's columns."""
    frame = _frame(X, names, schema.names)
    numeric = {schema.names[d] for d in schema.numeric}
    numbers = (column for column in frame.iter_columns() if column.name in numeric)
    return tuple(loss for column in numbers if (loss := rounding_of(numbers_in(column).values)) is not None)


def with_labels(data: Dataset, order: Int[np.ndarray, " R"], y: Values, sample_weight: Values = None) -> Dataset:
    """Return the result of :func:`read_unjudged` with labels and weights."""
    column = _column("y", y)
    _check_length("y", column, data.rows)
    labels = whole_labels(column, _fault)[order]
    return replace(data, labels=labels, weights=_weights(sample_weight, order))


def _weights(values: Values, order: Int[np.ndarray, " R"]) -> Float[np.ndarray, " R"] | None:
    if values is None:
        return None
    column = _column("sample_weight", values)
    _check_length("sample_weight", column, len(order))
    weights = amounts(column, _fault)
    if not weights.any():
        raise DataError("sample_weight", "all weights are 0: no query counts; raise some")
    ordered: Float[np.ndarray, " R"] = weights[order]
    return ordered


def _frame(X: Values, names: tuple[str, ...] | None, keep: tuple[str, ...]) -> pl.DataFrame:
    """Convert X to a frame; ``names`` are an array's, columns to ``keep`` stay even if they look like an index."""
    if hasattr(X, "toarray"):
        X = X.toarray()
    if isinstance(X, pl.DataFrame):
        frame = X
    elif hasattr(X, "iloc"):
        labels = [str(name) for name in X.columns]
        twice = next((name for name, count in Counter(labels).items() if count > 1), None)
        if twice is not None:
            raise DataError("X", f"column {twice!r} is named twice: rename one")
        frame = pl.DataFrame([_column(name, X.iloc[:, d]) for d, name in enumerate(labels)])
    else:
        array = _fill_masked(X) if isinstance(X, np.ndarray) else np.array(X, dtype=object)
        if array.ndim != 2:
            kind = type(X).__name__
            raise DataError("X", f"expected a frame or an array of two dimensions; found {kind} with {array.ndim}")
        names = names or letor_schema(array.shape[1]).names
        if len(names) != array.shape[1]:
            raise SchemaMismatchError(
                f"X has {array.shape[1]} columns, {len(names)} were fitted: give all of them, constant ones too",
                expected=names,
            )
        frame = pl.DataFrame([_column(name, array[:, d]) for d, name in enumerate(names)])
    frame = frame.drop(_unnamed(frame.columns, keep))
    if frame.height == 0 or frame.width == 0:
        raise DataError("X", f"has {frame.height} rows and {frame.width} columns: give at least one of each")
    return frame


def _unnamed(names: list[str], keep: tuple[str, ...]) -> list[str]:
    return [name for name in names if is_index(name) and name not in keep]


def _column(name: str, values: Values, unusable: tuple[type, ...] = _NO_VALUES) -> pl.Series:
    """Convert the values of one column, ``(R,)`` or ``(R, 1)``; NaN, None and pandas' NA are missing."""
    if values is None:
        raise DataError(name, "is not given: give one value per row")
    if hasattr(values, "toarray"):
        values = values.toarray()
    if isinstance(values, np.ndarray):
        values = _fill_masked(values)
    shape: tuple[int, ...] = getattr(values, "shape", ())
    if len(shape) == 2:
        if shape[1] != 1:
            raise DataError(name, f"expected one value per row; found {shape[1]} columns: give one")
        if isinstance(values, pl.DataFrame):
            values = values.to_series()
        else:
            values = values.iloc[:, 0] if hasattr(values, "iloc") else np.asarray(values)[:, 0]
    if isinstance(values, pl.Series):
        return values.alias(name)
    text = False
    if hasattr(values, "iloc"):
        text = str(values.dtype).startswith(("category", "dictionary<"))
        values = _read_pandas(values)
    elif isinstance(values, Mapping | Set) or not hasattr(values, "__len__"):
        raise DataError(name, f"expected one value per row, in order; found {type(values).__name__}")
    array = values if isinstance(values, np.ndarray) else np.array([*values, None], dtype=object)[:-1]
    if array.ndim != 1:
        raise DataError(name, f"expected one value per row; found {array.ndim} dimensions: give a column")
    if array.dtype.kind in "iufbmM" and not text:
        return pl.Series(name, array.astype(np.float64) if array.dtype == np.longdouble else array)
    return _objects(name, list(array), text=text, unusable=unusable)


def _read_pandas(values: Values) -> np.ndarray:
    """Convert a pandas column to an array; numbers keep their width, by which they are spelled."""
    narrow = getattr(values.dtype, "numpy_dtype", values.dtype)  # of types of pandas' own, and of Arrow's
    if isinstance(values.dtype, np.dtype) and narrow.kind in "iufb":
        array: np.ndarray = values.to_numpy()
    elif isinstance(narrow, np.dtype) and narrow.kind == "f":
        array = values.to_numpy(dtype=narrow, na_value=np.nan)
    elif str(values.dtype) == "category":
        names = values.cat.categories
        names = names.to_numpy() if names.dtype.kind == "f" else names.astype(object)
        known = [*names, None]  # -1 is the code of a missing one
        array = np.array([known[code] for code in [*values.cat.codes, -1]], dtype=object)[:-1]
    else:
        array = values.astype(object).to_numpy()
    return array


def _fill_masked(array: np.ndarray) -> np.ndarray:
    """Return an array whose masked values are missing."""
    if not isinstance(array, np.ma.MaskedArray):
        return np.asarray(array)
    kind = array.dtype.kind
    filled = np.array(array.data, dtype=array.dtype if kind in "fmM" else object)
    filled[np.ma.getmaskarray(array)] = {"f": np.nan, "m": "NaT", "M": "NaT"}.get(kind)
    return filled


def _objects(name: str, cells: list[Any], *, text: bool, unusable: tuple[type, ...]) -> pl.Series:
    """Convert Python values: numbers, dates, and anything else to text as a request would spell it."""
    values = [None if _missing(value) else value for value in cells]
    present = [value for value in values if value is not None]
    odd = next((value for value in present if isinstance(value, unusable)), None)
    if odd is not None:
        raise DataError(
            f"column {name}", f"found {odd!r}: give one number or one text per row, or leave the column out"
        )
    if not text and all(isinstance(value, Real | Decimal) and not isinstance(value, bool) for value in present):
        return _make_numbers(name, values, present)
    if not text and all(isinstance(value, (date, timedelta)) for value in present):
        return pl.Series(name, values)
    kind = pl.Categorical if text else pl.String
    return pl.Series(name, [value if isinstance(value, str) else spelled(value) for value in values], dtype=kind)


def _make_numbers(name: str, values: list[Any], present: list[Any]) -> pl.Series:
    """Convert Python's numbers: whole ones exactly, all others as wide as they are."""
    for narrow in (np.float16, np.float32):
        if present and all(isinstance(value, narrow) for value in present):
            return pl.Series(name, np.array([np.nan if value is None else value for value in values], dtype=narrow))
    if not all(isinstance(value, float | np.floating) for value in present) and all(map(_is_whole, present)):
        whole = [None if value is None else int(value) for value in values]
        exact = all(abs(int(value)) < _EXACT for value in present)
        return pl.Series(name, whole, dtype=pl.Int128) if exact else pl.Series(name, [spelled(n) for n in whole])
    return pl.Series(name, [None if value is None else float(value) for value in values], dtype=pl.Float64)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int | np.integer) or (bool(np.isfinite(float(value))) and value == int(value))


def _ids(qid: Values) -> pl.Series:
    if qid is None:
        raise DataError("qid", "is not given: say which query each row belongs to, one id per row")
    return _column("qid", qid, unusable=(list, np.ndarray))


def _missing(value: object) -> bool:
    """Return whether a value is None, NaN, or pandas' NA or NaT, without importing pandas."""
    if isinstance(value, (float, np.floating)):
        return bool(np.isnan(value))
    if isinstance(value, Decimal):
        return value.is_nan()
    return value is None or type(value).__name__ in ("NAType", "NaTType")


def _check_length(name: str, column: pl.Series, rows: int) -> None:
    if len(column) != rows:
        raise DataError(name, f"has {len(column)} values, X has {rows} rows: give one for each")


def _fault(column: pl.Series, expected: str, row: int | None = None) -> DataError:
    return DataError(column.name if row is None else f"{column.name}, row {row}", expected)


def _fault_in_x(column: pl.Series, expected: str, row: int | None = None) -> DataError:
    return DataError("X" if row is None else f"X, row {row}", expected, column=column.name)
