"""Ranking metrics under an explicit protocol.

Every function takes ``scores`` and ``labels`` of one list, in input order. Candidates with equal scores share their
ranks: a metric is its expectation over all orders of theirs (McSherry & Najork, ECIR 2008), so that it does not depend
on input order. NaN ranks below every number. To measure a finished
:class:`~listwright.ranking.candidates.Ranking`, pass its ``sort_keys``.

Gain is ``2^y - 1``, unless gains are given, and the discount ``1 / log2(rank + 1)`` (Burges et al., ICML 2005).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import numpy as np
from jaxtyping import Bool, Float, Int
from pydantic import BaseModel, ConfigDict, Field

from listwright.ranking.order import rank_by_score

EmptyQueries = Literal[0, 1, "drop"]

HIGHEST_GAIN = 15.0
"""Gain of label 4, the best of TREC's and of the LETOR sets with the most grades."""


class EvalProtocol(BaseModel):
    """The choices that move a number without moving the model; printed beside every figure.

    Args:
        empty_queries: the NDCG of a list without a relevant candidate: 0 (TF-Ranking, Rax, QuickRank), 1 (LightGBM,
            XGBoost, allRank), or left out of the mean (PT-Ranking).
        ideal: whether the ideal order may use candidates that the first stage dropped (``full``) or only those that
            it kept (``truncated``).
        gains: the gain of label 0, 1 and so on in DCG; None for ``2^y - 1``.
        weighted: whether queries count by their weights, or all alike.
        ties: equal scores share their ranks; ``input_order`` only in bundles before format 6, which kept that.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    empty_queries: EmptyQueries = 0
    ideal: Literal["full", "truncated"] = "full"
    gains: Annotated[tuple[float, ...], Field(fail_fast=True)] | None = None
    weighted: bool = False
    ties: Literal["shared", "input_order"] = "shared"

    def __str__(self) -> str:
        gains = "2^y-1" if self.gains is None else f"{', '.join(f'{gain:g}' for gain in self.gains)} of label 0, 1, ..."
        mean = "weighted" if self.weighted else "macro"
        return (
            f"gain {gains}, discount 1/log2(rank+1), {mean} mean over queries, empty_queries={self.empty_queries}, "
            f"ideal={self.ideal}, equal scores {'share their ranks' if self.ties == 'shared' else 'keep input order'}"
        )

    def apply(self, values: Float[np.ndarray, " N"]) -> Float[np.ndarray, " M"]:
        """Replace or drop NaN, the value of a query without a relevant candidate, as :attr:`empty_queries` says."""
        empty = np.isnan(values)
        if self.empty_queries == "drop":
            return np.compress(~empty, values)
        filled: Float[np.ndarray, " M"] = np.where(empty, float(self.empty_queries), values)
        return filled


def dcg(ranked_labels: Int[np.ndarray, " L"], *, cutoff: int, gains: Sequence[float] | None = None) -> float:
    """Compute the discounted cumulative gain of labels that stand in ranked order.

    Definition: ``sum_{r=1..cutoff} (2^y_r - 1) / log2(r + 1)``, with ``gains[y_r]`` for ``2^y_r - 1`` where gains are
    given; a cutoff above L means all.

    Raises:
        ValueError: if the cutoff is no rank (below 1); so do the other metrics.
        IndexError: if a label has no gain.
    """
    _check(cutoff)
    top = ranked_labels[:cutoff]
    return float(np.sum(gains_of(top, gains) / np.log2(np.arange(2, len(top) + 2))))


def gains_of(labels: Int[np.ndarray, " L"], gains: Sequence[float] | None = None) -> Float[np.ndarray, " L"]:
    """Return the gain of each label: ``gains[y]``, or ``2^y - 1`` for None.

    Raises:
        IndexError: if a label has no gain.
    """
    of_labels: Float[np.ndarray, " labels"] = (
        np.exp2(np.arange(int(labels.max(initial=0)) + 1.0)) - 1.0 if gains is None else np.asarray(gains, np.float64)
    )
    label_gains: Float[np.ndarray, " L"] = of_labels[labels]
    return label_gains


def ndcg(
    scores: Float[np.ndarray, " L"],
    labels: Int[np.ndarray, " L"],
    *,
    cutoff: int,
    kept: Bool[np.ndarray, " L"] | None = None,
    gains: Sequence[float] | None = None,
) -> float:
    """Compute the DCG of the order by ``scores``, divided by the best DCG that any order of the list can have.

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
    group_gains, sizes, starts = _rank_groups(scores, gains_of(labels, gains))
    discounts = 1.0 / np.log2(np.arange(2.0, len(labels) + 2.0))
    discounts[cutoff:] = 0.0
    return float((group_gains * np.add.reduceat(discounts, starts) / sizes).sum()) / ideal


class QueryNdcg:
    """NDCG of many queries at once, as :func:`ndcg` has it for one.

    Args:
        labels: ``(R,)`` relevance labels of all rows, those of one query together.
        offsets: ``(N + 1,)`` query n owns rows ``offsets[n] : offsets[n + 1]``, at least one.
        cutoff, gains: as for :func:`ndcg`.
    """

    def __init__(
        self,
        labels: Int[np.ndarray, " R"],
        offsets: Int[np.ndarray, " O"],
        *,
        cutoff: int,
        gains: Sequence[float] | None = None,
    ) -> None:
        _check(cutoff)
        self._gains, self._starts = gains_of(labels, gains), offsets[:-1]
        lengths = np.diff(offsets)
        self._query = np.repeat(np.arange(len(lengths)), lengths)
        ranks = np.arange(1, len(labels) + 1) - np.repeat(self._starts, lengths)
        self._discounts = np.where(ranks <= cutoff, 1.0 / np.log2(ranks + 1.0), 0.0)
        self._ideals = self._mean_dcgs(labels.astype(np.float64))

    def of(self, scores: Float[np.ndarray, " R"]) -> Float[np.ndarray, " N"]:
        """Return ``(N,)`` NDCG by these scores; 0 for a query without a relevant candidate."""
        values = self._mean_dcgs(scores)
        np.divide(values, self._ideals, out=values, where=self._ideals != 0.0)  # where the ideal is 0, so is the value
        return values

    def _mean_dcgs(self, scores: Float[np.ndarray, " R"]) -> Float[np.ndarray, " N"]:
        """Return ``(N,)`` DCG of every query, in expectation over the orders of candidates with equal scores."""
        order = np.lexsort((-scores, self._query))
        first_of_group = _first_of_equals(scores[order])
        first_of_group[self._starts] = True
        groups = np.flatnonzero(first_of_group)
        sizes = np.diff(groups, append=len(scores))
        of_groups = np.add.reduceat(self._gains[order], groups) * np.add.reduceat(self._discounts, groups) / sizes
        means: Float[np.ndarray, " N"] = np.add.reduceat(of_groups, np.searchsorted(groups, self._starts))
        return means


def precision(scores: Float[np.ndarray, " L"], labels: Int[np.ndarray, " L"], *, cutoff: int) -> float:
    """Compute the share of relevant candidates (label > 0) in the first ``cutoff`` ranks.

    The divisor is ``cutoff`` even if the list is shorter.
    """
    _check(cutoff)
    relevant, sizes, _ = _rank_groups(scores, (labels > 0).astype(np.float64))
    return float((np.repeat(relevant / sizes, sizes)[:cutoff]).sum()) / cutoff


def hit(scores: Float[np.ndarray, " L"], labels: Int[np.ndarray, " L"], *, cutoff: int) -> float:
    """Compute the probability that one of the first ``cutoff`` ranks is relevant (label > 0).

    It is 1.0 or 0.0 where no scores tie.
    """
    return float(1.0 - _survival(scores, (labels > 0).astype(np.float64), cutoff)[-1])


def reciprocal_rank(scores: Float[np.ndarray, " L"], labels: Int[np.ndarray, " L"]) -> float:
    """Compute 1 / rank of the first relevant candidate (label > 0); 0.0 if there is none."""
    passed = _survival(scores, (labels > 0).astype(np.float64), max(1, len(labels)))
    return float(-(np.diff(passed) / np.arange(1, len(passed))).sum())


def average_precision(scores: Float[np.ndarray, " L"], labels: Int[np.ndarray, " L"]) -> float:
    """Compute the mean precision at the ranks of the relevant candidates (label > 0); 0.0 if there is none.

    Its mean over queries is MAP.
    """
    relevant, sizes, starts = _rank_groups(scores, (labels > 0).astype(np.float64))
    total = float(relevant.sum())
    if total == 0.0:
        return 0.0
    before = np.repeat(np.cumsum(relevant) - relevant, sizes)
    share = np.repeat(relevant / sizes, sizes)
    of_others = np.repeat((relevant - 1.0) / np.maximum(1, sizes - 1), sizes)  # of a relevant candidate's equals
    ranks = np.arange(1, len(labels) + 1)
    within = ranks - 1 - np.repeat(starts, sizes)
    return float((share * (before + 1.0 + within * of_others) / ranks).sum()) / total


def expected_reciprocal_rank(
    scores: Float[np.ndarray, " L"],
    labels: Int[np.ndarray, " L"],
    *,
    cutoff: int,
    gains: Sequence[float] | None = None,
    highest: float = HIGHEST_GAIN,
) -> float:
    """Compute ERR: the mean of 1 / rank at which a user stops who looks at the candidates one by one.

    Definition: ``sum_{r=1..cutoff} 1/r R_r prod_{i<r} (1 - R_i)`` with ``R = gain / (highest + 1)`` (Chapelle et al.,
    CIKM 2009, eq. 5).

    Args:
        scores, labels, cutoff, gains: as for :func:`ndcg`.
        highest: the gain of the best label that there can be. The default is that of label 4, as in TREC's tools.

    Raises:
        ValueError: if the gain of a label is above the highest one.
    """
    label_gains = gains_of(labels, gains)
    if label_gains.max() > highest:
        raise ValueError(f"a label has gain {label_gains.max():g}, above the highest one, {highest:g}: raise highest")
    passed = _survival(scores, label_gains / (highest + 1.0), cutoff)
    return float(-(np.diff(passed) / np.arange(1, len(passed))).sum())


def measure(
    name: str,
    scores: Float[np.ndarray, " L"],
    labels: Int[np.ndarray, " L"],
    *,
    kept: Bool[np.ndarray, " L"] | None = None,
    gains: Sequence[float] | None = None,
    highest: float = HIGHEST_GAIN,
) -> float:
    """Compute a metric of one list by name: ``ndcg@K``, ``hit@K``, ``precision@K``, ``err@K``, ``mrr`` or ``map``.

    Args:
        name: K is the cutoff.
        scores, labels, kept, gains, highest: as for the function of that metric.

    Raises:
        ValueError: if there is no such metric.
    """
    kind, at, depth = name.partition("@")
    if name == "mrr":
        return reciprocal_rank(scores, labels)
    if name == "map":
        return average_precision(scores, labels)
    if kind not in ("ndcg", "hit", "precision", "err") or not at or not depth.isdecimal() or int(depth) < 1:
        raise ValueError(f"metric {name!r}: expected ndcg@K, hit@K, precision@K or err@K with a K from 1, mrr or map")
    cutoff = int(depth)
    if kind == "ndcg":
        return ndcg(scores, labels, cutoff=cutoff, kept=kept, gains=gains)
    if kind == "err":
        return expected_reciprocal_rank(scores, labels, cutoff=cutoff, gains=gains, highest=highest)
    return (hit if kind == "hit" else precision)(scores, labels, cutoff=cutoff)


def _check(cutoff: int) -> None:
    if cutoff < 1:
        raise ValueError(f"cutoff {cutoff}: expected a rank, 1 or more")


def _first_of_equals(ranked: Float[np.ndarray, " R"]) -> Bool[np.ndarray, " R"]:
    """Return where another score begins; NaN equals NaN."""
    equal = (ranked[1:] == ranked[:-1]) | (np.isnan(ranked[1:]) & np.isnan(ranked[:-1]))
    return np.concatenate([[True], ~equal])


def _rank_groups(
    scores: Float[np.ndarray, " L"], values: Float[np.ndarray, " L"]
) -> tuple[Float[np.ndarray, " G"], Int[np.ndarray, " G"], Int[np.ndarray, " G"]]:
    """Group candidates with equal scores, best first: the sum of their values, their number, ranks before them."""
    order = rank_by_score(scores)
    starts = np.flatnonzero(_first_of_equals(scores[order]))
    return np.add.reduceat(values[order], starts), np.diff(starts, append=len(scores)), starts


def _survival(
    scores: Float[np.ndarray, " L"], stops: Float[np.ndarray, " L"], cutoff: int
) -> Float[np.ndarray, " ranks"]:
    """Return the chance that a user who stops at candidates with chances ``stops`` passes ranks 0 to ``cutoff``."""
    _check(cutoff)
    order = rank_by_score(scores)
    passes = 1.0 - stops[order]
    _, sizes, starts = _rank_groups(scores, stops)
    passed = np.ones(min(cutoff, len(scores)) + 1)
    # the expectation over orders of equal scores multiplies over their groups: means of products of a group's factors
    for start, size in zip(starts.tolist(), sizes.tolist(), strict=True):
        if start >= cutoff:
            break
        end = min(start + size, cutoff)
        passed[start + 1 : end + 1] = passed[start] * _mean_products(passes[start : start + size], end - start)
    return passed


def _mean_products(factors: Float[np.ndarray, " M"], most: int) -> Float[np.ndarray, " counts"]:
    """Return ``(most,)`` the mean product of 1, 2, ... of the factors, over all choices of them."""
    if len(factors) == 1:
        return factors
    drawn = np.arange(most)
    if set(np.unique(factors)) <= {0.0, 1.0}:
        ones = np.count_nonzero(factors)
        return np.cumprod(np.maximum(0, ones - drawn) / (len(factors) - drawn))
    means = np.zeros(most + 1)
    means[0] = 1.0
    for count, factor in enumerate(factors.tolist(), start=1):
        sizes = np.arange(1, min(count, most) + 1)
        means[sizes] = (means[sizes] * (count - sizes) + means[sizes - 1] * factor * sizes) / count
    return means[1:]
