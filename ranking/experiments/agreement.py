"""How alike two orders of the same candidates are."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from listwright.ranking.order import ranks_of

PERSISTENCE = 0.9
"""p of rank-biased overlap: the first ten places have 86 % of the weight."""

SMALL = 64
"""Lengths whose pairs are counted one by one."""


class Agreement(NamedTuple):
    """Of two orders.

    Args:
        kendall_tau: in [-1, 1]; 1 for the same order, -1 for the opposite one.
        rbo: rank-biased overlap in (0, 1]; 1 for the same order; the top counts most.
        top_1: 1.0 if both have the same first candidate, else 0.0.
    """

    kendall_tau: float
    rbo: float
    top_1: float


def agreement(one: Int[np.ndarray, " L"], other: Int[np.ndarray, " L"]) -> Agreement:
    """Compare two orders of the same L candidates, best first.

    Definitions: Kendall's tau is 1 - 4 D / (L (L - 1)), D the pairs in different order (Kendall 1938; there are no
    ties). Rank-biased overlap is the extrapolated one (Webber, Moffat, Zobel 2010, eq. 32), with p = 0.9.

    Raises:
        ValueError: if they do not hold the candidates 0 to L - 1, each once.

    Convention: lists of one candidate agree; so do lists of none.
    """
    length = len(one)
    if len(other) != length or not all(np.array_equal(np.sort(order), np.arange(length)) for order in (one, other)):
        raise ValueError(f"orders of {length} and {len(other)} candidates: expected 0 to L - 1, each once, in both")
    if length < 2:
        return Agreement(1.0, 1.0, 1.0)
    discordant = _inversions(ranks_of(other)[one])
    tau = 1.0 - 4.0 * discordant / (length * (length - 1))
    return Agreement(tau, _rank_biased_overlap(one, other), float(one[0] == other[0]))


def _inversions(values: Int[np.ndarray, " L"]) -> int:
    """Pairs whose first value is the larger one; values are distinct."""
    length = len(values)
    if length <= SMALL:
        return int(np.triu(values[:, None] > values[None, :], 1).sum())
    left, right = values[: length // 2], values[length // 2 :]
    between = len(left) * len(right) - int(np.searchsorted(np.sort(left), right).sum())
    return between + _inversions(left) + _inversions(right)


def _rank_biased_overlap(one: Int[np.ndarray, " L"], other: Int[np.ndarray, " L"]) -> float:
    length = len(one)
    depths = np.arange(1, length + 1)
    in_both = np.maximum(ranks_of(one), ranks_of(other))  # the depth from which a candidate is in both
    overlap = np.cumsum(np.bincount(in_both, minlength=length + 1)[1:]) / depths
    weights = PERSISTENCE ** depths.astype(np.float64)
    seen = (1.0 - PERSISTENCE) / PERSISTENCE * float((overlap * weights).sum())
    return min(1.0, seen + float(overlap[-1] * weights[-1]))
