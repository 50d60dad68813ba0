"""Two rankers compared on judged rows: the arms of a split, or the teams of an interleaving.

Rows become sums of each unit, day and arm or team, and the sums grow from day to day.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
from jaxtyping import Float
from scipy.stats import binomtest, wilcoxon

from listwright.ranking.errors import DataError, RecipeError
from listwright.ranking.metrics import HIGHEST_GAIN
from listwright.training.data.tables.judged import collected, scan_judged
from listwright.training.evaluation.bootstrap import percentile_interval, resample_ratios
from listwright.training.evaluation.intervals import ConfidenceSequence
from listwright.training.traffic.compare.estimates import (
    Effect,
    Look,
    Ratio,
    TrafficComparison,
    check_ratio,
    has_enough_units,
    look_of,
    needed_for,
    ratio_of,
)

SPLIT_DIFFERENCE = 0.05
"""Smallest relevant difference, as a share of control's mean."""

PREFERENCE_DIFFERENCE = 0.02
"""Smallest relevant preference: 52 of 100 credited queries."""

_SUMS = ["preference", "credited", "squares"]

DEFAULT_METRICS = ("hit", "mrr", "ndcg@10")
"""Metrics of a split; the first one decides."""

_WITH_DEPTH = ("ndcg@", "err@")

_WHO = ("query_id", "unit", "served_at", "experiment", "arm", "team", "position", "label", "bundle")

MOST_LOOKS = 60
"""Most looks on a page: of more days every few are used, and always the last."""


def compare(
    path: Path,
    *,
    experiment: str | None = None,
    metrics: tuple[str, ...] = (),
    challenger: str | None = None,
    share: float = 0.5,
    target: float | None = None,
) -> TrafficComparison:
    """Compare control and challenger.

    Args:
        path: Parquet file of judged rows, or a folder of them.
        experiment: Name of the experiment; None where there is a single one.
        metrics: Names of the metrics of a split, the first of which decides; none for the usual ones. For an
            interleaving, at most one: the column with what a candidate earns, or ``hit`` for 1 where its label is above
            0.
        challenger: Name of the challenger's arm, where a split has several.
        share: Planned share of the challenger among the units of a split.
        target: Smallest relevant difference; None for the usual one.

    Raises:
        RecipeError: if the options do not fit the rows.
        DataError: if the rows cannot be read.
    """
    if not 0.0 < share < 1.0:
        raise RecipeError(f"--share {share:g}: expected a number between 0 and 1, the challenger's part of the units")
    if target is not None and not 0.0 < target < float("inf"):
        raise RecipeError(f"--difference {target:g}: expected a number above 0")
    opened = _open_experiment(path, experiment, columns_of(metrics))
    if not opened.interleaved:
        return _compare_arms(opened, metrics or DEFAULT_METRICS, challenger=challenger, share=share, target=target)
    if len(metrics) > 1 or set(metrics) - {"hit", *columns_of(metrics)}:
        rule = "an interleaving has one metric: hit, or the column with what a candidate earns"
        raise RecipeError(f"--metric {' --metric '.join(metrics)}: {rule}")
    if challenger is not None or share != 0.5:
        raise RecipeError("--challenger and --share are of a split; these lists were interleaved: leave them out")
    credit = None if metrics in ((), ("hit",)) else metrics[0]
    return _compare_teams(opened, credit=credit, target=target)


def _compare_arms(
    experiment: Experiment, metrics: tuple[str, ...], *, challenger: str | None, share: float, target: float | None
) -> TrafficComparison:
    """Compare control and one challenger of a split; the target is of the first metric, the others take the usual."""
    every = _split_sums(experiment, metrics)
    name = _challenger(every, challenger, experiment)
    sums = every.filter(pl.col("arm").is_in(["control", name]))
    wide, columns = _wide(sums, name, metrics)
    looks: dict[str, list[Look]] = {metric: [] for metric in metrics}
    sequences: dict[str, ConfidenceSequence] = {}
    last = _CumulativeSums(date.min, np.zeros((0, 0)))
    for last in map(_CumulativeSums._make, _cumulative_sums(wide, columns)):
        for place, metric in enumerate(metrics):
            control, other = last.ratios(place)
            sequence = sequences.get(metric) or _sequence(control, target if place == 0 else None)
            estimate, ready = other.value - control.value, has_enough_units(control, other)
            queries, variance = control.queries + other.queries, control.variance + other.variance
            if ready:  # chosen at the first look that counts, and kept
                sequences[metric] = sequence
            looks[metric].append(look_of(last.day, estimate, variance, queries, sequence, ready=ready))
    effects = tuple(
        _effect(last, place, metric, looks[metric][-1], sequences.get(metric), target)
        for place, metric in enumerate(metrics)
    )
    there = last.totals[:, [0, 1]] > 0.0
    return TrafficComparison(
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


class _CumulativeSums(NamedTuple):
    """Cumulative ``totals (units, 2 + 4 M)``: queries of both arms, and each metric's sums and sums of squares."""

    day: date
    totals: Float[np.ndarray, "units sums"]

    def arms(self, place: int) -> Iterator[tuple[Float[np.ndarray, " units"], ...]]:
        """Yield sums, queries and squares of control and of the challenger."""
        for arm in (0, 1):
            column = 2 + 2 * place + arm
            yield self.totals[:, column], self.totals[:, arm], self.totals[:, column + (self.totals.shape[1] - 2) // 2]

    def ratios(self, place: int) -> tuple[Ratio, Ratio]:
        """Return the means of control and challenger."""
        control, challenger = (ratio_of(*arm) for arm in self.arms(place))
        return control, challenger


def _wide(sums: pl.DataFrame, challenger: str, metrics: tuple[str, ...]) -> tuple[pl.DataFrame, list[str]]:
    """Return both arms in columns side by side, and the names of these columns."""
    columns: list[str] = []
    values: list[pl.Expr] = []
    for name in ("queries", *metrics, *map(squared, metrics)):
        for arm in ("control", challenger):
            columns.append(f"{len(columns)}")
            values.append(pl.when(pl.col("arm") == arm).then(pl.col(name)).otherwise(0).alias(columns[-1]))
    return sums.select("unit", "day", *values), columns


def _sequence(control: Ratio, target: float | None) -> ConfidenceSequence:
    """Return the sequence that is narrowest at the smallest relevant difference; for a mean of 0 at the default."""
    share = SPLIT_DIFFERENCE * abs(control.value)
    return ConfidenceSequence(target if target is not None else share if share > 0.0 else SPLIT_DIFFERENCE)


def _effect(
    at: _CumulativeSums, place: int, metric: str, look: Look, planned: ConfidenceSequence | None, target: float | None
) -> Effect:
    control, challenger = at.ratios(place)
    rng = np.random.default_rng(0)
    control_means, challenger_means = (resample_ratios(totals, queries, rng) for totals, queries, _ in at.arms(place))
    low, high = percentile_interval(challenger_means - control_means)
    sequence = planned or _sequence(control, target if place == 0 else None)
    variance, within = control.variance + challenger.variance, control.within + challenger.within
    needed = needed_for(look.estimate, variance, look.queries, sequence, within)
    return Effect(metric, control.value, challenger.value, look, float(low), float(high), sequence.difference, needed)


def _challenger(sums: pl.DataFrame, name: str | None, experiment: Experiment) -> str:
    arms = sorted(sums["arm"].unique().to_list())
    others = [arm for arm in arms if arm != "control"]
    if "control" not in arms or not others:
        raise DataError(experiment.path, f"has queries of {' and '.join(arms)}: expected control and a challenger")
    if name is None and len(others) > 1:
        raise RecipeError(f"{experiment.path} has several challengers ({', '.join(others)}): name one of them")
    if name is not None and name not in others:
        raise RecipeError(f"--challenger {name}: {experiment.path} has {', '.join(others)}")
    return name or others[0]


def _bundles(sums: pl.DataFrame, challenger: str) -> tuple[str, str]:
    """Return the names of the bundles that served each arm; several if they changed meanwhile."""
    names = (
        sums.filter(pl.col("arm") == arm)["bundle"].drop_nulls().unique().sort() for arm in ("control", challenger)
    )
    control, other = (", ".join(name) for name in names)
    return control, other


def _compare_teams(experiment: Experiment, *, credit: str | None, target: float | None) -> TrafficComparison:
    """Compare the two teams of interleaved lists."""
    # Delta is (wins + ties / 2) / (wins + losses + ties) less 1/2 (Chapelle, Joachims, Radlinski, Yue 2012, eq. 1) over
    # queries in which a team earned anything; the challenger wins where its candidates earned more. Its variance is
    # that over units.
    sums = _team_sums(experiment, credit).with_columns(((pl.col("won") + pl.col("lost")) / 4).alias("squares"))
    sequence = ConfidenceSequence(PREFERENCE_DIFFERENCE if target is None else target)
    looks: list[Look] = []
    totals = np.zeros((0, 3))
    preference = Ratio(np.nan, np.nan, 0, 0.0, 0)
    for day, totals in _cumulative_sums(sums, _SUMS):
        preference = ratio_of(*totals.T)
        ready = has_enough_units(preference)
        looks.append(look_of(day, preference.value, preference.variance, preference.queries, sequence, ready=ready))
    low, high = percentile_interval(resample_ratios(totals[:, 0], totals[:, 1], np.random.default_rng(0)))
    queries, first = int(sums["queries"].sum()), int(sums["first"].sum())
    # in queries, credited or not
    needed = needed_for(preference.value, preference.variance, float(queries), sequence, preference.within)
    effect = Effect("preference", None, None, looks[-1], float(low), float(high), sequence.difference, needed)
    by_unit = _preference(sums)
    return TrafficComparison(
        kind="interleaving",
        experiment=experiment.name,
        bundles=None,
        units=sums.filter(pl.col("queries") > 0)["unit"].n_unique(),
        queries=queries,
        ratio=check_ratio(queries - first, first, share=0.5, what="lists that its pick begins"),
        crossed=0,
        untold=int(sums["untold"].sum()),
        effects=(effect,),
        looks=tuple(looks),
        tests=_tests(by_unit),
        wins=(int((by_unit > 0).sum()), int((by_unit < 0).sum()), int((by_unit == 0).sum())),
    )


def _preference(sums: pl.DataFrame) -> Float[np.ndarray, " units"]:
    """Return ``(units,)`` wins minus losses of each unit with credit."""
    per_unit = sums.group_by("unit", maintain_order=True).agg(pl.col(*_SUMS).sum()).filter(pl.col("credited") > 0)
    values: Float[np.ndarray, " units"] = 2.0 * per_unit["preference"].to_numpy()
    return values


def _tests(by_unit: Float[np.ndarray, " units"]) -> tuple[tuple[str, float], ...]:
    """Return the exact sign test over units with a preference, and Wilcoxon's signed-rank test of their net wins."""
    preferring = by_unit[by_unit != 0.0]
    if len(preferring) == 0:
        return ()
    exact = binomtest(int((preferring > 0).sum()), len(preferring)).pvalue
    ranked = wilcoxon(preferring).pvalue
    return (("exact binomial over units", float(exact)), ("Wilcoxon signed rank over units", float(ranked)))


@dataclass(frozen=True, slots=True)
class Experiment:
    """The judged rows of one experiment.

    Args:
        path: Path of the rows.
        name: Name of the experiment; None where no row names it.
        rows: Rows, not yet read.
        interleaved: Whether lists were interleaved, rather than units split.
    """

    path: Path
    name: str | None
    rows: pl.LazyFrame
    interleaved: bool


def _open_experiment(path: Path, name: str | None, columns: tuple[str, ...]) -> Experiment:
    """Return the rows of an experiment, with the columns that metrics need; no name stands for the only one."""
    rows = scan_judged(path, (*_WHO, *columns))
    in_comparison = pl.col("arm").is_not_null() | pl.col("team").is_not_null()
    facts = collected(
        rows.filter(in_comparison).group_by("experiment").agg(pl.col("team").is_not_null().any().alias("teams")), path
    )
    kinds = dict(facts.iter_rows())
    if not kinds:
        raise DataError(path, "no row has an arm or a team: nothing was compared when these lists were served")
    there = ", ".join(sorted(map(str, kinds)))
    if name is None and len(kinds) > 1:
        raise RecipeError(f"{path} holds several experiments ({there}): name one with --experiment")
    if name is not None and name not in kinds:
        raise RecipeError(f"--experiment {name}: {path} holds {there}")
    name = next(iter(kinds)) if name is None else name
    return Experiment(path, name, rows.filter(pl.col("experiment").eq_missing(pl.lit(name))), kinds[name])


def _split_sums(experiment: Experiment, metrics: tuple[str, ...]) -> pl.DataFrame:
    """Return one row for each unit, day and arm: ``queries``, and the sums of each metric and of its squares.

    A metric is ``hit`` (1 if a shown candidate has a label above 0), ``mrr`` (1 / the first such place), ``map`` (mean
    of the precision at such places), ``ndcg@K`` or ``err@K`` of the labels in the shown order, or the name of a column,
    which is summed over the list. A query without a label above 0 counts 0 in all of them. ERR takes label 4, and all
    above, for the best that there can be; see :meth:`listwright.ranking.metrics.JudgedLists.measure`.
    """
    per_query = _per_query(
        experiment,
        [pl.col("arm").first(), pl.col("bundle").first(), *(_metric(name).alias(name) for name in metrics)],
    ).filter(pl.col("arm").is_not_null())
    squares = (pl.col(name).pow(2).sum().alias(squared(name)) for name in metrics)
    sums = [pl.len().alias("queries"), *(pl.col(name).sum() for name in metrics), *squares, pl.col("bundle").first()]
    return _checked(per_query.group_by("unit", "day", "arm").agg(sums), experiment)


def squared(metric: str) -> str:
    """Return the name of the column with the sum of a metric's squares."""
    return f"{metric} squared"


def _team_sums(experiment: Experiment, credit: str | None) -> pl.DataFrame:
    """Return one row for each unit and day: the credit of both teams.

    ``preference`` is the sum over queries of 1/2 where the challenger's team earned more, -1/2 where less, 0 where as
    much. ``credited`` counts queries where a team earned anything, ``queries`` all, ``first`` those whose first place
    is the challenger's. ``untold`` counts queries without teams: control answered them alone.
    """
    earned = (pl.col("label") > 0).cast(pl.Float64) if credit is None else pl.col(credit).cast(pl.Float64).fill_null(0)
    per_query = _per_query(
        experiment,
        [
            *(earned.filter(pl.col("team") == team).sum().alias(team) for team in ("control", "challenger")),
            pl.col("team").is_not_null().all().alias("told"),
            (pl.col("team").sort_by("position").first() == "challenger").alias("first"),
        ],
    )
    tells = pl.col("told")
    sign = (pl.col("challenger") - pl.col("control")).sign()
    sums = [
        tells.sum().alias("queries"),
        (~tells).sum().alias("untold"),
        (tells & ((pl.col("control") != 0) | (pl.col("challenger") != 0))).sum().alias("credited"),
        (sign * 0.5).filter(tells).sum().alias("preference"),
        (tells & pl.col("first")).sum().alias("first"),
        *(((sign == way) & tells).sum().alias(name) for name, way in (("won", 1), ("lost", -1))),
    ]
    return _checked(per_query.group_by("unit", "day").agg(sums), experiment)


def _per_query(experiment: Experiment, values: list[pl.Expr]) -> pl.LazyFrame:
    """Aggregate values to one row for each query; a query without a unit is a unit of its own."""
    return (
        experiment.rows.group_by("query_id")
        .agg(
            pl.col("unit").first(),
            pl.col("served_at").first().dt.date().alias("day"),
            (pl.col("position").n_unique() < pl.len()).alias("twice"),
            *values,
        )
        .with_columns(pl.coalesce("unit", pl.col("query_id").cast(pl.String)).alias("unit"))
        .with_columns(pl.when(pl.col("twice")).then(None).otherwise(pl.col("day")).alias("day"))
    )


def _checked(sums: pl.LazyFrame, experiment: Experiment) -> pl.DataFrame:
    """Return the sums by day and unit; raise DataError for a query with two candidates at one place, or no time."""
    units = collected(sums, experiment.path).sort("day", "unit")
    if units["day"].null_count():
        bad = units.filter(pl.col("day").is_null())["unit"][0]
        faults = "two candidates at one place, or no served_at: join the served log again"
        raise DataError(experiment.path, f"a query of unit {bad!r} has {faults}")
    return units


def _metric(name: str) -> pl.Expr:
    clicked = pl.col("label") > 0
    if name == "hit":
        return clicked.any().cast(pl.Float64)
    if name == "mrr":
        return (1.0 / pl.col("position").filter(clicked).min()).fill_null(0.0)
    if name == "map":
        places = pl.col("position").filter(clicked).sort()
        return (pl.int_range(1, places.len() + 1) / places).mean().fill_null(0.0)
    if not name.startswith(_WITH_DEPTH):
        return pl.col(name).cast(pl.Float64).sum()
    kind, _, depth = name.partition("@")
    if not (depth.isdecimal() and int(depth) > 0):
        raise RecipeError(f"--metric {name}: expected a depth of 1 or more, as in {kind}@10")
    gain, cut = pl.lit(2.0).pow(pl.col("label")) - 1.0, int(depth)
    if kind == "err":
        stops = (gain / (HIGHEST_GAIN + 1.0)).clip(upper_bound=1.0).sort_by("position")
        places = pl.col("position").sort()
        passed = (1.0 - stops).cum_prod().shift(1, fill_value=1.0)
        return (stops * passed / places).filter(places <= cut).sum()
    gained = (gain / (pl.col("position") + 1).log(2)).filter(pl.col("position") <= cut).sum()
    best = gain.sort(descending=True).head(cut)
    ideal = (best / (pl.int_range(1, best.len() + 1) + 1).log(2)).sum()
    return pl.when(ideal > 0).then(gained / ideal).otherwise(0.0)


def columns_of(metrics: tuple[str, ...]) -> tuple[str, ...]:
    """Return the columns that metrics read, besides labels and places."""
    return tuple(name for name in metrics if name not in ("hit", "mrr", "map") and not name.startswith(_WITH_DEPTH))


def _looks_of(days: pl.Series) -> list[date]:
    """Return the days after which to look, in order."""
    there = days.unique().sort().to_list()
    if len(there) <= MOST_LOOKS:
        return there
    places = np.unique(np.linspace(0, len(there) - 1, MOST_LOOKS).round().astype(int))
    return [there[place] for place in places]


def _cumulative_sums(sums: pl.DataFrame, names: list[str]) -> Iterator[tuple[date, Float[np.ndarray, "units M"]]]:
    """Yield each look's day, and the sums of every unit up to its end: one array, which grows in place."""
    rows = sums.sort("day")
    unit = rows["unit"].rank("dense").to_numpy().astype(np.int64) - 1
    values = rows.select(pl.col(names).cast(pl.Float64)).to_numpy()
    totals, begin = np.zeros((rows["unit"].n_unique(), len(names))), 0
    for last in _looks_of(rows["day"]):
        end = int((rows["day"] <= last).sum())
        np.add.at(totals, unit[begin:end], values[begin:end])
        begin = end
        yield last, totals
