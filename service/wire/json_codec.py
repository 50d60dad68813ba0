"""JSON at ``POST /rerank``: a body to a request, features by name, by position or by column; a ranking to an answer.

A body is decoded as the contract allows it, in bounded time and memory. The parser holds Python's global lock from the
first byte to the last. So one quick pass before it counts everything that takes time: arrays and objects, which cost
most, values, and bytes beyond what those need. The parser drops repeated names; they show as more colons than names.
All limits are those of the longest list that is served: no body below them takes much longer than such a list
(``benchmarks/load/bodies.py``).
"""

from __future__ import annotations

import json
import math
import re
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, runtime_checkable
from weakref import ReferenceType, WeakKeyDictionary, ref

import numpy as np
import pydantic_core
from fastapi.exceptions import RequestValidationError
from jaxtyping import Float, Real, UInt8
from pydantic_core import to_json
from starlette.datastructures import State

from listwright.ranking.bundle import Bundle
from listwright.ranking.candidates import CandidateList, Ranking
from listwright.ranking.errors import CandidateError, ListwrightError, UnknownGoalError
from listwright.ranking.features import FeatureSchema
from listwright.ranking.manifest import Manifest
from listwright.ranking.order import finite_scores, ranks_by_score, ranks_of
from listwright.ranking.reranker import Reranker
from listwright.ranking.rules.apply import RuleSet
from listwright.ranking.rules.schema import MOST_RULES
from listwright.service.admission.body import Limit
from listwright.service.bundles.models import Models
from listwright.service.errors import RepeatedNameError, TooLargeError, UndecodableBodyError, why_no_json
from listwright.service.hook import PASSED
from listwright.service.participation import Participation
from listwright.service.settings import Settings
from listwright.service.wire.compiled import json_fast
from listwright.service.wire.json_matrix import check_context, to_candidates
from listwright.service.wire.schemas import (
    MAX_CONTEXT,
    MAX_CONTEXT_KEY,
    MAX_FIELDS,
    MOST_IGNORED,
    Options,
    RerankRequest,
    validate,
)


class RankingRequest(NamedTuple):
    """A decoded request to rank, with its bundle."""

    candidates: CandidateList
    options: Options
    bundle: Bundle
    ignored: tuple[str, ...] = ()  # names of unknown features
    id: str | None = None  # of the caller
    pinned: bool = False  # whether the caller names the bundle's version
    scores_only: bool = False  # whether the answer has no order
    rules: RuleSet | None = None  # of the caller
    part: Participation | None = None  # in an experiment; None: in none

    def join_experiment(self, part: Participation) -> RankingRequest:
        """Return the same request in an experiment."""
        return RankingRequest(*self[:-1], part)  # half the time of _replace

    def check(self) -> None:
        """Raise CandidateError for a list of another length than was sent, and for what the bundle does not offer."""
        length, sent = len(self.candidates.features), self.options.expect_candidates
        if sent is not None and sent != length:
            raise CandidateError(
                f"expect_candidates is {sent}, and {length} arrived: the list was split or merged on its way, which "
                "would change its scores; turn off batching between sender and service, see docs/search-engines.md"
            )
        options, rules = self.options, () if self.rules is None else self.rules.rules
        if self.bundle.reranker.calibration is None:
            places: list[Path] = [(*options.place, "probabilities")] if options.probabilities else []
            places += [] if options.min_probability is None else [(*options.place, "min_probability")]
            places += [("rules", number) for number, rule in enumerate(rules) if rule.action == "cutoff"]
            if places:
                raise CandidateError(NO_PROBABILITIES, places[0])
        try:
            self.bundle.reranker.goal_weights(options.weights)
        except UnknownGoalError as error:
            raise CandidateError(str(error), (*options.place, "weights")) from None


class EncodedAnswer(NamedTuple):
    """An encoded answer."""

    content: bytes
    media_type: str
    headers: Mapping[str, str]


@runtime_checkable
class Codec(Protocol):
    """A format of requests and answers, for one request. Its methods are called once each, in the thread that ranks."""

    @property
    def limit(self) -> Limit:
        """The largest body that it reads."""
        ...

    def decode(self, body: bytes) -> RankingRequest:
        """Decode the body."""
        ...

    def encode(self, request: RankingRequest, ranking: Ranking, milliseconds: Mapping[str, float]) -> EncodedAnswer:
        """Encode the answer."""
        ...


NO_PROBABILITIES = "the bundle has no probabilities: leave this out, or fit it again, see probability of GET /info"

_STEPS = ("parse", "queue", "first_stage", "routing", "second_stage", "total")
_MORE_STEPS = ("probability", "goals")
_STAGES = {"second_stage": "second", "first_stage": "first", "input_order": "input"}


class JsonAnswer:
    """The half of a codec that writes JSON."""

    def encode(self, request: RankingRequest, ranking: Ranking, milliseconds: Mapping[str, float]) -> EncodedAnswer:
        """Encode the answer of the contract."""
        return EncodedAnswer(to_json(to_answer(request, ranking, milliseconds)), "application/json", {})


def to_answer(request: RankingRequest, ranking: Ranking, milliseconds: Mapping[str, float]) -> dict[str, Any]:
    """Build the body of :class:`listwright.service.wire.schemas.RerankResponse`, as plain values."""
    options, manifest, ids, part = request.options, request.bundle.manifest, request.candidates.ids, request.part
    scores = nullable(answer_scores(ranking, options, part))
    below = (np.isnan(ranking.scores) if ranking.below_cutoff is None else ranking.below_cutoff).tolist()
    first_scores = nullable(ranking.first_stage_scores)
    first_ranks: Sequence[int | None] = [None] * len(scores)
    if first_scores[0] is not None:
        first_ranks = ranks_by_score(ranking.first_stage_scores).tolist()
    reached = _STAGES[ranking.stage_reached]
    order, ranks = ranking.order, list[int | None](ranks_of(ranking.order).tolist())
    if ranking.excluded:
        order = ranking.results
        for index in ranking.exclusions.tolist():
            ranks[index] = None
    answer: dict[str, Any] = {
        "id": request.id,
        "model": manifest.name,
        "version": manifest.version,
        "results": [
            {
                "index": index,
                "id": None if ids is None else ids[index],
                "rank": rank,
                "relevance_score": scores[index],
                "stage": "first" if below[index] and reached == "second" else reached,
                "first_stage_score": first_scores[index],
                "first_stage_rank": first_ranks[index],
            }
            for rank, index in enumerate(order[: options.top_n].tolist(), start=1)
        ],
        "scores": scores,
        "ranks": ranks,
        "route": {
            "strategy": ranking.route.strategy,
            "specialist": ranking.route.specialist,
            "confidence": ranking.route.confidence,
            "decided_by": ranking.route.decided_by,
        },
        "meta": {
            "status": "degraded" if ranking.degraded else "ok",
            "stage_reached": ranking.stage_reached,
            "reason": ranking.reason,
            "ignored": [shorten(name) for name in request.ignored[:MOST_IGNORED]],
            "timings_ms": {step: _rounded(milliseconds.get(step)) for step in _STEPS},
        },
    }
    answer["meta"]["timings_ms"] |= {step: _rounded(milliseconds[step]) for step in _MORE_STEPS if step in milliseconds}
    if ranking.weights is not None:
        answer["meta"]["weights"] = dict(ranking.weights)
    if options.probabilities:
        answer["probabilities"] = probabilities = nullable(answer_probabilities(ranking))
        for result in answer["results"]:
            result["probability"] = probabilities[result["index"]]
    if part is not None and part.is_visible:
        effect = {"name": part.experiment, "kind": part.kind, "arm": part.arm, "reason": part.reason}
        answer["meta"]["experiment"] = effect
    if ranking.rules:
        _add_rules(answer, ranking)
    return answer


def answer_scores(
    ranking: Ranking, options: Options, part: Participation | None, dtype: str = "<f8"
) -> Float[np.ndarray, " L"]:
    """Return the scores of an answer, in input order.

    Args:
        ranking: Ranking that is answered.
        options: Options that say whether scores are raw, and finite for every candidate.
        part: Part of the request in an experiment. Where two rankers made the order, no single one scored the list.
        dtype: Type of the answer's numbers, in which the scores are finite and ordered.
    """
    scores = (ranking.scores if options.raw_scores else ranking.relevance).astype(dtype)
    if part is not None and part.teams is not None:
        scores[:] = np.nan
    visible = ranking.order
    if ranking.excluded:
        scores[ranking.exclusions] = np.nan
        visible = ranking.results
    return finite_scores(scores, visible) if options.finite_scores and len(visible) else scores


def answer_probabilities(ranking: Ranking) -> Float[np.ndarray, " L"]:
    """Return the probabilities of an answer, in input order; NaN where the ranking has none."""
    return np.full(len(ranking.order), np.nan) if ranking.probability is None else ranking.probability


MOST_NAMED = 10_000
"""Candidates of all rules whose results name them: a request of 100 KB would have an answer of 10 MB."""


def _add_rules(answer: dict[str, Any], ranking: Ranking) -> None:
    """Add the effects of rules: to the results that they touched, and to ``meta``."""
    rule_names, left = dict[int, list[str]](), MOST_NAMED
    answer["meta"]["rules"] = []
    for name, action, candidates, reason in ranking.rules:
        answer["meta"]["rules"].append(
            {"name": name, "action": action, "candidates": len(candidates), "reason": reason}
        )
        alone = [name]  # most candidates are touched by one rule, and share this list
        for index in candidates[:left]:
            rule_names[index] = rule_names[index] + alone if index in rule_names else alone
        left = max(0, left - len(candidates))
    for result in answer["results"]:
        if result["index"] in rule_names:
            result["rules"] = rule_names[result["index"]]


def shorten(name: str) -> str:
    """Shorten a name for logs and answers: callers may send names of any length."""
    return name if len(name) <= MAX_CONTEXT_KEY else name[:MAX_CONTEXT_KEY] + "…"


def facts(
    ranking: Ranking, manifest: Manifest, milliseconds: Mapping[str, float], part: Participation | None = None
) -> dict[str, Any]:
    """Return the facts of a ranking for its log line."""
    by_default = ranking.weights is None or manifest.goals is None or ranking.weights == manifest.goals.default_weights
    return {
        **({} if part is None else {"experiment": part.experiment, "arm": part.arm}),
        "version": f"{manifest.name}/{manifest.version}",
        "strategy": ranking.route.strategy,
        "specialist": ranking.route.specialist,
        "confidence": _rounded(ranking.route.confidence),
        "decided_by": ranking.route.decided_by,
        "routing_faults": [fault.kind for fault in ranking.route.faults if fault.kind != PASSED],
        "stage_reached": ranking.stage_reached,
        "reason": ranking.reason,
        "candidates": len(ranking.order),
        "timings_ms": {step: _rounded(value) for step, value in milliseconds.items()},
        **({} if by_default else {"weights": ranking.weights}),
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def nullable(values: Real[np.ndarray, " L"]) -> list[float | None]:
    """Convert numbers for JSON: None for NaN."""
    if not np.isnan(values).any():
        return values.tolist()  # type: ignore[no-any-return]
    return [None if value != value else value for value in values.tolist()]  # noqa: PLR0124 - NaN


_plans: WeakKeyDictionary[Reranker, Any] = WeakKeyDictionary()
"""Plans for scanning the rows of a bundle."""

_recent_rules: dict[bytes, RuleSet] = {}
"""Rules of recent requests, by their JSON: most requests send the rules of another one."""

MOST_RECENT, RECENT_BYTES = 64, 2**14
"""Entries that are stored, and bytes of the longest."""


class JsonBounds:
    """Bounds of a body for any served bundle, computed once for each set of models."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._models: ReferenceType[Models] | None = None

    def of(self, models: Models) -> tuple[Bounds, Limit]:
        """Return the bounds, and the limit of bytes that follows from them."""
        if self._models is None or self._models() is not models:
            ignores = self._settings.unknown_features == "ignore"
            bounds = bounds_of(self._settings.max_candidates, models.schemas, ignores=ignores)
            self._models, self._bounds = ref(models), (bounds, Limit(bounds.size, bounds.why))
        return self._bounds


class JsonCodec(JsonAnswer):
    """JSON codec of one request.

    An ordinary body is scanned, which makes no object of each number; any other is parsed in full, which accepts all
    that the contract does and locates faults.

    Args:
        bounds: Bounds of bodies for any served bundle.
        models: Served models.
        settings: Settings of the service.
        state: State of the request; it gets the fingerprint of the bundle that answers.
        outer_options: Options that were sent beside the body.
        request_model: Class of the request, which says what a body may hold.
    """

    def __init__(
        self,
        bounds: JsonBounds,
        models: Models,
        settings: Settings,
        state: State,
        outer_options: Mapping[str, Any] = MappingProxyType({}),
        request_model: type[RerankRequest] = RerankRequest,
    ) -> None:
        self._bounds, self.limit = bounds.of(models)
        self._request_model, self._outer_options = request_model, outer_options
        self._models, self._settings, self._state = models, settings, state
        self._ignores = settings.unknown_features == "ignore"

    def decode(self, body: bytes) -> RankingRequest:
        """Decode and validate a body, choose the bundle, make the matrix."""
        scanned = self._scan(body)
        if scanned is not None:
            return scanned
        request = self._validate(body)
        bundle = self._choose(request)
        ignored: dict[str, None] = {}
        candidates = to_candidates(request, bundle.reranker.schema, ignored if self._ignores else None)
        return self._ranking_request(request, candidates, bundle, tuple(ignored))

    def _scan(self, body: bytes) -> RankingRequest | None:
        """Scan an ordinary body; return None for any other, which is parsed in full."""
        default_bundle = self._models.default_bundle
        if json_fast is None or default_bundle is None:
            return None
        schema = default_bundle.reranker.schema
        try:
            plan = _plans.get(default_bundle.reranker)
            if plan is None:
                plan = _plans[default_bundle.reranker] = plan_of(schema, ignores=self._ignores)
            rest, matrix, ids, lacking, ignored = json_fast.scan(body, plan, self._settings.max_candidates)
            request = self._validate(rest)
        except (json_fast.GivenUp, ListwrightError, RequestValidationError):
            return None
        bundle = self._choose(request)
        if bundle is not default_bundle or (
            lacking and request.context and not schema.index.keys().isdisjoint(request.context)
        ):
            return None
        if ids is None:
            ids = request.ids
        context = MappingProxyType(check_context(request.context, schema) if request.context else {})
        candidates = CandidateList(matrix, None if ids is None else tuple(ids), context)
        return self._ranking_request(request, candidates, bundle, ignored)

    def _validate(self, body: bytes) -> RerankRequest:
        """Validate a body; it then lacks rules that a recent request had, too."""
        value = decode(body, self._bounds)
        self._rules_json, self._recent_rules = b"", None
        if isinstance(value, dict) and (rules := value.get("rules")):
            most = self._settings.max_rules
            if isinstance(rules, list) and most < len(rules) <= MOST_RULES:
                raise CandidateError(f"{len(rules)} rules, the limit is {most} (LISTWRIGHT_MAX_RULES)", ("rules",))
            self._rules_json = to_json(rules)
            self._recent_rules = _recent_rules.get(self._rules_json)
            if self._recent_rules is not None:
                del value["rules"]
        return validate(self._request_model, value, self._outer_options)

    def _ranking_request(
        self, request: RerankRequest, candidates: CandidateList, bundle: Bundle, ignored: tuple[str, ...]
    ) -> RankingRequest:
        schema, rules, text = bundle.manifest.feature_schema, self._recent_rules, self._rules_json
        if text and (rules is None or rules.schema is not schema):
            rules = RuleSet((request.rules or ()) if rules is None else rules.rules, schema, of_request=True)
            if len(text) <= RECENT_BYTES:
                while len(_recent_rules) >= MOST_RECENT:
                    _recent_rules.pop(next(iter(_recent_rules)), None)
                _recent_rules[text] = rules
        pinned = request.version is not None
        return RankingRequest(candidates, request, bundle, ignored, request.id, pinned=pinned, rules=rules)

    def _choose(self, request: RerankRequest) -> Bundle:
        bundle = self._models.choose(request.model, request.version)
        self._state.fingerprint = bundle.manifest.fingerprint
        return bundle


def plan_of(schema: FeatureSchema, *, ignores: bool = False) -> Any:
    """Make the plan for scanning the rows of a schema, with or without unknown features that are ignored."""
    codes = [
        {category.encode(): feature.code(category) for category in feature.categories}
        if feature.kind == "categorical"
        else None
        for feature in schema.features
    ]
    code_of = [feature.code for feature in schema.features]
    absent = [feature.absent if feature.optional else None for feature in schema.features]
    ignored = most_ignored(len(schema)) if ignores else 0
    return json_fast.Plan([name.encode() for name in schema.names], codes, code_of, absent, ignored)


LEAST_VALUES = 2**13
"""Values that any body may have: the error for a list of another bundle names the difference, not its size."""

ENVELOPE_BYTES, CONTAINER_BYTES, VALUE_BYTES = 2**16, 256, 40
"""Bytes that a body may have for its envelope, for each array and object (a candidate has two, and an id), and for each
value beside a name and a category: digits, quotes, indentation."""

RULE_CONTAINERS = 3
"""Arrays and objects of a rule: itself, its where, and one range."""

LEAST_IGNORED, IGNORED_SPELLING = 32, 100
"""Unknown features that a candidate may have at least where they are ignored, and bytes of their names."""

ENVELOPE = MAX_FIELDS + MAX_CONTEXT

SEARCHED = 2**15
"""Most values of a body that is searched for the place of a fault; errors for larger ones have no place."""

BLOCK = 2**20
"""Bytes per block where nothing was compiled, which bounds the memory."""

_QUOTE, _COMMA, _COLON, _OPENING = b'"', b",", b":", b"[{"

_SURROGATE = re.compile("[\ud800-\udfff]")

Bytes = UInt8[np.ndarray, " bytes"]
Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of a body.

    Args:
        candidates: Length of the longest list.
        features: Number of features of the widest served schema.
        spelling: Bytes of the longest name and the longest category.
    """

    candidates: int
    features: int
    spelling: int

    @property
    def why(self) -> str:
        """Explanation of a limit."""
        return why(self.candidates, self.features)

    @property
    def size(self) -> int:
        """Bytes: those of the longest list in its wordiest form."""
        return self.size_of(self.values, self.containers)

    def size_of(self, values: int, containers: int) -> int:
        """Return the bytes that these values, arrays and objects may have."""
        return ENVELOPE_BYTES + values * (self.spelling + VALUE_BYTES) + containers * CONTAINER_BYTES

    @property
    def containers(self) -> int:
        """Arrays and objects: twice what the longest list has in its wordiest form, the envelope, and rules."""
        return 2 * max(2 * self.candidates, self.features) + 64 + RULE_CONTAINERS * MOST_RULES

    @property
    def values(self) -> int:
        """Commas: those of the longest list in its wordiest form, of a row of names, and of the envelope."""
        return max(LEAST_VALUES, (self.candidates + 1) * (self.features + 2) + ENVELOPE)


def why(candidates: int, features: int) -> str:
    """Describe a limit: which lists have room within it, and which setting changes it."""
    return f"for lists of {candidates} candidates (LISTWRIGHT_MAX_CANDIDATES) with {features} features"


def bounds_of(candidates: int, schemas: Iterable[FeatureSchema], *, ignores: bool = False) -> Bounds:
    """Return the bounds of a body for any of the schemas, with or without unknown features that are ignored."""
    sizes = [(len(schema), schema.spelling) for schema in schemas]
    features, spelling = max(size[0] for size in sizes), max(size[1] for size in sizes)
    if ignores:
        return Bounds(candidates, features + most_ignored(features), max(spelling, IGNORED_SPELLING))
    return Bounds(candidates, features, spelling)


def most_ignored(features: int) -> int:
    """Return how many unknown features a candidate may have beside the known ones, where they are ignored."""
    return max(features, LEAST_IGNORED)


def decode(body: bytes, bounds: Bounds) -> Any:
    """Decode a body to its value, within bounds.

    Raises:
        TooLargeError: if it has too many bytes, candidates, values, arrays or objects.
        UndecodableBodyError: if it is empty or no JSON; NaN and Infinity are none, nor are halves of surrogate pairs.
        RepeatedNameError: if a name is repeated in one object.
    """
    body = body.removeprefix(BOM_UTF8)
    if not body:
        raise UndecodableBodyError("the body is empty: send a JSON object, see /openapi.json")
    if len(body) > bounds.size:
        raise _too_large(f"{len(body)} bytes", bounds.size, bounds)
    commas, openings, colons = _count(body)
    if openings > bounds.containers:
        raise _too_large(f"{openings} arrays and objects", bounds.containers, bounds)
    if commas > bounds.values:
        raise _too_large(f"{commas} values", bounds.values, bounds)
    if len(body) > (limit := bounds.size_of(commas, openings)):
        raise _too_large(f"{len(body)} bytes for {commas} values", limit, bounds)
    try:
        value = pydantic_core.from_json(body, allow_inf_nan=False)
    except ValueError as error:
        place: Path = ()
        if commas <= SEARCHED:  # else the search would take long
            with suppress(ValueError, RecursionError):  # of any other fault than a number or a string that JSON has not
                place = _place(json.loads(body.decode()), _is_foreign) or ()
        raise UndecodableBodyError(f"the body is not valid JSON: {why_no_json(body, error)}", place) from error
    _check_lengths(value, bounds.candidates)
    if _names(value) != colons:
        if commas <= SEARCHED:
            _check_repeated(body)
        elif _all_names(value) != colons:
            raise RepeatedNameError("a name is repeated in an object: send each name once")
    return value


def _count(body: bytes) -> tuple[int, int, int]:
    """Count commas, opening brackets and braces, and colons outside of strings."""
    if json_fast is not None:
        counts: tuple[int, int, int] = json_fast.counted(body)
        return counts
    return _outside_strings(body, _COMMA), _outside_strings(body, _OPENING), _outside_strings(body, _COLON)


def _outside_strings(body: bytes, characters: bytes) -> int:
    plain = body.replace(b"\\\\", b"").replace(b'\\"', b"")  # each remaining quote opens or closes a string
    text = np.frombuffer(plain, dtype=np.uint8)
    count, inside = 0, False
    for start in range(0, len(text), BLOCK):
        block: Bytes = text[start : start + BLOCK]
        within = np.logical_xor.accumulate(block == _QUOTE[0]) ^ inside
        count += sum(int(np.count_nonzero((block == c) & ~within)) for c in characters)
        inside = bool(within[-1])
    return count


def _too_large(amount: str, limit: int, bounds: Bounds) -> TooLargeError:
    return TooLargeError(f"the body has {amount}, the limit is {limit} {bounds.why}")


def _check_lengths(body: object, limit: int) -> None:
    """Raise TooLargeError for a list above the limit: before validation, which would look at every candidate."""
    if not isinstance(body, dict):
        return
    columns = body.get("columns")
    lists = [(("columns", name), column) for name, column in columns.items()] if isinstance(columns, dict) else []
    for path, values in [*(((name,), body.get(name)) for name in ("candidates", "features")), *lists]:
        if isinstance(values, list):
            check_length(len(values), limit, path)


def check_length(length: int, limit: int, path: tuple[str | int, ...] = ()) -> None:
    """Raise TooLargeError for a list above the limit."""
    if length > limit:
        raise TooLargeError(
            f"the list has {length} candidates, the limit is {limit} (LISTWRIGHT_MAX_CANDIDATES): send the best "
            "ones; a list must not be split over requests",
            path,
        )


def _names(body: object) -> int:
    """Count names in the objects of the contract."""
    if not isinstance(body, dict):
        return 0
    candidates = body.get("candidates")
    rows = [row for row in candidates if isinstance(row, dict)] if isinstance(candidates, list) else []
    inner = [body.get("context"), body.get("columns"), body.get("weights"), *(row.get("features") for row in rows)]
    inner_names = sum(map(len, rows)) + sum(len(names) for names in inner if isinstance(names, dict))
    return len(body) + inner_names + _all_names(body.get("rules"))


def _all_names(value: object) -> int:
    """Count names in all objects."""
    count, parts = 0, [value]
    while parts:
        part = parts.pop()
        if isinstance(part, dict):
            count += len(part)
            parts += part.values()
        elif isinstance(part, list):
            parts += part
    return count


class _Repeated(dict[str, Any]):
    """An object in which a name is repeated, with that name."""

    name = ""


def _check_repeated(body: bytes) -> None:
    """Raise RepeatedNameError if a name is repeated: reads the body again and checks each object."""
    repeated: list[_Repeated] = []

    def collect(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = dict(pairs)
        if len(names) == len(pairs):
            return names
        counts = Counter(name for name, _ in pairs)
        repeated.append(_Repeated(names))
        repeated[-1].name = next(name for name, count in counts.items() if count > 1)
        return repeated[-1]

    value = json.loads(body.decode(), object_pairs_hook=collect, parse_int=float)  # float reads any number of digits
    if repeated:
        path = _place(value, lambda part: isinstance(part, _Repeated)) or ()
        part = value
        for key in path:
            part = part[key]
        raise RepeatedNameError("is repeated in this object: send each name once", (*path, part.name))


def _is_foreign(part: Any) -> bool:
    """Return whether a part is not finite, or holds half of a surrogate pair."""
    if type(part) is str:
        return not part.isascii() and _SURROGATE.search(part) is not None  # most text is ASCII, which is cheap to tell
    if type(part) is dict:
        return any(map(_is_foreign, part))
    return type(part) is float and not math.isfinite(part)


def _place(value: Any, matches: Callable[[Any], bool]) -> Path | None:
    """Return the path of the first part of a document, in its order, that matches; None if there is none."""
    if matches(value):
        return ()
    ways, path = [_parts(value)], list[str | int]()
    while ways:
        for key, part in ways[-1]:
            if matches(part):
                return (*path, key)
            if isinstance(part, dict | list):
                path.append(key)
                ways.append(_parts(part))
                break
        else:
            ways.pop()
            if path:
                path.pop()
    return None


def _parts(value: Any) -> Iterator[tuple[str | int, Any]]:
    if isinstance(value, dict):
        return iter(value.items())
    return enumerate(value) if isinstance(value, list) else iter(())
