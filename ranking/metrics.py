"""Ranking metrics under an explicit protocol.

Every function takes ``scores`` and ``labels`` of one list, in input order, and sorts by
:func:`listwright.ranking.order.rank_by_score`. To measure a finished :class:`~listwright.ranking.candidates.Ranking`,
pass its negated ranks.

Gain is ``2^y - 1``, unless gains are given, and the discount ``1 / log2(rank + 1)`` (Burges et al., ICML 2005).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float, Int
from pydantic import BaseModel, ConfigDict

from listwright.ranking.order import rank_by_score

EmptyQueries = Literal[0, 1, "drop"]


class EvalProtocol(BaseModel):
    """The choices that move a number without moving the model; printed beside every figure.

    Args:
        empty_queries: the NDCG of a list without a relevant candidate: 0 (TF-Ranking, Rax, QuickRank), 1 (LightGBM,
            XGBoost, allRank), or left out of the mean (PT-Ranking).
        ideal: whether the ideal order may use candidates that the first stage dropped (``full``) or only those that
            it kept (``truncated``).
        gains: what label 0, 1 and so on is worth in DCG; None for ``2^y - 1``.
        weighted: whether queries count by their weights, or all alike.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    empty_queries: EmptyQueries = 0
    ideal: Literal["full", "truncated"] = "full"
    gains: tuple[float, ...] | None = None
    weighted: bool = False

    def __str__(self) -> str:
        gains = "2^y-1" if self.gains is None else f"{', '.join(f'{gain:g}' for gain in self.gains)} of label 0, 1, ..."
        mean = "weighted" if self.weighted else "macro"
        return (
            f"gain {gains}, discount 1/log2(rank+1), {mean} mean over queries, empty_queries={self.empty_queries}, "
            f"ideal={self.ideal}, equal scores keep input order"
        )

    def apply(self, values: Float[np.ndarray, " N"]) -> Float[np.ndarray, " M"]:
        """Per-query values with NaN (no relevant candidate) replaced or dropped as :attr:`empty_queries` says."""
        empty = np.isnan(values)
        if self.empty_queries == "drop":
            return np.compress(~empty, values)
        filled: Float[np.ndarray, " M"] = np.where(empty, float(self.empty_queries), values)
        return filled


def dcg(ranked_labels: Int[np.ndarray, " L"], *, cutoff: int, gains: Sequence[float] | None = None) -> float:
    """Discounted cumulative gain of labels that stand in ranked order.

    Definition: ``sum_{r=1..cutoff} (2^y_r - 1) / log2(r + 1)``, with ``gains[y_r]`` for ``2^y_r - 1`` where gains are
    given; a cutoff above L means all.

    Raises:
        ValueError: if the cutoff is no rank (below 1); so do the other metrics.
        IndexError: if a label has no gain.
    """
    top = np.asarray(_first(ranked_labels, cutoff))
    gained = np.exp2(top.astype(np.float64)) - 1.0 if gains is None else np.asarray(gains, dtype=np.float64)[top]
    return float(np.sum(gained / np.log2(np.arange(2, len(top) + 2))))


def ndcg(
    scores: Float[np.ndarray, " L"],
    labels: Int[np.ndarray, " L"],
    *,
    cutoff: int,
    kept: Bool[np.ndarray, " L"] | None = None,
    gains: Sequence[float] | None = None,
) -> float:
    """DCG of the order by ``scores``, divided by the best DCG that any order of the list can have.

    Args:
        scores: ``(L,)`` higher is better.
        labels: ``(L,)`` relevance labels, 0 = irrelevant.
        cutoff: ranks considered, counted from 1; larger than L means all.
        kept: ``(L,)`` True for candidates that the ideal order may use (``ideal="truncated"``); None for all.
        gains: as for :func:`dcg`.

    Returns:
        A number in [0, 1] (above 1 is possible with ``kept``), NaN if the ideal is 0: the protocol decides what an
        empty query counts.
    """
    ideal = dcg(np.sort(labels if kept is None else labels[kept])[::-1], cutoff=cutoff, gains=gains)
    if ideal == 0.0:
        return float("nan")
    return dcg(labels[rank_by_score(scores)], cutoff=cutoff, gains=gains) / ideal


def precision(scores: Float[np.ndarray, " L"], labels: Int[np.ndarray, " L"], *, cutoff: int) -> float:
    """Share of relevant candidates (label > 0) in the first ``cutoff`` ranks; divided by ``cutoff`` even if L < it."""
    return float(np.count_nonzero(_first(labels[rank_by_score(scores)], cutoff) > 0)) / cutoff


def hit(scores: Float[np.ndarray, " L"], labels: Int[np.ndarray, " L"], *, cutoff: int) -> float:
    """1.0 if any of the first ``cutoff`` ranks is relevant (label > 0), else 0.0."""
    return float((_first(labels[rank_by_score(scores)], cutoff) > 0).any())


def reciprocal_rank(scores: Float[np.ndarray, " L"], labels: Int[np.ndarray, " L"]) -> float:
    """1 / rank of the first relevant candidate (label > 0); 0.0 if there is none."""
    relevant = np.flatnonzero(labels[rank_by_score(scores)] > 0)
    return 1.0 / (int(relevant[0]) + 1) if len(relevant) else 0.0


def _first(ranked_labels: Int[np.ndarray, " L"], cutoff: int) -> Int[np.ndarray, " C"]:
    if cutoff < 1:
        raise ValueError(f"cutoff {cutoff}: expected a rank, 1 or more")
    return ranked_labels[:cutoff]
