"""From judged rows to sums: of each unit, day and arm or team."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import polars as pl

from listwright.ranking.errors import DataError, RecipeError
from listwright.ranking.metrics import HIGHEST_GAIN
from listwright.training.data.tables.judged_rows import collected, scan_judged

DEFAULT_METRICS = ("hit", "mrr", "ndcg@10")
"""Of a split: the first one decides."""

_WITH_DEPTH = ("ndcg@", "err@")

_WHO = ("query_id", "unit", "served_at", "experiment", "arm", "team", "position", "label", "bundle")


@dataclass(frozen=True, slots=True)
class Experiment:
    """The rows of one experiment.

    Args:
        path: where they come from.
        name: None where no row names one.
        rows: unread.
        interleaved: whether lists were interleaved, rather than units split.
    """

    path: Path
    name: str | None
    rows: pl.LazyFrame
    interleaved: bool


def open_experiment(path: Path, name: str | None, columns: tuple[str, ...]) -> Experiment:
    """The rows of an experiment, and what kind it is of.

    Args:
        path: judged rows.
        name: of the experiment; None where the rows name one or none.
        columns: that its metrics need beside the usual ones.

    Raises:
        RecipeError: if the rows hold several experiments and none is named, or not the one that is.
        DataError: if they cannot be read, or belong to no comparison.
    """
    rows = scan_judged(path, (*_WHO, *columns))
    compared = pl.col("arm").is_not_null() | pl.col("team").is_not_null()
    found = collected(
        rows.filter(compared).group_by("experiment").agg(pl.col("team").is_not_null().any().alias("teams")), path
    )
    kinds = dict(found.iter_rows())
    if not kinds:
        raise DataError(path, "no row has an arm or a team: nothing was compared when these lists were served")
    if name is None and len(kinds) > 1:
        there = ", ".join(sorted(map(str, kinds)))
        raise RecipeError(f"{path} holds several experiments ({there}): name one with --experiment")
    if name is not None and name not in kinds:
        raise RecipeError(f"--experiment {name}: {path} holds {', '.join(sorted(map(str, kinds)))}")
    name = next(iter(kinds)) if name is None else name
    return Experiment(path, name, rows.filter(pl.col("experiment").eq_missing(pl.lit(name))), kinds[name])


def split_sums(experiment: Experiment, metrics: tuple[str, ...]) -> pl.DataFrame:
    """One row for each unit, day and arm: ``queries``, and the sums of each metric and of its squares over them.

    A metric is ``hit`` (1 if a shown candidate has a label above 0), ``mrr`` (1 / the first such place), ``map`` (mean
    of the precision at such places), ``ndcg@K`` or ``err@K`` of the labels in the shown order, or the name of a column,
    which is summed over the list. A query without a label above 0 counts 0 in all of them. ERR takes label 4, and all
    above, for the best that there can be; see :func:`listwright.ranking.metrics.expected_reciprocal_rank`.
    """
    per_query = _per_query(
        experiment,
        [pl.col("arm").first(), pl.col("bundle").first(), *(_metric(name).alias(name) for name in metrics)],
    ).filter(pl.col("arm").is_not_null())
    squares = (pl.col(name).pow(2).sum().alias(squared(name)) for name in metrics)
    sums = [pl.len().alias("queries"), *(pl.col(name).sum() for name in metrics), *squares, pl.col("bundle").first()]
    return _checked(per_query.group_by("unit", "day", "arm").agg(sums), experiment)


def squared(metric: str) -> str:
    """The column of the sum of a metric's squares."""
    return f"{metric} squared"


def team_sums(experiment: Experiment, credit: str | None) -> pl.DataFrame:
    """One row for each unit and day: what both teams earned.

    ``preference`` is the sum over queries of 1/2 where the challenger's team earned more, -1/2 where less, 0 where as
    much. ``credited`` counts queries where a team earned anything, ``queries`` all, ``first`` those whose first place
    is the challenger's. ``untold`` counts queries without teams: control answered them alone.

    Args:
        experiment: interleaved.
        credit: column with what a shown candidate earns; None for 1 where its label is above 0.
    """
    earned = (pl.col("label") > 0).cast(pl.Float64) if credit is None else pl.col(credit).cast(pl.Float64).fill_null(0)
    mine = {team: earned.filter(pl.col("team") == team).sum() for team in ("control", "challenger")}
    per_query = _per_query(
        experiment,
        [
            mine["control"].alias("control"),
            mine["challenger"].alias("challenger"),
            pl.col("team").is_not_null().all().alias("told"),
            (pl.col("team").sort_by("position").first() == "challenger").alias("first"),
        ],
    )
    told = pl.col("told")
    sign = (pl.col("challenger") - pl.col("control")).sign()
    sums = [
        told.sum().alias("queries"),
        (~told).sum().alias("untold"),
        (told & ((pl.col("control") != 0) | (pl.col("challenger") != 0))).sum().alias("credited"),
        (sign * 0.5).filter(told).sum().alias("preference"),
        (told & pl.col("first")).sum().alias("first"),
        *(((sign == way) & told).sum().alias(name) for name, way in (("won", 1), ("lost", -1))),
    ]
    return _checked(per_query.group_by("unit", "day").agg(sums), experiment)


def _per_query(experiment: Experiment, values: list[pl.Expr]) -> pl.LazyFrame:
    """One row for each query; a query without a unit is a unit of its own."""
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
    """The sums by day.

    Raises:
        DataError: if a query has two candidates at one place, or no time.
    """
    found = collected(sums, experiment.path).sort("day", "unit")
    if found["day"].null_count():
        bad = found.filter(pl.col("day").is_null())["unit"][0]
        said = "two candidates at one place, or no served_at: join the served log again"
        raise DataError(experiment.path, f"a query of unit {bad!r} has {said}")
    return found


def _metric(name: str) -> pl.Expr:
    clicked = pl.col("label") > 0
    if name == "hit":
        return clicked.any().cast(pl.Float64)
    if name == "mrr":
        return (1.0 / pl.col("position").filter(clicked).min()).fill_null(0.0)
    if name == "map":
        places = pl.col("position").filter(clicked).sort()
        return (pl.int_range(1, places.len() + 1) / places).mean().fill_null(0.0)
    kind, at, depth = name.partition("@")
    if kind not in ("ndcg", "err") or not at:
        return pl.col(name).cast(pl.Float64).sum()
    if not (depth.isdecimal() and int(depth) > 0):
        raise RecipeError(f"--metric {name}: expected a depth of 1 or more, as in {kind}@10")
    gain = pl.lit(2.0).pow(pl.col("label")) - 1.0
    cut = int(depth)
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
    """The columns that metrics are read from, beside labels and places."""
    return tuple(name for name in metrics if name not in ("hit", "mrr", "map") and not name.startswith(_WITH_DEPTH))
