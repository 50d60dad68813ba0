"""List-relative columns of training data: the candidates, those that a fitted forest uses, and data with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Float

from listwright.ranking.errors import DataError
from listwright.ranking.features import MAX_NAME, QUANTILE_LEVELS, FeatureSchema
from listwright.ranking.first_stage import read_booster
from listwright.ranking.relative import (
    CATEGORY_KINDS,
    NUMBER_KINDS,
    WITHIN_KINDS,
    RelativeColumn,
    RelativeColumns,
    RelativeKind,
)
from listwright.training.data.dataset import Dataset, Splits
from listwright.training.data.shards.rows import MappedLists, Rows, map_rows
from listwright.training.data.shards.rows import columns as columns_of

LEAST_GAIN = 0.001
"""Share of a forest's total gain below which a list-relative column is not worth its time in serving."""

MOST_PAIRS = 24
"""Pairs of a numeric and a categorical feature that get columns; the categorical ones with fewest values come first."""

_LOW, _HIGH = QUANTILE_LEVELS.index(0.01), QUANTILE_LEVELS.index(0.99)


def candidates(schema: FeatureSchema, kinds: Sequence[RelativeKind]) -> tuple[RelativeColumn, ...]:
    """Return every list-relative column that the features can have, of a pair of features at most :data:`MOST_PAIRS`.

    Args:
        schema: Schema that the training queries fixed: its quantiles give the scale.
        kinds: Kinds of columns.

    Raises:
        DataError: if a feature has the name of a column of one feature already, or a name too long for one. Columns of
            pairs of features are left out then.
    """
    numeric = [f for f in schema.features if f.quantiles is not None and f.quantiles[0] < f.quantiles[-1]]
    categorical = [feature for feature in schema.features if len(feature.categories) > 1]
    columns = [
        RelativeColumn(feature=single.name, kind=kind, scale=single.quantiles[_HIGH] - single.quantiles[_LOW])
        for single in numeric
        if single.quantiles is not None
        for kind in kinds
        if kind in NUMBER_KINDS
    ]
    columns += [
        RelativeColumn(feature=single.name, kind=kind)
        for single in categorical
        for kind in kinds
        if kind in CATEGORY_KINDS
    ]
    groups = sorted(categorical, key=lambda feature: len(feature.categories))
    pairs = [(single.name, group.name) for group in groups for single in numeric][:MOST_PAIRS]
    for column in columns:
        if column.name in schema.index or len(column.name) > MAX_NAME:
            what = "is a column already" if column.name in schema.index else f"is longer than {MAX_NAME} characters"
            remedy = 'rename that column, or set relative = "none" under [first_stage] of the recipe'
            raise DataError("list-relative columns", f"{column.name!r} {what}: {remedy}", column=column.feature)
    names = {*schema.names, *(column.name for column in columns)}
    for name, group in pairs:
        for kind in kinds:
            if kind in WITHIN_KINDS:
                column = RelativeColumn(feature=name, kind=kind, within=group)
                if column.name not in names and len(column.name) <= MAX_NAME:  # nobody asked for this pair by name
                    columns.append(column)
                    names.add(column.name)
    return tuple(columns)


def widened(splits: Splits, columns: Sequence[RelativeColumn]) -> Splits:
    """Return the splits with list-relative columns after the features, under a schema that names them.

    Args:
        splits: Splits under the schema that the bundle will have.
        columns: Columns to add; with none, the splits are returned as they are.
    """
    return splits.map(lambda part: widened_part(part, columns))


def widened_part(data: Dataset, columns: Sequence[RelativeColumn]) -> Dataset:
    """Return one split with list-relative columns, see :func:`widened`."""
    if not columns:
        return data
    relative = RelativeColumns(columns, data.schema)
    width = len(relative.schema)
    if isinstance(data.features, Rows):
        columns_added = MappedLists(data.features, data.offsets, width, relative.widened)
        return replace(data, features=columns_added, schema=relative.schema)
    features = np.empty((data.rows, width), dtype=np.float32)
    for n, (rows, _) in enumerate(data.lists()):
        features[data.slice(n)] = relative.widened(rows)
    return replace(data, features=features, schema=relative.schema)


def with_quantiles(columns: Sequence[RelativeColumn], train: Dataset) -> tuple[RelativeColumn, ...]:
    """Return the columns, each with its quantiles over the training rows.

    Args:
        columns: Last columns of ``train``.
        train: Training rows with these columns.
    """
    first = len(train.schema) - len(columns)
    last = map_rows(train.features, len(columns), lambda rows: rows[:, first:])
    return tuple(
        column.model_copy(update={"quantiles": _quantiles(values)})
        for column, values in zip(columns, columns_of(last), strict=True)
    )


def _quantiles(values: Float[np.ndarray, " R"]) -> tuple[float, ...] | None:
    present = values[~np.isnan(values)]
    return tuple(float(q) for q in np.quantile(present, QUANTILE_LEVELS)) if len(present) else None


def select_used(model: str, columns: Sequence[RelativeColumn]) -> tuple[RelativeColumn, ...]:
    """Return the columns whose splits have at least :data:`LEAST_GAIN` of all gain.

    Args:
        model: LightGBM's text, fitted on rows whose last columns these are.
        columns: Columns, in that order.
    """
    gains = np.asarray(read_booster(model).feature_importance("gain"), dtype=np.float64)
    shares = gains[len(gains) - len(columns) :] / max(gains.sum(), np.finfo(np.float64).tiny)
    return tuple(column for column, share in zip(columns, shares, strict=True) if share >= LEAST_GAIN)
