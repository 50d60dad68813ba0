"""The time budget of a fit: how its work is planned, what ends by the clock, and how a resumed run repeats it.

Each decision that a clock makes goes through :class:`Budget`, by name. The names and what was decided stand in the
run's state, so that a resumed run decides alike, and in its report, so that ``--replay`` does.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from listwright.ranking.errors import RecipeError
from listwright.ranking.plain_file import read_object

FITS = 12
"""Default budget of a fit, as a multiple of one LightGBM fit."""

LEAST_S = 60.0
"""Smallest default budget in seconds, so that small tables get enough."""

GIVEN_S = 300.0
"""Default budget in seconds with a given first stage, without LightGBM."""

FITTING = 0.85
"""Share of the time for fitting, less the time of the export; the rest is for figures and report."""

EXPORT = 200.0
"""Duration of a network's export, as a multiple of :func:`_loop_seconds`: Python traces it, whatever the data."""

MOST_EXPORT = 1 / 3
"""Largest share of the time that is reserved for it."""

BOOSTING = 0.6
"""Share of the time that the plan spends on LightGBM."""

FOLD = 0.75
"""LightGBM fits that the fit of one fold takes: the number of trees is known."""

LATER_TRIALS = 2.5
"""LightGBM fits that a trial after the first takes about: it may try many leaves, or a low learning rate."""

_LADDER = ((1, 2), (1, 3), (2, 3), (3, 4), (3, 5), (5, 5), (8, 5), (12, 5), (20, 5), (50, 5))
"""Settings tried and folds of out-of-fold scores, from the cheapest plan to the dearest."""

FEWEST_EPOCHS = 4
"""Fewest epochs worth fitting a network for; or :data:`FEWEST_STEPS`, where an epoch has many steps."""

FEWEST_STEPS = 500

USUAL_EPOCHS = 30
"""Epochs after which most networks have stopped: beyond, more parts are worth more than more epochs."""


def check_minutes(minutes: float) -> None:
    """Raise RecipeError unless the minutes are a number from 0."""
    if not 0.0 <= minutes < math.inf:
        raise RecipeError(f"minutes {minutes:g}: expected a number from 0; 0 is no bound")


class Budget:
    """The time budget of one fit.

    Args:
        minutes: from the first data that are read to the published bundle; 0 for no bound, None for the default,
            :data:`FITS` times one LightGBM fit and at least :data:`LEAST_S`.
        replay: ``budget`` of the report of another run, whose decisions are repeated; the clock then decides nothing.
        clock: seconds.

    Raises:
        RecipeError: if the minutes are no number from 0.
    """

    def __init__(
        self,
        minutes: float | None = 0.0,
        *,
        replay: Mapping[str, Any] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if minutes is not None:
            check_minutes(minutes)
        self.bounded = minutes != 0.0 or replay is not None
        self.replayed = replay is not None
        self.seconds = math.inf if minutes is None or not self.bounded else 60.0 * minutes
        self.unit: float | None = None
        self.planned: dict[str, int] = dict((replay or {}).get("planned", {}))
        self.ends: dict[str, int] = dict((replay or {}).get("ends", {}))
        self.reserved = 0.0  # seconds of a fit that is certain to come
        self._export = 0.0
        self.left_out: list[str] = []
        self.undecided: tuple[str, ...] = ()
        self._minutes = minutes if replay is None else replay.get("minutes")
        self._clock, self._began = clock, clock()
        self._file: Path | None = None

    def keep_in(self, file: Path) -> None:
        """Remember decisions in a file from now on, and go on with those that stand there."""
        self._file = file
        if not file.exists():
            return
        content = read_object(file)
        if self.replayed and (self.planned, self.ends) != (content["planned"], content["ends"]):
            raise RecipeError("the interrupted run decided otherwise than the report of --replay: leave --replay out")
        self.unit, self.planned, self.ends = content["unit"], content["planned"], content["ends"]
        self._began -= content["spent"]
        if self.unit is not None:
            self.set_unit(self.unit)

    @property
    def mode(self) -> str:
        """What a resumed run must have in common with the interrupted one."""
        return "bounded" if self.bounded else "unbounded"

    def set_unit(self, unit: float) -> None:
        """Set the seconds that one LightGBM fit takes.

        Raises:
            RecipeError: if there is not even the time for that.
        """
        self.unit = unit
        if self._minutes is None and not self.replayed:
            self.seconds = max(LEAST_S, FITS * unit)
        self._measure_export()
        self._remember()
        if self.bounded and not self.replayed and unit > self.seconds:
            raise RecipeError(
                f"minutes {self._minutes:g}: one LightGBM fit takes {duration(unit)} here; give at least "
                f"{math.ceil(2 * unit / 60)}, or 0 for no bound; --resume goes on with the fit that there is"
            )

    def check_first_fit(self, trees: int, _value: float) -> None:
        """Raise RecipeError if the time is over while the first LightGBM fit is at so many trees."""
        if self.bounded and not self.replayed and self.spent > self.seconds:
            raise RecipeError(
                f"minutes {self._minutes:g}: they ended while the first LightGBM fit was at {trees} trees; give "
                "several times as many minutes (with --resume), or 0 for no bound in a new fit"
            )

    def skip_lightgbm(self) -> None:
        """Set :data:`GIVEN_S` as the unit, for a fit without LightGBM."""
        if self._minutes is None and not self.replayed:
            self.seconds = GIVEN_S
        self._measure_export()

    def _measure_export(self) -> None:
        if self.bounded and not self.replayed:
            self._export = EXPORT * min(_loop_seconds(self._clock) for _ in range(3))

    @property
    def spent(self) -> float:
        """Seconds since the fit began, those of interrupted attempts among them."""
        return self._clock() - self._began

    def unspent(self) -> float:
        """Return the seconds left for fitting, less those reserved; infinite without a bound."""
        if not self.bounded or self.replayed:
            return math.inf
        export = min(self._export, MOST_EXPORT * self.seconds)
        return FITTING * self.seconds - export - self.spent - self.reserved

    def plan(self, name: str, most: int, affordable: Callable[[], float]) -> int:
        """Return how much of a piece of work is planned: all of it without a bound, or what the time affords; decided
        once.

        Args:
            name: of the work.
            most: its size in the recipe.
            affordable: how much there is time for.
        """
        if not self.bounded:
            return most
        if name not in self.planned:
            self.planned[name] = most if self.replayed else int(max(0.0, min(most, affordable())))
            self._remember()
        return self.planned[name]

    def goes_on(self, name: str, done: int, seconds: float) -> bool:
        """Return whether to take another step after so many, each of which takes about so many seconds."""
        if not self.bounded:
            return True
        if name in self.ends:
            return done < self.ends[name]
        goes_on = self.unspent() >= seconds
        if not goes_on:
            self.ends[name] = done
        self._remember()
        return goes_on

    def leave_out(self, what: str) -> None:
        """Record in the report what was not tried for lack of time."""
        self.left_out.append(what)

    @property
    def facts(self) -> dict[str, object] | None:
        """For the report; None without a bound."""
        if not self.bounded:
            return None
        return {
            "minutes": self._minutes,
            "seconds": None if math.isinf(self.seconds) else round(self.seconds, 1),
            "lightgbm_fit_seconds": None if self.unit is None else round(self.unit, 2),
            "planned": dict(self.planned),
            "ends": dict(self.ends),
            "left_out": list(self.left_out),
            "undecided": list(self.undecided),
        }

    def plan_text(self, trials: int) -> list[str]:
        """Return the plan for LightGBM as text."""
        if self.replayed:
            return ["The decisions of another run are repeated; the clock decides nothing"]
        heading = f"One LightGBM fit takes {duration(self.unit or 0.0)}; this fit has {duration(self.seconds)}"
        tried, folds = self.planned["settings"], self.planned["folds"]
        plan = [
            f"{tried} of {trials} settings of LightGBM" if tried < trials else f"{trials} settings of LightGBM",
            f"{folds} folds",
            *([] if self.planned["list-relative columns"] else ["no list-relative columns"]),
        ]
        more = "; --minutes gives more, --minutes 0 tries all" if tried < trials else ""
        return [f"{heading}: {', '.join(plan)}, then the second stages in the time that is left{more}"]

    def _remember(self) -> None:
        if self._file is None or not self.bounded:
            return
        temporary = self._file.with_suffix(".tmp")
        content = {"unit": self.unit, "planned": self.planned, "ends": self.ends, "spent": self.spent}
        temporary.write_text(json.dumps(content), encoding="utf-8")
        temporary.replace(self._file)


@dataclass(frozen=True, slots=True)
class BoostingPlan:
    """How LightGBM is fitted in the available time.

    Args:
        trials: settings that are tried.
        folds: of the out-of-fold scores.
        by_folds: whether settings are chosen by a cross-validation, where the recipe enables it.
        columns: whether list-relative columns are tried, where the recipe enables it.
    """

    trials: int
    folds: int
    by_folds: bool
    columns: bool


def boosting_plan(
    budget: Budget, *, trials: int, folds: int, width: float, by_folds: bool, blind: bool = False
) -> BoostingPlan:
    """Plan as much of a recipe's first stage as :data:`BOOSTING` of the time allows.

    Args:
        budget: whose LightGBM fit is measured.
        trials, folds, by_folds: of the recipe.
        width: columns with list-relative ones, as a multiple of those without; 1 where the recipe has none.
        blind: whether the validation queries can choose nothing, so that folds must.

    Convention: a fit with list-relative columns stops earlier, and takes about half as much longer as there are more
    columns; it is repeated with those that the trees use. What is left out first are settings, then selection by folds,
    then list-relative columns.
    """
    unit = budget.unit or 0.0
    ladder = [rung for rung in _LADDER if rung[0] <= trials and rung[1] <= folds] + [(trials, folds)]

    def cost(rung: tuple[int, int], width: float, by_folds: bool) -> float:
        held_out = FOLD * ((folds if by_folds else rung[1]) - 1)
        trial = FOLD * folds if by_folds else 1.0
        settings = trial * (1.0 + LATER_TRIALS * (rung[0] - 1)) + (FOLD if by_folds else 0.0)
        both = settings + held_out
        return unit * (both + (0.0 if width == 1.0 else 0.5 * (1.0 + width) * (both + FOLD * trial)))

    ways = [(width, by_folds), (width, by_folds and blind), (1.0, by_folds and blind)]
    most = min(BOOSTING * budget.seconds, budget.unspent())
    for columns, selection in ways:
        affordable = [rung for rung in ladder if cost(rung, columns, selection) <= most]
        if affordable:
            break
    tried, parts = affordable[-1] if affordable else (1, 2)
    with_columns = columns > 1.0 or width == 1.0
    return BoostingPlan(
        trials=budget.plan("settings", trials, lambda: tried),
        folds=budget.plan("folds", folds, lambda: folds if selection else parts),
        by_folds=bool(budget.plan("selection by folds", int(by_folds), lambda: float(selection))),
        columns=bool(budget.plan("list-relative columns", 1, lambda: float(with_columns))),
    )


def network_plan(
    budget: Budget,
    title: str,
    *,
    seconds: float,
    epoch: Callable[[], float],
    epochs: int,
    steps: float,
    parts: int,
    looks: int,
) -> tuple[int, int]:
    """Plan on how many held-out parts of the training queries a network is compared at most, and its epochs.

    Args:
        budget: of the fit.
        title: of the network.
        seconds: for the comparison and the fit on all training queries.
        epoch: measures the seconds of one on all training queries.
        epochs, parts: of the recipe.
        steps: of an epoch.
        looks: parts that are worth looking at; 0 where it is compared on other queries.

    Returns:
        Parts, and epochs: none where there is time for too few of them.
    """
    share = (parts - 1) / parts  # of the training queries in a comparison

    def affordable_parts() -> float:
        return max(1.0, (seconds / (epoch() * min(epochs, USUAL_EPOCHS)) - 1.0) / share)

    if looks:
        looks = budget.plan(f"parts for {title}", looks, affordable_parts)
    most = budget.plan(f"epochs for {title}", epochs, lambda: seconds / (epoch() * (1.0 + looks * share)))
    return looks, most if most >= min(epochs, FEWEST_EPOCHS, math.ceil(FEWEST_STEPS / steps)) else 0


def _loop_seconds(clock: Callable[[], float]) -> float:
    """Measure the current speed of Python: the seconds of a million additions."""
    began, total = clock(), 0
    for number in range(1_000_000):
        total += number
    return clock() - began


def duration(seconds: float) -> str:
    """Format seconds for display: ``0.4 s``, ``42 s``, ``2:10 min``, ``1:05 h``."""
    if seconds < 10.0:
        return f"{seconds:.1f} s"
    if seconds < 100.0:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60) if seconds >= 6000 else seconds / 60
    if seconds >= 6000:
        return f"{int(minutes) // 60}:{int(minutes) % 60:02} h"
    return f"{int(minutes)}:{int(seconds) % 60:02} min"
