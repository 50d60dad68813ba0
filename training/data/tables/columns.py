"""What the columns of a table mean, wherever it came from: ids, labels, numbers, categories."""

from __future__ import annotations

from typing import Literal

import numpy as np
import polars as pl
from jaxtyping import Float, Int
from pydantic import ValidationError

from listwright.ranking.features import MISSING_CODE, Feature, FeatureSchema
from listwright.training.data.fault import Fault
from listwright.training.data.letor.fast import MAX_LABEL
from listwright.training.data.times import reads_as_time

WHOLE_LABEL = f"expected a relevance label, a whole number from 0 to {MAX_LABEL}"

MOSTLY, MANY = 0.8, 20
"""Share of the texts of a column that read as numbers, and different numbers, from which it is meant to be numeric."""

WEIGHT = "expected a weight, a finite number from 0"


def grouped(column: pl.Series, fault: Fault) -> tuple[Int[np.ndarray, " R"], Int[np.ndarray, " O"], tuple[str, ...]]:
    """Row order that brings queries together, their offsets and ids, by first appearance.

    Raises:
        DataError: if a row has no id.
    """
    values = column.unique(maintain_order=True)  # few: Python looks at each of them only
    ids = [None if value is None else spelled(value) for value in values.to_list()]
    position = {qid: n for n, qid in enumerate(dict.fromkeys(ids))}
    numbers = pl.Series([position[qid] for qid in ids], dtype=pl.Int64)
    value_of = pl.DataFrame({"value": values, "query": numbers})
    places = pl.DataFrame({"value": column}).join(
        value_of, on="value", how="left", nulls_equal=True, maintain_order="left"
    )
    query_of = places["query"].to_numpy()
    if None in position:
        raise fault(column, "the query id is missing", int(np.argmax(query_of == position[None])))
    lengths = np.bincount(query_of, minlength=len(position))
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return np.argsort(query_of, kind="stable"), offsets, tuple(str(qid) for qid in position)


def whole_labels(column: pl.Series, fault: Fault) -> Int[np.ndarray, " R"]:
    """Relevance labels.

    Raises:
        DataError: if one is missing, negative, fractional or too large.
    """
    if not (column.dtype.is_numeric() or column.dtype in (pl.Boolean, pl.String, pl.Null)):
        raise fault(column, f"{WHOLE_LABEL}; the column holds {column.dtype}")
    values = column.cast(pl.Float64, strict=False).to_numpy()
    bad = ~((values >= 0) & (values <= MAX_LABEL) & (np.floor(values) == values))
    if bad.any():
        row = int(np.argmax(bad))
        raise fault(column, f"{WHOLE_LABEL}; found {column[row]!r}", row)
    return values.astype(np.int32)


def row_weights(column: pl.Series, fault: Fault) -> Float[np.ndarray, " R"]:
    """How much each row counts.

    Raises:
        DataError: if a weight is missing, text, negative or infinite.
    """
    if not (column.dtype.is_numeric() or column.dtype in (pl.Boolean, pl.String, pl.Null)):
        raise fault(column, f"{WEIGHT}; the column holds {column.dtype}")
    values = column.cast(pl.Float64, strict=False).to_numpy()
    bad = ~((values >= 0.0) & np.isfinite(values))
    if bad.any():
        row = int(np.argmax(bad))
        raise fault(column, f"{WEIGHT}; found {column[row]!r}", row)
    return np.array(values, dtype=np.float64)


def features_of(
    frame: pl.DataFrame, named: frozenset[str], fault: Fault, *, leave_out: str, split_by: str = ""
) -> tuple[Float[np.ndarray, "R D"], FeatureSchema]:
    """Features and what they are: text, booleans and the columns ``named`` are categories, sorted by name.

    Args:
        frame: feature columns alone.
        named: columns that are categories whatever their type.
        fault: says where a wrong value stands.
        leave_out: how a column that cannot be used is left out there.
        split_by: how queries are split by a column of times there, with ``{}`` for its name; empty where they are not.

    Raises:
        DataError: if a column cannot be a feature, which dates and text that reads as dates cannot, or a number is
            infinite as float32.
    """
    features = np.empty((frame.height, frame.width), dtype=np.float32)
    schema = []
    for d, column in enumerate(frame.iter_columns()):
        features[:, d], feature = feature_of(column, named, fault, leave_out=leave_out, split_by=split_by)
        schema.append(feature)
    return features, FeatureSchema(features=tuple(schema))


def feature_of(
    column: pl.Series, named: frozenset[str], fault: Fault, *, leave_out: str, split_by: str = ""
) -> tuple[Float[np.ndarray, " R"], Feature]:
    """The same of one column."""
    if column.dtype.is_nested() or column.dtype == pl.Binary:
        raise fault(column, f"holds {column.dtype}, neither numbers nor text: {leave_out}")
    if column.name not in named and (times := _times_in(column)):
        raise fault(column, f"holds {times}: make it a number, or {leave_out}{split_by.format(column.name)}")
    if column.name not in named and (row := _no_number(column)) is not None:
        raise fault(
            column,
            f"expected a number, as most rows have; found {column[row]!r}: leave such cells empty "
            "(a missing value), or say that the column holds categories",
            row,
        )
    empty = column.null_count() == len(column)  # CSV cannot tell of what kind: as in Parquet, it is a number
    if column.name in named or not (column.dtype.is_numeric() or empty):
        codes, categories = _categories(column)
        return codes, _feature(column, categories, fault)
    return _numbers(column, fault), _feature(column, None, fault)


def encoded(frame: pl.DataFrame, schema: FeatureSchema) -> Float[np.ndarray, "R D"]:
    """Some rows of a table whose columns :func:`feature_of` has looked at as a whole.

    Args:
        frame: feature columns alone, in the order of the schema.
        schema: of the whole table.
    """
    features = np.empty((frame.height, frame.width), dtype=np.float32)
    for d, (column, feature) in enumerate(zip(frame.iter_columns(), schema.features, strict=True)):
        if feature.kind == "categorical":
            code: dict[str | None, float] = {category: n for n, category in enumerate(feature.categories, start=1)}
            code[None] = MISSING_CODE
            features[:, d] = [code[name] for name in _spelled(column)]
        else:
            features[:, d] = column.cast(pl.Float64).to_numpy()
    return features


def _times_in(column: pl.Series) -> str | None:
    """What times a column holds, or None; a column that says itself that it holds categories does not."""
    if column.dtype.is_temporal():
        return str(column.dtype)
    if column.dtype == pl.String and reads_as_time(column):
        return f"text that reads as dates ({column.drop_nulls()[0]!r})"
    return None


def _no_number(column: pl.Series) -> int | None:
    """The first row whose text is no number, where :data:`MOSTLY` of the texts are, and of :data:`MANY` values: cells
    such as N/A would make numbers categories.
    """
    if column.dtype != pl.String:
        return None
    numbers = column.cast(pl.Float64, strict=False)
    texts = len(column) - column.null_count()
    read = texts - (numbers.is_null() & column.is_not_null()).sum()
    if read == texts or read < MOSTLY * texts or numbers.n_unique() <= MANY:
        return None
    return int((numbers.is_null() & column.is_not_null()).arg_max() or 0)


def _feature(column: pl.Series, categories: tuple[str, ...] | None, fault: Fault) -> Feature:
    kind: Literal["numeric", "categorical"] = "numeric" if categories is None else "categorical"
    try:
        return Feature(name=column.name, kind=kind, categories=categories or ())
    except ValidationError as error:
        raise fault(column, f"{column.name!r} cannot name a feature: {error.errors()[0]['msg']}") from error


def _numbers(column: pl.Series, fault: Fault) -> Float[np.ndarray, " R"]:
    values = column.to_numpy() if column.dtype == pl.Float32 else column.cast(pl.Float64).to_numpy()
    with np.errstate(over="ignore"):
        numbers: Float[np.ndarray, " R"] = values.astype(np.float32)
    infinite = np.isinf(numbers)
    if infinite.any():
        row = int(np.argmax(infinite))
        raise fault(column, f"expected a number that fits float32; found {column[row]!r}", row)
    return numbers


def _categories(column: pl.Series) -> tuple[Float[np.ndarray, " R"], tuple[str, ...]]:
    values = _spelled(column)
    categories = tuple(sorted({value for value in values if value is not None}))
    code = {category: n for n, category in enumerate(categories, start=1)}
    codes = [MISSING_CODE if value is None else code[value] for value in values]
    return np.array(codes, dtype=np.float32), categories


def _spelled(column: pl.Series) -> list[str | None]:
    """The name of every value; None where it is missing."""
    if column.dtype.is_float():
        column = column.fill_nan(None)  # no NaN is another one's equal
    names = {value: _name(value, single=column.dtype == pl.Float32) for value in column.unique().to_list()}
    return [names[value] for value in column.to_list()]


def _name(value: object, *, single: bool) -> str | None:
    if value is None:
        return None
    # as a person would write it: 0.1, not the nearest double of the nearest float
    return spelled(np.float32(value) if single and isinstance(value, float) else value)


def spelled(value: object) -> str | None:
    """The name of a category, as a request spells it: 2, 2.0 and "2" are one; NaN is a missing one."""
    if isinstance(value, (bool, np.bool_)):
        return str(value).lower()
    if isinstance(value, (float, np.float32)):
        if value != value:  # noqa: PLR0124 - NaN
            return None
        return str(int(value)) if value.is_integer() else str(value)
    return str(value)
