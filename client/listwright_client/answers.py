"""From JSON to values. Fields that this version does not know are passed over."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, cast, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from listwright_client.exchange import MOST_BYTES, MOST_BYTES_OF_CANDIDATE, Reply
from listwright_client.options import Id, id_text


@dataclass(frozen=True, slots=True)
class Result:
    """One candidate's place."""

    index: int
    """Position in the request, from 0."""
    id: Id | None
    """As it was sent: a whole number is one again."""
    rank: int
    """Rank, from 1."""
    relevance_score: float | None
    """Probability of being the one to put first, among those scored; below 0 a place: -1 for the first of the others,
    -2 for the next (of raw scores, as far below the lowest). None instead of these with ``finite_scores=False``."""
    stage: str
    """second, first or input."""
    first_stage_score: float | None
    first_stage_rank: int | None
    rules: tuple[str, ...] = ()
    """Names of the rules that touched the candidate."""
    probability: float | None = None
    """Probability of being relevant, or of being chosen: comparable between lists; None unless asked for."""


@dataclass(frozen=True, slots=True)
class Route:
    """The requested ranker, and who chose it."""

    strategy: str
    specialist: int | None
    confidence: float | None
    decided_by: str


@dataclass(frozen=True, slots=True)
class Meta:
    """Details of how the answer was made."""

    status: str
    stage_reached: str
    reason: str | None
    timings_ms: Mapping[str, float | None]
    """Milliseconds by step; None for one that did not run."""
    ignored: tuple[str, ...] = ()
    """Features that were sent by name and that the bundle does not know, the first 32; a service may be set to ignore
    them."""
    experiment: Mapping[str, str | None] | None = None
    """``name``, ``kind``, ``arm`` and ``reason`` of the experiment on traffic; None: the answer is in none."""
    rules: tuple[Mapping[str, Any], ...] = ()
    """``name``, ``action``, ``candidates`` (how many each touched) and ``reason`` (why it was not applied)."""
    weights: Mapping[str, float] | None = None
    """Weight of each goal in this order; None: the bundle has one goal."""


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
    """Number of times that the question was sent."""
    probabilities: NDArray[np.float64] | None = None
    """``(L,)`` in input order, comparable between lists; NaN where nothing scored the list; None unless asked for."""

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


@dataclass(frozen=True, slots=True)
class ProbabilityInfo:
    """Meaning of a bundle's probabilities, and the lists that they were fitted on."""

    of: str
    """choice: of being the candidate that is chosen, 1 in all over a list; relevance: of being relevant."""
    lists: int | None
    """Number of lists; None for choices."""
    mean: float | None
    """Share of relevant candidates in these lists; None for choices."""


@dataclass(frozen=True)
class Info:
    """The served bundles and their limits."""

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
    probability: ProbabilityInfo | None = None
    """None: the bundle has no probabilities."""
    goals: Mapping[str, float] | None = None
    """Weight of each goal where a request has none, the first goal first; None: the bundle has one goal."""

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
        length: Number of candidates.
        ids: Ids of the candidates; None if they have none.
        id: Id of the query.
        version: Version of the bundle that should answer; None for any.
        top_n: Length of the results; None for all.
    """

    length: int
    ids: tuple[Id, ...] | None = None
    id: str | None = None
    version: str | None = None
    top_n: int | None = None

    @property
    def most_bytes(self) -> int:
        """Bytes of the largest answer."""
        return MOST_BYTES + self.length * MOST_BYTES_OF_CANDIDATE

    def check_ranking(self, ranking: Ranking) -> None:
        """Raise ValueError if the ranking is not that of this list."""
        if ranking.id != self.id:
            raise ValueError(f"it has the id {ranking.id!r}, and {self.id!r} was sent")
        if self.version not in (None, ranking.version):
            raise ValueError(f"it is of version {ranking.version!r}, and {self.version!r} was asked for")
        length = len(ranking.order)
        if (ranking.ranks[ranking.order] != np.arange(1, length + 1)).any():
            raise ValueError(f"its ranks are not 1 to {length}, each once")
        due = length if self.top_n is None else min(length, self.top_n)
        if len(ranking.results) != due:
            raise ValueError(f"it has {len(ranking.results)} results, and {due} are due")
        for place, result in enumerate(ranking.results, 1):
            if not place == result.rank == ranking.ranks[result.index]:
                ranks = f"{result.rank} and {ranking.ranks[result.index]}"
                raise ValueError(f"its candidate {result.index} has ranks {ranks} at place {place}")
        ranked = ranking.scores[ranking.order]
        if ranking.meta.experiment is None and (np.diff(ranked[~np.isnan(ranked)]) > 0.0).any():
            raise ValueError("its ranks contradict its scores")

    def restore(self, part: dict[str, Any]) -> dict[str, Any]:
        """Return a part of the answer; a candidate gets the id that was sent; ValueError if it is none of the list."""
        if "index" in part and "id" in part:
            index = part["index"]
            if type(index) is not int or not 0 <= index < self.length:
                raise ValueError(f"it has a candidate {index!r}, and {self.length} were sent")
            sent = None if self.ids is None else self.ids[index]
            if part["id"] != (sent if sent is None else id_text(sent)):
                raise ValueError(f"its candidate {index} has the id {part['id']!r}, and {sent!r} was sent")
            part["id"] = sent
        return part


def read_ranking(reply: Reply, attempts: int, sent: SentList) -> Ranking:
    """Read the answer of ``POST /rerank``."""
    body = json.loads(reply.content, object_hook=sent.restore)
    return ranking_of(body, sent, reply.headers.get("x-request-id"), attempts)


def ranking_of(body: Any, sent: SentList, request_id: str | None, attempts: int) -> Ranking:
    """Build the ranking of an answer's body, and check it against the list that was sent.

    Raises:
        ValueError, TypeError: if it is not that of the list that was sent.
    """
    meta = read(Meta, body["meta"])
    if meta.status not in _STATUSES:
        raise ValueError(f"its status is {meta.status!r}")
    scores = np.array(read(tuple[float | None, ...], body["scores"]), dtype=np.float64)  # null becomes NaN
    ranks = np.array([rank or 0 for rank in read(tuple[int | None, ...], body["ranks"])])
    ranks = ranks.astype(np.int64, casting="safe")
    probabilities = read(tuple[float | None, ...] | None, body.get("probabilities"))
    probabilities = None if probabilities is None else np.array(probabilities, dtype=np.float64)
    for values in (scores, ranks) if probabilities is None else (scores, ranks, probabilities):
        if values.shape != (sent.length,):
            raise ValueError(f"{values.shape} scores, ranks or probabilities for {sent.length} candidates")
        values.flags.writeable = False
    if np.isinf(scores).any():
        raise ValueError("it has an infinite score")
    ranking = Ranking(
        id=read(str | None, body["id"]),
        model=read(str, body["model"]),
        version=read(str, body["version"]),
        results=read(tuple[Result, ...], body["results"]),
        scores=scores,
        ranks=ranks,
        route=read(Route, body["route"]),
        meta=meta,
        request_id=request_id,
        attempts=attempts,
        probabilities=probabilities,
    )
    sent.check_ranking(ranking)
    return ranking


def read_info(reply: Reply) -> Info:
    """Read the answer of ``GET /info``."""
    body = json.loads(reply.content)
    return cast(Info, read(Info, {**body, **body["limits"], "document": body}))


_JSON_NAMES = {"value_from": "from", "value_to": "to"}
_JSON_TYPES: dict[Any, set[type]] = {
    float: {float, int},
    Any: {bool, dict, float, int, list, str, NoneType},
    **{kind: {kind} for kind in (bool, int, str, NoneType)},
}
"""By annotation, the types that a value of JSON may have in Python."""


def read(kind: Any, body: Any, place: str = "a value") -> Any:
    """Build a value of an annotated type from its JSON; TypeError if that is of another type, or lacks a field."""
    types, part, fields = _reading(kind)
    if type(body) in types:
        return body
    if type(body) is list and get_origin(part) is tuple:
        inner = get_args(part)[0]
        whole = set(map(type, body)) <= _reading(inner)[0]
        return tuple(body if whole else [read(inner, item, place) for item in body])
    if type(body) is dict and get_origin(part) is Mapping:
        return {name: read(get_args(part)[1], value, name) for name, value in body.items()}
    if type(body) is dict and fields:
        values = {}
        for name, own, type_, plain in fields:
            if own in body:
                value = body[own]
                values[name] = value if type(value) in plain else read(type_, value, name)
        return part(**values)
    raise TypeError(f"{place} is {body!r:.80}")


@cache
def _reading(kind: Any) -> tuple[set[type], Any, list[tuple[str, str, Any, set[type]]]]:
    """Return the types that stay as they are, the part of the annotation that is built, and its fields."""
    kinds = get_args(kind) if get_origin(kind) is UnionType else (kind,)
    types: set[type] = set().union(*(_JSON_TYPES.get(member, ()) for member in kinds))
    part = next((member for member in kinds if member not in _JSON_TYPES), None)
    hints = get_type_hints(part) if is_dataclass(part) else {}
    return types, part, [(name, _JSON_NAMES.get(name, name), kind, _reading(kind)[0]) for name, kind in hints.items()]
