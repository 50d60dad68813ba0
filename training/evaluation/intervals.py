"""Intervals of a difference, and the verdict that they support.

Bootstrap intervals resample queries, jointly for everything that is measured on them. Of an estimate on traffic there
is an interval for one look, and one that holds at every look.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

import numpy as np
from jaxtyping import Float, Int
from scipy.optimize import brentq
from scipy.special import lambertw

RESAMPLES = 2000

LEVELS = (0.025, 0.975)

Verdict = Literal["gain", "no difference shown", "harm"]

FEWEST = 20
"""Queries below which a bootstrap interval is too narrow to choose by."""

SAME = 0.002
"""Difference in NDCG below which rankers are practically equal, and the simpler one stays."""

ALPHA = 0.05
"""Share of false verdicts that is allowed."""

POWER = 0.8
"""Probability with which a true difference is to be shown."""

MOST_TIMES = 1e6
"""Largest multiple of the data that is reported as needed; more is out of reach."""

_NORMAL = NormalDist()


def resampled_means(
    values: Float[np.ndarray, " N *columns"], query: Int[np.ndarray, " N"] | None = None
) -> Float[np.ndarray, " samples *columns"]:
    """Return the means over :data:`RESAMPLES` bootstrap samples of the queries; seeded, the same samples for every
    column.

    Args:
        values: rows.
        query: number of each row's query, where one query has several rows (several seeds): they are drawn together,
            as they are no independent witnesses. By default every row is a query of its own.
    """
    rng = np.random.default_rng(0)
    query = np.arange(len(values)) if query is None else query
    rows = np.bincount(query).astype(np.float64)
    totals = np.zeros((len(rows), *values.shape[1:]))
    np.add.at(totals, query, values)
    counts = rng.multinomial(len(rows), np.full(len(rows), 1.0 / len(rows)), size=RESAMPLES).astype(np.float64)
    drawn = (counts @ rows).reshape(-1, *(1 for _ in values.shape[1:]))
    means: Float[np.ndarray, " samples *columns"] = np.tensordot(counts, totals, axes=1) / drawn
    return means


def crossed_means(values: Float[np.ndarray, "seeds N *columns"]) -> Float[np.ndarray, " samples *columns"]:
    """Return the means over :data:`RESAMPLES` samples of the queries and, independently, of the seeds.

    So both count: another sample of queries, and another fit. Every seed has every query. A single seed says nothing
    of others, and only queries are drawn.

    Args:
        values: ``(seeds, N, ...)`` seeds by queries.
    """
    seeds, queries = values.shape[:2]
    rng = np.random.default_rng(0)
    of_queries, of_seeds = (
        rng.multinomial(count, np.full(count, 1.0 / count), size=RESAMPLES) / count for count in (queries, seeds)
    )
    by_seed = np.tensordot(of_queries, values, axes=(1, 1))  # (samples, seeds, ...)
    means: Float[np.ndarray, " samples *columns"] = np.einsum("rs,rs...->r...", of_seeds, by_seed)
    return means


def interval(means: Float[np.ndarray, " samples *columns"]) -> Float[np.ndarray, " 2 *columns"]:
    """Return the 95 % percentile interval; of a ratio that is 0/0 in some samples, over the others."""
    bounds: Float[np.ndarray, " 2 *columns"] = np.nanquantile(means, LEVELS, axis=0)
    return bounds


def verdict_of(low: float, high: float) -> Verdict:
    """Return the verdict of a 95 % interval of a difference.

    Args:
        low, high: its ends.

    Returns:
        A gain if all of it lies above 0, harm if all of it lies below.

    Convention: an interval that ends at 0 holds 0, and one of NaN shows nothing.
    """
    if low > 0.0:
        return "gain"
    return "harm" if high < 0.0 else "no difference shown"


def choice_verdict_of(
    low: float, high: float, n: int, *, in_time: bool = True
) -> Verdict | Literal["too few queries", "not enough time"]:
    """Return the verdict of a choice: as :func:`verdict_of`, but none with fewer than :data:`FEWEST` queries.

    Args:
        low, high: its ends.
        n: queries that count.
        in_time: whether there was time to find out; a gain is one in any case.
    """
    if n < FEWEST:
        return "too few queries"
    verdict = verdict_of(low, high)
    return verdict if in_time or verdict == "gain" else "not enough time"


@dataclass(frozen=True, slots=True)
class Sequence:
    """A confidence sequence of level ``1 - alpha``: its intervals cover the truth at all looks together.

    Definition (asymptotic confidence sequence with a Gaussian mixture: Waudby-Smith, Arbour, Sinha, Kennedy, Ramdas
    2024, theorem 2.2, in terms of the variance V of the estimate at a look):
        half width = sqrt(V (1 + 1/r) log((1 + r) / alpha^2)), r = tau^2 / V
    The mixture's variance tau^2 makes it narrowest beside a fixed-sample interval where its half width is
    ``difference``: there r is k, the root of ``k - log(1 + k) = -2 log alpha`` (Howard et al. 2021, proposition 3), so
    ``tau^2 = k difference^2 / (1 + k)``.

    Args:
        difference: above 0, in the unit of the estimate; chosen before the data are seen.
        alpha: in (0, 1).
    """

    difference: float
    alpha: float = ALPHA

    def half_width(self, variance: float) -> float:
        """Return the half width at a look where the estimate has this variance; infinite where that is not known."""
        if not 0.0 < variance < math.inf:
            return math.inf
        k = float(-lambertw(-(self.alpha**2) / math.e, -1).real) - 1.0
        r = k / (1.0 + k) * self.difference**2 / variance
        return math.sqrt(variance * (1.0 + 1.0 / r) * (math.log1p(r) - 2.0 * math.log(self.alpha)))

    def times_needed(self, true: float, variance: float) -> float:
        """Return by which factor the data must grow for a power of :data:`POWER`; infinite for no difference."""
        z = _NORMAL.inv_cdf(POWER)

        def short_of(log_times: float) -> float:
            at = variance / math.exp(log_times)
            return self.half_width(at) + z * math.sqrt(at) - abs(true)

        most = math.log(MOST_TIMES)
        if true == 0.0 or not 0.0 < variance < math.inf or short_of(most) > 0.0:
            return math.inf
        return math.exp(float(brentq(short_of, -most, most))) if short_of(-most) > 0.0 else 0.0


def fixed_half_width(variance: float, alpha: float = ALPHA) -> float:
    """Return the half width of the normal interval of level ``1 - alpha`` for one look; infinite without variance."""
    return _NORMAL.inv_cdf(1.0 - alpha / 2.0) * math.sqrt(variance) if 0.0 < variance < math.inf else math.inf


def fixed_times_needed(true: float, variance: float, alpha: float = ALPHA) -> float:
    """Return by which factor the data must grow to show a true difference at a single planned look, with probability
    :data:`POWER`.
    """
    if true == 0.0 or not 0.0 < variance < math.inf:
        return math.inf
    times = variance * ((_NORMAL.inv_cdf(1.0 - alpha / 2.0) + _NORMAL.inv_cdf(POWER)) / true) ** 2
    return times if times <= MOST_TIMES else math.inf
