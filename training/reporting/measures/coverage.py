"""Difference of the test rows from the training rows, feature by feature."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from listwright.ranking.features import UNKNOWN_CODE, Feature
from listwright.training.data.dataset import Dataset
from listwright.training.data.shards.rows import columns

MOST_FEATURES = 40
"""Features listed, the most striking first; those without a difference are left out."""

MUCH = 0.01
"""Share of the rows from which a difference to training counts."""


def measure_coverage(train: Dataset, test: Dataset) -> dict[str, object]:
    """Return shares of rows per feature: missing in training and in test, beyond the training quantiles, unknown.

    Beyond means below the lowest or above the highest quantile kept in the schema, of the values that are there: the
    networks clip such a value. A missing category counts as unknown. ``missing`` is the number of features that
    miss values more often than in training.
    """
    schema = train.schema
    by_column = zip(schema.features, columns(train.features), columns(test.features), strict=True)
    shares = [_coverage_of(feature, trained, now) for feature, trained, now in by_column]
    shares.sort(key=lambda row: -row.strangeness)
    listed = [row for row in shares if any(row[1:])]
    return {
        "columns": ["feature", "missing_in_training", "missing", "beyond_training_quantiles", "unknown"],
        "features": len(shares),
        "listed": len(listed),
        "missing": sum((row.missing or 0.0) > (row.missing_in_training or 0.0) + MUCH for row in shares),
        "clipped_often": sum((row.beyond or 0.0) > MUCH for row in shares),
        "unknown": sum(bool(row.unknown) for row in shares),
        "rows": [list(row) for row in listed[:MOST_FEATURES]],
    }


class _FeatureCoverage(NamedTuple):
    """Shares of a feature's rows; None for what its kind does not have."""

    name: str
    missing_in_training: float | None = None
    missing: float | None = None
    beyond: float | None = None
    unknown: float | None = None

    @property
    def strangeness(self) -> float:
        """Size of what is new in the test rows, by which features are sorted."""
        return abs((self.missing or 0.0) - (self.missing_in_training or 0.0)) + (self.beyond or self.unknown or 0.0)


def _coverage_of(feature: Feature, trained: Float[np.ndarray, " R"], now: Float[np.ndarray, " S"]) -> _FeatureCoverage:
    if feature.kind == "categorical":
        return _FeatureCoverage(feature.name, unknown=_share(now == UNKNOWN_CODE))
    there = now[~np.isnan(now)]
    ends = feature.quantiles or (-np.inf, np.inf)
    beyond = _share((there < np.float32(ends[0])) | (there > np.float32(ends[-1])))
    return _FeatureCoverage(feature.name, _share(np.isnan(trained)), _share(np.isnan(now)), beyond)


def _share(mask: Bool[np.ndarray, " S"]) -> float:
    return round(float(mask.mean()), 6) if len(mask) else 0.0
