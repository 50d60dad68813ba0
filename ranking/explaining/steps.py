"""Other values of a feature that training saw, and how far each is from the one that it has."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from listwright.ranking.features import QUANTILE_LEVELS, UNKNOWN_CODE, Feature, FeatureSchema

OTHER_KIND = 0.5
"""Size of a change that has no distance: of a category, or of a missing value to one that is there."""

MOST_CATEGORIES = 100
"""Other categories of a feature that are tried: those of most candidates of the list, then the first of the schema."""

MOST_STEPS = 5000
"""Steps of all features that are tried, the smallest ones."""

HALVINGS = 5
"""Of the way between the last value that does not pass and the first that does."""


@dataclass(frozen=True, slots=True)
class Step:
    """A feature's value in another place.

    Args:
        column: of the schema.
        value: the number or the code.
        size: share of the training rows between the value that the candidate has and this one; see :data:`OTHER_KIND`.
        near, near_value: the same of the value before it on the way, which is the candidate's own for the first.
    """

    column: int
    value: float
    size: float
    near: float
    near_value: float


class Steps(NamedTuple):
    """What there is to try.

    Args:
        found: the steps, the smallest first.
        left_out: how many more there are, beyond :data:`MOST_CATEGORIES` and :data:`MOST_STEPS`.
    """

    found: list[Step]
    left_out: int


def steps(features: Float[np.ndarray, "L D"], candidate: int, schema: FeatureSchema) -> Steps:
    """The steps to training quantiles and other categories.

    Args:
        features: ``(L, D)`` of the list.
        candidate: index of the one that takes them.
        schema: with quantiles; a numeric feature without them is left as it is.
    """
    found, left_out = list[Step](), 0
    for column, feature in enumerate(schema.features):
        own = float(features[candidate, column])
        if feature.kind == "numeric":
            found += _of_number(column, feature, own)
            continue
        codes = _other_categories(feature, features[:, column], own)
        left_out += max(0, len(codes) - MOST_CATEGORIES)
        found += (Step(column, code, OTHER_KIND, OTHER_KIND, own) for code in codes[:MOST_CATEGORIES])
    found.sort(key=lambda step: step.size)
    return Steps(found[:MOST_STEPS], left_out + max(0, len(found) - MOST_STEPS))


def _other_categories(feature: Feature, column: Float[np.ndarray, " L"], own: float) -> list[float]:
    """Codes of the categories that a candidate does not have, the most frequent in its list first."""
    codes = [float(code) for code in range(UNKNOWN_CODE + 1, len(feature.categories) + 1) if code != own]
    kinds, counts = np.unique(column, return_counts=True)
    frequency = dict(zip(kinds.tolist(), counts.tolist(), strict=True))
    return sorted(codes, key=lambda code: -frequency.get(code, 0))


def _of_number(column: int, feature: Feature, own: float) -> Iterator[Step]:
    if feature.quantiles is None:
        return
    places = [float(np.float32(quantile)) for quantile in feature.quantiles]
    if math.isnan(own):
        for value in dict.fromkeys(places):
            yield Step(column, value, OTHER_KIND, OTHER_KIND, own)
        return
    for way in (1.0, -1.0):
        near, near_value = 0.0, own
        for value in sorted({place for place in places if way * place > way * own}, key=lambda place: way * place):
            far = distance(feature, own, value)
            yield Step(column, value, far, near, near_value)
            near, near_value = far, value


def distance(feature: Feature, one: float, other: float) -> float:
    """Share of the training rows between two values of a numeric feature, by its quantiles."""
    low, high = min(one, other), max(one, other)
    return max(0.0, _share_below(feature, high) - _share_up_to(feature, low))


def _share_up_to(feature: Feature, value: float) -> float:
    """The level of a value; of several that quantiles give it, the highest."""
    assert feature.quantiles is not None
    below = np.searchsorted(feature.quantiles, value, side="right")
    return _between(feature, value, int(below))


def _share_below(feature: Feature, value: float) -> float:
    """The same, the lowest."""
    assert feature.quantiles is not None
    below = np.searchsorted(feature.quantiles, value, side="left")
    return _between(feature, value, int(below))


def _between(feature: Feature, value: float, place: int) -> float:
    """The level at a value that has ``place`` quantiles before it."""
    assert feature.quantiles is not None
    if place == 0:
        return 0.0 if value < feature.quantiles[0] else QUANTILE_LEVELS[0]
    if place == len(QUANTILE_LEVELS):
        return 1.0 if value > feature.quantiles[-1] else QUANTILE_LEVELS[-1]
    low, high = feature.quantiles[place - 1], feature.quantiles[place]
    part = (value - low) / (high - low) if high > low else 0.0
    return QUANTILE_LEVELS[place - 1] + part * (QUANTILE_LEVELS[place] - QUANTILE_LEVELS[place - 1])


def whole(feature: Feature, own: float) -> bool:
    """Whether a feature counts: its quantiles and the value that it has are whole numbers."""
    assert feature.quantiles is not None
    return all(float(value).is_integer() for value in (*feature.quantiles, own))
