"""Units split between two rankers: how much better the challenger's lists did."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import date
from typing import NamedTuple

import numpy as np
import polars as pl
from jaxtyping import Float

from listwright.ranking.errors import DataError, RecipeError
from listwright.training.comparing.by_day import grown
from listwright.training.comparing.comparison import Compared, Effect, Look, enough, look_of, needed_for
from listwright.training.comparing.estimates import Ratio, ratio_of, resampled_ratio
from listwright.training.comparing.mismatch import check_ratio
from listwright.training.comparing.outcomes import Experiment, split_sums, squared
from listwright.training.evaluation.sequences import Sequence

WORTH = 0.05
"""Difference that is worth to be shown, as a share of control's mean."""


def compare_arms(
    experiment: Experiment, metrics: tuple[str, ...], *, challenger: str | None, share: float, worth: float | None
) -> Compared:
    """Compare the arms of a split, control and one challenger.

    Args:
        experiment: split by unit.
        metrics: as of :func:`listwright.training.comparing.outcomes.split_sums`; the first decides.
        challenger: its arm; None where there is one beside control.
        share: of the challenger among the units of both, as planned.
        worth: difference in the first metric that the sequence is narrowest for; None for :data:`WORTH` of control's
            mean. The other metrics always take the latter.

    Raises:
        RecipeError: if there is no such arm, or several and none is named.
        DataError: if an arm has no queries.
    """
    every = split_sums(experiment, metrics)
    name = _challenger(every, challenger, experiment)
    sums = every.filter(pl.col("arm").is_in(["control", name]))
    wide, columns = _wide(sums, name, metrics)
    looks: dict[str, list[Look]] = {metric: [] for metric in metrics}
    sequences: dict[str, Sequence] = {}
    last = _Grown(date.min, np.zeros((0, 0)))
    for last in map(_Grown._make, grown(wide, columns)):
        for place, metric in enumerate(metrics):
            control, other = last.ratios(place)
            sequence = sequences.get(metric) or _sequence(control, worth if place == 0 else None)
            if enough(control, other):  # chosen at the first look that counts, and kept
                sequences[metric] = sequence
            looks[metric].append(_look(last, place, sequence))
    effects = tuple(
        _effect(last, place, metric, looks[metric][-1], sequences.get(metric), worth)
        for place, metric in enumerate(metrics)
    )
    there = last.totals[:, [0, 1]] > 0.0
    return Compared(
        kind="split",
        experiment=experiment.name,
        bundles=_bundles(sums, name),
        units=len(there),
        queries=int(sums["queries"].sum()),
        ratio=check_ratio(*there.sum(axis=0).tolist(), share=share, what="units"),
        crossed=int(there.all(axis=1).sum()),
        untold=0,
        effects=effects,
        looks=tuple(looks[metrics[0]]),
    )


class _Grown(NamedTuple):
    """``totals (N, 2 + 4 M)``: queries of control and challenger, each metric's sums of the two, and their squares'."""

    day: date
    totals: Float[np.ndarray, "N Z"]

    def arms(self, place: int) -> Iterator[tuple[Float[np.ndarray, " N"], ...]]:
        """Sums, queries and squares of control and of the challenger."""
        for arm in (0, 1):
            column = 2 + 2 * place + arm
            yield self.totals[:, column], self.totals[:, arm], self.totals[:, column + (self.totals.shape[1] - 2) // 2]

    def ratios(self, place: int) -> tuple[Ratio, Ratio]:
        """Means of control and challenger."""
        control, challenger = (ratio_of(*arm) for arm in self.arms(place))
        return control, challenger


def _wide(sums: pl.DataFrame, challenger: str, metrics: tuple[str, ...]) -> tuple[pl.DataFrame, list[str]]:
    """Both arms in columns beside each other."""
    columns: list[str] = []
    values: list[pl.Expr] = []
    for name in ("queries", *metrics, *map(squared, metrics)):
        for arm in ("control", challenger):
            columns.append(f"{len(columns)}")
            values.append(pl.when(pl.col("arm") == arm).then(pl.col(name)).otherwise(0).alias(columns[-1]))
    return sums.select("unit", "day", *values), columns


def _sequence(control: Ratio, worth: float | None) -> Sequence:
    """Narrowest for the difference that is worth to be shown; of a mean of 0 any share is 0, and the unit serves."""
    share = WORTH * abs(control.value)
    return Sequence(worth if worth is not None else share if share > 0.0 else WORTH)


def _look(at: _Grown, place: int, sequence: Sequence) -> Look:
    control, challenger = at.ratios(place)
    variance = control.variance + challenger.variance
    queries = control.queries + challenger.queries
    ready = enough(control, challenger)
    estimate = challenger.value - control.value
    return look_of(at.day, estimate, variance, queries, sequence, ready=ready)


def _effect(at: _Grown, place: int, metric: str, look: Look, chosen: Sequence | None, worth: float | None) -> Effect:
    control, challenger = at.ratios(place)
    rng = np.random.default_rng(0)
    zero, one = (resampled_ratio(totals, queries, rng) for totals, queries, _ in at.arms(place))
    low, high = (math.nan, math.nan) if np.isnan(one - zero).all() else np.nanquantile(one - zero, [0.025, 0.975])
    sequence = chosen or _sequence(control, worth if place == 0 else None)
    variance, within = control.variance + challenger.variance, control.within + challenger.within
    needed = needed_for(look.estimate, variance, look.queries, sequence, within)
    return Effect(metric, control.value, challenger.value, look, float(low), float(high), sequence.difference, needed)


def _challenger(sums: pl.DataFrame, wanted: str | None, experiment: Experiment) -> str:
    arms = sorted(sums["arm"].unique().to_list())
    others = [arm for arm in arms if arm != "control"]
    if "control" not in arms or not others:
        raise DataError(experiment.path, f"has queries of {' and '.join(arms)}: expected control and a challenger")
    if wanted is None and len(others) > 1:
        raise RecipeError(f"{experiment.path} has several challengers ({', '.join(others)}): name one of them")
    if wanted is not None and wanted not in others:
        raise RecipeError(f"--challenger {wanted}: {experiment.path} has {', '.join(others)}")
    return wanted or others[0]


def _bundles(sums: pl.DataFrame, challenger: str) -> tuple[str, str]:
    """Names of what served each arm; several where it changed meanwhile."""
    names = (
        sums.filter(pl.col("arm") == arm)["bundle"].drop_nulls().unique().sort() for arm in ("control", challenger)
    )
    control, other = (", ".join(name) for name in names)
    return control, other
