"""Explanations of one worker: an admission of their own, the process that explains, and the answer."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from prometheus_client import CollectorRegistry, Counter, Histogram
from pydantic_core import to_json

from listwright.ranking.candidates import CandidateList, Ranking
from listwright.ranking.deadline import Deadline
from listwright.ranking.errors import AbandonedError, CandidateError, ListwrightError
from listwright.service.admission.body import BodyBudget, hold_body
from listwright.service.admission.gate import Gate
from listwright.service.bundles.models import Models
from listwright.service.bundles.routing_switch import RoutingPolicy
from listwright.service.child_process import ChildLink
from listwright.service.errors import ExplanationFailedError, NotReadyError, OverloadedError, UnexplainedError
from listwright.service.explaining.explain_process import WHY_LATE, Crashed, ExplainedList, ExplainTask, Reply, run
from listwright.service.rules import LiveRules, rule_sets
from listwright.service.settings import Settings
from listwright.service.telemetry.metrics import Telemetry
from listwright.service.wire.explain_schemas import ExplainEnvelope, ExplainRequest
from listwright.service.wire.json_codec import JsonBounds, JsonCodec, RankingRequest, facts, to_answer
from listwright.service.wire.schemas import read_outer_options

PLACES = 1
"""Requests that may wait while one is explained."""

ANSWERED_S = 1.0
"""Seconds after its deadline at which a request is answered, whatever the process does."""

LAST_RESORT_S = 5.0
"""Seconds after its deadline at which a process that neither answers nor stops is killed."""

GRACE_S = 0.5
"""Seconds after the deadline in which an answer is still awaited."""

TOO_LATE = f"the deadline passed before any part of the explanation was there: {WHY_LATE}"

SECONDS = (0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 30.0)
"""Buckets of the histogram."""

_log = logging.getLogger("listwright.explanations")


class _Question(NamedTuple):
    """A decoded body, checked against its list."""

    request: RankingRequest
    explained: tuple[int, ...]  # index of the candidate to explain; empty: the first places
    against: int | None  # index of the candidate to compare with
    seconds: float  # of decoding

    @property
    def options(self) -> ExplainRequest:
        """Options of the request."""
        options = self.request.options
        assert isinstance(options, ExplainRequest)
        return options


class _Result(NamedTuple):
    """The answer to a request, with its times."""

    content: bytes
    explained: ExplainedList
    request: RankingRequest
    milliseconds: dict[str, float]


class ExplanationService:
    """Service of explanations. It shares nothing with requests to rank: no slots, bytes of bodies or threads.

    Args:
        settings: Settings of the service.
        telemetry: Registry of the metrics.
        routing_policy: Policy that says whether hook and router are used.
        json_bounds: Bounds of bodies.
        rules: Rules of the service's file; None where there is none.
    """

    def __init__(
        self,
        settings: Settings,
        telemetry: Telemetry,
        routing_policy: RoutingPolicy,
        json_bounds: JsonBounds,
        rules: LiveRules | None = None,
    ) -> None:
        self._settings, self._routing_policy, self._json_bounds = settings, routing_policy, json_bounds
        self._rules = rules
        self._metrics = ExplanationMetrics(telemetry.registry)
        self._gate = Gate(1, PLACES)
        self._bodies = BodyBudget((1 + PLACES) * settings.max_payload_bytes, lambda: self._gate.retry_after_s)
        self._pool, self._decoding = ThreadPoolExecutor(1, "explain"), ThreadPoolExecutor(1, "explain-body")
        self._link = ChildLink("explain", run, settings.hook)

    async def answer(self, request: Request, models: Models) -> Response:
        """Explain one list.

        Args:
            request: Request whose body has yet to be read.
            models: Served models.

        Raises:
            OverloadedError: if another one is explained, and one waits.
            UnexplainedError: if there is nothing by the deadline.
            ListwrightError: of the body, of the list, or of the process.
        """
        settings, arrived = self._settings, request.state.arrived
        with self._metrics.counting(arrived) as outcome:
            self._gate.check()
            outer_options = read_outer_options(request, ExplainEnvelope)
            codec = JsonCodec(self._json_bounds, models, settings, request.state, outer_options, ExplainRequest)
            complete_by = Deadline(arrived + settings.timeout_ms / 1000.0)
            async with hold_body(request, codec.limit, self._bodies, settings, complete_by) as body:
                # before the turn: the body has the deadline of the wait
                question = await asyncio.get_running_loop().run_in_executor(self._decoding, self._read, body, codec)
                queued, timeout_ms = time.perf_counter(), settings.explain_timeout_ms
                request_ms = timeout_ms if question.options.timeout_ms is None else question.options.timeout_ms
                deadline = Deadline(arrived + min(timeout_ms, request_ms) / 1000.0)
                async with self._gate.turn(deadline, request.receive, on_loop=False) as left:
                    result = await self._run(partial(self._work, question, arrived, queued, left), deadline)
            outcome.name = "incomplete" if result.explained.incomplete else "ok"
        ranking, manifest = result.explained.ranking, result.request.bundle.manifest
        request.state.facts.update(facts(ranking, manifest, result.milliseconds))
        request.state.facts["incomplete"] = list(result.explained.incomplete)
        timing = ", ".join(f"{step};dur={value:.3f}" for step, value in result.milliseconds.items())
        return Response(result.content, media_type="application/json", headers={"Server-Timing": timing})

    def close(self) -> None:
        """End the process; a request in work gets the error that the service stops."""
        self._link.stop()
        self._pool.shutdown()
        self._decoding.shutdown()

    async def _run(self, work: partial[_Result], deadline: Deadline) -> _Result:
        """Run the work, and return its result; neither answer nor work can outlast the deadline for long."""
        loop = asyncio.get_running_loop()
        left_s = max(0.0, deadline.left_s)
        timer = loop.call_later(left_s + LAST_RESORT_S, self._link.kill)
        future = loop.run_in_executor(self._pool, work)
        future.add_done_callback(lambda _: timer.cancel())
        future.add_done_callback(lambda done: done.cancelled() or done.exception())  # else asyncio logs a late error
        try:
            async with asyncio.timeout(left_s + ANSWERED_S):
                return await asyncio.shield(future)
        except TimeoutError as error:
            raise UnexplainedError(TOO_LATE) from error

    def _read(self, body: bytes, codec: JsonCodec) -> _Question:
        """Decode and check a body. In a thread of its own."""
        began = time.perf_counter()
        request = codec.decode(body)
        request.check()
        options, candidates = request.options, request.candidates
        assert isinstance(options, ExplainRequest)
        explained = () if options.candidate is None else (_index_of(options.candidate, candidates, "candidate"),)
        against = None if options.against is None else _index_of(options.against, candidates, "against")
        if against is not None and against in explained:
            raise CandidateError("this is the explained candidate itself: name another one", ("against",))
        budget, most = options.explain_budget, self._settings.explain_max_budget
        if budget is not None and budget > most:
            raise CandidateError(f"{budget} is above the limit, {most}: ask for less", ("explain_budget",))
        return _Question(request, explained, against, time.perf_counter() - began)

    def _work(self, question: _Question, arrived: float, queued: float, deadline: Deadline) -> _Result:
        """Have the process explain, and encode its answer. In a thread of its own."""
        began, request, options = time.perf_counter(), question.request, question.options
        candidates, reranker = request.candidates, request.bundle.reranker
        task = ExplainTask(
            path=str(request.bundle.path),
            created_at=request.bundle.manifest.created_at.isoformat(),
            default_strategy=reranker.default_strategy,
            features=candidates.features,
            ids=candidates.ids,
            context=dict(candidates.context),
            strategy=options.strategy,
            specialist=options.specialist,
            routing=self._routing_policy.switch.off() is None,
            candidates=question.explained,
            top_n=options.explain_top_n or 0,
            against=question.against,
            budget=options.explain_budget,
            most_budget=self._settings.explain_max_budget,
            rules=rule_sets(request, self._rules),
            weights=options.weights,
            probabilities=options.probabilities,
            by=time.monotonic() + deadline.left_s,
        )
        explained = self._ask(task, deadline)
        ended = time.perf_counter()
        milliseconds = {
            "parse": question.seconds * 1000.0,
            "queue": (began - queued) * 1000.0,
            **explained.ranking.timings_ms,
            "total": (ended - arrived) * 1000.0,
        }
        manifest, ranking = request.bundle.manifest, explained.ranking
        assert isinstance(ranking, Ranking)
        head = {
            "id": options.id,
            "model": manifest.name,
            "version": manifest.version,
            "ranking": to_answer(request, ranking, milliseconds),
        }
        timings = {part: seconds * 1000.0 for part, seconds in explained.seconds.items()}
        timings["total"] = milliseconds["total"]
        meta = {
            "timings_ms": {part: round(value, 3) for part, value in timings.items()},
            "incomplete": list(explained.incomplete),
        }
        # the explanations are JSON already
        content = b'%s,"explanations":%s,"meta":%s}' % (to_json(head)[:-1], explained.content, to_json(meta))
        return _Result(content, explained, request, milliseconds)

    def _ask(self, task: ExplainTask, deadline: Deadline) -> ExplainedList:
        """Return the explanations of the process; another one gets the task if it ends because it was idle."""

        def check() -> None:
            deadline.check_awaited()
            if deadline.left_s < -GRACE_S:
                raise UnexplainedError(TOO_LATE)

        for attempt in range(2):
            if self._link.stopped.is_set():
                raise NotReadyError("the service is stopping")
            check()  # the one before may have been late to stop
            try:
                reply: Reply = self._link.ask(task, check)
                break
            except (EOFError, OSError) as error:
                code = self._link.join()
                if self._link.stopped.is_set():
                    raise NotReadyError("the service stopped before the explanation was ready") from error
                if code != 0 or attempt:
                    _log.error("the process that explains ended with code %s", code)
                    raise ExplanationFailedError(
                        f"the process that explains ended with code {code}: ask again"
                    ) from error
        if isinstance(reply, Crashed):
            _log.error("an explanation failed: %s", reply.trace)
            raise ExplanationFailedError("the explanation failed; the service's log says why")
        if isinstance(reply, Exception):
            raise reply
        return reply


def _index_of(candidate: int | str, candidates: CandidateList, field: str) -> int:
    """Return the index of a candidate that a request names by index or id."""
    length, ids = len(candidates), candidates.ids
    if isinstance(candidate, int):
        if candidate < length:
            return candidate
        raise CandidateError(f"there is no candidate {candidate}: the list has {length}, counted from 0", (field,))
    if ids is None:
        raise CandidateError("the candidates have no ids: name one by its index, from 0", (field,))
    if candidate not in ids:
        raise CandidateError(f"no candidate has the id {candidate!r}", (field,))
    return ids.index(candidate)


_OUTCOMES: dict[type[Exception], str] = {
    OverloadedError: "refused",
    UnexplainedError: "unexplained",
    AbandonedError: "abandoned",
    ExplanationFailedError: "failed",
    NotReadyError: "failed",
    ListwrightError: "invalid",
    RequestValidationError: "invalid",
}
"""Subclasses stand before their base; any other error is a failure."""


class Outcome:
    """Outcome of a request, for the counter; set before it ends."""

    name = "failed"


class ExplanationMetrics:
    """Counts and times; made only where explanations are on."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.requests = Counter(
            "listwright_explanations",
            "Explain requests; outcome: ok, incomplete, refused (429), invalid, unexplained (504), failed, abandoned",
            ["outcome"],
            registry=registry,
        )
        self.seconds = Histogram(
            "listwright_explanation_seconds",
            "Time from a request's first byte to its explanations",
            buckets=SECONDS,
            registry=registry,
        )

    @contextmanager
    def counting(self, arrived: float) -> Iterator[Outcome]:
        """Count a request by its outcome, and time it if it is explained.

        Args:
            arrived: Time of the request's first byte, on the clock of ``time.perf_counter``.
        """
        outcome = Outcome()
        try:
            yield outcome
            self.seconds.observe(time.perf_counter() - arrived)
        except Exception as error:
            outcome.name = next((name for kind, name in _OUTCOMES.items() if isinstance(error, kind)), "failed")
            raise
        finally:
            self.requests.labels(outcome.name).inc()
