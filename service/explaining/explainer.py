"""Explanations of one worker: an admission of their own, and from a request to its answer."""

from __future__ import annotations

import asyncio
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
from listwright.service.errors import UnexplainedError
from listwright.service.explaining.explain_process import ExplainedList, ExplainTask
from listwright.service.explaining.metrics import ExplanationMetrics
from listwright.service.explaining.process_link import TOO_LATE, ProcessLink
from listwright.service.settings import Settings
from listwright.service.telemetry.metrics import Telemetry
from listwright.service.wire.answers import facts, to_answer
from listwright.service.wire.codec import RankingRequest
from listwright.service.wire.explain_schemas import ExplainRequest, ExplainWords
from listwright.service.wire.json_codec import JsonBounds, JsonCodec
from listwright.service.wire.validation import words_beside

PLACES = 1
"""Requests that may wait while one is explained."""

ANSWERED_S = 1.0
"""So long after its deadline a request is answered, whatever the process does."""

LAST_RESORT_S = 5.0
"""So long after its deadline a process that neither answers nor stops is killed."""


class _Question(NamedTuple):
    """What a body asks, checked against its list.

    Args:
        asked: the list and its options.
        explained: index of the candidate to explain; empty: the first places.
        against: index of the candidate to compare with, or None.
        seconds: that decoding took.
    """

    asked: RankingRequest
    explained: tuple[int, ...]
    against: int | None
    seconds: float

    @property
    def options(self) -> ExplainRequest:
        """Of the request."""
        options = self.asked.options
        assert isinstance(options, ExplainRequest)
        return options


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
    """

    def __init__(self, settings: Settings, telemetry: Telemetry, deciders: Deciders, json_bounds: JsonBounds) -> None:
        self._settings, self._deciders, self._json_bounds = settings, deciders, json_bounds
        self._metrics = ExplanationMetrics(telemetry.registry)
        self._gate = Gate(1, PLACES)
        self._bodies = BodyBudget((1 + PLACES) * settings.max_payload_bytes, lambda: self._gate.retry_after_s)
        self._pool, self._decoding = ThreadPoolExecutor(1, "explain"), ThreadPoolExecutor(1, "explain-body")
        self._link = ProcessLink(settings.hook)

    async def answer(self, request: Request, models: Models) -> Response:
        """Explain one list.

        Args:
            request: whose body has yet to be read.
            models: what is served.

        Raises:
            OverloadedError: if another one is explained, and one waits.
            UnexplainedError: if there is nothing by the deadline.
            ListwrightError: of the body, of the list, or of :meth:`ProcessLink.ask`.
        """
        settings, arrived = self._settings, request.state.arrived
        with self._metrics.counting(arrived) as outcome:
            self._gate.check()
            outer_words = words_beside(request, ExplainWords)
            codec = JsonCodec(self._json_bounds, models, settings, request.state, outer_words, ExplainRequest)
            complete_by = Deadline(arrived + settings.timeout_ms / 1000.0)
            async with held_body(request, codec.limit, self._bodies, settings, complete_by) as body:
                # before its turn, which it waits for no longer than the body says
                question = await asyncio.get_running_loop().run_in_executor(self._decoding, self._read, body, codec)
                queued, timeout_ms = time.perf_counter(), settings.explain_timeout_ms
                wanted_ms = timeout_ms if question.options.timeout_ms is None else question.options.timeout_ms
                deadline = Deadline(arrived + min(timeout_ms, wanted_ms) / 1000.0)
                async with self._gate.turn(deadline, request.receive, on_loop=False) as left:
                    done = await self._run(partial(self._work, question, arrived, queued, left), deadline)
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
        self._decoding.shutdown()

    async def _run(self, work: partial[_Done], deadline: Deadline) -> _Done:
        """What the work returns; neither the answer nor the work can outlast the deadline for long."""
        loop = asyncio.get_running_loop()
        left_s = max(0.0, deadline.left_s)
        timer = loop.call_later(left_s + LAST_RESORT_S, self._link.kill)
        future = loop.run_in_executor(self._pool, work)
        future.add_done_callback(lambda _: timer.cancel())
        try:
            async with asyncio.timeout(left_s + ANSWERED_S):
                return await asyncio.shield(future)
        except TimeoutError as error:
            raise UnexplainedError(TOO_LATE) from error

    def _read(self, body: bytes, codec: JsonCodec) -> _Question:
        """Decode and check. In a thread of its own."""
        began = time.perf_counter()
        asked = codec.decode(body)
        options, candidates = asked.options, asked.candidates
        assert isinstance(options, ExplainRequest)
        explained = () if options.candidate is None else (placed(options.candidate, candidates, "candidate"),)
        against = None if options.against is None else placed(options.against, candidates, "against")
        if against is not None and against in explained:
            raise CandidateError("this is the explained candidate itself: name another one", ("against",))
        budget, most = options.explain_budget, self._settings.explain_max_budget
        if budget is not None and budget > most:
            raise CandidateError(f"{budget} is above the limit, {most}: ask for less", ("explain_budget",))
        return _Question(asked, explained, against, time.perf_counter() - began)

    def _work(self, question: _Question, arrived: float, queued: float, deadline: Deadline) -> _Done:
        """Ask the process, encode. In a thread of its own."""
        began, asked, options = time.perf_counter(), question.asked, question.options
        candidates, reranker = asked.candidates, asked.bundle.reranker
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
            candidates=question.explained,
            top_n=options.explain_top_n or 0,
            against=question.against,
            budget=options.explain_budget,
            most_budget=self._settings.explain_max_budget,
            by=time.monotonic() + deadline.left_s,
        )
        found = self._link.ask(task, deadline)
        ended = time.perf_counter()
        milliseconds = {
            "parse": question.seconds * 1000.0,
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
