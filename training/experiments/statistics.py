"""Two methods on the same queries: Student's t, a bootstrap interval, and Holm's correction for asking many times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float
from scipy import stats

from training.bootstrap import interval, resampled_means


@dataclass(frozen=True, slots=True)
class Comparison:
    """One method against another in one metric.

    Args:
        metric, method, rival: what is compared.
        queries: how many are paired.
        gain, low, high: mean difference of the queries, with its 95 % bootstrap interval.
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
    holm: float | None = None

    @property
    def proven(self) -> bool:
        """Whether it is a gain or a loss beyond doubt: Holm's p below 5 %."""
        return self.holm is not None and self.holm < 0.05


def compare(
    metric: str, method: str, rival: str, one: Float[np.ndarray, " N"], other: Float[np.ndarray, " N"]
) -> Comparison:
    """Pair the queries of two methods.

    Args:
        metric, method, rival: names.
        one, other: ``(N,)`` values of the same queries in the same order, each the mean over seeds.
    """
    difference = one - other
    low, high = interval(resampled_means(difference))
    mean = float(other.mean())
    improvement = None if mean == 0.0 else float(difference.mean()) / mean
    return Comparison(
        metric, method, rival, len(difference), float(difference.mean()), float(low), float(high), improvement,
        paired_p(difference),
    )  # fmt: skip


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


def corrected(family: Sequence[Comparison]) -> list[Comparison]:
    """The comparisons of one family with Holm's p; those that could not be tested count for nothing."""
    tested = [n for n, found in enumerate(family) if found.p is not None]
    adjusted = dict(zip(tested, holm([p for found in family if (p := found.p) is not None]), strict=True))
    return [replace(found, holm=adjusted.get(n)) for n, found in enumerate(family)]
