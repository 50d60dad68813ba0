"""From JSON to values. Fields that this version does not know are passed over."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from listwright_client.exchange import Reply


@dataclass(frozen=True, slots=True)
class Result:
    """One candidate's place."""

    index: int
    """Position in the request, from 0."""
    id: str | None
    rank: int
    """From 1."""
    relevance_score: float | None
    """Probability of being the one to put first, among those scored; below 0 a place: -1 for the first of the others,
    -2 for the next (of raw scores, as far below the lowest). None instead of these with ``finite_scores=False``."""
    stage: str
    """second, first or input."""
    first_stage_score: float | None
    first_stage_rank: int | None
    rules: tuple[str, ...] = ()
    """Names of the rules that touched the candidate."""


@dataclass(frozen=True, slots=True)
class Route:
    """Which ranker was asked for, and who chose it."""

    strategy: str
    specialist: int | None
    confidence: float | None
    decided_by: str


@dataclass(frozen=True, slots=True)
class Meta:
    """How the answer came about."""

    status: str
    stage_reached: str
    reason: str | None
    timings_ms: Mapping[str, float | None]
    """By step; None for one that did not run."""
    ignored: tuple[str, ...] = ()
    """Features that were sent by name and that the bundle does not know, the first 32; a service may be set to ignore
    them."""
    experiment: Mapping[str, str | None] | None = None
    """``name``, ``kind``, ``arm`` and ``reason`` of the experiment on traffic; None: the answer is in none."""
    rules: tuple[Mapping[str, Any], ...] = ()
    """``name``, ``action``, ``candidates`` (how many each touched) and ``reason`` (why it was not applied)."""


@dataclass(frozen=True, eq=False)
class Ranking:
    """The order of one query's candidates."""

    id: str | None
    model: str
    version: str
    results: tuple[Result, ...]
    """Best first, ``top_n`` of them."""
    scores: NDArray[np.float64]
    """``(L,)`` in input order, comparable within this list only; below 0 a place, as in ``Result``."""
    ranks: NDArray[np.int64]
    """``(L,)`` in input order, from 1; 0 for a candidate that a rule excludes."""
    route: Route
    meta: Meta
    request_id: str | None
    attempts: int
    """How often the question was sent."""

    @property
    def degraded(self) -> bool:
        """Whether an earlier stage answered in place of the last; ``meta.reason`` has the reason."""
        return self.meta.status == "degraded"

    @property
    def order(self) -> NDArray[np.int64]:
        """Positions in the request, best first: ``features[ranking.order]`` is sorted, without excluded candidates."""
        return np.argsort(self.ranks)[np.count_nonzero(self.ranks == 0) :]


@dataclass(frozen=True, slots=True)
class FeatureInfo:
    """One column of the served schema."""

    name: str
    kind: str
    """numeric or categorical."""
    required: bool


@dataclass(frozen=True)
class Info:
    """What is served."""

    model: str
    version: str
    fingerprint: str
    features: tuple[FeatureInfo, ...]
    max_candidates: int
    max_payload_bytes: int
    strategies: tuple[str, ...]
    default_strategy: str
    document: Mapping[str, Any]
    """All of ``/info``: specialists, routing, cutoffs, held-out metrics."""

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The columns of a matrix that is sent without names."""
        return tuple(feature.name for feature in self.features)


_STATUSES = ("ok", "degraded")

UNREADABLE = (AttributeError, KeyError, OverflowError, RecursionError, TypeError, ValueError)
"""Errors of reading an answer that does not keep to the contract."""


@dataclass(frozen=True)
class SentList:
    """The parts of a sent list that its answer repeats.

    Args:
        length: candidates.
        ids: of the candidates; None: they have none.
        id: of the query.
        version: of the bundle that should answer; None: any.
        top_n: results that are wanted; None: all.
    """

    length: int
    ids: tuple[str, ...] | None = None
    id: str | None = None
    version: str | None = None
    top_n: int | None = None

    def check_ranking(self, ranking: Ranking) -> None:
        """Raise ValueError if the ranking is not that of this list."""
        if ranking.id != self.id:
            raise ValueError(f"it has the id {ranking.id!r}, and {self.id!r} was sent")
        if self.version not in (None, ranking.version):
            raise ValueError(f"it is of version {ranking.version!r}, and {self.version!r} was asked for")
        length = len(ranking.order)
        wanted = length if self.top_n is None else min(length, self.top_n)
        if len(ranking.results) != wanted:
            raise ValueError(f"it has {len(ranking.results)} results, and {wanted} are due")
        for place, result in enumerate(ranking.results, 1):
            self.check_candidate(result.index, result.id)
            if not place == result.rank == ranking.ranks[result.index]:
                ranks = f"{result.rank} and {ranking.ranks[result.index]}"
                raise ValueError(f"its candidate {result.index} has ranks {ranks} at place {place}")
        ranked = ranking.scores[ranking.order]
        if ranking.meta.experiment is None and (np.diff(ranked[~np.isnan(ranked)]) > 0.0).any():
            raise ValueError("its ranks contradict its scores")

    def check_candidate(self, index: int, name: str | None) -> None:
        """Raise ValueError if the list has no such candidate, or it has another id."""
        if not 0 <= index < self.length:
            raise ValueError(f"it has a candidate {index}, and {self.length} were sent")
        sent = None if self.ids is None else self.ids[index]
        if name != sent:
            raise ValueError(f"its candidate {index} has the id {name!r}, and {sent!r} was sent")


def read_ranking(reply: Reply, attempts: int, sent: SentList) -> Ranking:
    """Read the answer of ``POST /rerank``."""
    return ranking_of(json.loads(reply.content), sent, reply.headers.get("x-request-id"), attempts)


def ranking_of(body: Any, sent: SentList, request_id: str | None, attempts: int) -> Ranking:
    """Build the ranking of an answer's body, and check it against the list that was sent.

    Raises:
        ValueError: if it is not that of the list that was sent.
    """
    if not {type(score) for score in body["scores"]} <= {float, int, type(None)}:
        raise ValueError("its scores are no numbers")
    if body["meta"]["status"] not in _STATUSES:
        raise ValueError(f"its status is {body['meta']['status']!r}")
    scores = np.array(body["scores"], dtype=np.float64)  # null becomes NaN
    ranks = np.array([0 if rank is None else rank for rank in body["ranks"]]).astype(np.int64, casting="safe")
    if scores.shape != (sent.length,) or ranks.shape != (sent.length,):
        raise ValueError(f"{scores.shape} scores and {ranks.shape} ranks for {sent.length} candidates")
    scores.flags.writeable = ranks.flags.writeable = False
    route, meta = body["route"], body["meta"]
    ranking = Ranking(
        id=body["id"],
        model=body["model"],
        version=body["version"],
        results=tuple(
            Result(
                index=result["index"],
                id=result["id"],
                rank=result["rank"],
                relevance_score=result["relevance_score"],
                stage=result["stage"],
                first_stage_score=result["first_stage_score"],
                first_stage_rank=result["first_stage_rank"],
                rules=tuple(result.get("rules", ())),
            )
            for result in body["results"]
        ),
        scores=scores,
        ranks=ranks,
        route=Route(
            strategy=route["strategy"],
            specialist=route["specialist"],
            confidence=route["confidence"],
            decided_by=route["decided_by"],
        ),
        meta=Meta(
            status=meta["status"],
            stage_reached=meta["stage_reached"],
            reason=meta["reason"],
            timings_ms=dict(meta["timings_ms"]),
            ignored=tuple(meta.get("ignored", ())),
            experiment=meta.get("experiment"),
            rules=tuple(meta.get("rules", ())),
        ),
        request_id=request_id,
        attempts=attempts,
    )
    sent.check_ranking(ranking)
    return ranking


def read_info(reply: Reply) -> Info:
    """Read the answer of ``GET /info``."""
    body = json.loads(reply.content)
    return Info(
        model=body["model"],
        version=body["version"],
        fingerprint=body["fingerprint"],
        features=tuple(FeatureInfo(f["name"], f["kind"], f["required"]) for f in body["features"]),
        max_candidates=body["limits"]["max_candidates"],
        max_payload_bytes=body["limits"]["max_payload_bytes"],
        strategies=tuple(body["strategies"]),
        default_strategy=body["default_strategy"],
        document=body,
    )
