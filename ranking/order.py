"""The one place that sorts."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int


def rank_by_score(scores: Float[np.ndarray, " L"]) -> Int[np.ndarray, " L"]:
    """Indices of the candidates, best first.

    Args:
        scores: ``(L,)`` higher is better; comparable within this list only.

    Returns:
        ``(L,)`` a permutation of ``0 .. L-1``.

    Convention: equal scores keep input order; NaN ranks below every number, in input order.
    """
    return np.argsort(-scores, kind="stable")


def ranks_of(order: Int[np.ndarray, " L"]) -> Int[np.ndarray, " L"]:
    """The 1-based rank of every candidate, in input order: the inverse of :func:`rank_by_score`."""
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[order] = np.arange(1, len(order) + 1)
    return ranks
