"""The time budget of a fit: how its work is planned, what ends by the clock, and how a resumed run repeats it.

Each decision that a clock makes goes through :class:`Budget`, by name. The names and what was decided stand in the
run's state, so that a resumed run decides alike, and in its report, so that ``--replay`` does.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from listwright.ranking.errors import RecipeError
from listwright.ranking.plain_file import read_object
from listwright.training.console.progress import format_count, format_duration
from listwright.training.job_folder import write_json
from listwright.training.recipe.config import Recipe

FITS = 12
"""Default budget of a fit at most, as a multiple of one LightGBM fit, where that is more than :data:`USUAL_S`."""

LEAST_S, USUAL_S, MOST_S = 60.0, 600.0, 1800.0
"""Smallest default budget in seconds, largest one on small data, and largest one on any."""

GIVEN_S = 300.0
"""Default budget in seconds with a given first stage, without LightGBM."""

ENDING_S, ENDING_FITS, MOST_ENDING = 8.0, 1.0, 0.2
"""Time reserved for export, evaluation and report: seconds, LightGBM fits, and the largest share of all time."""


def check_minutes(minutes: float) -> None:
    """Raise RecipeError unless the minutes are a number from 0."""
    if not 0.0 <= minutes < math.inf:
        raise RecipeError(f"minutes {minutes:g}: expected a number from 0; 0 is no bound")


class Budget:
    """The time budget of one fit.

    Args:
        minutes: Bound on the time from the first data that are read to the published bundle; 0 for no bound, None for
            the default, what it takes to fit every kind of ranker once: at least :data:`LEAST_S`, and at most
            :data:`USUAL_S` or :data:`FITS` LightGBM fits, whichever is more, and :data:`MOST_S`.
        replay: ``budget`` of the report of another run, whose decisions are repeated; the clock then decides nothing.
        clock: Function that returns seconds.

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
        self.seconds = MOST_S if minutes is None else 60.0 * minutes if self.bounded else math.inf
        self.unit: float | None = None
        self.planned: dict[str, int] = dict((replay or {}).get("planned", {}))
        self.ends: dict[str, int] = dict((replay or {}).get("ends", {}))
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
            raise RecipeError(
                "the decisions of the interrupted run differ from the report of --replay: leave out --replay"
            )
        self.unit, self.planned, self.ends = content["unit"], content["planned"], content["ends"]
        self._began -= content["spent"]
        if self._minutes is None:
            self._minutes, self.seconds = content["minutes"], content["seconds"]

    @property
    def mode(self) -> str:
        """Kind of the bound, which a resumed run must have in common with the interrupted one."""
        return "bounded" if self.bounded else "unbounded"

    def set_unit(self, unit: float, work: float = 0.0) -> None:
        """Set the seconds that one LightGBM fit takes, and by default the bound.

        Args:
            unit: Seconds of one LightGBM fit.
            work: Seconds from now until every kind of ranker is fitted once.
        """
        self.unit = unit
        if self._minutes is None and not self.replayed:
            usual = min(self.spent + work + self._ending, max(USUAL_S, FITS * unit))
            self.seconds = min(MOST_S, max(LEAST_S, usual))
        self._remember()

    def skip_lightgbm(self) -> None:
        """Set :data:`GIVEN_S` as the default bound, for a fit without LightGBM."""
        if self._minutes is None and not self.replayed:
            self.seconds = GIVEN_S

    @property
    def _ending(self) -> float:
        """Seconds for export, evaluation and report."""
        return ENDING_S + ENDING_FITS * (self.unit or 0.0)

    @property
    def spent(self) -> float:
        """Seconds since the fit began, those of interrupted attempts among them."""
        return self._clock() - self._began

    def unspent(self) -> float:
        """Return the seconds left for fitting; infinite without a bound."""
        if not self.bounded or self.replayed:
            return math.inf
        return self.seconds - min(self._ending, MOST_ENDING * self.seconds) - self.spent

    def plan(self, name: str, most: int, affordable: Callable[[], float]) -> int:
        """Return how much of a piece of work is planned: all of it without a bound, or what the time affords; decided
        once.

        Args:
            name: Name of the work.
            most: Size of the work in the recipe.
            affordable: Function that returns the size that there is time for.
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
        """Facts for the report; None without a bound."""
        if not self.bounded:
            return None
        return {
            "minutes": self._minutes,
            "seconds": None if self.replayed else round(self.seconds, 1),
            "lightgbm_fit_seconds": None if self.unit is None else round(self.unit, 2),
            "planned": dict(self.planned),
            "ends": dict(self.ends),
            "left_out": list(self.left_out),
            "undecided": list(self.undecided),
        }

    def plan_text(self, settings: int, columns: bool, then: str) -> str:
        """Return the plan as text.

        Args:
            settings: Number of settings of LightGBM in the recipe.
            columns: Whether LightGBM is fitted with and without list-relative columns.
            then: Work after LightGBM, as a phrase; empty for none.
        """
        if self.replayed:
            return "The decisions of another run are repeated; the clock decides nothing"
        longest = " (the longest default)" if self._minutes is None and self.seconds == MOST_S else ""
        tried, folds = self.planned["settings"], self.planned["folds"]
        unit, whole = format_duration(self.unit or 0.0), format_duration(self.seconds)
        plan = [
            f"One LightGBM fit takes {unit}; this fit has {whole}{longest}",
            format_count(tried, "setting", settings) + " of LightGBM",
            *(["with and without list-relative columns"] if columns else []),
            format_count(folds, "fold") if folds else "no out-of-fold scores",
        ]
        more = "; --minutes gives more, --minutes 0 tries all" if tried < settings else ""
        return f"{plan[0]}: {', '.join(plan[1:])}{then and ', then ' + then}{more}"

    def _remember(self) -> None:
        if self._file is None or not self.bounded:
            return
        names = ("unit", "seconds", "planned", "ends", "spent")
        content = {"minutes": self._minutes, **{name: getattr(self, name) for name in names}}
        write_json(self._file, content)


def budget_of(recipe: Recipe, minutes: float | None, replay: Path | None) -> Budget:
    """Return the budget of a fit.

    Args:
        recipe: Recipe of the fit, which may have minutes of its own.
        minutes: Bound of the command line; None for the recipe's.
        replay: ``report.json`` of a fit whose decisions are repeated; None for none.

    Raises:
        RecipeError: if the options contradict each other or the recipe, or the report is of another recipe.
    """
    if replay is not None:
        if minutes is not None:
            raise RecipeError("--replay repeats what another fit did, however long that takes: leave out --minutes")
        return Budget(replay=_decisions(replay, recipe))
    minutes = recipe.minutes if minutes is None else minutes
    if recipe.specialists is None:
        return Budget(minutes)
    if minutes:
        fits = f"recipe {recipe.name!r} fits specialists"
        raise RecipeError(f"--minutes {minutes:g}: {fits}, whose time cannot be planned: leave it out, or say 0")
    return Budget()


def _decisions(report: Path, recipe: Recipe) -> dict[str, Any]:
    content = read_object(report)
    decisions = content.get("budget")
    if not isinstance(decisions, dict):
        raise RecipeError(f"--replay {report}: that fit had no bound; the same command with --minutes 0 repeats it")
    if content.get("recipe") != recipe.model_dump(mode="json"):
        raise RecipeError(f"--replay {report}: that fit had another recipe: repeat its command, and add --replay")
    return decisions
