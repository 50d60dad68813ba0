"""Sample-ratio mismatch: whether the arms have as many units as their shares say."""

from __future__ import annotations

import math
from dataclasses import dataclass

from scipy.special import betaln
from scipy.stats import binomtest

LEVEL = 0.01
"""A mismatch is told where its always-valid p-value is below: at most so many sound experiments are ever refused."""

CONCENTRATION = 1000.0
"""Of the Dirichlet prior: shares that are off by about 1.6 percentage points are found first."""


@dataclass(frozen=True, slots=True)
class RatioCheck:
    """How the arms were filled.

    Args:
        what: that was counted, in the plural.
        control, challenger: counts.
        share: of the challenger, as planned.
        p: always-valid p-value.
        p_fixed: p-value of the exact binomial test, for a single look.
    """

    what: str
    control: int
    challenger: int
    share: float
    p: float
    p_fixed: float

    @property
    def failed(self) -> bool:
        """Whether the counts contradict the shares."""
        return self.p < LEVEL


def check_ratio(control: int, challenger: int, *, share: float, what: str) -> RatioCheck:
    """Compare two counts with their shares.

    Definition (Lindon, Malek 2022, eq. 6, for two arms): p = 1 / BF with the Bayes factor of the counts under a
    Dirichlet prior around the shares against the shares themselves. It may be looked at after every unit.

    Args:
        control, challenger: units, or first picks, of each.
        share: of the challenger, in (0, 1).
        what: was counted, in the plural.
    """
    a, b = CONCENTRATION * share, CONCENTRATION * (1.0 - share)
    log_factor = betaln(a + challenger, b + control) - betaln(a, b)
    log_factor -= challenger * math.log(share) + control * math.log1p(-share)
    total = control + challenger
    p_fixed = float(binomtest(challenger, total, share).pvalue) if total else 1.0
    return RatioCheck(what, control, challenger, share, min(1.0, math.exp(-log_factor)), p_fixed)
