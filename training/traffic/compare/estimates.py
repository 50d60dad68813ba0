"""One comparison on traffic: checks, estimates at every look, and the decision that they allow.

Estimates are means over queries whose uncertainty is that of units: queries of one person are not independent.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import date
from typing import Literal

import numpy as np
from jaxtyping import Float
from scipy.special import betaln
from scipy.stats import binomtest

from listwright.training.evaluation.intervals import ConfidenceSequence, fixed_half_width, fixed_times_needed

Decision = Literal["mismatch", "too_few", "challenger", "control", "none"]
"""Verdict: mismatch or too few units, the better ranker, or no difference shown."""

FEWEST_UNITS, FEWEST_ACTIVE = 100, 30
"""Units of each arm, and among them units whose value is not 0, below which there is no verdict: the intervals rest on
the central limit theorem.
"""

LEVEL = 0.01
"""A mismatch has a lower always-valid p-value: at most so many sound experiments are ever refused."""

CONCENTRATION = 1000.0
"""Concentration of the Dirichlet prior: shares that are off by about 1.6 percentage points are found first."""


@dataclass(frozen=True, slots=True)
class Look:
    """The state of a comparison at the end of a day.

    Args:
        day: Day of serving, UTC.
        queries: Number of queries up to that day.
        estimate: Estimated difference; NaN where there is none.
        fixed: Half width of the normal interval for a single look.
        always: Half width of the interval that holds at every look.
        enough: Whether there were enough units for a verdict.
    """

    day: date
    queries: float
    estimate: float
    fixed: float
    always: float
    enough: bool

    @property
    def decision(self) -> Decision:
        """The verdict, from the interval that holds at every look."""
        if not self.enough:
            return "too_few"
        if self.estimate - self.always > 0.0:
            return "challenger"
        return "control" if self.estimate + self.always < 0.0 else "none"


@dataclass(frozen=True, slots=True)
class RequiredQueries:
    """Queries needed to show a true difference, beyond those there are, with a power of 80 %.

    Args:
        true: True difference.
        why: Reason for the row: ``observed`` or ``worth``.
        always: Number of further queries until the confidence sequence shows the difference, if new units come as fast
            as queries; infinite where it is out of reach.
        fixed: Number of further queries for one planned look.
        same_always, same_fixed: The same two numbers if only the existing units come back, whose own differences stay;
            NaN where no unit has come back yet.
    """

    true: float
    why: Literal["observed", "worth"]
    always: float
    fixed: float
    same_always: float
    same_fixed: float


@dataclass(frozen=True, slots=True)
class Effect:
    """The difference in one metric, challenger minus control.

    Args:
        metric: Name of the metric; ``preference`` for an interleaving.
        control, challenger: Means of both arms; None for an interleaving, which has one list.
        look: Last look.
        low, high: Ends of the bootstrap interval over units, for a single look.
        difference: Difference for which the confidence sequence is narrowest.
        needed: Rows of the power table.
    """

    metric: str
    control: float | None
    challenger: float | None
    look: Look
    low: float
    high: float
    difference: float
    needed: tuple[RequiredQueries, ...]


@dataclass(frozen=True, slots=True)
class TrafficComparison:
    """The comparison of two rankers.

    Args:
        kind: ``interleaving`` or ``split``.
        experiment: Name of the experiment; None where the rows have none.
        bundles: Bundles of control and challenger, where the rows tell them apart.
        units, queries: Numbers of units and queries.
        ratio: Sample-ratio check.
        crossed: Number of units in both arms.
        untold: Number of queries of an interleaving that control answered alone.
        effects: Effects on the metrics, the first of which decides.
        looks: Looks at the first effect, day by day.
        tests: P-values for a single look, by name.
        wins: Numbers of units that prefer the challenger, control, or neither; None for a split.
    """

    kind: Literal["interleaving", "split"]
    experiment: str | None
    bundles: tuple[str, str] | None
    units: int
    queries: int
    ratio: RatioCheck
    crossed: int
    untold: int
    effects: tuple[Effect, ...]
    looks: tuple[Look, ...]
    tests: tuple[tuple[str, float], ...] = ()
    wins: tuple[int, int, int] | None = None

    @property
    def decision(self) -> Decision:
        """The verdict."""
        return "mismatch" if self.ratio.failed or self.crossed else self.effects[0].look.decision


def has_enough_units(*arms: Ratio) -> bool:
    """Return whether every arm has enough units for a decision."""
    return all(arm.units >= FEWEST_UNITS and arm.active >= FEWEST_ACTIVE for arm in arms)


def look_of(
    day: date, estimate: float, variance: float, queries: float, sequence: ConfidenceSequence, *, ready: bool
) -> Look:
    """Return the look at an estimate with its variance."""
    return Look(day, queries, estimate, fixed_half_width(variance), sequence.half_width(variance), ready)


def needed_for(
    estimate: float, variance: float, queries: float, sequence: ConfidenceSequence, within: float = math.nan
) -> tuple[RequiredQueries, ...]:
    """Return how many more queries the observed difference needs, and the smallest relevant one.

    Args:
        estimate: Observed difference.
        variance: Variance of the estimate over units.
        queries: Number of queries so far.
        sequence: Confidence sequence of the looks.
        within: Part of the variance that more queries of the same units would lower; NaN where it is not known.
    """
    rows: list[RequiredQueries] = []
    differences: tuple[tuple[float, Literal["observed", "worth"]], ...] = (
        (estimate, "observed"),
        (sequence.difference, "worth"),
    )
    for true, why in differences:
        if math.isnan(true):
            continue
        times = sequence.times_needed(true, variance), fixed_times_needed(true, variance)
        again = (_times_of_the_same(factor, variance, within) for factor in times)
        beyond = (max(0.0, factor - 1.0) * queries if math.isfinite(factor) else factor for factor in (*times, *again))
        rows.append(RequiredQueries(true, why, *beyond))
    return tuple(rows)


def _times_of_the_same(times: float, variance: float, within: float) -> float:
    """Return by which factor the queries have to grow if the units stay the same."""
    # of k times the queries it is variance - within + within / k: to be as low as with new units, variance / times
    if math.isnan(within) or math.isinf(times) or times <= 1.0:
        return math.nan if math.isnan(within) else times
    spare = variance / times - (variance - within)
    return within / spare if spare > 0.0 else math.inf


@dataclass(frozen=True, slots=True)
class Ratio:
    """A mean over queries.

    Args:
        value: Sum of the values over number of queries; NaN without queries.
        variance: Variance of the value over units, by linearisation (the delta method); NaN below two units.
        units: Number of units with queries.
        queries: Number of queries.
        active: Number of units whose value is not 0.
        within: Part of the variance that more queries of the same units would lower; the rest is between units, which
            only new units lower. NaN where no unit has two queries.
    """

    value: float
    variance: float
    units: int
    queries: float
    active: int
    within: float = math.nan


def ratio_of(
    totals: Float[np.ndarray, " units"],
    queries: Float[np.ndarray, " units"],
    squares: Float[np.ndarray, " units"] | None = None,
) -> Ratio:
    """Return the mean of a value over queries.

    Args:
        totals: ``(units,)`` sums of the value over the queries of each unit.
        queries: ``(units,)`` numbers of queries; units with 0 do not count.
        squares: ``(units,)`` sums of the squared values; without them ``within`` is not known.
    """
    has_queries = queries > 0.0
    y, n = totals[has_queries], queries[has_queries]
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
        inside = float((squares[has_queries] - np.square(y) / n).sum())  # around the mean of each unit
        within = min(variance, max(0.0, inside) / freedom / count)
    return Ratio(value, variance, units, count, active, within)


@dataclass(frozen=True, slots=True)
class RatioCheck:
    """Check of how many queries or units each arm received.

    Args:
        what: Noun of the counts, in the plural.
        control, challenger: Counts of both arms.
        share: Planned share of the challenger.
        p: Always-valid p-value.
        p_fixed: P-value of the exact binomial test, for a single look.
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
    """Compare two counts with their expected shares.

    Definition (Lindon, Malek 2022, eq. 6, for two arms): p = 1 / BF with the Bayes factor of the counts under a
    Dirichlet prior around the shares against the shares themselves. It may be looked at after every unit.

    Args:
        control, challenger: Numbers of units, or of first picks, of both arms.
        share: Planned share of the challenger, in (0, 1).
        what: Noun of the counts, in the plural.
    """
    a, b = CONCENTRATION * share, CONCENTRATION * (1.0 - share)
    log_factor = betaln(a + challenger, b + control) - betaln(a, b)
    log_factor -= challenger * math.log(share) + control * math.log1p(-share)
    total = control + challenger
    p_fixed = float(binomtest(challenger, total, share).pvalue) if total else 1.0
    return RatioCheck(what, control, challenger, share, min(1.0, math.exp(-log_factor)), p_fixed)
