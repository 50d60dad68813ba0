"""The endpoints. No try/except: every error is one row of ``problems.STATUS``."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Annotated

from anyio import to_thread
from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import PlainTextResponse
from prometheus_client import generate_latest
from pydantic_core import to_json

from ranking.bundle import Bundle
from ranking.candidates import CandidateList, Ranking
from ranking.router import Hook
from service import npy
from service.answer import facts, to_answer
from service.body import BoundedRoute
from service.convert import to_candidates
from service.examples import REQUESTS
from service.info import Info, describe
from service.problems import DOCUMENTED, NotReadyError, UnknownModelError
from service.schemas import Health, Options, RerankRequest, RerankResponse
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

MATRIX = {
    "schema": {
        "type": "string",
        "format": "binary",
        "description": "a .npy file: float32 or float64, little-endian, C order, shape (L, D), columns as in the "
        "schema, NaN where a value is missing, categories by code (see /v2/models/{name}). The other fields of the "
        "JSON form (id, model, version, strategy, specialist, raw_scores, top_n) stand in the query string",
    }
}

SCORES = {
    "schema": {
        "type": "string",
        "format": "binary",
        "description": "a .npy file of the scores, float32, shape (L,), NaN below the cutoff; for a .npy request that "
        "accepts it. Model, version, status and route stand in Listwright-* headers",
    }
}

routes = APIRouter(route_class=BoundedRoute)


def served(request: Request) -> Bundle:
    """The bundle that answers.

    Raises:
        NotReadyError: if there is none yet.
    """
    bundle: Bundle | None = request.app.state.bundle
    if bundle is None:
        raise NotReadyError("no bundle is loaded yet: ask /readyz until it says 200")
    return bundle


Served = Annotated[Bundle, Depends(served)]


@routes.post(
    "/rerank",
    operation_id="rerank",
    summary="Rerank one query's candidates",
    tags=["rerank"],
    response_model=RerankResponse,
    response_description="The order, and how it came about",
    responses={
        200: {"headers": HEADERS, "content": {npy.MEDIA_TYPE: SCORES}},
        **{s: DOCUMENTED[s] for s in (400, 404, 409, 413, 415, 422, 503)},
    },
    openapi_extra={"requestBody": {"content": {"application/json": {"examples": REQUESTS}, npy.MEDIA_TYPE: MATRIX}}},
)
@routes.post("/v1/rerank", include_in_schema=False)
@routes.post("/v2/rerank", include_in_schema=False)
async def rerank(body: RerankRequest, request: Request, bundle: Served) -> Response:
    """Reorder the candidates of one query, best first.

    The first stage scores every candidate; QILCM, or a specialist, rescores the best of them as one list. The answer
    says which bundle, which stage and which ranker gave the order, and who chose that ranker.
    """
    check_addressed(body.model, body.version, bundle)
    candidates = to_candidates(body, bundle.reranker.schema)
    ranking, milliseconds = await ranked(request, candidates, body, bundle)
    answer = to_answer(ranking, body, bundle.manifest, candidates.ids, milliseconds)
    return Response(to_json(answer), media_type="application/json", headers=timed(milliseconds))


async def ranked(
    request: Request, candidates: CandidateList, options: Options, bundle: Bundle
) -> tuple[Ranking, dict[str, float]]:
    """Rank in a worker thread, and count, time and log it: what every door has in common.

    Returns:
        The ranking, and milliseconds by step since the body had arrived.
    """
    state, arrived = request.app.state, request.state.arrived
    parse_s = time.perf_counter() - arrived
    ranking = await to_thread.run_sync(
        lambda: rank(candidates, options, bundle, state.settings, state.hook), limiter=state.limiter
    )
    total_s = time.perf_counter() - arrived
    state.telemetry.observe(ranking, parse_s, total_s)
    milliseconds = {"parse": parse_s * 1000.0, **ranking.timings_ms, "total": total_s * 1000.0}
    request.state.facts.update(facts(ranking, bundle.manifest, milliseconds))
    return ranking, milliseconds


def timed(milliseconds: Mapping[str, float]) -> dict[str, str]:
    """The header that says how long each step took."""
    return {"Server-Timing": ", ".join(f"{step};dur={value:.3f}" for step, value in milliseconds.items())}


def rank(candidates: CandidateList, options: Options, bundle: Bundle, settings: Settings, hook: Hook | None) -> Ranking:
    """In a worker thread: what may take long. Looks for the kill switch only where somebody would be asked."""
    asked = bundle.manifest.srm is not None and options.specialist is None and options.strategy in ("auto", "srm")
    return bundle.reranker.rerank(
        candidates,
        strategy=options.strategy,
        specialist=options.specialist,
        hook=hook,
        routing=asked and settings.routing_off() is None,
    )


def check_addressed(model: str | None, version: str | None, bundle: Bundle) -> None:
    """Raise UnknownModelError if the caller wants another bundle than the served one."""
    manifest = bundle.manifest
    for what, wanted, here in (("model", model, manifest.name), ("version", version, manifest.version)):
        if wanted is not None and wanted != here:
            raise UnknownModelError(f"{what} {wanted!r} is not served here, {here!r} is")


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
async def readyz(request: Request, bundle: Served) -> Health:
    """200 once a bundle is loaded, its golden lists are reproduced and it is warm; 503 before, and while draining."""
    if request.app.state.draining.is_set():
        raise NotReadyError(f"draining: {bundle.manifest.name} takes no new traffic")
    return Health(status="ok")


@routes.get(
    "/info",
    operation_id="info",
    summary="What is served?",
    tags=["info"],
    response_model=Info,
    response_description="The bundle and the limits",
    responses={503: DOCUMENTED[503]},
)
async def info(request: Request, bundle: Served) -> Info:
    """The served bundle: version, features, limits, strategies, specialists, routing, held-out metrics."""
    state = request.app.state
    return describe(bundle.manifest, state.settings, state.hook)


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
