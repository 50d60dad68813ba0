"""``POST /rerank``, and the pipeline of every request that ranks: body, turn, decode, rank, encode, account.

Every error is one row of ``problems.STATUS``: nothing here catches one.
"""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from fastapi import APIRouter, Request, Response
from starlette.types import Receive

from listwright.ranking.candidates import Ranking
from listwright.ranking.deadline import Deadline
from listwright.ranking.served_log.record import ShadowRanking
from listwright.service import paths
from listwright.service.admission.body import hold_body
from listwright.service.admission.gate import Gate
from listwright.service.admission.readiness import fails_on_zeros
from listwright.service.api.service import PlainRoute, Service, Serving
from listwright.service.bundles.routing_switch import RoutingPolicy
from listwright.service.errors import DegradedError, UnsupportedMediaTypeError
from listwright.service.problems import DOCUMENTED
from listwright.service.rules import rule_sets, with_rules
from listwright.service.served_log.entry import LogEntry
from listwright.service.wire import npy
from listwright.service.wire.examples import REQUESTS
from listwright.service.wire.json_codec import Codec, EncodedAnswer, JsonCodec, RankingRequest, facts
from listwright.service.wire.matrix_codecs import NpyCodec
from listwright.service.wire.schemas import Envelope, RerankResponse, read_outer_words

if TYPE_CHECKING:
    from listwright.service.served_log.writer import LogWriter


HEADERS = {
    "X-Request-ID": {
        "description": "the caller's own, if it is printable ASCII of at most 128 characters; else a new one",
        "schema": {"type": "string"},
    },
    "Server-Timing": {"description": "milliseconds by step", "schema": {"type": "string"}},
    "traceparent": {"description": "the caller's own, if it sent a valid one", "schema": {"type": "string"}},
}

BODY = {"schema": {"$ref": "#/components/schemas/RerankRequest"}, "examples": REQUESTS}
"""FastAPI does not get the type: it would decode and validate on the event loop."""

MATRIX = {
    "schema": {
        "type": "string",
        "format": "binary",
        "description": "a .npy file: float32, float64 or float16, little-endian, C order, shape (L, D), columns as in "
        "the schema, NaN where a value is missing, categories by code (see /v2/models/{name}). The other fields of the "
        "JSON form stand in the query string",
    }
}

SCORES = {
    "schema": {
        "type": "string",
        "format": "binary",
        "description": "a .npy file of the scores, float32, shape (L,); for a .npy request that accepts it. Model, "
        "version, status and route stand in Listwright-* headers",
    }
}

RANKED = (400, 404, 408, 409, 413, 415, 422, 429, 503, 504)
"""Refusals of all endpoints that rank."""

JSON = re.compile(r"application/([^/]+\+)?json")
"""Media types of JSON bodies."""

ranking = APIRouter(route_class=PlainRoute)


@ranking.post(
    paths.RERANK,
    operation_id="rerank",
    summary="Rerank one query's candidates",
    tags=["rerank"],
    response_model=RerankResponse,
    response_description="The ranking, its route and its timings",
    responses={
        200: {"headers": HEADERS, "content": {npy.MEDIA_TYPE: SCORES}},
        **{status: DOCUMENTED[status] for status in RANKED},
    },
    openapi_extra={"requestBody": {"content": {"application/json": BODY, npy.MEDIA_TYPE: MATRIX}, "required": True}},
)
@ranking.post(paths.RERANK_ALIASES[0], include_in_schema=False)
@ranking.post(paths.RERANK_ALIASES[1], include_in_schema=False)
async def rerank(request: Request, service: Serving) -> Response:
    """Reorder the candidates of one query, best first.

    The first stage scores every candidate; QILCM, or a specialist, rescores the best of them as one list. The answer
    says which bundle, which stage and which ranker gave the order, and who chose that ranker.
    """
    media_type = media_type_of(request)
    words = read_outer_words(request, Envelope)
    if media_type == npy.MEDIA_TYPE:
        options = Envelope(**words)  # all of them stand in the query string and headers
        bundle = service.find_bundle(request, options.model, options.version)
        wants_npy = prefers(request.headers.getlist("accept"), npy.MEDIA_TYPE, "application/json")
        matrix_codec = NpyCodec(options, bundle, service.settings.max_candidates, wants_npy=wants_npy)
        return await answer(request, service, matrix_codec)
    models = service.serving()
    if not JSON.fullmatch(media_type):
        raise UnsupportedMediaTypeError(
            f"the body is announced as {media_type!r}: send application/json, or {npy.MEDIA_TYPE}"
        )
    codec = JsonCodec(service.json_bounds, models, service.settings, request.state, words)
    return await answer(request, service, codec)


def media_type_of(request: Request) -> str:
    """Return the media type that the body is announced as, without parameters; ``none`` if it has none."""
    return request.headers.get("content-type", "none").partition(";")[0].strip().lower()


_RANGE = re.compile(r"\s*(?P<range>[^\s;/]+/[^\s;/]+)\s*(?:;(?P<parameters>.*))?", re.DOTALL)
_QUALITY = re.compile(r"(?:^|;)\s*q\s*=\s*(?P<q>[^;]*)", re.IGNORECASE)
_VALUE = re.compile(r"0(?:\.\d{0,3})?|1(?:\.0{0,3})?")


class _Preference(NamedTuple):
    """A caller's preference for a media type; the larger wins."""

    quality: float  # q, from 0 (never) to 1
    specific: int  # 2 if it is named, 1 for ``type/*``, 0 for ``*/*`` or no ``Accept`` at all


def prefers(accept: Iterable[str], media_type: str, default: str) -> bool:
    """Return whether the answer should have a media type instead of the default one.

    Args:
        accept: lines of the header.
        media_type, default: the two that can be had.

    Convention: between two that are equally wanted, the one that is named wins, and the first of two that are. Where
    neither is wanted, the answer has the default one: the header may be disregarded.
    """
    ranges = dict(_ranges(accept))
    wanted, otherwise = _preference(ranges, media_type), _preference(ranges, default)
    return wanted.quality > 0.0 and (wanted > otherwise or (wanted == otherwise and wanted.specific == 2))


def _preference(ranges: Mapping[str, float], media_type: str) -> _Preference:
    """Return the preference of the most specific range that matches; without any range, everything is accepted."""
    if not ranges:
        return _Preference(1.0, 0)
    for specific, name in ((2, media_type), (1, media_type.partition("/")[0] + "/*"), (0, "*/*")):
        if name in ranges:
            return _Preference(ranges[name], specific)
    return _Preference(0.0, 0)


def _ranges(accept: Iterable[str]) -> Iterator[tuple[str, float]]:
    """Yield ranges with their q; malformed ones are skipped. No known type has parameters in quotes."""
    for line in accept:
        for element in line.split(","):
            match = _RANGE.fullmatch(element)
            quality = _QUALITY.search(match["parameters"] or "") if match else None
            value = quality["q"].strip() if quality else "1"
            if match and _VALUE.fullmatch(value):
                yield match["range"].lower(), float(value)


T = TypeVar("T")

SMALL = 4 * 2**20
"""Bytes of a body whose ranking may block the event loop: a thousand candidates by name, 10 ms."""

FAIR = 0.5
"""Share of the settings' time limit that must be left when the body is complete: if less is left and the answer is
late, the slow body is to blame."""


class _Done(NamedTuple):
    """A request that was ranked, with its encoded answer and times."""

    written: EncodedAnswer
    ranking: Ranking
    unruled: Ranking  # before rules: what a challenger's is compared with
    ranking_request: RankingRequest
    milliseconds: dict[str, float]
    began: float
    hurried: bool  # whether the caller left less time than it should, see FAIR
    late: bool  # whether the answer was ready after its deadline


async def answer(request: Request, service: Service, codec: Codec) -> Response:
    """Read the body, wait for a slot, rank, and answer; the request is counted and logged once the answer is sent.

    Args:
        request: whose body has yet to be read.
        service: that answers it.
        codec: of its body and answer.

    Raises:
        DegradedError: if the settings want no degraded answer.
        ListwrightError: of :func:`~listwright.service.admission.body.hold_body`,
            :meth:`~listwright.service.admission.gate.Gate.turn`, the codec or the ranking.
    """
    settings, arrived = service.settings, request.state.arrived
    deadline = Deadline(arrived + settings.timeout_ms / 1000.0)
    async with hold_body(request, codec.limit, service.bodies, settings, deadline) as body:
        work = partial(_work, body, codec, service, request.state.request_id, arrived, time.perf_counter())
        pool = pool_for(len(body), settings.threads, service.pool)
        done = await run_in_turn(service.gate, pool, work, deadline, request.receive)
    request.state.after_answer = partial(_note, request, service, done)
    if done.ranking.degraded and settings.on_failure == "error":
        raise DegradedError(f"{done.ranking.reason} (LISTWRIGHT_ON_FAILURE is error)")
    timing = ", ".join(f"{step};dur={value:.3f}" for step, value in done.milliseconds.items())
    content, media_type, headers = done.written
    return Response(content, media_type=media_type, headers={"Server-Timing": timing, **headers})


def pool_for(size: int, threads: int, pool: Executor) -> Executor | None:
    """Return the executor for a body of ``size`` bytes; None is the event loop itself.

    Two changes of thread take longer than all else around a ranking, as one waits for the other.
    """
    return None if threads == 0 and size <= SMALL else pool


async def run_in_turn(
    gate: Gate, pool: Executor | None, work: Callable[[Deadline], T], deadline: Deadline, receive: Receive
) -> T:
    """Wait for the request's turn, and return what ``work`` returns.

    Args:
        gate: that the request waits at.
        pool: whose thread works; None for the event loop.
        work: called with the deadline of the turn.
        deadline: of the answer.
        receive: of the request, whose body has arrived.

    Raises:
        ListwrightError: of :meth:`~listwright.service.admission.gate.Gate.turn`, or of the work.
    """
    async with gate.turn(deadline, receive, on_loop=pool is None) as left:
        if pool is None:
            return work(left)
        return await asyncio.get_running_loop().run_in_executor(pool, work, left)


def _note(request: Request, service: Service, done: _Done) -> None:
    """Count, time and log a ranking."""
    ranking, reranker = done.ranking, done.ranking_request.bundle.reranker
    service.telemetry.observe(ranking, reranker.manifest, done.milliseconds)
    _log_served(request, service, done)
    service.telemetry.drift.note(done.ranking_request.candidates.features, ranking.first_stage_scores, reranker)
    request.state.facts.update(facts(ranking, reranker.manifest, done.milliseconds, done.ranking_request.part))
    request.state.began = done.began
    if done.ranking_request.ignored:
        service.ignored.note(reranker.manifest, done.ranking_request.ignored)
    if done.late:
        service.telemetry.late.labels(ranking.stage_reached).inc()
    hurried = ranking.late and done.hurried  # the time that a caller leaves says nothing of the service
    if (ranking.degraded or service.degraded.length) and not hurried:
        late, route = ranking.late, ranking.route  # late with time enough, or failing on any list
        service.degraded.note(degraded=ranking.degraded, is_own_fault=lambda: late or fails_on_zeros(reranker, route))


def _log_served(request: Request, service: Service, done: _Done) -> None:
    """Log an answered request; where a challenger ranks the list in the background, once it has."""
    unlogged = done.ranking.degraded and service.settings.on_failure == "error"
    log, part = None if unlogged else service.served_log, done.ranking_request.part
    entry = None if log is None else _log_entry(request, done)
    if service.experiments is not None and part is not None and part.kind == "shadow" and part.shadow is None:
        service.experiments.shadow(done.ranking_request, done.unruled, partial(_log_shadowed, log, entry))
    elif log is not None and entry is not None:
        log.note(entry)


def _log_shadowed(log: LogWriter | None, entry: LogEntry | None, shadow: ShadowRanking) -> None:
    if log is not None and entry is not None and entry.part is not None:
        log.note(entry._replace(part=replace(entry.part, shadow=shadow)))


def query_id_of(request: RankingRequest, request_id: str) -> str:
    """Return the id that events name a query by: the caller's query id, else the list's id, else the request's."""
    return request.options.query_id or request.id or request_id


def _log_entry(request: Request, done: _Done) -> LogEntry:
    """Build the entry of the served log."""
    options, request_id = done.ranking_request.options, request.state.request_id
    return LogEntry(
        query_id_of(done.ranking_request, request_id),
        request_id,
        options.unit,
        options.top_n,
        done.ranking_request.candidates,
        done.ranking,
        done.ranking_request.bundle.manifest,
        done.milliseconds,
        time.time(),
        done.ranking_request.part,
    )


def _work(
    body: bytes, codec: Codec, service: Service, request_id: str, arrived: float, queued: float, deadline: Deadline
) -> _Done:
    """Decode, rank and encode: everything that may take long."""
    settings, began = service.settings, time.perf_counter()
    request = codec.decode(body)
    parsed = time.perf_counter()
    pace, length = request.bundle.reranker.pace, len(request.candidates.features)
    timeout_ms = request.options.timeout_ms
    wanted = math.inf if timeout_ms is None else arrived + timeout_ms / 1000.0
    by = min(wanted, deadline.at) - pace.expected("answer", length)
    sets = rule_sets(request, service.rules) if request.rules is not None or service.rules is not None else ()
    comparisons = length * sum(one.comparisons for one in sets)
    if sets:
        by -= pace.expected("rules", comparisons)
    policy, experiments, until = service.routing_policy, service.experiments, Deadline(by, deadline.abandoned)
    if experiments is None:
        ranking = rank(request, policy, until)
    else:  # an experiment may choose another ranking than that of the request's bundle
        query_id = query_id_of(request, request_id)
        request, ranking = experiments.show(request, query_id, lambda trial, by: rank(trial, policy, by), until)
    unruled = ranking
    if sets:
        unruled_at = time.perf_counter()
        request, ranking = with_rules(request, ranking, sets)
        pace.note("rules", comparisons, time.perf_counter() - unruled_at)
    ranked = time.perf_counter()
    milliseconds = {
        "parse": (parsed - began) * 1000.0,
        "queue": (began - queued) * 1000.0,
        **ranking.timings_ms,
        "total": (ranked - arrived) * 1000.0,
    }
    written = codec.encode(request, ranking, milliseconds)
    ended = time.perf_counter()
    pace.note("answer", length, ended - ranked)
    hurried = wanted < deadline.at or deadline.at - queued < FAIR * settings.timeout_ms / 1000.0
    late = ended > min(wanted, deadline.at)
    return _Done(written, ranking, unruled, request, milliseconds, began, hurried=hurried, late=late)


def rank(request: RankingRequest, routing_policy: RoutingPolicy, deadline: Deadline) -> Ranking:
    """Rank a list. The routing switch is checked only for `auto` and `srm`, where a router could choose."""
    options, bundle = request.options, request.bundle
    may_route = bundle.manifest.srm is not None and options.specialist is None and options.strategy in ("auto", "srm")
    return bundle.reranker.rerank(
        request.candidates,
        strategy=options.strategy,
        specialist=options.specialist,
        hook=routing_policy.hook,
        routing=may_route and routing_policy.switch.off() is None,
        deadline=deadline,
    )
