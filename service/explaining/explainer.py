"""Explanations of one worker: an admission of their own, and from a request to its answer."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

from fastapi import Request, Response
from pydantic_core import to_json

from listwright.ranking.candidates import CandidateList, Ranking
from listwright.ranking.deadline import Deadline
from listwright.ranking.errors import CandidateError
from listwright.service.admission.body import BodyBudget, held_body
from listwright.service.admission.gate import Gate
from listwright.service.bundles.routing_switch import Deciders
from listwright.service.bundles.served import Models
from listwright.service.child_process import Background
from listwright.service.explaining.explain_process import ExplainedList, ExplainTask
from listwright.service.explaining.metrics import ExplanationMetrics
from listwright.service.explaining.process_link import ProcessLink
from listwright.service.settings import Settings
from listwright.service.telemetry.metrics import Telemetry
from listwright.service.wire.answers import facts, to_answer
from listwright.service.wire.codec import RankingRequest
from listwright.service.wire.explain_schemas import ExplainRequest, ExplainWords
from listwright.service.wire.json_codec import JsonBounds, JsonCodec
from listwright.service.wire.validation import words_beside

PLACES = 1
"""Requests that may wait while one is explained."""

LAST_RESORT_S = 5.0
"""So long after its deadline a process that neither answers nor stops is killed."""


class _Done(NamedTuple):
    """What came of a request."""

    content: bytes
    found: ExplainedList
    asked: RankingRequest
    milliseconds: dict[str, float]


class Explainer:
    """Answers requests to explain. Nothing of it is shared with requests to rank: slots, bytes of bodies, threads.

    Args:
        settings: of the service.
        telemetry: gets the metrics.
        deciders: whether hook and router are asked.
        json_bounds: of bodies.
        background: holds the process while a request is ranked.
    """

    def __init__(
        self,
        settings: Settings,
        telemetry: Telemetry,
        deciders: Deciders,
        json_bounds: JsonBounds,
        background: Background,
    ) -> None:
        self._settings, self._deciders, self._json_bounds = settings, deciders, json_bounds
        self._metrics = ExplanationMetrics(telemetry.registry)
        self._gate = Gate(1, PLACES)
        self._bodies = BodyBudget((1 + PLACES) * settings.max_payload_bytes, lambda: self._gate.retry_after_s)
        self._pool = ThreadPoolExecutor(1, "explain")
        self._link = ProcessLink(settings.hook, background)

    async def answer(self, request: Request, models: Models) -> Response:
        """Explain one list.

        Args:
            request: whose body has yet to be read.
            models: what is served.

        Raises:
            OverloadedError: if another one is explained, and one waits.
            ListwrightError: of the body, of the list, or of :meth:`ProcessLink.ask`.
        """
        settings, arrived = self._settings, request.state.arrived
        with self._metrics.counting(arrived) as outcome:
            self._gate.check()
            beside = words_beside(request, ExplainWords)
            codec = JsonCodec(self._json_bounds, models, settings, request.state, beside, ExplainRequest)
            complete_by = Deadline(arrived + settings.timeout_ms / 1000.0)
            async with held_body(request, codec.limit, self._bodies, settings, complete_by) as body:
                queued = time.perf_counter()
                deadline = Deadline(arrived + settings.explain_timeout_ms / 1000.0)
                async with self._gate.turn(deadline, request.receive, on_loop=False) as left:
                    work = partial(self._work, body, codec, arrived, queued, left)
                    done = await self._run(work, deadline)
            outcome.name = "incomplete" if done.found.incomplete else "ok"
        ranking, manifest = done.found.ranking, done.asked.bundle.manifest
        request.state.facts.update(facts(ranking, manifest, done.milliseconds))
        request.state.facts["incomplete"] = list(done.found.incomplete)
        timing = ", ".join(f"{step};dur={value:.3f}" for step, value in done.milliseconds.items())
        return Response(done.content, media_type="application/json", headers={"Server-Timing": timing})

    def close(self) -> None:
        """End the process; a request in work is told that the service stops."""
        self._link.close()
        self._pool.shutdown()

    async def _run(self, work: partial[_Done], deadline: Deadline) -> _Done:
        """What the work returns; it cannot outlast its deadline for long."""
        loop = asyncio.get_running_loop()
        timer = loop.call_later(max(0.0, deadline.left_s) + LAST_RESORT_S, self._link.kill)
        try:
            return await loop.run_in_executor(self._pool, work)
        finally:
            timer.cancel()

    def _work(self, body: bytes, codec: JsonCodec, arrived: float, queued: float, deadline: Deadline) -> _Done:
        """Decode, ask the process, encode. In a thread of its own."""
        began = time.perf_counter()
        asked = codec.decode(body)
        options = asked.options
        assert isinstance(options, ExplainRequest)
        candidates = asked.candidates
        explained = () if options.candidate is None else (placed(options.candidate, candidates, "candidate"),)
        against = None if options.against is None else placed(options.against, candidates, "against")
        if against is not None and against in explained:
            raise CandidateError("this is the explained candidate itself: name another one", ("against",))
        budget, most = options.explain_budget, self._settings.explain_max_budget
        if budget is not None and budget > most:
            raise CandidateError(f"{budget} is above the limit, {most}: ask for less", ("explain_budget",))
        parsed = time.perf_counter()
        wanted = math.inf if options.timeout_ms is None else arrived + options.timeout_ms / 1000.0
        deadline = Deadline(min(wanted, deadline.at), deadline.abandoned)
        reranker = asked.bundle.reranker
        task = ExplainTask(
            path=str(asked.bundle.path),
            created_at=asked.bundle.manifest.created_at.isoformat(),
            default_strategy=reranker.default_strategy,
            features=candidates.features,
            ids=candidates.ids,
            context=dict(candidates.context),
            strategy=options.strategy,
            specialist=options.specialist,
            routing=self._deciders.switch.off() is None,
            candidates=explained,
            top_n=options.explain_top_n or 0,
            against=against,
            budget=budget,
            most_budget=most,
            by=time.monotonic() + deadline.left_s,
        )
        found = self._link.ask(task, deadline)
        ended = time.perf_counter()
        milliseconds = {
            "parse": (parsed - began) * 1000.0,
            "queue": (began - queued) * 1000.0,
            **found.ranking.timings_ms,
            "total": (ended - arrived) * 1000.0,
        }
        return _Done(_encoded(asked, options, found, milliseconds), found, asked, milliseconds)


def placed(named: int | str, candidates: CandidateList, field: str) -> int:
    """The index of a candidate that a request names by index or id.

    Raises:
        CandidateError: if there is no such candidate; at the path of the field.
    """
    length, ids = len(candidates), candidates.ids
    if isinstance(named, int):
        if named < length:
            return named
        raise CandidateError(f"there is no candidate {named}: the list has {length}, counted from 0", (field,))
    if ids is None:
        raise CandidateError("the candidates have no ids: name one by its index, from 0", (field,))
    if named not in ids:
        raise CandidateError(f"no candidate has the id {named!r}", (field,))
    return ids.index(named)


def _encoded(
    asked: RankingRequest, options: ExplainRequest, found: ExplainedList, milliseconds: Mapping[str, float]
) -> bytes:
    """The answer of the contract; the explanations are JSON already."""
    manifest, ranking = asked.bundle.manifest, found.ranking
    assert isinstance(ranking, Ranking)
    head: dict[str, Any] = {
        "id": options.id,
        "model": manifest.name,
        "version": manifest.version,
        "ranking": to_answer(ranking, options, manifest, asked.candidates.ids, milliseconds, asked.ignored),
    }
    timings = {part: seconds * 1000.0 for part, seconds in found.seconds.items()}
    meta = {
        "timings_ms": {part: round(value, 3) for part, value in {**timings, "total": milliseconds["total"]}.items()},
        "incomplete": list(found.incomplete),
    }
    return b'%s,"explanations":%s,"meta":%s}' % (to_json(head)[:-1], found.content, to_json(meta))
