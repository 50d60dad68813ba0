"""Judged rows of a simulated shop with known truth: its visitors click by a position-based model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
from jaxtyping import Bool, Float, Int

from listwright.ranking.experiments import team_draft


@dataclass(frozen=True, slots=True)
class Shop:
    """Parameters of the shop and its visitors.

    Args:
        length: Number of candidates of a query.
        depth: Number of shown places.
        strength: Strength of the position bias; see :func:`listwright_lab.synthetic_traffic.examination`.
        liking: Standard deviation over units of the log-odds of a click: one person clicks more than another.
        rate: Mean attraction of a candidate, about.
        days: Length of the experiment in days.
        returns: Mean number of queries of a unit.
    """

    length: int = 20
    depth: int = 10
    strength: float = 1.0
    liking: float = 0.5
    rate: float = 0.2
    days: int = 30
    returns: float = 2.0


@dataclass(frozen=True, slots=True)
class Visits:
    """Queries of the visitors, before anything is ranked.

    Args:
        unit: ``(N,)`` number of the unit.
        day: ``(N,)`` day of the query, from 0.
        attraction: ``(N, L)`` probability of a click on a candidate that is looked at.
    """

    unit: Int[np.ndarray, " N"]
    day: Int[np.ndarray, " N"]
    attraction: Float[np.ndarray, "N L"]


def visits(shop: Shop, queries: int, rng: np.random.Generator) -> Visits:
    """Draw queries in order of time; each unit comes back on other days."""
    units = max(1, round(queries / shop.returns))
    unit = rng.integers(0, units, queries)
    day = np.sort(rng.integers(0, shop.days, queries))
    odds = np.log(shop.rate / (1.0 - shop.rate)) + shop.liking * rng.normal(size=units)[unit][:, None]
    attraction = 1.0 / (1.0 + np.exp(-odds - rng.normal(size=(queries, shop.length))))
    return Visits(unit, day, attraction)


def ranked(people: Visits, noise: float, rng: np.random.Generator) -> Int[np.ndarray, "N L"]:
    """Return ``(N, L)`` orders of a ranker that knows the log-odds of a click with Gaussian noise of this deviation."""
    utilities = np.log(people.attraction / (1.0 - people.attraction)) + noise * rng.normal(size=people.attraction.shape)
    orders: Int[np.ndarray, "N L"] = np.argsort(-utilities, axis=1)
    return orders


def split_rows(
    shop: Shop,
    people: Visits,
    orders: Sequence[Int[np.ndarray, "N L"]],
    rng: np.random.Generator,
    *,
    share: float = 0.5,
) -> pl.DataFrame:
    """Return judged rows of a split: each unit is served by its arm, control or challenger."""
    arm = rng.random(int(people.unit.max()) + 1)[people.unit] < share
    order = np.where(arm[:, None], orders[1], orders[0])[:, : shop.depth]
    return judged_rows(shop, people, order, rng).with_columns(
        pl.Series("arm", np.repeat(np.where(arm, "challenger", "control"), shop.depth)),
        pl.Series("bundle", np.repeat(np.where(arm, "shop/2", "shop/1"), shop.depth)),
    )


def interleaved_rows(
    shop: Shop, people: Visits, orders: Sequence[Int[np.ndarray, "N L"]], rng: np.random.Generator, *, salt: str = "s"
) -> pl.DataFrame:
    """Return judged rows of an interleaving of both orders."""
    lists = [
        team_draft(control, challenger, query_id=f"q{n}", salt=salt, length=shop.depth)
        for n, (control, challenger) in enumerate(zip(orders[0].tolist(), orders[1].tolist(), strict=True))
    ]
    teams = np.array([draft.teams for draft in lists]).reshape(len(lists) * shop.depth)
    order = np.array([draft.order for draft in lists], dtype=np.int64).reshape(len(lists), shop.depth)
    return judged_rows(shop, people, order, rng).with_columns(pl.Series("team", teams))


def swapped_rows(
    shop: Shop, people: Visits, order: Int[np.ndarray, "N L"], rng: np.random.Generator, *, share: float = 0.5
) -> pl.DataFrame:
    """Return judged rows of one ranker, of which a share has two neighbours of the shown places swapped (FairPairs)."""
    count, depth = len(order), shop.depth
    swaps = rng.random(count) < share
    upper = rng.integers(0, depth - 1, count)
    order, rows = order[:, :depth].copy(), np.flatnonzero(swaps)
    pair = np.stack([upper[rows], upper[rows] + 1], axis=1)
    order[rows[:, None], pair] = order[rows[:, None], pair[:, ::-1]]
    part: Bool[np.ndarray, "N places"] = np.zeros((count, depth), dtype=bool)
    part[rows[:, None], pair] = True
    kind = np.repeat(np.where(swaps, "swap", ""), depth)
    return judged_rows(shop, people, order, rng).with_columns(
        pl.Series("intervention", kind).replace("", None),
        pl.when(pl.Series(kind) == "swap").then(share / (depth - 1)).alias("propensity"),
        pl.Series("swapped", part.ravel()),
    )


def judged_rows(
    shop: Shop, people: Visits, order: Int[np.ndarray, "N places"], rng: np.random.Generator
) -> pl.DataFrame:
    """Simulate clicks on the shown candidates, as ``listwright join`` writes them, without features.

    Args:
        shop: Shop of the visitors.
        people: Queries of the visitors.
        order: ``(N, places)`` candidates at the shown places.
        rng: Generator of the clicks.
    """
    count, depth = order.shape
    attraction = np.take_along_axis(people.attraction, order, axis=1)
    hits = clicked(attraction, np.broadcast_to(examination(depth, shop.strength), attraction.shape), rng)
    first = datetime(2026, 1, 1, tzinfo=UTC)
    times = [first + timedelta(days=day, seconds=n) for n, day in enumerate(people.day.tolist())]
    return pl.DataFrame(
        {
            "query_id": np.repeat([f"q{n}" for n in range(count)], depth),
            "candidate_id": np.char.add("c", order.ravel().astype(str)),
            "position": np.tile(np.arange(1, depth + 1), count),
            "label": hits.ravel().astype(np.int32),
        }
    ).with_columns(
        pl.Series("served_at", times, dtype=pl.Datetime("us", "UTC")).gather(np.repeat(np.arange(count), depth)),
        pl.Series("unit", np.repeat([f"u{n}" for n in people.unit.tolist()], depth)),
        pl.lit("shop/1").alias("bundle"),
        pl.lit("test").alias("experiment"),
        *(pl.lit(None, dtype=pl.String).alias(name) for name in ("arm", "team", "intervention")),
        pl.lit(None, dtype=pl.Float64).alias("propensity"),
        pl.lit(value=False).alias("swapped"),
    )


def examination(count: int, strength: float) -> Float[np.ndarray, " places"]:
    """Return ``(places,)`` probabilities of a look: ``1 / k ** strength`` at place k (Joachims et al. 2017, 6.1).

    Args:
        count: Number of places.
        strength: Strength of the position bias; 0 for none, 1 for that of the paper.
    """
    places: Float[np.ndarray, " places"] = np.arange(1, count + 1, dtype=np.float64) ** -strength
    return places


def attractiveness(labels: Int[np.ndarray, "*rows"], *, highest: int, noise: float = 0.1) -> Float[np.ndarray, "*rows"]:
    """Return the probability of a click on an examined candidate.

    Definition (Ai et al. 2018, eq. 13): ``noise + (1 - noise) (2^y - 1) / (2^highest - 1)``.

    Args:
        labels: True relevance labels.
        highest: Largest possible label, at least 1.
        noise: Probability of a click on an irrelevant candidate, in [0, 1].
    """
    share: Float[np.ndarray, "*rows"] = (np.exp2(labels) - 1.0) / (2.0**highest - 1.0)
    return noise + (1.0 - noise) * share


def clicked(
    attraction: Float[np.ndarray, "*rows"], examined: Float[np.ndarray, "*rows"], rng: np.random.Generator
) -> Bool[np.ndarray, "*rows"]:
    """Draw a click for each shown candidate: independent examination and attraction."""
    clicks: Bool[np.ndarray, "*rows"] = rng.random(attraction.shape) < attraction * examined
    return clicks
