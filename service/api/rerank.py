"""``POST /rerank``."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from listwright.service import paths
from listwright.service.api.routing import PlainRoute
from listwright.service.composition import Service
from listwright.service.pipeline import answer
from listwright.service.problems import DOCUMENTED
from listwright.service.wire import npy
from listwright.service.wire.examples import REQUESTS
from listwright.service.wire.json_codec import JsonCodec
from listwright.service.wire.matrix_codecs import NpyCodec
from listwright.service.wire.negotiation import JSON, media_type_of, prefers, unsupported
from listwright.service.wire.schemas import Envelope, RerankResponse, read_outer_options

HEADERS = {
    "X-Request-ID": {
        "description": "the caller's own, if it is printable ASCII of at most 128 characters; else a new one",
        "schema": {"type": "string"},
    },
    "Server-Timing": {"description": "milliseconds by step", "schema": {"type": "string"}},
    "traceparent": {"description": "the caller's own, if it sent a valid one", "schema": {"type": "string"}},
}

BODY = {"schema": {"$ref": "#/components/schemas/RerankRequest"}, "examples": REQUESTS}
"""Documentation of the JSON body. FastAPI does not get its type: it would validate it on the event loop."""

MATRIX = {
    "schema": {
        "type": "string",
        "format": "binary",
        "description": "a .npy file: float32, float64 or float16, little-endian, C order, shape (L, D), columns as in "
        "the schema, NaN where a value is missing, categories by code (see /v2/models/{name}). The other fields of the "
        "JSON form stand in the query string",
    }
}

SCORES = {
    "schema": {
        "type": "string",
        "format": "binary",
        "description": "a .npy file of the scores, float32, shape (L,), or (L, 2) with probabilities; for a .npy "
        "request that accepts it. Model, version, status and route stand in Listwright-* headers",
    }
}

RANKED = (400, 404, 408, 409, 413, 415, 422, 429, 503, 504)
"""Refusals of all endpoints that rank."""

ranking = APIRouter(route_class=PlainRoute)


@ranking.post(
    paths.RERANK,
    operation_id="rerank",
    summary="Rerank one query's candidates",
    tags=["rerank"],
    response_model=RerankResponse,
    response_description="The ranking, its route and its timings",
    responses={
        200: {"headers": HEADERS, "content": {npy.MEDIA_TYPE: SCORES}},
        **{status: DOCUMENTED[status] for status in RANKED},
    },
    openapi_extra={"requestBody": {"content": {"application/json": BODY, npy.MEDIA_TYPE: MATRIX}, "required": True}},
)
@ranking.post(paths.RERANK_ALIASES[0], include_in_schema=False)
@ranking.post(paths.RERANK_ALIASES[1], include_in_schema=False)
async def rerank(request: Request) -> Response:
    """Reorder the candidates of one query, best first.

    The first stage scores every candidate; QILCM, or a specialist, rescores the best of them as one list. The answer
    says which bundle, which stage and which ranker gave the order, and who chose that ranker.
    """
    service: Service = request.app.service
    outer_options, models = read_outer_options(request, Envelope), service.current.require()
    if JSON.fullmatch(request.headers.get("content-type", "")):
        codec = JsonCodec(service.json_bounds, models, service.settings, request.state, outer_options)
        return await answer(request, service, codec)
    if media_type_of(request) != npy.MEDIA_TYPE:
        raise unsupported(request, f"application/json, or {npy.MEDIA_TYPE}")
    options = Envelope(**outer_options)  # all of them stand in the query string and headers
    bundle = service.find_bundle(request, options.model, options.version)
    wants_npy = prefers(request.headers.getlist("accept"), npy.MEDIA_TYPE, "application/json")
    npy_codec = NpyCodec(options, bundle, service.settings.max_candidates, wants_npy=wants_npy)
    return await answer(request, service, npy_codec)
