"""The meaning of a table's columns, wherever it comes from: ids, labels, numbers, categories."""

from __future__ import annotations

from typing import Literal

import numpy as np
import polars as pl
from jaxtyping import Bool, Float, Int
from pydantic import ValidationError

from listwright.ranking.features import Feature, FeatureSchema
from listwright.training.data.cells import (
    Fault,
    Numbers,
    codes_in,
    is_iso,
    is_text,
    is_usable,
    names_in,
    numbers_in,
    reads_as_time,
    written_numbers,
)
from listwright.training.data.letor.fast import MAX_LABEL

WHOLE_LABEL = f"expected a relevance label, a whole number from 0 to {MAX_LABEL}"

Kind = Literal["numbers", "booleans", "text", "times"]


def grouped(column: pl.Series, fault: Fault) -> tuple[Int[np.ndarray, " R"], Int[np.ndarray, " O"], tuple[str, ...]]:
    """Return the row order that brings queries together, their offsets and ids, by first appearance.

    Raises:
        DataError: if a row has no id, or the column's type is none of ids.
    """
    if not is_usable(column):
        raise fault(column, f"holds {column.dtype}, and query ids are text or numbers: write them as text")
    values = column.unique(maintain_order=True)
    ids = names_in(values).to_list()
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
    """Return relevance labels.

    Raises:
        DataError: if one is missing, negative, fractional or too large.
    """
    values = floats(numbers_in(column, booleans=True))
    check_cells(column, (values >= 0) & (values <= MAX_LABEL) & (np.floor(values) == values), WHOLE_LABEL, fault)
    return values.astype(np.int32)


def amounts(column: pl.Series, fault: Fault, what: str = "a weight") -> Float[np.ndarray, " R"]:
    """Return the weight of each row, or its value for a goal.

    Raises:
        DataError: if one is missing, text, negative or infinite.
    """
    values = floats(numbers_in(column, booleans=True))
    check_cells(column, (values >= 0.0) & np.isfinite(values), f"expected {what}, a finite number from 0", fault)
    return np.array(values, dtype=np.float64)


def check_cells(column: pl.Series, right: Bool[np.ndarray, " R"], expected: str, fault: Fault) -> None:
    """Raise DataError for the first cell of a column that is not right, with what is expected there."""
    if not right.all():
        row = int(np.argmin(right))
        raise fault(column, f"{expected}; found {column[row]!r}", row)


def feature_of(
    column: pl.Series, categories: frozenset[str], fault: Fault, *, leave_out: str, split_by: str = ""
) -> tuple[Float[np.ndarray, " R"], Feature]:
    """Return values and description of one column: a category, sorted, where it holds text or booleans.

    Args:
        column: Column of any type.
        categories: Names of columns that are categories whatever their type.
        fault: Function that creates the error for a wrong value.
        leave_out: Remedy of the error: the way to leave out a column that cannot be used.
        split_by: Remedy of the error: the way to split queries by a column of times, with ``{}`` for its name; empty
            where they cannot be.

    Raises:
        DataError: if a column cannot be a feature, which dates and text that reads as dates cannot; if at least half of
            its texts are numbers, and others are not, or are written as ``1,234.50``; or if a number is infinite as
            float32.
    """
    if not is_usable(column):
        raise fault(column, f"holds {column.dtype}, neither numbers nor text: {leave_out}")
    if column.name in categories:
        return _category(column, fault)
    numbers_of_column, expected = numbers_in(column), "expected a number, as most rows have; found"
    match kind_of(column, numbers_of_column):
        case "numbers" | None:
            if len(numbers_of_column.wrong):
                row = int(numbers_of_column.wrong[0])
                advice = "leave such cells empty (a missing value), or say that the column holds categories"
                raise fault(column, f"{expected} {column[row]!r}: {advice}", row)
            return _float32(column, numbers_of_column.values, fault), _feature(column, None, fault)
        case "times":
            first = column.drop_nulls()[0]
            times = f"text that reads as dates ({first!r})" if is_text(column) else str(column.dtype)
            split = split_by.format(column.name) if not is_text(column) or is_iso(names_in(column)) else ""
            raise fault(column, f"holds {times}: make it a number, or {leave_out}{split}")
        case "text" if column.dtype in (pl.String, pl.Binary):
            written = written_numbers(column, numbers_of_column)
            number_count = len(column) - numbers_of_column.values.null_count()
            if len(written) and number_count + len(written) >= len(numbers_of_column.wrong) - len(written):
                row, remedy = int(written[0]), "write digits and a decimal point only, such as 1234.5"
                advice = f"{remedy}, or say that the column holds categories"
                raise fault(column, f"{expected} {column[row]!r}: {advice}", row)
    return _category(column, fault)


def kind_of(column: pl.Series, parsed: Numbers) -> Kind | None:
    """Return the kind of a column's values; None where it has no value.

    Args:
        column: Column of text or of another type; a column of categories counts as text whatever its values look like.
        parsed: Numbers of the column.
    """
    number_count = len(column) - parsed.values.null_count()
    if column.dtype.is_temporal():
        return "times"
    if number_count == 0 and len(parsed.wrong) == 0:
        return None
    if number_count >= len(parsed.wrong) and column.dtype not in (pl.Categorical, pl.Enum):
        return "numbers"
    names = names_in(column).unique()
    if names.drop_nulls().is_in(["true", "false"]).all():
        return "booleans"
    return "times" if column.dtype in (pl.String, pl.Binary) and reads_as_time(names) else "text"


def encoded(frame: pl.DataFrame, schema: FeatureSchema, fault: Fault) -> Float[np.ndarray, "R D"]:
    """Encode rows with an existing schema.

    Args:
        frame: Frame of the feature columns alone, in the order of the schema.
        schema: Schema of the fitted features, or of a whole table with these rows in it.
        fault: Function that creates the error for a wrong value.

    Raises:
        DataError: if a number is none, or infinite as float32.
    """
    features = np.empty((frame.height, frame.width), dtype=np.float32)
    for d, (column, feature) in enumerate(zip(frame.iter_columns(), schema.features, strict=True)):
        if feature.kind == "categorical":
            if not is_usable(column):
                raise fault(column, f"holds {column.dtype}, not the text or numbers of a category")
            features[:, d] = codes_in(column, feature)
        else:
            features[:, d] = _float32(column, fitted_numbers(column, fault), fault)
    return features


def fitted_numbers(column: pl.Series, fault: Fault) -> pl.Series:
    """Return a column as numbers, whatever type it has.

    Raises:
        DataError: if a cell is no number and not missing.
    """
    numbers = numbers_in(column)
    if len(numbers.wrong):
        row = int(numbers.wrong[0])
        fault_text = f"expected a number, as was fitted; found {column[row]!r}"
        raise fault(column, f"{fault_text}: leave the cell empty if the value is missing", row)
    return numbers.values


def floats(numbers: Numbers) -> Float[np.ndarray, " R"]:
    """Return numbers as float64; NaN where there is none."""
    values: Float[np.ndarray, " R"] = numbers.values.cast(pl.Float64).to_numpy()
    return values


def _feature(column: pl.Series, categories: tuple[str, ...] | None, fault: Fault) -> Feature:
    kind: Literal["numeric", "categorical"] = "numeric" if categories is None else "categorical"
    try:
        return Feature(name=column.name, kind=kind, categories=categories or ())
    except ValidationError as error:
        raise fault(column, f"{column.name!r} cannot name a feature: {error.errors()[0]['msg']}") from error


def _float32(column: pl.Series, values: pl.Series, fault: Fault) -> Float[np.ndarray, " R"]:
    wide = values.to_numpy() if values.dtype == pl.Float32 else values.cast(pl.Float64).to_numpy()
    with np.errstate(over="ignore"):
        numbers: Float[np.ndarray, " R"] = wide.astype(np.float32)
    check_cells(column, ~np.isinf(numbers), "expected a number that fits float32", fault)
    return numbers


def _category(column: pl.Series, fault: Fault) -> tuple[Float[np.ndarray, " R"], Feature]:
    names = names_in(column)
    feature = _feature(column, tuple(names.unique().drop_nulls().sort().to_list()), fault)
    return codes_in(names, feature), feature
