"""Intervals of a difference, and the verdict that they support.

Intervals of :func:`bound_mean` keep their level for few queries and skewed values, too. An estimate on traffic has an
interval for one look, and one that holds at every look. Those of the bootstrap are in :mod:`.bootstrap`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

import numpy as np
from jaxtyping import Float
from scipy.optimize import brentq
from scipy.special import lambertw

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


def mean_p_value(
    values: Float[np.ndarray, " N"],
    bound: float,
    weights: Float[np.ndarray, " N"] | None = None,
    *,
    lowest: float,
    times: float = 1.0,
) -> float:
    """Compute the p-value of the hypothesis that a mean is at most a bound, from few or skewed values, too.

    Definition (Gaffke 2005; Learned-Miller and Thomas 2019, arXiv:1905.06208): the probability that
    ``sum_i E_i w_i (x_i - bound) <= 0``, where the E are independent and exponential, and one more value is in the
    sample, the lowest that there can be. Of values 0 and 1 this is the exact binomial test. It is computed by the
    saddlepoint approximation of Lugannani and Rice (1980).

    Args:
        values: Independent values.
        bound: Largest mean of the hypothesis.
        weights: Weights of the values in the mean; None if all are alike.
        lowest: Lowest possible value.
        times: Number of times that each value is in the sample.

    Returns:
        A number from 0 to 1, at most alpha with probability alpha where the hypothesis is true
        (``benchmarks/results/gates.json``; a proof for all distributions is not known). It is 1 if no weighted value is
        above the bound.
    """
    if bound < lowest:
        return 0.0
    weights = np.ones(len(values)) if weights is None else weights / (weights.max(initial=0.0) or 1.0)
    terms = np.append(weights * (values - bound), weights.max(initial=0.0) * (lowest - bound))
    counts = np.append(np.full(len(values), times), 1.0)
    least, most = float(terms.min()), float(terms.max())
    if most <= 0.0 or least >= 0.0:
        return float(most <= 0.0)
    point, low, high = 0.0, 1.0 / least, 1.0 / most
    for _ in range(100):  # Newton's method on a convex function with barriers at both ends
        ratios = terms / (1.0 - point * terms)
        slope, curvature = float(counts @ ratios), float(counts @ ratios**2)
        step = point - slope / curvature
        if abs(step - point) < 1e-10 * (high - low):
            break
        point = step if low < step < high else (point + (low if step <= low else high)) / 2.0
    root = math.copysign(math.sqrt(max(0.0, 2.0 * float(counts @ np.log1p(-point * terms)))), point)
    if abs(root) < 1e-5:  # where both terms below are infinite; far from every level
        return 0.5
    return _NORMAL.cdf(root + math.log(point * math.sqrt(curvature) / root) / root)


def bound_mean(
    values: Float[np.ndarray, " N"],
    weights: Float[np.ndarray, " N"] | None = None,
    *,
    alpha: float = ALPHA,
    limits: tuple[float, float],
) -> tuple[float, float]:
    """Compute an interval of a mean that keeps its level for few or skewed values, by :func:`mean_p_value`.

    Args:
        values: Independent values.
        weights: Weights of the values in the mean; None if all are alike.
        alpha: Probability that the mean lies outside, half of it on each side.
        limits: Lowest and highest possible value.

    Returns:
        The ends, the limits where there is no value.
    """
    lowest, highest = limits
    if len(values) == 0 or (weights is not None and not weights.any()):
        return limits

    def find_end(of: Float[np.ndarray, " N"], least: float) -> float:
        top = float(of.max() if weights is None else of[weights > 0.0].max())
        if top <= least:
            return least
        ends = least, top  # p is 0 at the one and 1 at the other
        return float(brentq(lambda mean: mean_p_value(of, mean, weights, lowest=least) - alpha / 2.0, *ends, xtol=1e-9))

    return find_end(values, lowest), -find_end(-values, -highest)


def lists_needed(
    values: Float[np.ndarray, " N"], bound: float, weights: Float[np.ndarray, " N"] | None = None, *, lowest: float
) -> float:
    """Estimate how many values like these show by :func:`mean_p_value` that their mean is above a bound.

    The level is 2.5 %, and the probability to show it :data:`POWER`.

    Args:
        values: Independent values; at least one has a weight.
        bound: Bound of the mean.
        weights: Weights of the values in the mean; None if all are alike.
        lowest: Lowest possible value.

    Returns:
        A number; infinite if the mean is not above the bound, or :data:`MOST_TIMES` times the values are too few.
    """
    weights = np.ones(len(values)) if weights is None else weights
    gaps = weights / weights.sum() * (values - np.average(values, weights=weights))
    deviation = _NORMAL.inv_cdf(POWER) * math.sqrt(float(gaps @ gaps))

    def short_of(log_times: float) -> float:
        times = math.exp(log_times)
        unlucky = values - deviation / math.sqrt(times)
        return mean_p_value(unlucky, bound, weights, lowest=lowest, times=times) - ALPHA / 2.0

    most = math.log(MOST_TIMES)
    if short_of(most) > 0.0:
        return math.inf
    return len(values) * math.exp(float(brentq(short_of, -most, most)))


def verdict_of(low: float, high: float) -> Verdict:
    """Return the verdict of a 95 % interval of a difference.

    Args:
        low, high: Ends of the interval.

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
        low, high: Ends of the interval.
        n: Number of queries that count.
        in_time: Whether there was time to find out; a gain is one in any case.
    """
    if n < FEWEST:
        return "too few queries"
    verdict = verdict_of(low, high)
    return verdict if in_time or verdict == "gain" else "not enough time"


@dataclass(frozen=True, slots=True)
class ConfidenceSequence:
    """A confidence sequence of level ``1 - alpha``: its intervals cover the truth at all looks together.

    Definition (asymptotic confidence sequence with a Gaussian mixture: Waudby-Smith, Arbour, Sinha, Kennedy, Ramdas
    2024, theorem 2.2, in terms of the variance V of the estimate at a look):
        half width = sqrt(V (1 + 1/r) log((1 + r) / alpha^2)), r = tau^2 / V
    The mixture's variance tau^2 makes it narrowest beside a fixed-sample interval where its half width is
    ``difference``: there r is k, the root of ``k - log(1 + k) = -2 log alpha`` (Howard et al. 2021, proposition 3), so
    ``tau^2 = k difference^2 / (1 + k)``.

    Args:
        difference: Difference for which the sequence is narrowest, above 0, in the unit of the estimate; chosen before
            the data are seen.
        alpha: Probability that some interval misses the truth, in (0, 1).
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
