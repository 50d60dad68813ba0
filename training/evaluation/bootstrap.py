"""Bootstrap samples of queries or units, and percentile intervals of what is measured on them.

Every generator has a fixed seed or is passed by the caller, so that intervals repeat exactly.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int

RESAMPLES = 2000
"""Number of bootstrap samples."""

MOST_GROUPS = 4000
"""Largest number of groups: more units are assigned to these at random, with the same variance and bounded memory."""

_SAMPLES_AT_A_TIME = 200

_DRAWS_AT_A_TIME = 1_000_000
"""Number of queries drawn at a time: their numbers take 8 MB."""


def draw_counts(units: int, rng: np.random.Generator, samples: int = RESAMPLES) -> Float[np.ndarray, "samples units"]:
    """Draw how often each unit is in each bootstrap sample."""
    return rng.multinomial(units, np.full(units, 1.0 / units), size=samples).astype(np.float64)


def resample_sums(
    values: Float[np.ndarray, "units columns"], rng: np.random.Generator, samples: int = RESAMPLES
) -> Float[np.ndarray, "samples columns"]:
    """Sum each column over bootstrap samples of the units.

    Some samples at a time are drawn, which bounds the memory.
    """
    sizes = [min(_SAMPLES_AT_A_TIME, samples - begin) for begin in range(0, samples, _SAMPLES_AT_A_TIME)]
    return np.concatenate([draw_counts(len(values), rng, size) @ values for size in sizes])


def group_units(
    columns: Float[np.ndarray, "units columns"], rng: np.random.Generator
) -> Float[np.ndarray, "groups columns"]:
    """Sum each column over random groups of the units, if there are more units than :data:`MOST_GROUPS`."""
    units = len(columns)
    if units <= MOST_GROUPS:
        return columns
    group = rng.permutation(units) % MOST_GROUPS
    return np.stack([np.bincount(group, column, MOST_GROUPS) for column in columns.T], axis=1)


def resample_means(
    values: Float[np.ndarray, " N *columns"], query: Int[np.ndarray, " N"] | None = None
) -> Float[np.ndarray, " samples *columns"]:
    """Compute the means over bootstrap samples of the queries, which are the same for every column.

    Args:
        values: Measured values, one row for each query or for each query and seed.
        query: Number of each row's query; None where each row is a query of its own. Rows of one query are drawn
            together, because they are not independent.
    """
    query = np.arange(len(values)) if query is None else query
    rows = np.bincount(query).astype(np.float64)
    totals = np.zeros((len(rows), *values.shape[1:]))
    np.add.at(totals, query, values)
    counts = draw_counts(len(rows), np.random.default_rng(0))
    sizes = (counts @ rows).reshape(-1, *(1 for _ in values.shape[1:]))
    means: Float[np.ndarray, " samples *columns"] = np.tensordot(counts, totals, axes=1) / sizes
    return means


def resample_ratios(
    totals: Float[np.ndarray, " units"], queries: Float[np.ndarray, " units"], rng: np.random.Generator
) -> Float[np.ndarray, " samples"]:
    """Compute the mean over queries in bootstrap samples of the units that have queries.

    Args:
        totals: Sum of the values of each unit.
        queries: Number of queries of each unit.
        rng: Generator of the samples, and of the groups of units if there are more than :data:`MOST_GROUPS`.

    Returns:
        ``(RESAMPLES,)`` means; NaN for a sample without queries.
    """
    columns = np.stack([totals, queries], axis=1)[queries > 0.0]
    if len(columns) == 0:
        return np.full(RESAMPLES, np.nan)
    y, n = resample_sums(group_units(columns, rng), rng).T
    ratios: Float[np.ndarray, " samples"] = np.divide(y, n, out=np.full(len(y), np.nan), where=n > 0.0)
    return ratios


def percentile_interval(
    estimates: Float[np.ndarray, " samples *columns"], *, intervals: int = 1
) -> Float[np.ndarray, " 2 *columns"]:
    """Return the 95 % percentile interval of the estimates from bootstrap samples.

    Args:
        estimates: One estimate for each sample; NaN, such as a ratio 0/0, is left out. All NaN gives NaN.
        intervals: Number m of intervals that hold together with 95 %, each with 1 - 0.05 / m (Bonferroni).
    """
    if np.isnan(estimates).all():
        return np.full((2, *estimates.shape[1:]), np.nan)
    tail = 0.025 / intervals
    bounds: Float[np.ndarray, " 2 *columns"] = np.nanquantile(estimates, [tail, 1.0 - tail], axis=0)
    return bounds


def bootstrap_interval(
    values: Float[np.ndarray, " N"], weights: Float[np.ndarray, " N"] | None = None, *, intervals: int = 1
) -> tuple[float, float]:
    """Return the 95 % percentile bootstrap interval of a weighted mean over queries.

    Args:
        values: Value of each query.
        weights: Weights of the queries in the mean; None if all are alike. Queries are drawn with equal probability.
        intervals: Number m of intervals that hold together with 95 %, each with 1 - 0.05 / m (Bonferroni).

    Convention: (0, 0) without values, or if all weights are 0; samples whose weights are all 0 are left out.
    """
    return bootstrap_intervals([(values, weights)], intervals=intervals)[0]


def bootstrap_intervals(
    means: Sequence[tuple[Float[np.ndarray, " N"], Float[np.ndarray, " N"] | None]], *, intervals: int = 1
) -> list[tuple[float, float]]:
    """Return a :func:`bootstrap_interval` for each pair of values and weights; equal weights share samples."""
    alike: dict[tuple[int, bytes | None], list[int]] = {}
    for place, (values, weights) in enumerate(means):
        alike.setdefault((len(values), None if weights is None else weights.tobytes()), []).append(place)
    ends = [(0.0, 0.0)] * len(means)
    for (count, _), places in alike.items():
        weights = means[places[0]][1]
        weights = np.ones(count) if weights is None else weights
        if not weights.any():
            continue
        columns = np.column_stack([*(weights * means[place][0] for place in places), weights])
        rng, sums = np.random.default_rng(0), list[np.ndarray]()
        together = max(1, _DRAWS_AT_A_TIME // count)
        for begin in range(0, RESAMPLES, together):
            rows = rng.integers(0, count, (min(together, RESAMPLES - begin), count))
            sums.append(np.array([np.bincount(sample, minlength=count) for sample in rows]) @ columns)
        totals = np.concatenate(sums)
        totals = totals[totals[:, -1] > 0.0]
        bounds = percentile_interval(totals[:, :-1] / totals[:, -1:], intervals=intervals)
        for place, low, high in zip(places, *bounds, strict=True):
            ends[place] = float(low), float(high)
    return ends
