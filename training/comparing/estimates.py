"""Means over queries whose uncertainty is that of units: a person who comes back is one witness."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

RESAMPLES = 2000
MOST_GROUPS = 4000
"""More units are dealt at random to so many groups, and groups are drawn: the variance is the same, memory bounded."""

_TOGETHER = 200


@dataclass(frozen=True, slots=True)
class Ratio:
    """A mean over queries.

    Args:
        value: sum of the values over number of queries; NaN without queries.
        variance: of it, over units, by linearisation (the delta method); NaN below two units.
        units: that have queries.
        queries: number of them.
        active: units whose value is not 0.
        within: what of the variance more queries of the same units would lower; the rest is between units, which only
            new units lower. NaN where no unit has two queries.
    """

    value: float
    variance: float
    units: int
    queries: float
    active: int
    within: float = math.nan


def ratio_of(
    totals: Float[np.ndarray, " N"], queries: Float[np.ndarray, " N"], squares: Float[np.ndarray, " N"] | None = None
) -> Ratio:
    """The mean over queries of a value.

    Args:
        totals: of each unit, summed over its queries.
        queries: of each unit; units with 0 do not count.
        squares: of the values of each unit, summed over its queries; without them ``within`` is not known.
    """
    counted = queries > 0.0
    y, n = totals[counted], queries[counted]
    units, count = len(n), float(n.sum())
    active = int(np.count_nonzero(y))
    if units == 0:
        return Ratio(math.nan, math.nan, 0, 0.0, 0)
    value = float(y.sum()) / count
    if units == 1:
        return Ratio(value, math.nan, 1, count, active)
    variance = float(np.square(y - value * n).sum()) * units / (units - 1) / count**2
    within, freedom = math.nan, count - units
    if squares is not None and freedom > 0.0:
        inside = float((squares[counted] - np.square(y) / n).sum())  # around the mean of each unit
        within = min(variance, max(0.0, inside) / freedom / count)
    return Ratio(value, variance, units, count, active, within)


def resampled_ratio(
    totals: Float[np.ndarray, " N"], queries: Float[np.ndarray, " N"], rng: np.random.Generator
) -> Float[np.ndarray, " R"]:
    """Values of the mean over :data:`RESAMPLES` bootstrap samples of the units.

    Args:
        totals, queries: as for :func:`ratio_of`.
        rng: draws, and deals units to groups.

    Convention: NaN in a sample without queries.
    """
    counted = queries > 0.0
    group = group_of(int(counted.sum()), MOST_GROUPS, rng)
    groups = int(group.max()) + 1 if len(group) else 0
    if groups == 0:
        return np.full(RESAMPLES, np.nan)
    sums = np.stack([np.bincount(group, values[counted], groups) for values in (totals, queries)], axis=1)
    drawn = [counts @ sums for counts in resamples(groups, RESAMPLES, rng)]
    y, n = np.concatenate(drawn).T
    values: Float[np.ndarray, " R"] = np.divide(y, n, out=np.full(len(y), np.nan), where=n > 0.0)
    return values


def group_of(count: int, most: int, rng: np.random.Generator) -> Int[np.ndarray, " N"]:
    """``(count,)`` group of each unit: its own, or one of ``most`` that it is dealt to."""
    return np.arange(count) if count <= most else rng.permutation(count) % most


def resamples(groups: int, samples: int, rng: np.random.Generator) -> list[Float[np.ndarray, "M G"]]:
    """How often each group is drawn in each bootstrap sample, some samples at a time."""
    even = np.full(groups, 1.0 / groups)
    sizes = [min(_TOGETHER, samples - begin) for begin in range(0, samples, _TOGETHER)]
    return [rng.multinomial(groups, even, size=size).astype(np.float64) for size in sizes]
