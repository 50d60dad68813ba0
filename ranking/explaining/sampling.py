"""Shapley values of a function of coalitions: exact for few players, from antithetic permutations for many."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import factorial

import numpy as np
from jaxtyping import Bool, Float

from listwright.ranking.explaining.clock import Clock

Worth = Callable[[Bool[np.ndarray, "M N"]], Float[np.ndarray, " M"]]
"""What coalitions are worth: one row each, True for the players that take part."""

EXHAUSTIVE = 1024
"""Coalitions that are all tried; with more of them, permutations are drawn."""

TOLERANCE = 0.02
"""Of the largest value: sampling ends when the largest standard error is below it."""

FEWEST_PAIRS = 8
"""Of permutations, before their spread is trusted to say how well the mean is known; a smaller budget ends earlier."""

_TOGETHER = 64
"""Coalitions between two looks at the clock."""


@dataclass(frozen=True, slots=True)
class ShapleyValues:
    """Shares of ``full - empty``, which they sum to.

    Args:
        values: ``(N,)``.
        standard_errors: ``(N,)``; None where the values are exact.
        full, empty: what all players are worth together, and none.
        evaluations: coalitions that were tried.
        budget_spent: whether the budget or the clock ended the sampling.
    """

    values: Float[np.ndarray, " N"]
    standard_errors: Float[np.ndarray, " N"] | None
    full: float
    empty: float
    evaluations: int
    budget_spent: bool = False


def shapley_values(
    worth: Worth, players: int, *, budget: int, rng: np.random.Generator, clock: Clock
) -> ShapleyValues | None:
    """Every player's mean contribution over all orders in which players can join (Shapley, 1953).

    Up to :data:`EXHAUSTIVE` coalitions are all tried. Else permutations are drawn in antithetic pairs, each followed by
    its reverse (Mitchell et al., 2022), and a pair's mean is one sample. Sampling ends when the largest standard error
    is below :data:`TOLERANCE` of the largest value, or with the budget.

    Args:
        worth: of coalitions.
        players: N.
        budget: evaluations; two pairs of permutations are drawn even if they cost more.
        rng: draws the permutations.
        clock: asked between evaluations.

    Returns:
        The values; None where the clock ended before two pairs.

    Convention: without players, everything is worth what nothing is.
    """
    if players == 0:
        (alone,) = worth(np.zeros((1, 0), dtype=bool)).tolist()
        return ShapleyValues(np.zeros(0), None, alone, alone, 1)
    if 2**players <= max(4, min(budget, EXHAUSTIVE)):
        return _exhaustive(worth, players, clock)
    return _sampled(worth, players, budget, rng, clock)


def _exhaustive(worth: Worth, players: int, clock: Clock) -> ShapleyValues | None:
    numbers = np.arange(2**players)
    present = (numbers[:, None] >> np.arange(players) & 1).astype(bool)
    worths = _tried(worth, present, clock)
    if worths is None:
        return None
    sizes = present.sum(axis=1)
    weights = np.array([factorial(s) * factorial(players - s - 1) / factorial(players) for s in range(players)])
    values = np.empty(players)
    for player in range(players):
        without = numbers[~present[:, player]]
        gained = worths[without | 1 << player] - worths[without]
        values[player] = weights[sizes[without]] @ gained
    return ShapleyValues(values, None, float(worths[-1]), float(worths[0]), len(worths))


def _sampled(worth: Worth, players: int, budget: int, rng: np.random.Generator, clock: Clock) -> ShapleyValues | None:
    ends = _tried(worth, np.array([[False] * players, [True] * players]), clock)
    if ends is None:
        return None
    empty, full = ends.tolist()
    evaluations, pairs = 2, 0
    mean, squares = np.zeros(players), np.zeros(players)  # Welford's
    cost = 2 * (players - 1)
    precise = False
    while not precise:
        if pairs >= 2 and evaluations + cost > budget:
            break
        order = rng.permutation(players)
        worths = _tried(worth, _pair(order), clock)
        if worths is None:
            break
        evaluations, pairs = evaluations + cost, pairs + 1
        forth = _joined(order, worths[: players - 1], empty, full)
        back = _joined(order[::-1], worths[players - 1 :], empty, full)
        sample = (forth + back) / 2
        before = sample - mean
        mean += before / pairs
        squares += before * (sample - mean)
        precise = pairs >= FEWEST_PAIRS and bool(_errors(squares, pairs).max() <= TOLERANCE * np.abs(mean).max())
    if pairs < 2:
        return None
    return ShapleyValues(mean, _errors(squares, pairs), full, empty, evaluations, not precise)


def _errors(squares: Float[np.ndarray, " N"], pairs: int) -> Float[np.ndarray, " N"]:
    """Standard errors of a mean over pairs."""
    errors: Float[np.ndarray, " N"] = np.sqrt(squares / (pairs - 1) / pairs)
    return errors


def _pair(order: np.ndarray) -> Bool[np.ndarray, "M N"]:
    """Coalitions of one permutation and of its reverse, without the empty and the full one."""
    count = len(order)
    place = np.empty(count, dtype=np.int64)
    place[order] = np.arange(count)
    sizes = np.arange(1, count)[:, None]
    return np.concatenate([place < sizes, place >= count - sizes])


def _joined(order: np.ndarray, worths: Float[np.ndarray, " M"], empty: float, full: float) -> Float[np.ndarray, " N"]:
    """What each player added when it joined."""
    added = np.empty(len(order))
    added[order] = np.diff(worths, prepend=empty, append=full)
    return added


def _tried(worth: Worth, present: Bool[np.ndarray, "M N"], clock: Clock) -> Float[np.ndarray, " M"] | None:
    """What coalitions are worth; None if the time is up before all are tried."""
    parts = []
    for begin in range(0, len(present), _TOGETHER):
        if clock.over():
            return None
        parts.append(worth(present[begin : begin + _TOGETHER]))
    return np.concatenate(parts).astype(np.float64) if parts else np.zeros(0)
