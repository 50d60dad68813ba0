"""Ranking metrics under an explicit protocol.

Every function takes ``scores`` and ``labels`` of one list, in input order. Candidates with equal scores share their
ranks: a metric is its expectation over all orders of theirs (McSherry & Najork, ECIR 2008), so that it does not depend
on input order. NaN ranks below every number. To measure a finished
:class:`~listwright.ranking.candidates.Ranking`, pass its ``sort_keys``.

Gain is ``2^y - 1``, unless gains are given, and the discount ``1 / log2(rank + 1)`` (Burges et al., ICML 2005).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Annotated, Any, Literal

import numpy as np
from jaxtyping import Bool, Float, Int
from pydantic import BaseModel, ConfigDict, Field

EmptyQueries = Literal[0, 1, "drop"]

HIGHEST_GAIN = 15.0
"""Gain of label 4, the best of TREC's and of the LETOR sets with the most grades."""


class EvalProtocol(BaseModel):
    """The choices that move a number without moving the model; printed beside every figure.

    Args:
        empty_queries: NDCG of a list without a relevant candidate: 0 (TF-Ranking, Rax, QuickRank), 1 (LightGBM,
            XGBoost, allRank), or left out of the mean (PT-Ranking).
        ideal: Whether the ideal order may use candidates that the first stage dropped (``full``) or only those that
            it kept (``truncated``).
        gains: Gain of label 0, 1 and so on in DCG; None for ``2^y - 1``.
        weighted: Whether queries count by their weights, or all alike.
        ties: Order of equal scores: they share their ranks; ``input_order`` only in bundles before format 6.
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
        scores: ``(L,)`` scores, higher is better.
        labels: ``(L,)`` relevance labels, 0 = irrelevant.
        cutoff: Number of ranks that count; larger than L means all.
        kept: ``(L,)`` True for candidates that the ideal order may use (``ideal="truncated"``); None for all.
        gains: Gain of each label, see :func:`dcg`.

    Returns:
        A number in [0, 1] (above 1 is possible with ``kept``), NaN if the ideal is 0: the protocol decides what an
        empty query counts.
    """
    return float(_rank_one(scores, labels, kept=kept, gains=gains).ndcg(cutoff)[0])


def precision(scores: Float[np.ndarray, " L"], labels: Int[np.ndarray, " L"], *, cutoff: int) -> float:
    """Compute the share of relevant candidates (label > 0) in the first ``cutoff`` ranks.

    The divisor is ``cutoff`` even if the list is shorter.
    """
    return float(_rank_one(scores, labels).precision(cutoff)[0])


def hit(scores: Float[np.ndarray, " L"], labels: Int[np.ndarray, " L"], *, cutoff: int) -> float:
    """Compute the probability that one of the first ``cutoff`` ranks is relevant (label > 0).

    It is 1.0 or 0.0 where no scores tie.
    """
    return float(_rank_one(scores, labels).hit(cutoff)[0])


def reciprocal_rank(scores: Float[np.ndarray, " L"], labels: Int[np.ndarray, " L"]) -> float:
    """Compute 1 / rank of the first relevant candidate (label > 0); 0.0 if there is none."""
    return float(_rank_one(scores, labels).reciprocal_rank()[0])


class JudgedLists:
    """Many lists with labels, whose rankings are measured at once.

    Args:
        labels: ``(R,)`` relevance labels of all rows, those of one list together.
        offsets: ``(N + 1,)`` bounds of the lists: list n owns rows ``offsets[n] : offsets[n + 1]``, at least one.
        kept: ``(R,)`` True for candidates that the ideal order may use; None for all.
        gains: Gain of each label, see :func:`dcg`.
        highest: Gain of the best label that there can be, for ERR; the default is that of TREC's tools.
    """

    def __init__(
        self,
        labels: Int[np.ndarray, " R"],
        offsets: Int[np.ndarray, " O"],
        *,
        kept: Bool[np.ndarray, " R"] | None = None,
        gains: Sequence[float] | None = None,
        highest: float = HIGHEST_GAIN,
    ) -> None:
        self.labels, self.starts, self.lengths, self.highest = labels, offsets[:-1], np.diff(offsets), highest
        self.list_of_row = np.repeat(np.arange(len(self.lengths)), self.lengths)
        self.ranks = np.arange(1, len(labels) + 1) - np.repeat(self.starts, self.lengths)
        self.discounts = 1.0 / np.log2(self.ranks + 1.0)
        self.gains = gains_of(labels, gains)
        keys, of_ideal = -labels.astype(np.float64), self.gains
        if kept is not None:
            keys, of_ideal = np.where(kept, keys, np.inf), np.where(kept, self.gains, 0.0)
        self._best = of_ideal[np.lexsort((keys, self.list_of_row))] * self.discounts
        self._ideals: dict[int, Float[np.ndarray, " N"]] = {}

    def measure(self, names: Sequence[str], scores: Float[np.ndarray, " R"]) -> dict[str, Float[np.ndarray, " N"]]:
        """Compute metrics by name: ``ndcg@K``, ``hit@K``, ``precision@K``, ``err@K``, ``mrr`` or ``map``.

        ``map`` is the mean precision at the ranks of the relevant candidates. ERR is the mean of 1 / rank at which a
        user stops who looks at the candidates one by one: ``sum_{r=1..K} 1/r R_r prod_{i<r} (1 - R_i)`` with
        ``R = gain / (highest + 1)`` (Chapelle et al., CIKM 2009, eq. 5).

        Args:
            names: K is the cutoff.
            scores: ``(R,)`` scores, higher is better.

        Returns:
            ``(N,)`` values of each metric. Without a relevant candidate NDCG is NaN, and all others are 0.

        Raises:
            ValueError: if there is no such metric, or ERR is asked for and a label has a gain above the highest one.
        """
        ranked = _RankedLists(self, scores)
        return {name: ranked.measure(name) for name in names}

    def ideal(self, cutoff: int) -> Float[np.ndarray, " N"]:
        """Return ``(N,)`` the best DCG that any order can have; NaN for 0."""
        if cutoff not in self._ideals:
            best = self.sum_up(self._best, cutoff)
            self._ideals[cutoff] = np.where(best == 0.0, np.nan, best)
        return self._ideals[cutoff]

    def sum_up(self, values: Float[np.ndarray, " R"], cutoff: int | None = None) -> Float[np.ndarray, " N"]:
        """Return ``(N,)`` the sum of values that stand in ranked order, down to a rank."""
        if cutoff is not None:
            _check(cutoff)
            values = np.where(self.ranks <= cutoff, values, 0.0)
        sums: Float[np.ndarray, " N"] = np.add.reduceat(values, self.starts)
        return sums


def _rank_one(scores: Float[np.ndarray, " L"], labels: Int[np.ndarray, " L"], **more: Any) -> _RankedLists:
    return _RankedLists(JudgedLists(labels, np.array([0, len(labels)]), **more), scores)


class _RankedLists:
    """The lists in the order of scores: equal scores are a group, whose candidates share its ranks."""

    def __init__(self, lists: JudgedLists, scores: Float[np.ndarray, " R"]) -> None:
        self._lists = lists
        self._order = np.lexsort((-scores, lists.list_of_row))
        ranked = scores[self._order]
        begins = np.ones(len(ranked), dtype=bool)
        begins[1:] = (ranked[1:] != ranked[:-1]) & ~(np.isnan(ranked[1:]) & np.isnan(ranked[:-1]))
        begins[lists.starts] = True
        self._groups = np.flatnonzero(begins)
        self._sizes = np.diff(self._groups, append=len(ranked))
        self._places = np.arange(len(ranked)) - np.repeat(self._groups, self._sizes)  # within the group
        self._relevant = (lists.labels > 0).astype(np.float64)[self._order]

    def measure(self, name: str) -> Float[np.ndarray, " N"]:
        """Return the values of a metric by its name."""
        if name in ("mrr", "map"):
            return self.reciprocal_rank() if name == "mrr" else self.average_precision()
        kind, _, depth = name.partition("@")
        known = {"ndcg": self.ndcg, "hit": self.hit, "precision": self.precision, "err": self.expected_reciprocal_rank}
        if kind not in known or not depth.isdecimal() or int(depth) < 1:
            expected = "expected ndcg@K, hit@K, precision@K or err@K with a K from 1, mrr or map"
            raise ValueError(f"metric {name!r}: {expected}")
        return known[kind](int(depth))

    def ndcg(self, cutoff: int) -> Float[np.ndarray, " N"]:
        gains = self._share(self._lists.gains[self._order])
        dcgs = self._lists.sum_up(gains * self._lists.discounts, cutoff)
        values: Float[np.ndarray, " N"] = dcgs / self._lists.ideal(cutoff)
        return values

    def precision(self, cutoff: int) -> Float[np.ndarray, " N"]:
        return self._lists.sum_up(self._share(self._relevant), cutoff) / cutoff

    def hit(self, cutoff: int) -> Float[np.ndarray, " N"]:
        _check(cutoff)
        ends = self._lists.starts + np.minimum(cutoff, self._lists.lengths)
        values: Float[np.ndarray, " N"] = 1.0 - self._passed[ends - 1]
        return values

    def reciprocal_rank(self) -> Float[np.ndarray, " N"]:
        return self._expect_reciprocal(self._passed)

    def average_precision(self) -> Float[np.ndarray, " N"]:
        lists, relevant, sizes = self._lists, np.add.reduceat(self._relevant, self._groups), self._sizes
        total = np.maximum(1.0, lists.sum_up(self._relevant))[lists.list_of_row]
        before = np.cumsum(relevant) - relevant
        before -= before[np.searchsorted(self._groups, lists.starts)][lists.list_of_row[self._groups]]
        of_others = (relevant - 1.0) / np.maximum(1, sizes - 1)  # of a relevant candidate's equals
        counts = np.repeat(before, sizes) + 1.0 + self._places * np.repeat(of_others, sizes)
        return lists.sum_up(self._share(self._relevant) * counts / lists.ranks / total)

    def expected_reciprocal_rank(self, cutoff: int) -> Float[np.ndarray, " N"]:
        lists = self._lists
        if (most := lists.gains.max()) > lists.highest:
            raise ValueError(f"a label has gain {most:g}, above the highest one, {lists.highest:g}: raise highest")
        passes = 1.0 - lists.gains[self._order] / (lists.highest + 1.0)
        ends = self._groups + self._sizes - 1
        mixed = np.minimum.reduceat(passes, self._groups) != np.maximum.reduceat(passes, self._groups)
        mixed &= lists.ranks[self._groups] <= cutoff
        for size in np.unique(self._sizes[mixed]).tolist():
            rows = ends[mixed & (self._sizes == size)][:, None] + np.arange(1 - size, 1)
            passes[rows[:, :cutoff]] = _mean_passes(passes[rows], min(size, cutoff))
        return self._expect_reciprocal(self._multiply(passes, cutoff), cutoff)

    @cached_property
    def _passed(self) -> Float[np.ndarray, " R"]:
        """``(R,)`` chance that no candidate down to a rank is relevant."""
        left = np.repeat(self._sizes, self._sizes) - self._places
        irrelevant = left - np.repeat(np.add.reduceat(self._relevant, self._groups), self._sizes)
        return self._multiply(np.maximum(0.0, irrelevant) / left)

    def _share(self, values: Float[np.ndarray, " R"]) -> Float[np.ndarray, " R"]:
        """Return the mean of each group, at all of its ranks."""
        if len(self._groups) == len(values):
            return values
        return np.repeat(np.add.reduceat(values, self._groups) / self._sizes, self._sizes)

    def _multiply(self, passes: Float[np.ndarray, " R"], cutoff: int | None = None) -> Float[np.ndarray, " R"]:
        """Return the products of each list's values down to every rank, or down to a cutoff."""
        passed = passes.copy()
        longest = int(self._lists.lengths.max())
        for rank in range(1, longest if cutoff is None else min(cutoff, longest)):
            rows = self._lists.starts[self._lists.lengths > rank] + rank
            passed[rows] *= passed[rows - 1]
        return passed

    def _expect_reciprocal(self, passed: Float[np.ndarray, " R"], cutoff: int | None = None) -> Float[np.ndarray, " N"]:
        """Return the mean of 1 / rank at which a user stops who passes the ranks down to each with these chances."""
        before = np.concatenate([[1.0], passed[:-1]])
        before[self._lists.starts] = 1.0
        return self._lists.sum_up((before - passed) / self._lists.ranks, cutoff)


class QueryNdcg(JudgedLists):
    """NDCG of many queries at once, down to a cutoff; 0 for a query without a relevant candidate."""

    def __init__(
        self, labels: Int[np.ndarray, " R"], offsets: Int[np.ndarray, " O"], *, cutoff: int, **more: Any
    ) -> None:
        super().__init__(labels, offsets, **more)
        self._cutoff = cutoff

    def of(self, scores: Float[np.ndarray, " R"]) -> Float[np.ndarray, " N"]:
        """Return ``(N,)`` NDCG by these scores."""
        values: Float[np.ndarray, " N"] = np.nan_to_num(_RankedLists(self, scores).ndcg(self._cutoff))
        return values


def _check(cutoff: int) -> None:
    if cutoff < 1:
        raise ValueError(f"cutoff {cutoff}: expected a rank, 1 or more")


def _mean_passes(passes: Float[np.ndarray, "G M"], most: int) -> Float[np.ndarray, "G most"]:
    """Return the chances to pass the first, second, ... of M equals after those before, over all of their orders."""
    means = np.zeros((len(passes), most + 1))  # of the products of 0, 1, 2, ... of the factors, over all choices
    means[:, 0] = 1.0
    for count in range(1, passes.shape[1] + 1):
        sizes = np.arange(1, min(count, most) + 1)
        new = means[:, sizes - 1] * passes[:, count - 1, None] * sizes
        means[:, sizes] = (means[:, sizes] * (count - sizes) + new) / count
    return means[:, 1:] / np.where(means[:, :-1] == 0.0, 1.0, means[:, :-1])
