"""The pipeline of every request that ranks: body, turn, decode, rank, encode, account.

Every error is one row of ``problems.STATUS``: nothing here catches one.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive

from listwright.ranking.candidates import Ranking
from listwright.ranking.deadline import Deadline
from listwright.ranking.served_log.record import ShadowRanking
from listwright.service.admission.body import hold_body
from listwright.service.admission.gate import Gate
from listwright.service.bundles.routing_switch import RoutingPolicy
from listwright.service.composition import Service
from listwright.service.errors import DegradedError
from listwright.service.readiness import fails_on_zeros
from listwright.service.rules import rule_sets, with_rules
from listwright.service.served_log.entry import LogEntry
from listwright.service.wire.json_codec import Codec, EncodedAnswer, RankingRequest, facts

if TYPE_CHECKING:
    from listwright.service.served_log.writer import LogWriter

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
    unruled: Ranking  # before rules, for comparison with a challenger's
    ranking_request: RankingRequest
    milliseconds: dict[str, float]
    began: float
    hurried: bool  # whether the caller left less time than it should, see FAIR
    late: bool  # whether the answer was ready after its deadline


async def answer(request: Request, service: Service, codec: Codec) -> Response:
    """Read the body, wait for a slot, rank, and answer; the request is counted and logged once the answer is sent.

    Args:
        request: Request whose body has yet to be read.
        service: Service that answers the request.
        codec: Codec of the body and the answer.

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
        done = await _run_in_turn(service.gate, pool, work, deadline, request.receive)
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


async def _run_in_turn(
    gate: Gate, pool: Executor | None, work: Callable[[Deadline], T], deadline: Deadline, receive: Receive
) -> T:
    """Wait for the request's turn, and return what ``work`` returns, in the event loop's thread without a pool."""
    async with gate.turn(deadline, receive, on_loop=pool is None) as left:
        if pool is None:
            return work(left)
        return await asyncio.get_running_loop().run_in_executor(pool, work, left)


def _note(request: Request, service: Service, done: _Done) -> None:
    """Count, time and log a ranking."""
    ranking, reranker, degraded = done.ranking, done.ranking_request.bundle.reranker, service.readiness.degraded
    service.telemetry.observe(ranking, reranker.manifest, done.milliseconds)
    _log_answer(request, service, done)
    service.telemetry.drift.note(done.ranking_request.candidates.features, ranking.first_stage_scores, reranker)
    request.state.facts.update(facts(ranking, reranker.manifest, done.milliseconds, done.ranking_request.part))
    request.state.began = done.began
    if done.ranking_request.ignored:
        service.ignored.note(reranker.manifest, done.ranking_request.ignored)
    if done.late:
        service.telemetry.late.labels(ranking.stage_reached).inc()
    hurried = ranking.late and done.hurried  # a short time limit of the caller is no fault of the service
    if (ranking.degraded or degraded.length) and not hurried:
        late, route = ranking.late, ranking.route  # late although there was enough time, or failing on any list
        degraded.note(degraded=ranking.degraded, is_own_fault=lambda: late or fails_on_zeros(reranker, route))


def _log_answer(request: Request, service: Service, done: _Done) -> None:
    """Log an answered request; where a challenger ranks the list in the background, once it has."""
    unlogged = done.ranking.degraded and service.settings.on_failure == "error"
    log, part = None if unlogged else service.served_log, done.ranking_request.part
    options, request_id, entry = done.ranking_request.options, request.state.request_id, None
    if log is not None:
        entry = LogEntry(
            query_id_of(done.ranking_request, request_id),
            request_id,
            options.unit,
            options.top_n,
            done.ranking_request.candidates,
            done.ranking,
            done.ranking_request.bundle.manifest,
            done.milliseconds,
            time.time(),
            part,
        )
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


def _work(
    body: bytes, codec: Codec, service: Service, request_id: str, arrived: float, queued: float, deadline: Deadline
) -> _Done:
    """Decode, rank and encode: everything that may take long."""
    settings, began = service.settings, time.perf_counter()
    request = codec.decode(body)
    request.check()
    parsed = time.perf_counter()
    pace, length = request.bundle.reranker.pace, len(request.candidates.features)
    timeout_ms = request.options.timeout_ms
    caller_by = math.inf if timeout_ms is None else arrived + timeout_ms / 1000.0
    by = min(caller_by, deadline.at) - pace.expected("answer", length)
    sets = rule_sets(request, service.rules)
    comparisons = length * sum(rule_set.comparisons for rule_set in sets)
    if sets:
        by -= pace.expected("rules", comparisons)
    probability = request.options.probabilities or any(rule_set.needs_probability for rule_set in sets)
    rank_by = partial(rank, routing_policy=service.routing_policy, probability=probability)
    experiments, until = service.experiments, Deadline(by, deadline.abandoned)
    if experiments is None:
        ranking = rank_by(request, until)
    else:  # an experiment may choose another ranking than that of the request's bundle
        query_id = query_id_of(request, request_id)
        request, ranking = experiments.show(request, query_id, rank_by, until)
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
    hurried = caller_by < deadline.at or deadline.at - queued < FAIR * settings.timeout_ms / 1000.0
    late = ended > min(caller_by, deadline.at)
    return _Done(written, ranking, unruled, request, milliseconds, began, hurried=hurried, late=late)


def rank(
    request: RankingRequest, deadline: Deadline, routing_policy: RoutingPolicy, *, probability: bool = False
) -> Ranking:
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
        probability=probability,
        weights=options.weights,
    )
