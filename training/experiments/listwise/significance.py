"""Two methods on the same queries: Student's t, a bootstrap interval, and Holm's correction for asking many times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy import stats

from listwright.training.evaluation.intervals import Verdict, crossed_means, interval, verdict_of


@dataclass(frozen=True, slots=True)
class PairedComparison:
    """One method against another in one metric.

    Args:
        metric, method, rival: what is compared.
        queries: how many are paired.
        gain, low, high: mean difference of the queries, with its 95 % bootstrap interval over queries and seeds.
        improvement: the gain as a share of the rival's mean; None where that is 0.
        p: of the paired t-test, two-sided; None for fewer than two queries.
        holm: p after Holm's correction over the family that was tested; None where p is.
    """

    metric: str
    method: str
    rival: str
    queries: int
    gain: float
    low: float
    high: float
    improvement: float | None
    p: float | None
    holm: float | None

    @property
    def proven(self) -> bool:
        """Whether it is a gain or a loss beyond doubt: Holm's p below 5 %."""
        return self.holm is not None and self.holm < 0.05

    @property
    def verdict(self) -> Verdict:
        """A gain or harm beyond doubt, or neither shown."""
        return verdict_of(self.gain, self.gain) if self.proven else "no difference shown"


def compare(
    names: Sequence[tuple[str, str, str]], one: Float[np.ndarray, "S N M"], other: Float[np.ndarray, "S N M"]
) -> list[PairedComparison]:
    """Pair the queries of two methods, M times, as one family: with Holm's p over all that could be tested.

    Args:
        names: M times metric, method, rival.
        one, other: ``(S, N, M)`` values by seed of the same queries in the same order. Intervals are over queries and
            seeds; p is of the queries, each its mean over seeds.
    """
    low, high = interval(crossed_means(one - other))
    difference = (one - other).mean(axis=0)
    means, gains = other.mean(axis=(0, 1)), difference.mean(axis=0)
    p_values = [paired_p(column) for column in difference.T]
    adjusted = iter(holm([p for p in p_values if p is not None]))
    return [
        PairedComparison(
            *names[n],
            queries=len(difference),
            gain=float(gains[n]),
            low=float(low[n]),
            high=float(high[n]),
            improvement=None if means[n] == 0.0 else float(gains[n] / means[n]),
            p=p,
            holm=None if p is None else next(adjusted),
        )
        for n, p in enumerate(p_values)
    ]


def paired_p(difference: Float[np.ndarray, " N"]) -> float | None:
    """Two-sided p of the paired t-test.

    Convention: None for fewer than two queries; where all differences are equal, 1 if they are 0 and 0 if not.
    """
    if len(difference) < 2:
        return None
    if np.ptp(difference) == 0.0:
        return 1.0 if difference[0] == 0.0 else 0.0
    return float(stats.ttest_1samp(difference, 0.0).pvalue)


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p-values (Holm, 1979): the i-th smallest of m times ``m - i + 1``, never below the one before."""
    order = np.argsort(p_values, kind="stable")
    factors = np.arange(len(order), 0, -1)
    adjusted = np.minimum(1.0, np.maximum.accumulate(np.asarray(p_values, dtype=np.float64)[order] * factors))
    found = np.empty(len(order))
    found[order] = adjusted
    return [float(p) for p in found]
