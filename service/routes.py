"""The endpoints. No try/except: every error is one row of ``problems.STATUS``."""

from __future__ import annotations

import time
from typing import Annotated

from anyio import to_thread
from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import PlainTextResponse
from prometheus_client import generate_latest
from pydantic_core import to_json

from ranking.bundle import Bundle
from ranking.candidates import CandidateList, Ranking
from ranking.router import Hook
from service.answer import facts, to_answer
from service.body import BoundedRoute
from service.convert import to_candidates
from service.examples import REQUESTS
from service.info import Info, describe
from service.models import Models, serving
from service.problems import DOCUMENTED, NotReadyError
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

routes = APIRouter(route_class=BoundedRoute)


Served = Annotated[Models, Depends(serving)]


@routes.post(
    "/rerank",
    operation_id="rerank",
    summary="Rerank one query's candidates",
    tags=["rerank"],
    response_model=RerankResponse,
    response_description="The order, and how it came about",
    responses={200: {"headers": HEADERS}, **{s: DOCUMENTED[s] for s in (400, 404, 409, 413, 415, 422, 503)}},
    openapi_extra={"requestBody": {"content": {"application/json": {"examples": REQUESTS}}}},
)
@routes.post("/v1/rerank", include_in_schema=False)
@routes.post("/v2/rerank", include_in_schema=False)
async def rerank(body: RerankRequest, request: Request, models: Served) -> Response:
    """Reorder the candidates of one query, best first.

    The first stage scores every candidate; QILCM, or a specialist, rescores the best of them as one list. The answer
    says which bundle, which stage and which ranker gave the order, and who chose that ranker.
    """
    state, arrived = request.app.state, request.state.arrived
    bundle = models.choose(body.model, body.version)
    request.state.fingerprint = bundle.manifest.fingerprint
    candidates = to_candidates(body, bundle.reranker.schema)
    parse_s = time.perf_counter() - arrived
    ranking = await to_thread.run_sync(
        lambda: rank(candidates, body, bundle, state.settings, state.hook), limiter=state.limiter
    )
    total_s = time.perf_counter() - arrived
    state.telemetry.observe(ranking, parse_s, total_s)
    milliseconds = {"parse": parse_s * 1000.0, **ranking.timings_ms, "total": total_s * 1000.0}
    request.state.facts.update(facts(ranking, bundle.manifest, milliseconds))
    answer = to_answer(ranking, body, bundle.manifest, candidates.ids, milliseconds)
    server_timing = ", ".join(f"{step};dur={value:.3f}" for step, value in milliseconds.items())
    return Response(to_json(answer), media_type="application/json", headers={"Server-Timing": server_timing})


def rank(
    candidates: CandidateList, body: RerankRequest, bundle: Bundle, settings: Settings, hook: Hook | None
) -> Ranking:
    """In a worker thread: what may take long. Looks for the kill switch only where somebody would be asked."""
    asked = bundle.manifest.srm is not None and body.specialist is None and body.strategy in ("auto", "srm")
    return bundle.reranker.rerank(
        candidates,
        strategy=body.strategy,
        specialist=body.specialist,
        hook=hook,
        routing=asked and settings.routing_off() is None,
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
    """200 once all bundles are loaded, their golden lists reproduced, and they are warm; 503 before, and in draining.

    A bundle that is refused later on changes nothing here, as the one before serves on: see /info.
    """
    if request.app.state.draining.is_set():
        raise NotReadyError(f"draining: {', '.join(models.current)} takes no new traffic")
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
