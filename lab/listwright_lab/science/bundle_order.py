"""How well ten rankers are put in order, from a log and by interleaving each with the ranker that serves.

Estimates have propensities of another log of 100,000 lists, as 1,000 lists have too few clicks for their own. The naive
NDCG takes the clicks as labels. An interleaving (team draft) of each ranker has the same clicks, by place; its order is
that of the share of queries that the ranker's team wins, among those that one team wins.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.stats import kendalltau

from listwright_lab.science.click_logs import (
    BUNDLES,
    BY_PLACE,
    PLACES,
    Served,
    click_chances,
    draw_log,
    estimate_log,
    propensities_of,
)

COUNTS = (1_000, 10_000, 100_000)
"""Numbers of lists of a log."""

DRAFTS = (100, 300, 1_000, 3_000, 10_000, 30_000, 100_000)
"""Numbers of interleaved queries of each ranker."""

STRENGTH = 1.0
RANKERS = list(range(1, 1 + BUNDLES))


def from_log(served: Served, count: int, seed: int) -> dict[str, float]:
    """Return the rank correlation with the true order, by estimator, and of the naive NDCG."""
    rng, true = np.random.default_rng([seed, count]), served.gains(STRENGTH, BY_PLACE)[RANKERS]
    explored = draw_log(served, STRENGTH, BY_PLACE, swaps=True, count=COUNTS[-1], rng=rng)
    log = draw_log(served, STRENGTH, BY_PLACE, swaps=True, count=count, rng=rng)
    _, gains = estimate_log(log, RANKERS, propensities_of(explored.rows), (20.0,))
    values = {name: [gain[name][0] for gain in gains] for name in gains[0]}
    clicks = (log.rows["label"] > 0).to_numpy().reshape(-1, PLACES)
    values["naive"] = [naive_ndcg(clicks, log.places[n].reshape(-1, PLACES)) for n in RANKERS]
    return {name: correlation(each, true) for name, each in values.items()}


def correlation(values: list[float], true: Float[np.ndarray, " rankers"]) -> float:
    """Return Kendall's tau-b."""
    return round(float(kendalltau(values, true).statistic), 4)


def naive_ndcg(clicks: Bool[np.ndarray, "N places"], places: Int[np.ndarray, "N places"]) -> float:
    """Return the mean NDCG with clicks as labels, of the lists with a click."""
    discounts = 1.0 / np.log2(np.arange(PLACES) + 2.0)
    ideal = np.append(0.0, np.cumsum(discounts))[clicks.sum(axis=1)]
    gained = (clicks * discounts[places]).sum(axis=1)
    return float((gained[ideal > 0.0] / ideal[ideal > 0.0]).mean())


def interleaved(served: Served, seed: int) -> dict[str, float]:
    """Return the rank correlation with the true order, by number of interleaved queries of each ranker."""
    rng, true = np.random.default_rng([seed, 1]), served.gains(STRENGTH, BY_PLACE)[RANKERS]
    wins = np.array([win_shares(served, served.orders[n], rng) for n in RANKERS])
    return {str(count): correlation(share.tolist(), true) for count, share in zip(DRAFTS, wins.T, strict=True)}


def win_shares(
    served: Served, order: Int[np.ndarray, "Q places"], rng: np.random.Generator
) -> Float[np.ndarray, " drafts"]:
    """Return the share of won queries after each number of queries; a half if none was won."""
    query = rng.integers(0, len(served.attraction), DRAFTS[-1])
    lists, teams = team_drafts(order[query], rng)
    attraction = np.take_along_axis(served.attraction[query], lists, axis=1)
    places = np.broadcast_to(np.arange(PLACES), lists.shape)
    hits = rng.random(lists.shape) < click_chances(attraction, places, STRENGTH, BY_PLACE)
    lead = np.sign((hits & teams).sum(axis=1) - (hits & ~teams).sum(axis=1))
    won, decided = (np.cumsum(each)[np.array(DRAFTS) - 1] for each in (lead > 0, lead != 0))
    shares: Float[np.ndarray, " drafts"] = np.where(decided > 0, won / np.maximum(decided, 1), 0.5)
    return shares


def team_drafts(
    places: Int[np.ndarray, "N places"], rng: np.random.Generator
) -> tuple[Int[np.ndarray, "N places"], Bool[np.ndarray, "N places"]]:
    """Interleave lists with another order of theirs (Radlinski, Kurup, Joachims 2008, algorithm 2).

    Args:
        places: Place of each candidate, from 0, by the other ranker; the first ranker's is its index.
        rng: Generator of the coins.

    Returns:
        The candidates at the shown places, and whether the other ranker's team placed them.
    """
    count, length = places.shape
    own, rows = np.broadcast_to(np.arange(length), places.shape), np.arange(count)
    lists, teams, picks = np.empty_like(places), np.empty(places.shape, dtype=bool), np.zeros(places.shape, dtype=bool)
    coins = rng.random((count, (length + 1) // 2)) < 0.5
    for place in range(length):
        turn = coins[:, place // 2] ^ (place % 2 == 1)
        pick = np.where(picks, length, np.where(turn[:, None], places, own)).argmin(axis=1)
        lists[:, place], teams[:, place], picks[rows, pick] = pick, turn, True
    return lists, teams


def summary(name: str, done: Mapping[str, Mapping[int, dict[str, float]]]) -> dict[str, Any]:
    """Return mean correlations, and how many interleaved queries give those of the estimates."""
    key = f"{name}, order, "
    by_count = {str(count): _means(done.get(f"{key}{count} lists", {})) for count in COUNTS}
    drafts = _means(done.get(f"{key}interleaved", {}))
    points = [drafts[str(count)][0] for count in DRAFTS] if drafts else []
    return {
        "logs": {count: len(done.get(f"{key}{count} lists", {})) for count in by_count},
        "by_lists": by_count,
        "interleaved": drafts,
        "queries_for_the_same": {
            count: needed(points, means["dr"][0]) for count, means in by_count.items() if means and points
        },
    }


def _means(logs: Mapping[int, dict[str, float]]) -> dict[str, list[float]]:
    """Return mean correlations over logs, with their 95 % intervals."""
    result = dict[str, list[float]]()
    for name in next(iter(logs.values()), {}):
        values = np.array([log[name] for log in logs.values()])
        half = 1.96 * float(values.std(ddof=1)) / len(values) ** 0.5 if len(values) > 1 else 0.0
        mean = float(values.mean())
        result[name] = [round(number, 4) for number in (mean, mean - half, mean + half)]
    return result


def needed(points: list[float], level: float) -> int | None:
    """Return the interleaved queries of all rankers for a mean correlation, between those tried; None if none does."""
    if level > max(points):
        return None
    return round(BUNDLES * float(np.exp(np.interp(level, np.maximum.accumulate(points), np.log(DRAFTS)))))
