"""Held-out metrics, measured through the sealed bundle by the serving code."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from listwright.ranking.candidates import CandidateList, Ranking
from listwright.ranking.errors import ScoringError
from listwright.ranking.manifest import Metric
from listwright.ranking.metrics import HIGHEST_GAIN, EvalProtocol, JudgedLists
from listwright.ranking.order import sort_keys
from listwright.ranking.reranker import Reranker
from listwright.training.console.progress import NO_TASK, Task
from listwright.training.data.dataset import Dataset
from listwright.training.evaluation.bootstrap import bootstrap_intervals
from listwright.training.evaluation.reliability import StatedProbabilities

NDCG_AT = (1, 3, 5, 10)
OTHERS = ("hit@1", "hit@5", "precision@5", "mrr", "map", "err@10")
METRICS = (*(f"ndcg@{k}" for k in NDCG_AT), *OTHERS)

HEADLINE = "ndcg@10"
"""The metric that sentences and segments are about."""

ROUTED = "routed"
"""Name of the ranking by ``auto`` where there is a router."""

PLAIN = "plain_first_stage"
"""LightGBM without list-relative columns, where the bundle's first stage has some."""


class RankedRows(NamedTuple):
    """All lists of some data, ranked in a random order of their candidates.

    Args:
        order: ``(R,)`` row of each candidate in the data; those of one list stay together.
        first_scores: ``(R,)`` scores of the first stage, in that order.
        scores: ``(R,)`` scores of each ranker, in that order; NaN for candidates that it did not score.
    """

    order: Int[np.ndarray, " R"]
    first_scores: Float[np.ndarray, " R"]
    scores: Mapping[str, Float[np.ndarray, " R"]]

    def sort_keys(self, ranker: str) -> Float[np.ndarray, " R"]:
        """Return numbers that order every list; see :attr:`listwright.ranking.candidates.Ranking.sort_keys`."""
        scored = np.flatnonzero(~np.isnan(self.scores[ranker]))
        return sort_keys(self.scores[ranker][scored], scored, self.first_scores)


class Estimate(NamedTuple):
    """A mean over queries, and the ends of its 95 % interval."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Per-query values of every metric for every ranker.

    Args:
        values: ``values[ranker][metric]`` is ``(N,)``; NDCG is NaN for a query without a relevant candidate.
        protocol: Value of a query without a relevant candidate, and ideal that the NDCG is divided by.
        weights: ``(N,)`` of the queries in every mean; None: all alike.
        ranked: Scores that were measured; None where they are not at hand.
        stated: Probabilities of the rankers that state some; their ``log_loss`` is the mean over candidates.
    """

    values: Mapping[str, Mapping[str, Float[np.ndarray, " N"]]]
    protocol: EvalProtocol
    weights: Float[np.ndarray, " N"] | None = None
    ranked: RankedRows | None = None
    stated: Mapping[str, StatedProbabilities] = field(default_factory=dict)

    @property
    def rankers(self) -> tuple[str, ...]:
        """Names of the rankers, weakest expected first."""
        return tuple(self.values)

    @property
    def generalist(self) -> str:
        """The second stage that answers where no router decides, or the first of them; or the first stage alone."""
        second = [name for name in self.values if name not in ("input_order", PLAIN, "first_stage", ROUTED)]
        return second[0] if second else "first_stage"

    @property
    def queries(self) -> int:
        """Number of queries."""
        return len(next(iter(self.values.values()))[METRICS[0]])

    @property
    def empty_queries(self) -> int:
        """Number of queries without a relevant candidate."""
        return int(np.isnan(next(iter(self.values.values()))[METRICS[0]]).sum())

    def metrics(self) -> tuple[Metric, ...]:
        """Return mean and 95 % interval of every ranker and metric, under the protocol."""
        rows = [(ranker, name) for ranker, by_metric in self.values.items() for name in by_metric]
        samples = [self.select_counted(name, ranker) for ranker, name in rows]
        return tuple(
            Metric(ranker=ranker, name=name, mean=weighted_mean(*of), low=low, high=high, n=len(of[0]))
            for (ranker, name), of, (low, high) in zip(rows, samples, bootstrap_intervals(samples), strict=True)
        )

    def mean(self, metric: str, ranker: str) -> float:
        """Return the weighted mean of a ranker over the queries that the protocol counts; 0 if it counts none."""
        return weighted_mean(*self.select_counted(metric, ranker))

    def gain(self, metric: str, ranker: str, over: str) -> Estimate:
        """Return the mean paired difference of two rankers, with its 95 % interval over queries; 0 without queries."""
        return self.gains((metric,), ranker, over)[0]

    def gains(self, metrics: Iterable[str], ranker: str, over: str) -> list[Estimate]:
        """Return the :meth:`gain` in each metric."""
        samples = [self.select_counted(metric, ranker, over) for metric in metrics]
        ends = bootstrap_intervals(samples)
        return [Estimate(weighted_mean(*of), low, high) for of, (low, high) in zip(samples, ends, strict=True)]

    def select_counted(
        self, metric: str, ranker: str, over: str | None = None
    ) -> tuple[Float[np.ndarray, " M"], Float[np.ndarray, " M"] | None]:
        """Return the values of a ranker on the queries that the protocol counts, and the weights of these queries.

        Args:
            metric: A metric of the values.
            ranker: Name of the ranker.
            over: Ranker whose values are subtracted, query by query; None for the values themselves.
        """
        of_rankers = np.array([self.values[name][metric] for name in (ranker, over) if name is not None])
        counts = np.full(of_rankers.shape[1], fill_value=True)
        if self.protocol.empty_queries == "drop":
            counts = ~np.isnan(of_rankers).any(axis=0)  # a truncated ideal may be 0 for one ranker only
        own, *others = (self.protocol.apply(values[counts]) for values in of_rankers)
        weights = self.stated[ranker].candidate_weights if metric == "log_loss" else self.weights
        return own - others[0] if others else own, None if weights is None else weights[counts]


def weighted_mean(values: Float[np.ndarray, " N"], weights: Float[np.ndarray, " N"] | None = None) -> float:
    """Return the weighted mean; 0 without values, or if all weights are 0."""
    if len(values) == 0 or (weights is not None and not weights.any()):
        return 0.0
    return float(np.average(values, weights=weights))


def evaluate(
    reranker: Reranker,
    test: Dataset,
    *,
    protocol: EvalProtocol | None = None,
    plain: Float[np.ndarray, " R"] | None = None,
    task: Task = NO_TASK,
) -> Evaluation:
    """Rank every test query as the service would, and evaluate input order, first stage, second stage, and the route.

    Args:
        reranker: Reranker of a loaded bundle.
        test: Queries that no part of the bundle was fitted or tuned on here; a given first stage may know them.
        protocol: Protocol of the metrics; None counts empty queries 0, takes the full ideal, and the gains and weights
            of the test queries.
        plain: Scores of the test rows by the first stage without list-relative columns; None where it is not compared.

    Raises:
        ScoringError: if a ranking is degraded: a figure must not silently be another stage's.
    """
    protocol = protocol or EvalProtocol(gains=test.gains, weighted=test.weights is not None)
    generalist = reranker.manifest.second_stage
    others = (stage.kind for stage in reranker.manifest.second_stages)
    strategies = tuple(dict.fromkeys((generalist.kind, *others))) if generalist is not None else ()
    routed = () if reranker.router is None else (ROUTED,)
    ranked = rank_rows(reranker, test, (*(strategies or ("first_stage",)), *routed), task)
    order, own = ranked.order, next(iter(ranked.scores))
    scores: dict[str, Float[np.ndarray, " R"]] = {"input_order": -order.astype(np.float64)}
    if plain is not None:
        scores[PLAIN] = plain[order]
    scores["first_stage"] = ranked.first_scores
    scores |= {name: ranked.sort_keys(name) for name in (*strategies, *routed)}
    lists = JudgedLists(
        test.labels[order],
        test.offsets,
        kept=np.isfinite(ranked.scores[own]) if protocol.ideal == "truncated" else None,
        gains=protocol.gains,
        highest=highest_gain(test, protocol.gains),
    )
    values = {ranker: lists.measure(METRICS, of_ranker) for ranker, of_ranker in scores.items()}
    return Evaluation(values, protocol, test.query_weights if protocol.weighted else None, ranked)


def rank_rows(reranker: Reranker, data: Dataset, rankers: Iterable[str], task: Task = NO_TASK) -> RankedRows:
    """Rank every query as the service would, by strategies (:data:`ROUTED` for ``auto``), as :func:`shuffled_lists`.

    Raises:
        ScoringError: if a ranking is degraded.
    """
    order, first_scores = np.empty(data.rows, dtype=np.int64), np.empty(data.rows)
    scores = {name: np.empty(data.rows) for name in rankers}
    for n, (shuffled, candidates, _) in enumerate(shuffled_lists(data)):
        rows = data.slice(n)
        first: Float[np.ndarray, " L"] | None = None
        for name, of_ranker in scores.items():
            strategy = "auto" if name == ROUTED else name
            ranking = reranker.rerank(candidates, strategy=strategy, first_stage_scores=first)
            of_ranker[rows] = check_complete(ranking, data.qids[n]).scores
            first_scores[rows] = first = ranking.first_stage_scores
        order[rows] = shuffled + rows.start
        task.reach(n + 1)
    return RankedRows(order, first_scores, scores)


def shuffled_lists(data: Dataset) -> Iterator[tuple[Int[np.ndarray, " L"], CandidateList, Int[np.ndarray, " L"]]]:
    """Yield each query in a random order, the same in every run: the order, candidates and labels.

    The order of rows may know the labels, and at a stage's cutoff it chooses among candidates that are equal in all.
    """
    rng = np.random.default_rng(0)
    for features, labels in data.lists():
        order = rng.permutation(len(labels))
        yield order, CandidateList(features[order]), labels[order]


def check_complete(ranking: Ranking, qid: str) -> Ranking:
    """Return the ranking; raise ScoringError if a stage failed.

    Raises:
        ScoringError: naming the query.
    """
    for fault in (ranking.reason, *ranking.route.faults):
        if fault is not None:
            raise ScoringError(f"query {qid}: {fault}")
    return ranking


def highest_gain(data: Dataset, gains: Sequence[float] | None) -> float:
    """Return the gain of the best label: the last gain, or that of label 4, or of a higher one in the data."""
    return max(gains) if gains is not None else max(HIGHEST_GAIN, float(np.exp2(int(data.labels.max())) - 1.0))


def goal_lists(
    values: Float[np.ndarray, " R"], offsets: Int[np.ndarray, " O"], of_ideal: Bool[np.ndarray, " R"] | None = None
) -> JudgedLists:
    """Return lists whose NDCG has the values of a goal, from 0, as its gains.

    Args:
        values: ``(R,)`` values of the candidates.
        offsets: ``(N + 1,)`` bounds of the lists.
        of_ideal: ``(R,)`` True for candidates that the ideal order may use; None for all.
    """
    gains, places = np.unique(values, return_inverse=True)
    return JudgedLists(places, offsets, kept=of_ideal, gains=gains.tolist())


def per_query(data: Dataset, scores: Float[np.ndarray, " R"], metric: str) -> Float[np.ndarray, " N"]:
    """Return ``(N,)`` values of a metric by name; see :meth:`listwright.ranking.metrics.JudgedLists.measure`."""
    highest = highest_gain(data, data.gains)
    lists = JudgedLists(data.labels, data.offsets, gains=data.gains, highest=highest)
    return lists.measure((metric,), scores)[metric]
