"""``POST /rerank``. No try/except: every error is one row of ``problems.STATUS``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Request, Response

from listwright.service import paths
from listwright.service.api.accept import prefers
from listwright.service.api.pipeline import answer
from listwright.service.api.service import PlainRoute, Service, Serving
from listwright.service.errors import UnsupportedMediaTypeError
from listwright.service.problems import DOCUMENTED
from listwright.service.wire import npy
from listwright.service.wire.examples import REQUESTS
from listwright.service.wire.json_codec import JsonCodec
from listwright.service.wire.matrix_codecs import NpyCodec
from listwright.service.wire.schemas import Envelope, RerankResponse
from listwright.service.wire.validation import words_beside

HEADERS = {
    "X-Request-ID": {
        "description": "the caller's own, if it is printable ASCII of at most 128 characters; else a new one",
        "schema": {"type": "string"},
    },
    "Server-Timing": {"description": "milliseconds by step", "schema": {"type": "string"}},
    "traceparent": {"description": "the caller's own, if it sent a valid one", "schema": {"type": "string"}},
}

BODY = {"schema": {"$ref": "#/components/schemas/RerankRequest"}, "examples": REQUESTS}
"""FastAPI does not get the type: it would decode and validate on the event loop."""

MATRIX = {
    "schema": {
        "type": "string",
        "format": "binary",
        "description": "a .npy file: float32 or float64, little-endian, C order, shape (L, D), columns as in the "
        "schema, NaN where a value is missing, categories by code (see /v2/models/{name}). The other fields of the "
        "JSON form stand in the query string",
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
"""Refusals of all endpoints that rank."""

JSON = re.compile(r"application/([^/]+\+)?json")
"""Media types of JSON bodies."""

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
async def rerank(request: Request, service: Serving) -> Response:
    """Reorder the candidates of one query, best first.

    The first stage scores every candidate; QILCM, or a specialist, rescores the best of them as one list. The answer
    says which bundle, which stage and which ranker gave the order, and who chose that ranker.
    """
    media_type = media_type_of(request)
    words = words_beside(request, Envelope)
    if media_type == npy.MEDIA_TYPE:
        return await answer(request, service, _npy_codec(request, service, words))
    models = service.serving()
    if not JSON.fullmatch(media_type):
        raise UnsupportedMediaTypeError(
            f"the body is announced as {media_type!r}: send application/json, or {npy.MEDIA_TYPE}"
        )
    codec = JsonCodec(service.json_bounds, models, service.settings, request.state, words)
    return await answer(request, service, codec)


def _npy_codec(request: Request, service: Service, words: Mapping[str, Any]) -> NpyCodec:
    """Of a matrix, whose words all stand beside it."""
    options = Envelope(**words)
    bundle = service.addressed(request, options.model, options.version)
    wants_npy = prefers(request.headers.getlist("accept"), npy.MEDIA_TYPE, "application/json")
    return NpyCodec(options, bundle, service.settings.max_candidates, wants_npy=wants_npy)


def media_type_of(request: Request) -> str:
    """What the body is announced as, without parameters; ``none`` if it is not."""
    return request.headers.get("content-type", "none").partition(";")[0].strip().lower()
