"""Held-out metrics, measured through the sealed bundle by the serving code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from listwright.ranking.candidates import CandidateList, Ranking
from listwright.ranking.errors import ScoringError
from listwright.ranking.manifest import Metric
from listwright.ranking.metrics import HIGHEST_GAIN, EvalProtocol, measure
from listwright.ranking.reranker import Reranker
from listwright.training.data.dataset import Dataset
from listwright.training.evaluation.intervals import RESAMPLES
from listwright.training.progress import NO_TASK, Task

NDCG_AT = (1, 3, 5, 10)
OTHERS = ("hit@1", "hit@5", "precision@5", "mrr", "map", "err@10")
METRICS = (*(f"ndcg@{k}" for k in NDCG_AT), *OTHERS)

HEADLINE = "ndcg@10"
"""The metric that sentences and segments are about."""

ROUTED = "routed"
"""Name of the ranking by ``auto`` where there is a router."""

PLAIN = "plain_first_stage"
"""LightGBM without list-relative columns, where the bundle's first stage has some."""

_DRAWS_AT_A_TIME = 1_000_000
"""Queries that are drawn at a time: their numbers take 8 MB."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Per-query values of every metric for every ranker.

    Args:
        values: ``values[ranker][metric]`` is ``(N,)``; NDCG is NaN for a query without a relevant candidate.
        protocol: what such a query counts, and which ideal the NDCG is divided by.
        weights: ``(N,)`` of the queries in every mean; None: all alike.
    """

    values: Mapping[str, Mapping[str, Float[np.ndarray, " N"]]]
    protocol: EvalProtocol
    weights: Float[np.ndarray, " N"] | None = None

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
        """N."""
        return len(next(iter(self.values.values()))[METRICS[0]])

    @property
    def empty_queries(self) -> int:
        """Number of queries without a relevant candidate."""
        return int(np.isnan(next(iter(self.values.values()))[METRICS[0]]).sum())

    def metrics(self) -> tuple[Metric, ...]:
        """Return mean and 95 % interval of every ranker and metric, under the protocol."""
        rows = []
        for ranker, by_metric in self.values.items():
            for name in by_metric:
                mean, low, high = self.mean_with_interval(name, ranker)
                n = len(self.select_counted(name, ranker)[0])
                rows.append(Metric(ranker=ranker, name=name, mean=mean, low=low, high=high, n=n))
        return tuple(rows)

    def mean(self, metric: str, ranker: str) -> float:
        """Return the weighted mean of a ranker over the queries that the protocol counts; 0 if it counts none."""
        return weighted_mean(*self.select_counted(metric, ranker))

    def mean_with_interval(self, metric: str, ranker: str) -> tuple[float, float, float]:
        """Return the mean of a ranker, with its 95 % interval; see :func:`bootstrap_interval`."""
        counted, weights = self.select_counted(metric, ranker)
        return weighted_mean(counted, weights), *bootstrap_interval(counted, weights)

    def gain(self, metric: str, ranker: str, over: str) -> tuple[float, float, float]:
        """Return the mean paired difference of two rankers, with its 95 % interval over queries; 0 of no query."""
        difference, weights = self.select_counted(metric, ranker, over)
        return weighted_mean(difference, weights), *bootstrap_interval(difference, weights)

    def select_counted(
        self, metric: str, ranker: str, over: str | None = None
    ) -> tuple[Float[np.ndarray, " M"], Float[np.ndarray, " M"] | None]:
        """Return the values of a ranker on the queries that the protocol counts, and the weights of these queries.

        Args:
            metric: One of :data:`METRICS`.
            ranker: Name of the ranker.
            over: Ranker whose values are subtracted, query by query; None for the values themselves.
        """
        of_rankers = np.array([self.values[name][metric] for name in (ranker, over) if name is not None])
        counts = np.full(of_rankers.shape[1], fill_value=True)
        if self.protocol.empty_queries == "drop":
            counts = ~np.isnan(of_rankers).any(axis=0)  # a truncated ideal may be 0 for one ranker only
        own, *others = (self.protocol.apply(values[counts]) for values in of_rankers)
        return own - others[0] if others else own, None if self.weights is None else self.weights[counts]


def weighted_mean(values: Float[np.ndarray, " N"], weights: Float[np.ndarray, " N"] | None = None) -> float:
    """Return the mean; 0 of no values, or none that counts."""
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
        reranker: of a loaded bundle.
        test: queries that no part of the bundle was fitted or tuned on here; a given first stage may
            know them.
        protocol: the default counts empty queries 0, takes the full ideal, and the gains and weights of the
            test queries.
        plain: scores of the test rows by the first stage without list-relative columns, where it is to be compared.

    Raises:
        ScoringError: if a ranking is degraded: a figure must not silently be another stage's.
    """
    protocol = protocol or EvalProtocol(gains=test.gains, weighted=test.weights is not None)
    generalist = reranker.manifest.second_stage
    others = (stage.kind for stage in reranker.manifest.second_stages)
    strategies = tuple(dict.fromkeys((generalist.kind, *others))) if generalist is not None else ()
    more = ((PLAIN,) if plain is not None else ()), ((ROUTED,) if reranker.router is not None else ())
    highest = highest_gain(test, protocol.gains)
    rankers = ("input_order", *more[0], "first_stage", *strategies, *more[1])
    values: dict[str, dict[str, Float[np.ndarray, " N"]]] = {
        ranker: {metric: np.empty(len(test)) for metric in METRICS} for ranker in rankers
    }
    for n, (shuffled, candidates, labels) in enumerate(shuffled_lists(test)):
        rankings = {
            name: check_complete(reranker.rerank(candidates, strategy=name), test.qids[n])
            for name in strategies or ("first_stage",)
        }
        ranking = next(iter(rankings.values()))
        scored = np.isfinite(ranking.scores)
        of_scored = scored if protocol.ideal == "truncated" else None
        scores_by_ranker: dict[str, Float[np.ndarray, " L"]] = {
            "input_order": -shuffled.astype(np.float64),
            **{name: order.sort_keys for name, order in rankings.items()},
            "first_stage": ranking.first_stage_scores,
        }
        if plain is not None:
            scores_by_ranker[PLAIN] = plain[test.slice(n)][shuffled]
        if reranker.router is not None:
            scores_by_ranker[ROUTED] = check_complete(reranker.rerank(candidates), test.qids[n]).sort_keys
        for ranker, scores in scores_by_ranker.items():
            for metric in METRICS:
                value = measure(metric, scores, labels, kept=of_scored, gains=protocol.gains, highest=highest)
                values[ranker][metric][n] = value
        task.reach(n + 1)
    return Evaluation(values, protocol, test.query_weights if protocol.weighted else None)


def shuffled_lists(
    data: Dataset,
) -> Iterator[tuple[Int[np.ndarray, " L"], CandidateList, Int[np.ndarray, " L"]]]:
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


def per_query(data: Dataset, scores: Float[np.ndarray, " R"], metric: str) -> Float[np.ndarray, " N"]:
    """Return ``(N,)`` values of a metric by name; see :func:`listwright.ranking.metrics.measure`."""
    gains, rows = data.gains, [data.slice(n) for n in range(len(data))]
    highest = highest_gain(data, gains)
    return np.array([measure(metric, scores[of], data.labels[of], gains=gains, highest=highest) for of in rows])


def bootstrap_interval(
    values: Float[np.ndarray, " N"], weights: Float[np.ndarray, " N"] | None = None, *, intervals: int = 1
) -> tuple[float, float]:
    """Return the 95 % percentile bootstrap interval of the mean over queries; seeded, so that a report repeats exactly.

    Args:
        values: one per query.
        weights: of the queries, which are drawn alike and carry them along; None: all alike.
        intervals: m; m intervals hold together with 95 %, each with 1 - 0.05 / m (Bonferroni).

    Convention: (0, 0) for no values, or none that counts; samples of queries that do not count are left out.
    """
    if len(values) == 0 or (weights is not None and not weights.any()):
        return 0.0, 0.0
    rng = np.random.default_rng(0)
    together = max(1, _DRAWS_AT_A_TIME // len(values))
    means = []
    for begin in range(0, RESAMPLES, together):
        drawn = rng.integers(0, len(values), (min(together, RESAMPLES - begin), len(values)))
        if weights is None:
            means.append(values[drawn].mean(axis=1))
        else:
            counted = drawn[weights[drawn].any(axis=1)]
            means.append(np.average(values[counted], weights=weights[counted], axis=1))
    low, high = np.quantile(np.concatenate(means), [0.025 / intervals, 1.0 - 0.025 / intervals])
    return float(low), float(high)
