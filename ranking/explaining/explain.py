"""One explanation from beginning to end: the ranking, and then each part as long as there is time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import replace
from functools import partial
from math import hypot
from time import perf_counter
from typing import Any, TypeVar

import numpy as np

from listwright.ranking.candidates import CandidateList, Ranking, Route
from listwright.ranking.deadline import NO_DEADLINE, Deadline, LatencyEstimator
from listwright.ranking.errors import CandidateError, ExplanationError, ScoringError
from listwright.ranking.explaining.contributions import Clock, ListExplainer, by_size
from listwright.ranking.explaining.explanation import (
    AnomalyReasons,
    CandidateExplanation,
    Comparison,
    FeatureContribution,
    GoalContributions,
    MovedCandidate,
    Part,
    RouterReasons,
    StageContributions,
    UnusualValue,
    id_of,
    place_of,
)
from listwright.ranking.explaining.passing import Rerank, find_passing_changes
from listwright.ranking.features import QUANTILE_LEVELS
from listwright.ranking.reranker import Reranker
from listwright.ranking.router import Choice, Hook

DEFAULT_BUDGET = 4000
"""Changed candidates that a stage scores at most for each explained one; two pairs of permutations are always drawn."""

MOST_FEATURES = 5
"""Unusual features that are named."""

_MEDIAN = QUANTILE_LEVELS.index(0.5)

_Result = TypeVar("_Result")


def explain(
    reranker: Reranker,
    candidates: CandidateList,
    candidate: int,
    *,
    against: int | None = None,
    strategy: str = "auto",
    specialist: int | None = None,
    hook: Hook | None = None,
    routing: bool = True,
    deadline: Deadline = NO_DEADLINE,
    budget: int = DEFAULT_BUDGET,
    seed: int = 0,
    weights: Mapping[str, float] | None = None,
    ranking: Ranking | None = None,
) -> CandidateExplanation:
    """Explain why a candidate stands where it stands.

    Everything is computed by the served rankers through the serving path. What is sampled has a standard error. The
    same call gives the same explanation, as long as no deadline cuts it short. A hook is called once, for the answer;
    its choice then stays. Of a degraded answer, the first stage is explained: changed lists are ranked by it.

    Args:
        reranker: Reranker that serves the bundle.
        candidates: Candidates of the list.
        candidate: Index of the candidate, from 0.
        against: Index of another candidate, whose contributions are subtracted.
        strategy, specialist, hook, routing, weights: Options of
            :meth:`listwright.ranking.reranker.Reranker.rerank`.
        deadline: Deadline before which sampling ends with what there is; what would come after it is left out. Both are
            named in ``incomplete``.
        budget: Most changed candidates that a stage scores, for the candidate and for ``against`` each.
        seed: Seed of the sampling.
        ranking: This reranker's ranking of the same list, under the same options; then no hook is called. None: the
            list is ranked.

    Raises:
        CandidateError: if there is no such candidate, or the ranking is one of another number of candidates.
        ExplanationError: if no stage ranked the candidates, or the first stage was not explained before the deadline.
        BundleError: if the bundle's files are gone or others, and the first stage is a forest.
        ScoringError: if the first stage fails where it is explained; a later part that fails is named in ``faults``.
        SchemaMismatchError, UnknownStrategyError, AbandonedError: as ``rerank``.
    """
    explained = _check_candidates(len(candidates), candidate, against)
    parts = _Parts(Clock.until(deadline))
    options: dict[str, Any] = {"strategy": strategy, "specialist": specialist, "routing": routing}
    answer = ranking or parts.timed(
        "ranking", lambda: reranker.rerank(candidates, deadline=deadline, hook=hook, weights=weights, **options)
    )
    if len(answer.order) != len(candidates):
        raise CandidateError(f"the ranking is one of {len(answer.order)} candidates, the list has {len(candidates)}")
    if answer.stage_reached == "input_order":
        raise ExplanationError(f"no stage ranked the candidates: {answer.reason}")
    rerank, label, goals = bind_rerank(reranker, answer, deadline, **options), answer, reranker.goals
    if goals is not None and answer.weights is not None and goals.combines(answer.weights):
        rerank_label = bind_rerank(reranker, replace(answer, weights=goals.label_alone), deadline, **options)
        label = parts.timed("goals", lambda: rerank_label(candidates))
    explainer = ListExplainer(reranker, candidates, label, explained, budget=budget, seed=seed, clock=parts.clock)
    first = parts.timed("first_stage", explainer.explain_first_stage)
    if first.explanations[0] is None:
        raise ExplanationError("the deadline had passed before the first stage was explained")
    parts.cut_short("first_stage", first.cut_short)
    moves = parts.run("moves", lambda: _find_moves(rerank, candidates, candidate, answer))
    anomaly = parts.run("anomaly", lambda: _explain_anomaly(reranker, candidates, label))
    second: list[StageContributions | None] = [None, None]
    is_scored = [label.stage_reached == "second_stage" and not np.isnan(label.scores[index]) for index in explained]
    if is_scored[0] and (later := parts.run("second_stage", explainer.explain_second_stage)) is not None:
        second = [*later.explanations, None]
        parts.cut_short("second_stage", later.cut_short)
    passes = None
    if answer.order[0] != candidate:
        schema = reranker.manifest.feature_schema
        search = parts.run(
            "passing", lambda: find_passing_changes(rerank, candidates, candidate, answer, schema, parts.clock)
        )
        if search is not None:
            passes = search.changes
            parts.cut_short("passing", not search.complete, search.fault)
    together: list[GoalContributions | None] = [None, None]
    if label is not answer:
        last = [second[n] if scored else first.explanations[n] for n, scored in enumerate(is_scored)]
        if (by_goals := parts.run("goals", lambda: explainer.explain_goals(answer, last))) is not None:
            together = [*by_goals, None]
            parts.cut_short("goals", by_goals[0] is None)
    comparison = None
    if against is not None:
        comparison = Comparison(
            against,
            id_of(candidates, against),
            _subtract(first.explanations[0], first.explanations[1]),
            _subtract(second[0], second[1]),
            _subtract(together[0], together[1]),
        )
    return CandidateExplanation(
        candidate=place_of(candidates, answer, candidate),
        first_stage=first.explanations[0],
        second_stage=second[0],
        passing=passes,
        moves=moves or (),
        anomaly=anomaly,
        router=_estimate(reranker, answer.route),
        against=comparison,
        incomplete=tuple(parts.incomplete),
        faults=parts.faults,
        ranking=answer,
        seconds=parts.seconds,
        goals=together[0],
    )


def bind_rerank(
    reranker: Reranker, ranking: Ranking, deadline: Deadline, *, strategy: str, specialist: int | None, routing: bool
) -> Rerank:
    """Return a function that ranks a changed list so that its places compare with those of the answer.

    Where an answer stands in first-stage order because it is degraded, the first stage ranks its changed lists. Without
    time to choose a route, the default stays. A hook's choice stays, and the hook is not called again. A router chooses
    for each changed list, as it would in serving. Goals have the answer's weights; without any, the label ranks.

    Args:
        reranker: Reranker that serves the bundle. Its latency estimate is left alone: runs in a row say nothing of
            single ones.
        ranking: Ranking that was answered.
        deadline: Deadline of the explanation; only its ``abandoned`` is used, as single runs are short.
        strategy, specialist, routing: Options of the answer's request.
    """
    own_pace = copy(reranker)
    own_pace.pace = LatencyEstimator()
    weights = None if reranker.goals is None else ranking.weights or reranker.goals.label_alone
    rerank = partial(own_pace.rerank, deadline=Deadline(abandoned=deadline.abandoned), weights=weights)
    if ranking.degraded and ranking.stage_reached == "first_stage":
        return partial(rerank, strategy="first_stage", routing=False)
    route = ranking.route
    choice = Choice(route.specialist, route.confidence)
    return partial(
        rerank,
        strategy=strategy,
        specialist=specialist,
        hook=(lambda _query: choice) if route.decided_by == "hook" else None,
        routing=routing and all(fault.kind != "routing_late" for fault in route.faults),
    )


def _find_moves(
    rerank: Rerank, candidates: CandidateList, candidate: int, ranking: Ranking
) -> tuple[MovedCandidate, ...]:
    """Return the other candidates whose places among themselves change without the candidate, best first."""
    # whoever was below moves up by one, which is no move; those that the second stage reaches in its place may move
    if len(candidates) == 1:
        return ()
    others = np.delete(np.arange(len(candidates)), candidate)
    reduced = rerank(CandidateList(candidates.features[others], context=candidates.context))
    if reduced.degraded:
        raise ScoringError(f"without the candidate, {reduced.reason}")
    ranks, ranks_without = ranking.ranks, reduced.ranks
    changed = [
        MovedCandidate(other, id_of(candidates, other), int(ranks[other]), int(rank))
        for other, rank in zip(others.tolist(), ranks_without, strict=True)
        if rank != ranks[other] - (ranks[other] > ranks[candidate])
    ]
    return tuple(sorted(changed, key=lambda move: move.rank))


def _explain_anomaly(reranker: Reranker, candidates: CandidateList, ranking: Ranking) -> AnomalyReasons | None:
    """Return the anomaly score, and the features whose training median in the top's mean would lower it most."""
    stage = reranker.manifest.anomaly
    if reranker.anomaly is None or stage is None:
        return None
    schema = reranker.manifest.feature_schema
    means = reranker.anomaly.means(candidates.features, ranking.first_stage_scores)
    features = [schema.features[d] for d in schema.numeric]
    rows = np.tile(means, (len(features) + 1, 1))
    for place, feature in enumerate(features):
        if feature.quantiles is not None:
            rows[place + 1, place] = feature.quantiles[_MEDIAN]
    score, *scores_without = reranker.anomaly.of_means(rows).tolist()
    unusual = [
        UnusualValue(feature.name, None if np.isnan(mean) else float(mean), score_without)
        for feature, mean, score_without in zip(features, means, scores_without, strict=True)
        if score_without < score
    ]
    unusual.sort(key=lambda value: value.anomaly_without)
    quantiles = dict(zip(map(str, QUANTILE_LEVELS), stage.quantiles, strict=False))
    return AnomalyReasons(score, quantiles, tuple(unusual[:MOST_FEATURES]))


class _Parts:
    """Parts of an explanation, run one after another while there is time, with their times, faults and omissions."""

    def __init__(self, until: Clock) -> None:
        self.clock, self.seconds = until, dict[str, float]()
        self.incomplete, self.faults = list[Part](), dict[str, str]()

    def run(self, part: Part, work: Callable[[], _Result]) -> _Result | None:
        """Run a part and return its result; None if the time is up or a stage fails on a list of the part's."""
        if self.clock.over():
            self.incomplete.append(part)
            return None
        try:
            return self.timed(part, work)
        except ScoringError as error:
            self.incomplete.append(part)
            self.faults[part] = str(error)
            return None

    def cut_short(self, part: Part, is_cut: bool, fault: str | None = None) -> None:
        """Record a part as incomplete, for want of time or for a stage that failed."""
        if is_cut or fault is not None:
            self.incomplete.append(part)
        if fault is not None:
            self.faults[part] = fault

    def timed(self, part: str, work: Callable[[], _Result]) -> _Result:
        """Run a part, or more of it, add to its time and return its result."""
        started = perf_counter()
        try:
            return work()
        finally:
            self.seconds[part] = self.seconds.get(part, 0.0) + perf_counter() - started


def _check_candidates(length: int, candidate: int, against: int | None) -> list[int]:
    for name, index in (("candidate", candidate), ("against", against)):
        if index is not None and not 0 <= index < length:
            raise CandidateError(f"there is no candidate {index}: use 0 to {length - 1}", (name,))
    if against == candidate:
        raise CandidateError("against is the candidate itself: name another one", ("against",))
    return [candidate] if against is None else [candidate, against]


def _estimate(reranker: Reranker, route: Route) -> RouterReasons | None:
    """Return the bundle router's estimate for the list; None if the route has none."""
    stage = reranker.manifest.router
    if stage is None or route.probabilities is None or route.gains is None:
        return None
    return RouterReasons(tuple(route.probabilities.tolist()), tuple(route.gains.tolist()), stage.margin)


def _subtract(
    explanation: StageContributions | None, other: StageContributions | None
) -> tuple[FeatureContribution, ...]:
    """Subtract contributions, whose samples are independent; there are none to subtract of different columns."""
    if explanation is None or other is None:
        return ()
    others = {part.feature: part for part in other.contributions}
    if others.keys() != {part.feature for part in explanation.contributions}:
        return ()
    differences = []
    for part in explanation.contributions:
        its = others[part.feature]
        errors = [error for error in (part.standard_error, its.standard_error) if error is not None]
        difference, error = part.contribution - its.contribution, hypot(*errors) if errors else None
        differences.append(FeatureContribution(part.feature, part.value, its.value, difference, error))
    return by_size(differences)
