"""One comparison on traffic: checks, estimates at every look, and what they allow to be said."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import date
from typing import Literal

from listwright.training.comparing.estimates import Ratio
from listwright.training.comparing.mismatch import RatioCheck
from listwright.training.evaluation.sequences import (
    Sequence,
    fixed_half_width,
    fixed_times_needed,
)

Decision = Literal["mismatch", "too_few", "challenger", "control", "none"]
"""No verdict by a mismatch, or too few units; who is better; or no difference that is shown."""

FEWEST_UNITS, FEWEST_ACTIVE = 100, 30
"""Units of each arm, and among them units whose value is not 0, below which nothing is said: the intervals rest on the
central limit theorem.
"""


@dataclass(frozen=True, slots=True)
class Look:
    """What was known at the end of a day.

    Args:
        day: of serving, UTC.
        queries: up to then.
        estimate: of the difference; NaN where there is none.
        fixed: half width of the normal interval for a single look.
        always: half width of the interval that holds at every look.
        enough: whether there were enough units to say anything.
    """

    day: date
    queries: float
    estimate: float
    fixed: float
    always: float
    enough: bool

    @property
    def decision(self) -> Decision:
        """By the interval that holds at every look."""
        if not self.enough:
            return "too_few"
        if self.estimate - self.always > 0.0:
            return "challenger"
        return "control" if self.estimate + self.always < 0.0 else "none"


@dataclass(frozen=True, slots=True)
class Needed:
    """Queries that would show a true difference, beyond those there are, with a power of 80 %.

    Args:
        true: the difference.
        why: it is asked for: ``observed`` or ``worth``.
        always: more queries until the sequence shows it, if new units come as fast as queries; infinite where it is out
            of reach.
        fixed: the same for one planned look.
        same_always, same_fixed: the same if only the units that there are come back, whose own differences stay; NaN
            where no unit has come back yet.
    """

    true: float
    why: Literal["observed", "worth"]
    always: float
    fixed: float
    same_always: float
    same_fixed: float


@dataclass(frozen=True, slots=True)
class Effect:
    """The difference in one metric, challenger less control.

    Args:
        metric: its name; ``preference`` of interleaving.
        control, challenger: means; None in interleaving, which has one list.
        look: the last one.
        low, high: bootstrap interval over units, for a single look.
        difference: that the sequence is narrowest for.
        needed: rows of the power table.
    """

    metric: str
    control: float | None
    challenger: float | None
    look: Look
    low: float
    high: float
    difference: float
    needed: tuple[Needed, ...]


@dataclass(frozen=True, slots=True)
class Compared:
    """Two rankers compared.

    Args:
        kind: ``interleaving`` or ``split``.
        experiment: its name, None where the rows have none.
        bundles: control's and challenger's, where the rows tell them apart.
        units, queries: that were counted.
        ratio: the sample-ratio check.
        crossed: units that both arms have.
        untold: queries of an interleaving that control answered alone.
        effects: the first one decides.
        looks: of the first effect, day by day.
        tests: p-values for a single look, by name.
        wins: units that prefer the challenger, control, or neither; None in a split.
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
        """What may be said."""
        return "mismatch" if self.ratio.failed or self.crossed else self.effects[0].look.decision


def enough(*arms: Ratio) -> bool:
    """Whether the units of every arm are enough to say anything."""
    return all(arm.units >= FEWEST_UNITS and arm.active >= FEWEST_ACTIVE for arm in arms)


def look_of(day: date, estimate: float, variance: float, queries: float, sequence: Sequence, *, ready: bool) -> Look:
    """A look at an estimate with its variance."""
    return Look(day, queries, estimate, fixed_half_width(variance), sequence.half_width(variance), ready)


def needed_for(
    estimate: float, variance: float, queries: float, sequence: Sequence, within: float = math.nan
) -> tuple[Needed, ...]:
    """More queries for the difference that was observed, and for the one that is worth to be shown.

    Args:
        estimate: that was observed.
        variance: of it, over units.
        queries: that there are.
        sequence: of the looks.
        within: what of the variance more queries of the same units would lower; NaN where that is not known.
    """
    rows: list[Needed] = []
    asked: tuple[tuple[float, Literal["observed", "worth"]], ...] = (
        (estimate, "observed"),
        (sequence.difference, "worth"),
    )
    for true, why in asked:
        if math.isnan(true):
            continue
        times = sequence.times_needed(true, variance), fixed_times_needed(true, variance)
        again = (_times_of_the_same(one, variance, within) for one in times)
        beyond = (
            (one - 1.0 if one > 1.0 else 0.0) * queries if math.isfinite(one) else one for one in (*times, *again)
        )
        rows.append(Needed(true, why, *beyond))
    return tuple(rows)


def _times_of_the_same(times: float, variance: float, within: float) -> float:
    """How many times the queries there have to be if the units stay the same.

    Of k times the queries the variance is ``variance - within + within / k``. It has to be as low as that of ``times``
    the data with new units, ``variance / times``.
    """
    if math.isnan(within) or math.isinf(times) or times <= 1.0:
        return math.nan if math.isnan(within) else times
    spare = variance / times - (variance - within)
    return within / spare if spare > 0.0 else math.inf
