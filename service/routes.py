"""The endpoints. No try/except: every error is one row of ``problems.STATUS``."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import PlainTextResponse

from service import npy
from service.answering import answer
from service.body import BoundedRequest, PlainRoute
from service.degradation import RUN
from service.examples import REQUESTS
from service.info import Info, describe
from service.json_door import JsonDoor
from service.models import Models, serving
from service.problems import DOCUMENTED, NotReadyError
from service.schemas import Health, Name, RerankResponse

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

RANKED = (400, 404, 408, 409, 413, 415, 422, 429, 503, 504)
"""Refusals of whatever ranks."""

ranking = APIRouter(route_class=PlainRoute)
routes = APIRouter()

Served = Annotated[Models, Depends(serving)]


@ranking.post(
    "/rerank",
    operation_id="rerank",
    summary="Rerank one query's candidates",
    tags=["rerank"],
    response_model=RerankResponse,
    response_description="The order, and how it came about",
    responses={
        200: {"headers": HEADERS, "content": {npy.MEDIA_TYPE: SCORES}},
        **{status: DOCUMENTED[status] for status in RANKED},
    },
    openapi_extra={"requestBody": {"content": {"application/json": BODY, npy.MEDIA_TYPE: MATRIX}, "required": True}},
)
@ranking.post("/v1/rerank", include_in_schema=False)
@ranking.post("/v2/rerank", include_in_schema=False)
async def rerank(request: BoundedRequest) -> Response:
    """Reorder the candidates of one query, best first.

    The first stage scores every candidate; QILCM, or a specialist, rescores the best of them as one list. The answer
    says which bundle, which stage and which ranker gave the order, and who chose that ranker.
    """
    models, state = serving(request), request.app.state
    bounds, limit = state.json_bounds.of(models)
    body = await request.json_body(limit)
    return await answer(request, JsonDoor(body, bounds, models, state.settings, request.state))


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
    if reason := unready(request.app.state, models):
        raise NotReadyError(reason)
    return Health(status="ok")


def unready(state: Any, models: Models | None) -> str | None:
    """Why no traffic may come to what is served; None if it may."""
    if models is None:
        return "no bundle is loaded yet"
    names = ", ".join(models.current)
    if state.draining.is_set():
        return f"draining: {names} takes no new traffic"
    if state.degraded.lasts:
        return f"the last {RUN} answers of {names} were degraded: see the log for reasons"
    return None


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
    return describe(served.choose(named, version), served, state.settings, state.deciders)


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
    """Counters and histograms of the service, the sum over its worker processes, in Prometheus' text format."""
    state = request.app.state
    return Response(await state.scraped.text(state.scrape), media_type=PROMETHEUS)
