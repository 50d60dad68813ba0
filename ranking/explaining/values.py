"""Feature values: as people read them, and what stands in for one that is left out."""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Bool, Float

from listwright.ranking.explaining.explanation import Value
from listwright.ranking.features import UNKNOWN_CODE, Feature, FeatureSchema


def shown(feature: Feature, number: float) -> Value:
    """A number of the feature matrix as the value that a request would send; None for a missing or unknown one.

    Convention: the shortest decimal that is the same float32, 1.6 and not 1.600000023841858.
    """
    if feature.kind == "numeric":
        return None if math.isnan(number) else float(str(np.float32(number)))
    code = UNKNOWN_CODE if math.isnan(number) else int(number)
    return feature.categories[code - 1] if 0 < code <= len(feature.categories) else None


def references(features: Float[np.ndarray, "L D"], schema: FeatureSchema) -> Float[np.ndarray, " D"]:
    """``(D,)`` the list's median of every numeric feature, and its most frequent category.

    Convention: of two middle values the lower one, so that it is a value that occurs; missing values do not count, and
    where all are missing the reference is. Of categories that are equally frequent, the first in the schema.
    """
    length, width = features.shape
    ordered = np.sort(features, axis=0)  # NaN last
    present = length - np.isnan(features).sum(axis=0)
    found: Float[np.ndarray, " D"] = ordered[np.maximum(present - 1, 0) // 2, np.arange(width)]
    for d in schema.categorical:
        codes = np.nan_to_num(features[:, d], nan=UNKNOWN_CODE)
        kinds, counts = np.unique(codes, return_counts=True)
        found[d] = kinds[np.argmax(counts)]
    return found


def differing(row: Float[np.ndarray, " D"], other: Float[np.ndarray, " D"]) -> Bool[np.ndarray, " D"]:
    """Which features have another value; two missing ones are the same."""
    found: Bool[np.ndarray, " D"] = (row != other) & ~(np.isnan(row) & np.isnan(other))
    return found
