"""The endpoints that take matrices: the Open Inference Protocol, and ``application/x-npy`` at ``POST /rerank``.

The same bundles, limits, errors and counts as in :mod:`listwright.service.api.rerank`; only the spelling of a list
differs.
"""

from __future__ import annotations

from importlib.metadata import version as version_of
from typing import Any

from fastapi import APIRouter, Request, Response
from starlette.routing import Match
from starlette.types import Scope

from listwright.ranking.bundle import Bundle
from listwright.service import paths
from listwright.service.admission.body import BoundedRequest, media_type_of
from listwright.service.api.accept import prefers
from listwright.service.api.health import readyz
from listwright.service.api.pipeline import answer
from listwright.service.api.rerank import HEADERS, RANKED
from listwright.service.api.service import PlainRoute, service_of, serving
from listwright.service.errors import UnsupportedMediaTypeError
from listwright.service.problems import DOCUMENTED
from listwright.service.wire import examples, npy
from listwright.service.wire import open_inference as tensors
from listwright.service.wire import open_inference_schemas as inference
from listwright.service.wire.matrix_codecs import JSON_HEAD, NOTHING_SAID, OCTETS, NpyCodec, TensorCodec
from listwright.service.wire.open_inference_schemas import (
    InferResponse,
    ModelMetadata,
    ModelReady,
    ServerHealth,
    ServerMetadata,
)
from listwright.service.wire.schemas import Envelope
from listwright.service.wire.validation import validated_query

_VERSION = version_of("listwright")

_TENSORS = frozenset((OCTETS, "application/json", "none"))  # tritonclient announces nothing
_HEAD_LENGTH = {
    "description": "bytes of the JSON object, if raw tensors follow it",
    "schema": {"type": "integer", "minimum": 1},
}
_RAW = {"schema": {"type": "string", "format": "binary", "description": "the JSON object, then raw tensors"}}


class NpyRoute(PlainRoute):
    """A route only for bodies that are announced as ``.npy``."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Starlette's hook."""
        match, found = super().matches(scope)
        if match is not Match.NONE and media_type_of(Request(scope)) != npy.MEDIA_TYPE:
            return Match.NONE, {}
        return match, found


routes = APIRouter(tags=["inference"])
fast = APIRouter(route_class=PlainRoute, tags=["inference"])
npy_routes = APIRouter(route_class=NpyRoute, include_in_schema=False)  # documented with the JSON form
FAST = (npy_routes, fast)
"""Before the others: the first route that matches answers."""


def addressed(request: Request, model: str | None, version: str | None) -> Bundle:
    """The bundle that a caller names, or the default.

    Raises:
        NotReadyError: if there is none yet.
        UnknownModelError: if it is not served.
    """
    bundle = serving(request).choose(model, version)
    request.state.fingerprint = bundle.manifest.fingerprint
    return bundle


@npy_routes.post(paths.RERANK)
@npy_routes.post(paths.RERANK_ALIASES[0])
@npy_routes.post(paths.RERANK_ALIASES[1])
async def rerank_npy(request: BoundedRequest) -> Response:
    """Reorder the candidates of one query, sent as a matrix; options stand in the query string."""
    options = validated_query(Envelope, request.query_params) if request.scope["query_string"] else NOTHING_SAID
    bundle = addressed(request, options.model, options.version)
    wants_npy = prefers(request.headers.getlist("accept"), npy.MEDIA_TYPE, "application/json")
    limit, schema = service_of(request).settings.max_candidates, bundle.reranker.schema
    body = await request.plain(npy.body_limit(limit, len(schema)))
    return await answer(request, NpyCodec(body, options, bundle, limit, wants_npy=wants_npy))


INFER: dict[str, Any] = {
    "summary": "Rerank one query's candidates, as tensors",
    "description": "Reorder the candidates of one query: `features` (L, D) in schema order, and `ids` (L,) if the "
    "caller likes.\n\nCategorical columns hold codes, see the bundle's metadata; NaN is a missing value.",
    "response_model": InferResponse,
    "response_model_exclude_none": True,
    "response_description": "The order, and how it came about",
    "responses": {
        200: {"headers": {**HEADERS, JSON_HEAD: _HEAD_LENGTH}, "content": {OCTETS: _RAW}},
        **{status: DOCUMENTED[status] for status in RANKED},
    },
    "openapi_extra": {
        "parameters": [{"name": JSON_HEAD, "in": "header", "required": False, **_HEAD_LENGTH}],
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {
                    "schema": {"$ref": "#/components/schemas/InferRequest"},
                    "examples": examples.INFERENCES,
                },
                OCTETS: _RAW,
            },
        },
    },
}


@fast.post(paths.INFER[0], operation_id="infer", **INFER)
async def infer(request: BoundedRequest, name: str) -> Response:
    """Of the current version."""
    return await _infer(request, addressed(request, name, None))


@fast.post(paths.INFER[1], operation_id="infer_version", **INFER)
async def infer_version(request: BoundedRequest, name: str, version: str) -> Response:
    """Of the version that is named."""
    return await _infer(request, addressed(request, name, version))


async def _infer(request: BoundedRequest, bundle: Bundle) -> Response:
    if media_type_of(request) not in _TENSORS:
        raise UnsupportedMediaTypeError(f"the body is announced as {media_type_of(request)!r}: send {OCTETS}")
    limit, schema = service_of(request).settings.max_candidates, bundle.reranker.schema
    body = await request.plain(tensors.body_limit(limit, len(schema), schema.spelling))
    return await answer(request, TensorCodec(body, request.headers.get(JSON_HEAD), bundle, limit))


METADATA: dict[str, Any] = {
    "summary": "Which tensors does a bundle take and give?",
    "response_model": ModelMetadata,
    "response_description": "Its tensors, and what its columns hold",
    "responses": {status: DOCUMENTED[status] for status in (404, 503)},
}


@routes.get(paths.MODEL[0], operation_id="model_metadata", **METADATA)
@routes.get(paths.MODEL[1], operation_id="model_version_metadata", **METADATA)
async def model_metadata(request: Request, name: str, version: str | None = None) -> ModelMetadata:
    """The bundle's tensors, its columns in order, and the codes of the categorical ones."""
    return inference.describe(addressed(request, name, version).manifest)


MODEL_READY: dict[str, Any] = {
    "summary": "May traffic for a bundle come?",
    "response_model": ModelReady,
    "response_description": "It may",
    "responses": {status: DOCUMENTED[status] for status in (404, 503)},
}


@routes.get(paths.MODEL_READY[0], operation_id="model_ready", **MODEL_READY)
@routes.get(paths.MODEL_READY[1], operation_id="model_version_ready", **MODEL_READY)
async def model_ready(request: Request, name: str, version: str | None = None) -> ModelReady:
    """200 like /readyz, for the bundle of this name."""
    bundle = addressed(request, name, version)
    await readyz(request)
    return ModelReady(name=bundle.manifest.name, ready=True)


@routes.get(
    paths.INFERENCE_LIVE,
    operation_id="server_live",
    summary="Does the process answer?",
    response_model=ServerHealth,
    response_description="It does",
)
async def server_live() -> ServerHealth:
    """/livez, by the protocol's word for it."""
    return ServerHealth(live=True)


@routes.get(
    paths.INFERENCE_READY,
    operation_id="server_ready",
    summary="May traffic come?",
    response_model=ServerHealth,
    response_description="It may",
    responses={503: DOCUMENTED[503]},
)
async def server_ready(request: Request) -> ServerHealth:
    """/readyz, by the protocol's word for it."""
    await readyz(request)
    return ServerHealth(live=True)


@routes.get(
    paths.INFERENCE,
    operation_id="server_metadata",
    summary="What server is this?",
    response_model=ServerMetadata,
    response_description="Its name, version and extensions of the protocol",
)
async def server_metadata() -> ServerMetadata:
    """The server, by the protocol's words."""
    return ServerMetadata(name="listwright", version=_VERSION, extensions=["binary_tensor_data"])
