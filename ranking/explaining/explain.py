"""One explanation from beginning to end: the ranking, and then each part as long as there is time."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from functools import partial
from math import hypot
from time import perf_counter
from typing import Any, TypeVar

import numpy as np

from listwright.ranking.candidates import CandidateList
from listwright.ranking.deadline import NO_DEADLINE, Deadline, Pace
from listwright.ranking.errors import CandidateError, ExplanationError, RoutingError
from listwright.ranking.explaining import stages, surroundings
from listwright.ranking.explaining.clock import Clock, clock
from listwright.ranking.explaining.explanation import Against, Contribution, Explanation, Part, StageExplanation
from listwright.ranking.explaining.passing import passing
from listwright.ranking.explaining.protocol import ExplainedReranker
from listwright.ranking.router import Choice, Hook, Query

DEFAULT_BUDGET = 4000
"""Changed candidates that a stage scores at most for each explained one; two pairs of permutations are always drawn."""

SAMPLING_SHARE = 0.6
"""Of the time left that sampling may take where there is a deadline: what comes after it is short."""

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
) -> Explanation:
    """Say why a candidate stands where it stands.

    Everything is computed by the served rankers through the serving path. What is sampled has a standard error. The
    same call gives the same explanation, as long as no deadline cuts it short. A hook is asked once, for the answer;
    its choice then stays.

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

    Raises:
        CandidateError: if there is no such candidate.
        ExplanationError: if no stage ranked the candidates, or the first stage was not explained before the deadline.
        BundleError: if the bundle's files are gone or others, and the first stage is a forest.
        ScoringError: if a stage fails on changed features.
        SchemaMismatchError, UnknownStrategyError, AbandonedError: as ``rerank``.
    """
    explained = _explained(len(candidates), candidate, against)
    timer, seconds, incomplete = clock(deadline), dict[str, float](), list[Part]()
    timed = partial(_timed, seconds)

    asked_hook = None if hook is None else _AskedOnce(hook)
    asked: dict[str, Any] = {"strategy": strategy, "specialist": specialist, "hook": asked_hook, "routing": routing}
    own_pace = copy(reranker)
    own_pace.pace = Pace()  # many runs one after another say nothing of how long those of others take
    ranking = timed("ranking", lambda: reranker.rerank(candidates, deadline=deadline, **asked))
    if ranking.stage_reached == "input_order":
        raise ExplanationError(f"no stage ranked the candidates: {ranking.reason}")
    rerank = partial(own_pace.rerank, deadline=Deadline(abandoned=deadline.abandoned), **asked)

    if timer.over():
        raise ExplanationError("the deadline had passed before the first stage was explained")
    sampling: dict[str, Any] = {"budget": budget, "seed": seed}
    first = timed(
        "first_stage",
        lambda: stages.first_stage(reranker, candidates, ranking, explained, clock=timer, **sampling),
    )
    if any(one is None for one in first):
        raise ExplanationError("the deadline had passed before the first stage was explained")

    left: dict[str, Any] = {}
    short: list[tuple[Part, Callable[[], object]]] = [
        ("moves", lambda: surroundings.moves(rerank, candidates, candidate, ranking)),
        ("anomaly", lambda: surroundings.anomaly(reranker, candidates, ranking)),
    ]
    for part, work in short:
        if timer.over():
            incomplete.append(part)
        else:
            left[part] = timed(part, work)

    second: list[StageExplanation | None] = [None] * len(explained)
    scored = [one for one in explained if ranking.stage_reached == "second_stage" and not np.isnan(ranking.scores[one])]
    if scored:
        share = timer.share(SAMPLING_SHARE)
        found = timed(
            "second_stage",
            lambda: stages.second_stage(reranker, candidates, ranking, scored, clock=share, **sampling),
        )
        second = [found[scored.index(one)] if one in scored else None for one in explained]
        if any(_cut_short(one, share) for one in found):
            incomplete.append("second_stage")

    passes = None
    if ranking.order[0] != candidate:
        schema = reranker.manifest.feature_schema
        passes, whole = timed("passing", lambda: passing(rerank, candidates, candidate, ranking, schema, timer))
        if not whole:
            incomplete.append("passing")
    beside = None
    if against is not None:
        beside = Against(against, _less(first[0], first[1]), _less(second[0], second[1]))
    return Explanation(
        candidate=candidate,
        ranking=ranking,
        first_stage=first[0],
        second_stage=second[0],
        passing=passes,
        moves=left.get("moves", ()),
        anomaly=left.get("anomaly"),
        against=beside,
        seconds=seconds,
        incomplete=tuple(incomplete),
    )


def _explained(length: int, candidate: int, against: int | None) -> list[int]:
    for name, index in (("candidate", candidate), ("against", against)):
        if index is not None and not 0 <= index < length:
            raise CandidateError(f"there is no candidate {index}: use 0 to {length - 1}", (name,))
    if against == candidate:
        raise CandidateError("against is the candidate itself: name another one", ("against",))
    return [candidate] if against is None else [candidate, against]


def _timed(seconds: dict[str, float], part: str, work: Callable[[], _Found]) -> _Found:
    started = perf_counter()
    try:
        return work()
    finally:
        seconds[part] = perf_counter() - started


def _cut_short(found: StageExplanation | None, share: Clock) -> bool:
    return found is None or (found.budget_spent and share.over())


def _less(one: StageExplanation | None, other: StageExplanation | None) -> tuple[Contribution, ...]:
    """Contributions to one candidate less those to another; samples of both are independent."""
    if one is None or other is None:
        return ()
    others = {part.feature: part for part in other.contributions}
    return stages.by_size(
        Contribution(
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


class _AskedOnce:
    """A hook that answers again what it answered first, whatever list it is shown."""

    def __init__(self, hook: Hook) -> None:
        self._hook, self._said = hook, list[Choice | RoutingError]()

    def __call__(self, query: Query) -> Choice:
        if not self._said:
            try:
                self._said.append(self._hook(query))
            except RoutingError as error:
                self._said.append(error)
        (said,) = self._said
        if isinstance(said, RoutingError):
            raise said
        return said
