"""``POST /rerank``. No try/except: every error is one row of ``problems.STATUS``."""

from __future__ import annotations

from fastapi import APIRouter, Response

from listwright.service import paths
from listwright.service.admission.body import BoundedRequest
from listwright.service.api.pipeline import answer
from listwright.service.api.service import PlainRoute, service_of, serving
from listwright.service.problems import DOCUMENTED
from listwright.service.wire import npy
from listwright.service.wire.examples import REQUESTS
from listwright.service.wire.json_codec import JsonCodec
from listwright.service.wire.schemas import RerankResponse

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


@ranking.post(
    paths.RERANK,
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
@ranking.post(paths.RERANK_ALIASES[0], include_in_schema=False)
@ranking.post(paths.RERANK_ALIASES[1], include_in_schema=False)
async def rerank(request: BoundedRequest) -> Response:
    """Reorder the candidates of one query, best first.

    The first stage scores every candidate; QILCM, or a specialist, rescores the best of them as one list. The answer
    says which bundle, which stage and which ranker gave the order, and who chose that ranker.
    """
    models, service = serving(request), service_of(request)
    bounds, limit = service.json_bounds.of(models)
    body = await request.json_body(limit)
    return await answer(request, JsonCodec(body, bounds, models, service.settings, request.state))
