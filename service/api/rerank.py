"""``POST /rerank``, and which form of answer its caller accepts. Every error is one row of ``problems.STATUS``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from fastapi import APIRouter, Request, Response

from listwright.service import paths
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


_RANGE = re.compile(r"\s*(?P<range>[^\s;/]+/[^\s;/]+)\s*(?:;(?P<parameters>.*))?", re.DOTALL)
_QUALITY = re.compile(r"(?:^|;)\s*q\s*=\s*(?P<q>[^;]*)", re.IGNORECASE)
_VALUE = re.compile(r"0(?:\.\d{0,3})?|1(?:\.0{0,3})?")


class _Preference(NamedTuple):
    """How much a caller wants a media type; the larger wins.

    Args:
        quality: q, from 0 (never) to 1.
        specific: 2 if it is named, 1 for ``type/*``, 0 for ``*/*`` or no ``Accept`` at all.
    """

    quality: float
    specific: int


def prefers(accept: Iterable[str], media_type: str, default: str) -> bool:
    """Whether the answer should have a media type and not the default one.

    Args:
        accept: lines of the header.
        media_type, default: the two that can be had.

    Convention: between two that are equally wanted, the one that is named wins, and the first of two that are. Where
    neither is wanted, the answer has the default one: the header may be disregarded.
    """
    ranges = dict(_ranges(accept))
    wanted, otherwise = _preference(ranges, media_type), _preference(ranges, default)
    return wanted.quality > 0.0 and (wanted > otherwise or (wanted == otherwise and wanted.specific == 2))


def _preference(ranges: Mapping[str, float], media_type: str) -> _Preference:
    """What the most specific range that matches says; without any range, everything is accepted."""
    if not ranges:
        return _Preference(1.0, 0)
    for specific, name in ((2, media_type), (1, media_type.partition("/")[0] + "/*"), (0, "*/*")):
        if name in ranges:
            return _Preference(ranges[name], specific)
    return _Preference(0.0, 0)


def _ranges(accept: Iterable[str]) -> Iterator[tuple[str, float]]:
    """Ranges with their q; one that is malformed says nothing. No type that we know has parameters in quotes."""
    for line in accept:
        for element in line.split(","):
            found = _RANGE.fullmatch(element)
            quality = _QUALITY.search(found["parameters"] or "") if found else None
            value = quality["q"].strip() if quality else "1"
            if found and _VALUE.fullmatch(value):
                yield found["range"].lower(), float(value)
