"""Intervals of an estimate that is looked at once, and intervals that hold at every look."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

from scipy.optimize import brentq
from scipy.special import lambertw

ALPHA = 0.05
"""Share of false verdicts that is allowed."""

POWER = 0.8
"""Probability with which a true difference is to be shown."""

MOST_TIMES = 1e6
"""Of the data so far: beyond, the number that is needed says only that it is out of reach."""

_NORMAL = NormalDist()


@dataclass(frozen=True, slots=True)
class Sequence:
    """A confidence sequence of level ``1 - alpha``: its intervals hold the truth at all looks together.

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
        """Of the interval at a look where the estimate has this variance; infinite where that is not known."""
        if not 0.0 < variance < math.inf:
            return math.inf
        k = float(-lambertw(-(self.alpha**2) / math.e, -1).real) - 1.0
        r = k / (1.0 + k) * self.difference**2 / variance
        return math.sqrt(variance * (1.0 + 1.0 / r) * (math.log1p(r) - 2.0 * math.log(self.alpha)))

    def times_needed(self, true: float, variance: float) -> float:
        """How many times the data so far show a true difference with probability :data:`POWER`; infinite for none."""
        z = _NORMAL.inv_cdf(POWER)

        def short_of(log_times: float) -> float:
            at = variance / math.exp(log_times)
            return self.half_width(at) + z * math.sqrt(at) - abs(true)

        most = math.log(MOST_TIMES)
        if true == 0.0 or not 0.0 < variance < math.inf or short_of(most) > 0.0:
            return math.inf
        return math.exp(float(brentq(short_of, -most, most))) if short_of(-most) > 0.0 else 0.0


def fixed_half_width(variance: float, alpha: float = ALPHA) -> float:
    """Half width of the normal interval of level ``1 - alpha``, which holds for a single look; infinite for none."""
    return _NORMAL.inv_cdf(1.0 - alpha / 2.0) * math.sqrt(variance) if 0.0 < variance < math.inf else math.inf


def fixed_times_needed(true: float, variance: float, alpha: float = ALPHA) -> float:
    """How many times the data so far show a true difference at a single planned look, with probability
    :data:`POWER`.
    """
    if true == 0.0 or not 0.0 < variance < math.inf:
        return math.inf
    times = variance * ((_NORMAL.inv_cdf(1.0 - alpha / 2.0) + _NORMAL.inv_cdf(POWER)) / true) ** 2
    return times if times <= MOST_TIMES else math.inf
