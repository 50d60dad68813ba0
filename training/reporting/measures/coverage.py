"""How far the test rows lie within what training saw of every feature."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from listwright.ranking.features import UNKNOWN_CODE, Feature
from listwright.training.data.dataset import Dataset
from listwright.training.stored.rows import columns

MOST_FEATURES = 40
"""Features listed, the most striking first; those of which there is nothing to say are not."""


MUCH = 0.01
"""Share of the rows from which a difference to training is counted."""


def coverage(train: Dataset, test: Dataset) -> dict[str, object]:
    """Shares of rows per feature: missing in training and in test, beyond the training quantiles, unknown.

    Beyond means below the lowest or above the highest quantile kept in the schema, of the values that are there: the
    networks clip such a value. A missing category counts as unknown. ``missing`` is the number of features that
    miss values more often than in training.
    """
    schema = train.schema
    by_column = zip(schema.features, columns(train.features), columns(test.features), strict=True)
    found = [_row(feature, trained, now) for feature, trained, now in by_column]
    found.sort(key=lambda row: -row.strangeness)
    listed = [row for row in found if any(row[1:])]
    return {
        "columns": ["feature", "missing_in_training", "missing", "beyond_training_quantiles", "unknown"],
        "features": len(found),
        "listed": len(listed),
        "missing": sum((row.missing or 0.0) > (row.missing_in_training or 0.0) + MUCH for row in found),
        "clipped_often": sum((row.beyond or 0.0) > MUCH for row in found),
        "unknown": sum(bool(row.unknown) for row in found),
        "rows": [list(row) for row in listed[:MOST_FEATURES]],
    }


class _Row(NamedTuple):
    """Shares of rows; None for what the kind of feature does not have."""

    name: str
    missing_in_training: float | None = None
    missing: float | None = None
    beyond: float | None = None
    unknown: float | None = None

    @property
    def strangeness(self) -> float:
        """How much a reader should see the row: what is new in the test rows counts, what training had too does not."""
        return abs((self.missing or 0.0) - (self.missing_in_training or 0.0)) + (self.beyond or self.unknown or 0.0)


def _row(feature: Feature, trained: Float[np.ndarray, " R"], now: Float[np.ndarray, " S"]) -> _Row:
    if feature.kind == "categorical":
        return _Row(feature.name, unknown=_share(now == UNKNOWN_CODE))
    there = now[~np.isnan(now)]
    ends = feature.quantiles or (-np.inf, np.inf)
    beyond = _share((there < np.float32(ends[0])) | (there > np.float32(ends[-1])))
    return _Row(feature.name, _share(np.isnan(trained)), _share(np.isnan(now)), beyond)


def _share(chosen: Bool[np.ndarray, " S"]) -> float:
    return round(float(chosen.mean()), 6) if len(chosen) else 0.0
