"""One explanation from beginning to end: the ranking, and then each part as long as there is time."""

from __future__ import annotations

from collections.abc import Callable
from math import hypot
from time import perf_counter
from typing import Any, TypeVar

import numpy as np

from listwright.ranking.candidates import CandidateList, Ranking, Route
from listwright.ranking.deadline import NO_DEADLINE, Deadline
from listwright.ranking.errors import CandidateError, ExplanationError, ScoringError
from listwright.ranking.explaining import stages, surroundings
from listwright.ranking.explaining.again import as_answered
from listwright.ranking.explaining.clock import Clock, clock
from listwright.ranking.explaining.explanation import (
    CandidateExplanation,
    Comparison,
    FeatureContribution,
    Part,
    RouterReasons,
    StageContributions,
    id_of,
    place_of,
)
from listwright.ranking.explaining.passing import passing
from listwright.ranking.explaining.protocol import ExplainedReranker
from listwright.ranking.router import Hook

DEFAULT_BUDGET = 4000
"""Changed candidates that a stage scores at most for each explained one; two pairs of permutations are always drawn."""

_Found = TypeVar("_Found")


def explain(
    reranker: ExplainedReranker,
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
    ranking: Ranking | None = None,
) -> CandidateExplanation:
    """Say why a candidate stands where it stands.

    Everything is computed by the served rankers through the serving path. What is sampled has a standard error. The
    same call gives the same explanation, as long as no deadline cuts it short. A hook is asked once, for the answer;
    its choice then stays. Of a degraded answer, the first stage is explained: changed lists are ranked by it.

    Args:
        reranker: serves the bundle.
        candidates: ``(L, D)`` in schema order.
        candidate: index of the candidate, from 0.
        against: index of another one, whose contributions are subtracted.
        strategy, specialist, hook, routing: as of :meth:`listwright.ranking.reranker.Reranker.rerank`.
        deadline: sampling ends before it with what there is, and what would come after it is left out; both are
            named in ``incomplete``.
        budget: changed candidates that a stage scores at most, for the candidate and for ``against`` each.
        seed: of the sampling.
        ranking: the answer, if there is one: what this reranker made of the same list, asked in the same words. Else
            the list is ranked. No hook is asked beside it.

    Raises:
        CandidateError: if there is no such candidate, or the ranking is one of another number of candidates.
        ExplanationError: if no stage ranked the candidates, or the first stage was not explained before the deadline.
        BundleError: if the bundle's files are gone or others, and the first stage is a forest.
        ScoringError: if the first stage fails where it is explained; a later part that fails is named in ``faults``.
        SchemaMismatchError, UnknownStrategyError, AbandonedError: as ``rerank``.
    """
    explained = _explained(len(candidates), candidate, against)
    parts = _Parts(clock(deadline))
    asked: dict[str, Any] = {"strategy": strategy, "specialist": specialist, "routing": routing}
    if ranking is None:
        ranking = parts.timed("ranking", lambda: reranker.rerank(candidates, deadline=deadline, hook=hook, **asked))
    answered = _checked(ranking, len(candidates))
    rerank = as_answered(reranker, answered, deadline, **asked)
    one_list: dict[str, Any] = {"reranker": reranker, "candidates": candidates, "ranking": answered}
    sampling: dict[str, Any] = {"budget": budget, "seed": seed, "clock": parts.clock}

    first = parts.timed("first_stage", lambda: stages.first_stage(**one_list, explained=explained, **sampling))
    if first.found[0] is None:
        raise ExplanationError("the deadline had passed before the first stage was explained")
    parts.cut_short("first_stage", first.cut_short)
    moves = parts.run("moves", lambda: surroundings.moves(rerank, candidates, candidate, answered))
    anomaly = parts.run("anomaly", lambda: surroundings.anomaly(**one_list))
    second: list[StageContributions | None] = [None, None]
    if answered.stage_reached == "second_stage" and not np.isnan(answered.scores[candidate]):
        scored = [one for one in explained if not np.isnan(answered.scores[one])]
        found = parts.run("second_stage", lambda: stages.second_stage(**one_list, explained=scored, **sampling))
        if found is not None:
            second = [*found.found, None]
            parts.cut_short("second_stage", found.cut_short)
    passes = None
    if answered.order[0] != candidate:
        schema = reranker.manifest.feature_schema
        searched = parts.run("passing", lambda: passing(rerank, candidates, candidate, answered, schema, parts.clock))
        if searched is not None:
            passes = searched.found
            parts.cut_short("passing", not searched.to_the_end, searched.fault)
    beside = None
    if against is not None:
        beside = Comparison(
            against, id_of(candidates, against), _less(first.found[0], first.found[1]), _less(second[0], second[1])
        )
    return CandidateExplanation(
        candidate=place_of(candidates, answered, candidate),
        first_stage=first.found[0],
        second_stage=second[0],
        passing=passes,
        moves=moves or (),
        anomaly=anomaly,
        router=_estimate(reranker, answered.route),
        against=beside,
        incomplete=tuple(parts.incomplete),
        faults=parts.faults,
        ranking=answered,
        seconds=parts.seconds,
    )


class _Parts:
    """Runs parts one after another as long as there is time, and remembers how each went."""

    def __init__(self, until: Clock) -> None:
        self.clock, self.seconds = until, dict[str, float]()
        self.incomplete, self.faults = list[Part](), dict[str, str]()

    def run(self, part: Part, work: Callable[[], _Found]) -> _Found | None:
        """What a part finds; None if the time is up, or if a stage fails on what the part shows it."""
        if self.clock.over():
            self.incomplete.append(part)
            return None
        try:
            return self.timed(part, work)
        except ScoringError as error:
            self.incomplete.append(part)
            self.faults[part] = str(error)
            return None

    def cut_short(self, part: Part, whether: bool, fault: str | None = None) -> None:
        """Remember that a part lacks something, for time or for a stage that failed."""
        if whether or fault is not None:
            self.incomplete.append(part)
        if fault is not None:
            self.faults[part] = fault

    def timed(self, part: str, work: Callable[[], _Found]) -> _Found:
        """What a part finds."""
        started = perf_counter()
        try:
            return work()
        finally:
            self.seconds[part] = perf_counter() - started


def _explained(length: int, candidate: int, against: int | None) -> list[int]:
    for name, index in (("candidate", candidate), ("against", against)):
        if index is not None and not 0 <= index < length:
            raise CandidateError(f"there is no candidate {index}: use 0 to {length - 1}", (name,))
    if against == candidate:
        raise CandidateError("against is the candidate itself: name another one", ("against",))
    return [candidate] if against is None else [candidate, against]


def _checked(ranking: Ranking, length: int) -> Ranking:
    """A ranking that can be explained."""
    if len(ranking.order) != length:
        raise CandidateError(f"the ranking is one of {len(ranking.order)} candidates, the list has {length}")
    if ranking.stage_reached == "input_order":
        raise ExplanationError(f"no stage ranked the candidates: {ranking.reason}")
    return ranking


def _estimate(reranker: ExplainedReranker, route: Route) -> RouterReasons | None:
    """What the bundle's router made of the list, if it was asked."""
    stage = reranker.manifest.router
    if stage is None or route.probabilities is None or route.gains is None:
        return None
    return RouterReasons(tuple(route.probabilities.tolist()), tuple(route.gains.tolist()), stage.margin)


def _less(one: StageContributions | None, other: StageContributions | None) -> tuple[FeatureContribution, ...]:
    """Contributions to one candidate less those to another; samples of both are independent."""
    if one is None or other is None:
        return ()
    others = {part.feature: part for part in other.contributions}
    return stages.by_size(
        FeatureContribution(
            part.feature,
            part.value,
            others[part.feature].value,
            part.contribution - others[part.feature].contribution,
            _error(part.standard_error, others[part.feature].standard_error),
        )
        for part in one.contributions
    )


def _error(one: float | None, other: float | None) -> float | None:
    return None if one is None and other is None else hypot(one or 0.0, other or 0.0)
