"""The endpoints. No try/except: every error is one row of ``problems.STATUS``."""

from __future__ import annotations

import math
import time
from functools import partial
from typing import Annotated, NamedTuple

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import PlainTextResponse
from prometheus_client import generate_latest
from pydantic_core import to_json
from starlette.datastructures import State

from ranking.bundle import Bundle
from ranking.candidates import CandidateList, Ranking
from ranking.manifest import Manifest
from ranking.pace import Deadline
from ranking.router import Hook
from service.admission import listening
from service.answer import facts, to_answer
from service.body import BoundedRequest, BoundedRoute
from service.convert import to_candidates, to_request
from service.decode import Bounds, decode
from service.degradation import RUN
from service.examples import REQUESTS
from service.info import Info, describe
from service.models import Models, serving
from service.problems import DOCUMENTED, DegradedError, NotReadyError
from service.schemas import Health, Name, RerankRequest, RerankResponse
from service.settings import Settings

PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"

EXPOSITION = 'listwright_requests_total{path="/rerank",status="200"} 1.0\n'

HEADERS = {
    "X-Request-ID": {
        "description": "the caller's own, if it is printable ASCII of at most 128 characters; else a new one",
        "schema": {"type": "string"},
    },
    "Server-Timing": {"description": "milliseconds by step", "schema": {"type": "string"}},
    "traceparent": {"description": "the caller's own, if it sent a valid one", "schema": {"type": "string"}},
}

BODY = {"schema": {"$ref": "#/components/schemas/RerankRequest"}, "examples": REQUESTS}
"""FastAPI is not told of the type: it would decode and validate on the event loop."""

routes = APIRouter(route_class=BoundedRoute)


Served = Annotated[Models, Depends(serving)]


@routes.post(
    "/rerank",
    operation_id="rerank",
    summary="Rerank one query's candidates",
    tags=["rerank"],
    response_model=RerankResponse,
    response_description="The order, and how it came about",
    responses={
        200: {"headers": HEADERS},
        **{s: DOCUMENTED[s] for s in (400, 404, 408, 409, 413, 415, 422, 429, 503, 504)},
    },
    openapi_extra={"requestBody": {"content": {"application/json": BODY}, "required": True}},
)
@routes.post("/v1/rerank", include_in_schema=False)
@routes.post("/v2/rerank", include_in_schema=False)
async def rerank(request: Request, models: Served) -> Response:
    """Reorder the candidates of one query, best first.

    The first stage scores every candidate; QILCM, or a specialist, rescores the best of them as one list. The answer
    says which bundle, which stage and which ranker gave the order, and who chose that ranker.
    """
    assert isinstance(request, BoundedRequest)  # FastAPI would take a parameter of that type for a query
    state = request.app.state
    body = await request.json_body()
    asked = time.perf_counter()
    with listening(request.receive) as caller:
        deadline = Deadline(request.deadline.at, caller.done)
        job = partial(answered, body, models, request.state, state.settings, state.hook, deadline, asked)
        answer = await state.gate.run(job, deadline, caller)
    ranking, milliseconds = answer.ranking, answer.milliseconds
    state.telemetry.observe(ranking, milliseconds)
    request.state.facts.update(facts(ranking, answer.manifest, milliseconds))
    if not (ranking.late and answer.hurried):  # what a caller asks for says nothing of the service
        state.degraded.note(degraded=ranking.degraded)
    if ranking.degraded and state.settings.on_failure == "error":
        raise DegradedError(f"{ranking.reason} (LISTWRIGHT_ON_FAILURE is error)")
    server_timing = ", ".join(f"{step};dur={value:.3f}" for step, value in milliseconds.items())
    return Response(answer.content, media_type="application/json", headers={"Server-Timing": server_timing})


class Answered(NamedTuple):
    """What came of a request."""

    content: bytes
    ranking: Ranking
    manifest: Manifest
    milliseconds: dict[str, float]
    hurried: bool  # whether the request asked for less time than the settings give


def answered(
    body: bytes,
    models: Models,
    state: State,
    settings: Settings,
    hook: Hook | None,
    deadline: Deadline,
    asked: float,
) -> Answered:
    """In a worker thread: all that may take long, from decoding to encoding.

    Args:
        body: JSON.
        models: what is served, for as long as this takes.
        state: of the request; gets the fingerprint of the bundle that answers.
        settings, hook: of the service.
        deadline: of the request.
        asked: when it got into line.
    """
    began, arrived = time.perf_counter(), state.arrived
    request = to_request(decode(body, Bounds(settings.max_candidates, models.width)))
    bundle = models.choose(request.model, request.version)
    state.fingerprint, pace = bundle.manifest.fingerprint, bundle.reranker.pace
    candidates = to_candidates(request, bundle.reranker.schema)
    parsed = time.perf_counter()
    wanted = math.inf if request.timeout_ms is None else arrived + request.timeout_ms / 1000.0
    by = min(wanted, deadline.at) - pace.expected("answer", len(candidates))
    ranking = rank(candidates, request, bundle, settings, hook, Deadline(by, deadline.abandoned))
    ranked = time.perf_counter()
    milliseconds = {
        "parse": (parsed - began) * 1000.0,
        "queue": (began - asked) * 1000.0,
        **ranking.timings_ms,
        "total": (ranked - arrived) * 1000.0,
    }
    content = to_json(to_answer(ranking, request, bundle.manifest, candidates.ids, milliseconds))
    pace.note("answer", len(candidates), time.perf_counter() - ranked)
    return Answered(content, ranking, bundle.manifest, milliseconds, hurried=wanted < deadline.at)


def rank(
    candidates: CandidateList,
    body: RerankRequest,
    bundle: Bundle,
    settings: Settings,
    hook: Hook | None,
    deadline: Deadline,
) -> Ranking:
    """Looks for the kill switch only where somebody would be asked."""
    asked = bundle.manifest.srm is not None and body.specialist is None and body.strategy in ("auto", "srm")
    return bundle.reranker.rerank(
        candidates,
        strategy=body.strategy,
        specialist=body.specialist,
        hook=hook,
        routing=asked and settings.routing_off() is None,
        deadline=deadline,
    )


@routes.get(
    "/livez",
    operation_id="livez",
    summary="Does the process answer?",
    tags=["health"],
    response_model=Health,
    response_description="It does",
)
async def livez() -> Health:
    """200 as long as the process answers at all."""
    return Health(status="ok")


@routes.get(
    "/readyz",
    operation_id="readyz",
    summary="May traffic come?",
    tags=["health"],
    response_model=Health,
    response_description="It may",
    responses={503: DOCUMENTED[503]},
)
async def readyz(request: Request, models: Served) -> Health:
    """200 with bundles that are checked and warm; 503 before, while draining, and after a run of degraded answers.

    A bundle that is refused later on changes nothing here, as the one before serves on: see /info.
    """
    names = ", ".join(models.current)
    if request.app.state.draining.is_set():
        raise NotReadyError(f"draining: {names} takes no new traffic")
    if request.app.state.degraded.lasts:
        raise NotReadyError(f"the last {RUN} answers of {names} were degraded: see the log for reasons")
    return Health(status="ok")


@routes.get(
    "/info",
    operation_id="info",
    summary="What is served?",
    tags=["info"],
    response_model=Info,
    response_description="The bundle and the limits",
    responses={status: DOCUMENTED[status] for status in (404, 422, 503)},
)
async def info(
    request: Request,
    served: Served,
    model: Annotated[Name | None, Query(description="name or alias; by default the one that a request gets")] = None,
    version: Annotated[Name | None, Query(description="by default the current one")] = None,
) -> Info:
    """One served bundle: version, features, limits, strategies, specialists, routing, held-out metrics.

    `models` lists all that are served. Where several are, none of them the default, the first of them is described
    unless one is named.
    """
    state = request.app.state
    named = model if model is not None or served.default else next(iter(served.current))
    return describe(served.choose(named, version).manifest, served, state.settings, state.hook)


@routes.get(
    "/metrics",
    operation_id="metrics",
    summary="Prometheus metrics",
    tags=["info"],
    response_class=PlainTextResponse,
    response_description="Counters and histograms",
    responses={200: {"content": {"text/plain": {"example": EXPOSITION}}}},
)
async def metrics(request: Request) -> Response:
    """Counters and histograms of this worker process, in Prometheus' text format."""
    return Response(generate_latest(request.app.state.telemetry.registry), media_type=PROMETHEUS)
