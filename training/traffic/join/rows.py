"""The judged rows of a period of time: one row a shown candidate."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl

from listwright.ranking.errors import DataError, RecipeError
from listwright.training.traffic.join.events import COUNTED, NO_NUMBER, OTHER_PLACE, SUMMED, Cause, Counts, Labels
from listwright.training.traffic.join.pieces import Schema, Slice

QID, LABEL, TIME = "query_id", "label", "served_at"

_RECORD, _OBJECT = " record", " object"
"""Internal columns, with names that no other column has."""

_LEADING = (QID, "candidate_id", "position", LABEL)
_TRAILING = (
    "score",
    "first_stage_score",
    "bundle",
    "strategy",
    TIME,
    "unit",
    "experiment",
    "arm",
    "team",
    "intervention",
    "propensity",
    "swapped",
    "rules",
    "rule",
)


def check_names(schema: Schema, labels: Labels, prefix: str) -> None:
    """Raise if two columns of the judged rows would have the same name.

    Raises:
        RecipeError: if a sum has the name of another column that is not a feature.
        DataError: if a feature has the name of another column.
    """
    others = {*_LEADING, *_TRAILING, *(f"n_{action}" for action in labels.actions)}
    twice = [name for name in labels.sums if name in others]
    if twice:
        raise RecipeError(f"sums.{twice[0]}: the judged rows have this column already: choose another name")
    clashing = [name for name in schema.names if name in {prefix + other for other in others | labels.sums.keys()}]
    if clashing:
        raise DataError(
            "the served log",
            f"has a feature {clashing[0]!r}, a column of the judged rows: say --prefix judged_, for example",
        )


def judged_rows(
    slice_: Slice,
    pieces: Sequence[Path],
    matched: Sequence[Path],
    superseded: Sequence[Path],
    *,
    schema: Schema,
    labels: Labels,
    prefix: str,
    counts: Counts,
) -> pl.DataFrame:
    """Return the rows of the records that were served in a period, in the order of serving and of the shown places.

    Args:
        slice_: the stretch.
        pieces: of records.
        matched: events with their records.
        superseded: records that were served again later.
        schema: of the features.
        labels: what an action is worth.
        prefix: of all columns but the features.
        counts: of events; added to.

    Returns:
        One row a shown candidate; of a query without a candidate that was seen, none.
    """
    records = _between(pieces, slice_)
    records = records.join(_between(superseded, slice_).select("record"), on="record", how="anti").sort(TIME, "record")
    rows = _candidate_rows(records, schema, prefix)
    rows = _with_events(rows, records, _between(matched, slice_), labels, prefix, counts)
    ordered = [prefix + name for name in _LEADING] + list(schema.names) + [prefix + name for name in _TRAILING]
    return rows.select(*ordered, *_of_events(labels, prefix))


def _between(files: Sequence[Path], slice_: Slice) -> pl.DataFrame:
    inside = (pl.col(TIME) >= slice_.begin) & (pl.col(TIME) < slice_.end)
    return pl.scan_parquet(list(files)).filter(inside).collect()


def _candidate_rows(records: pl.DataFrame, schema: Schema, prefix: str) -> pl.DataFrame:
    """Return features and logged values of each shown candidate, under the names of the judged rows, and its record."""
    lengths = records["length"].to_numpy()
    rows, width = int(lengths.sum()), len(schema.names)
    features = np.frombuffer(b"".join(records["features"].to_list()), "<f4").reshape(rows, width)
    begins = np.cumsum(lengths) - lengths
    place = np.arange(rows) - np.repeat(begins, lengths)
    record = np.repeat(np.arange(records.height), lengths)
    columns = {name: _column(features[:, d], schema, name) for d, name in enumerate(schema.names)}
    spread = records.select(
        pl.col("record").alias(_RECORD),
        pl.col(QID).alias(prefix + QID),
        pl.col(TIME).dt.replace_time_zone("UTC").alias(prefix + TIME),
        *(
            pl.col(name).alias(prefix + name)
            for name in ("bundle", "strategy", "unit", "experiment", "arm", "intervention", "propensity", "rules")
        ),
    )[record]
    ids = records.filter(pl.col("length") > 0)["shown"].explode()
    return spread.with_columns(
        ids.alias(prefix + "candidate_id"),
        pl.Series(prefix + "position", (place + 1).astype(np.int32)),
        _scores(records["scores"]).alias(prefix + "score"),
        _scores(records["first_stage_scores"]).alias(prefix + "first_stage_score"),
        _of_places(records["teams"], lengths).alias(prefix + "team"),
        _of_places(records["rule"], lengths).alias(prefix + "rule"),
        pl.Series(prefix + "swapped", _swapped(records, begins, rows)),
        *(column.alias(name) for name, column in columns.items()),
    )


def _column(values: np.ndarray, schema: Schema, name: str) -> pl.Series:
    categories = schema.categories.get(name)
    if categories is None:
        return pl.Series(np.ascontiguousarray(values))
    codes = pl.Series(values.astype(np.int64) - 1)  # 0 is an unknown or a missing one: null
    known = codes.is_between(0, len(categories) - 1)
    return pl.Series(list(categories), dtype=pl.String).gather(codes.set(~known, None))


def _scores(column: pl.Series) -> pl.Series:
    return pl.Series(np.frombuffer(b"".join(column.to_list()), "<f8")).fill_nan(None)


def _of_places(lists: pl.Series, lengths: np.ndarray) -> pl.Series:
    """Return what lists say of each shown place; null where there is none, or it is shorter than the shown list."""
    rows: list[str | None] = []
    for one, length in zip(lists.to_list(), lengths.tolist(), strict=True):
        rows += [None] * length if one is None else [*one, *[None] * length][:length]
    return pl.Series(rows, dtype=pl.String)


def _swapped(records: pl.DataFrame, begins: np.ndarray, rows: int) -> np.ndarray:
    swapped = np.zeros(rows, dtype=bool)
    changed = records["intervention"].is_not_null()
    for row in changed.arg_true().to_list():
        places = records["places"][row].to_numpy()
        swapped[begins[row] + places[(places >= 0) & (places < records["length"][row])]] = True
    return swapped


def _of_events(labels: Labels, prefix: str) -> list[str]:
    """Return the names of the columns that count events, and of those that sum their numbers."""
    return [prefix + name for name in (*(f"n_{action}" for action in labels.actions), *labels.sums)]


def _with_events(
    rows: pl.DataFrame, records: pl.DataFrame, events: pl.DataFrame, labels: Labels, prefix: str, counts: Counts
) -> pl.DataFrame:
    """Return the rows with their labels and counts, without those that were not seen."""
    at = rows.select(
        pl.col(_RECORD).alias("record"),
        pl.col(prefix + "candidate_id").alias("object_id"),
        pl.col(prefix + "position").alias("at"),
    )
    placed = events.join(at, on=["record", "object_id"], how="left")
    lost = placed.filter(pl.col("at").is_null())
    hidden = records.select("record", pl.col("unshown").alias("object_id")).explode("object_id").drop_nulls("object_id")
    not_shown = lost.join(hidden, on=["record", "object_id"], how="semi").height
    counts[Cause.NOT_SHOWN] += not_shown
    counts[Cause.NOT_IN_LIST] += lost.height - not_shown
    placed = placed.filter(pl.col("at").is_not_null())
    counts[COUNTED] += placed.height
    counts[OTHER_PLACE] += int((placed["ordinal"] != placed["at"]).sum())
    worth = pl.col("action_name").replace_strict(labels.labels, default=0, return_dtype=pl.Int32)
    of_candidate = placed.group_by(pl.col("record").alias(_RECORD), pl.col("object_id").alias(_OBJECT)).agg(
        worth.max().alias(prefix + LABEL),
        *(
            (pl.col("action_name") == action).sum().cast(pl.Int32).alias(f"{prefix}n_{action}")
            for action in labels.actions
        ),
        *(
            pl.col(SUMMED + name).filter(pl.col("action_name") == one.action).sum().alias(prefix + name)
            for name, one in labels.sums.items()
        ),
    )
    for name, one in labels.sums.items():
        counts[NO_NUMBER] += placed.filter(pl.col("action_name") == one.action)[SUMMED + name].null_count()
    joined = rows.join(
        of_candidate,
        left_on=[_RECORD, prefix + "candidate_id"],
        right_on=[_RECORD, _OBJECT],
        how="left",
        maintain_order="left",
    )
    if labels.seen:
        joined = joined.filter(pl.col(prefix + LABEL).is_not_null())
    return joined.with_columns(pl.col(name).fill_null(0) for name in (prefix + LABEL, *_of_events(labels, prefix)))
