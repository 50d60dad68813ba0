"""From a request to its answer, whatever its format: its turn, decoding, ranking, encoding."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from fastapi import Response
from starlette.types import Receive, Scope, Send

from listwright.ranking.candidates import Ranking
from listwright.ranking.deadline import Deadline
from listwright.service.admission.body import BoundedRequest
from listwright.service.admission.readiness import fails_on_zeros
from listwright.service.api.service import service_of
from listwright.service.bundles.routing_switch import Deciders
from listwright.service.errors import DegradedError
from listwright.service.settings import Settings
from listwright.service.wire.answers import facts
from listwright.service.wire.codec import Codec, EncodedAnswer, RankingRequest

FAIR = 0.5
"""Share of the time that the settings give which must be left when the body is complete: if less is, and the answer is
late, the way that the body took is to blame."""


class _Done(NamedTuple):
    """What came of a request."""

    written: EncodedAnswer
    ranking: Ranking
    asked: RankingRequest
    milliseconds: dict[str, float]
    began: float
    hurried: bool  # whether the caller left less time than it should, see FAIR
    late: bool  # whether the answer was ready after its deadline


async def answer(request: BoundedRequest, codec: Codec) -> Response:
    """Wait for a slot, rank, and count, time and log it.

    Args:
        request: whose body has arrived.
        codec: of its body and answer.

    Raises:
        DegradedError: if the settings want no degraded answer.
    """
    service = service_of(request)
    queued = time.perf_counter()
    job = partial(_work, codec, service.settings, service.deciders, request.state.arrived, queued)
    done = await service.compute.run(service.gate, job, request)
    after = partial(_note, request, done)
    if done.ranking.degraded and service.settings.on_failure == "error":
        after()
        raise DegradedError(f"{done.ranking.reason} (LISTWRIGHT_ON_FAILURE is error)")
    timing = ", ".join(f"{step};dur={value:.3f}" for step, value in done.milliseconds.items())
    content, media_type, headers = done.written
    return _Answer(content, {"Server-Timing": timing, **headers}, media_type, after)


class _Answer(Response):
    """An answer that is counted once it is sent, so that nobody waits for the counting."""

    def __init__(self, content: bytes, headers: Mapping[str, str], media_type: str, after: Callable[[], None]) -> None:
        super().__init__(content, media_type=media_type, headers=headers)
        self._after = after

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._after()


def _note(request: BoundedRequest, done: _Done) -> None:
    """Count, time and log a ranking."""
    service, reranker = service_of(request), done.asked.bundle.reranker
    service.telemetry.observe(done.ranking, reranker.manifest, done.milliseconds)
    service.telemetry.drift.note(done.asked.candidates.features, done.ranking.first_stage_scores, reranker)
    request.state.facts.update(facts(done.ranking, reranker.manifest, done.milliseconds))
    service.ignored.note(reranker.manifest, done.asked.ignored)
    request.state.began = done.began
    if done.late:
        service.telemetry.late.labels(done.ranking.stage_reached).inc()
    if not (done.ranking.late and done.hurried):  # what a caller leaves no time for says nothing of the service
        ours = partial(_ours, done)
        service.degraded.note(degraded=done.ranking.degraded, ours=ours)


def _ours(done: _Done) -> bool:
    """Whether a degraded answer is the service's fault: late with time enough, or failing on any list."""
    return done.ranking.late or fails_on_zeros(done.asked.bundle.reranker, done.ranking.route)


def _work(
    codec: Codec, settings: Settings, deciders: Deciders, arrived: float, queued: float, deadline: Deadline
) -> _Done:
    """All that may take long, from decoding to encoding."""
    began = time.perf_counter()
    asked = codec.decode()
    parsed = time.perf_counter()
    pace, length = asked.bundle.reranker.pace, len(asked.candidates)
    timeout_ms = asked.options.timeout_ms
    wanted = math.inf if timeout_ms is None else arrived + timeout_ms / 1000.0
    by = min(wanted, deadline.at) - pace.expected("answer", length)
    ranking = rank(asked, deciders, Deadline(by, deadline.abandoned))
    ranked = time.perf_counter()
    milliseconds = {
        "parse": (parsed - began) * 1000.0,
        "queue": (began - queued) * 1000.0,
        **ranking.timings_ms,
        "total": (ranked - arrived) * 1000.0,
    }
    written = codec.encode(asked, ranking, milliseconds)
    ended = time.perf_counter()
    pace.note("answer", length, ended - ranked)
    hurried = wanted < deadline.at or deadline.at - queued < FAIR * settings.timeout_ms / 1000.0
    late = ended > min(wanted, deadline.at)
    return _Done(written, ranking, asked, milliseconds, began, hurried=hurried, late=late)


def rank(asked: RankingRequest, deciders: Deciders, deadline: Deadline) -> Ranking:
    """Looks at the switch only where somebody would be asked."""
    options, bundle = asked.options, asked.bundle
    asks = bundle.manifest.srm is not None and options.specialist is None and options.strategy in ("auto", "srm")
    return bundle.reranker.rerank(
        asked.candidates,
        strategy=options.strategy,
        specialist=options.specialist,
        hook=deciders.hook,
        routing=asks and deciders.switch.off() is None,
        deadline=deadline,
    )
