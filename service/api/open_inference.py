"""The endpoints of the Open Inference Protocol.

They have the bundles, limits, errors and counts of ``POST /rerank``; only the format of a list differs.
"""

from __future__ import annotations

from importlib.metadata import version as version_of
from typing import Annotated, Any

from fastapi import APIRouter, Request, Response
from pydantic import WithJsonSchema

from listwright.service import paths
from listwright.service.api.rerank import HEADERS, RANKED
from listwright.service.api.routing import CheckedRoute, PlainRoute, service_of
from listwright.service.pipeline import answer
from listwright.service.problems import DOCUMENTED
from listwright.service.wire import examples
from listwright.service.wire import open_inference as inference
from listwright.service.wire.matrix_codecs import JSON_HEAD, OCTETS, TensorCodec
from listwright.service.wire.negotiation import media_type_of, unsupported
from listwright.service.wire.open_inference import (
    InferResponse,
    ModelMetadata,
    ModelReady,
    ServerHealth,
    ServerMetadata,
)
from listwright.service.wire.schemas import read_outer_options

_VERSION = version_of("listwright")

_TENSORS = frozenset((OCTETS, "application/json", "none"))  # tritonclient announces nothing
_HEAD_LENGTH = {
    "description": "bytes of the JSON object, if raw tensors follow it",
    "schema": {"type": "integer", "minimum": 1},
}
_RAW = {"schema": {"type": "string", "format": "binary", "description": "the JSON object, then raw tensors"}}


routes = APIRouter(route_class=CheckedRoute, tags=["inference"])
fast = APIRouter(route_class=PlainRoute, tags=["inference"])


INFER: dict[str, Any] = {
    "summary": "Rerank one query's candidates, as tensors",
    "description": "Reorder the candidates of one query: `features` (L, D) in schema order, and `ids` (L,) if the "
    "caller likes.\n\nCategorical columns hold codes, see the bundle's metadata; NaN is a missing value.",
    "response_model": InferResponse,
    "response_model_exclude_none": True,
    "response_description": "The ranking, its route and its timings",
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
async def infer(request: Request, name: str) -> Response:
    """Rank by the current version."""
    return await _infer(request, name, None)


@fast.post(paths.INFER[1], operation_id="infer_version", **INFER)
async def infer_version(request: Request, name: str, version: str) -> Response:
    """Rank by the version that is named."""
    return await _infer(request, name, version)


async def _infer(request: Request, name: str, version: str | None) -> Response:
    service, outer_options = service_of(request), read_outer_options(request, inference.InferEnvelope)
    models, most = service.current.require(), service.settings.max_candidates
    codec = TensorCodec(request.headers.get(JSON_HEAD), models, name, version, outer_options, most, request.state)
    if media_type_of(request) not in _TENSORS:
        raise unsupported(request, OCTETS)
    return await answer(request, service, codec)


Version = Annotated[str | None, WithJsonSchema({"type": "string"})]
"""Version in the path, where it has one."""

METADATA: dict[str, Any] = {
    "summary": "Tensors of a bundle",
    "response_model": ModelMetadata,
    "response_description": "Its tensors, and what its columns hold",
    "responses": {status: DOCUMENTED[status] for status in (404, 422, 503)},
}


@routes.get(paths.MODEL[0], operation_id="model_metadata", **METADATA)
@routes.get(paths.MODEL[1], operation_id="model_version_metadata", **METADATA)
async def model_metadata(request: Request, name: str, version: Version = None) -> ModelMetadata:
    """Describe the bundle's tensors, its columns in order, and the codes of the categorical ones."""
    return inference.describe(service_of(request).find_bundle(request, name, version))


MODEL_READY: dict[str, Any] = {
    "summary": "Readiness of a bundle",
    "response_model": ModelReady,
    "response_description": "Ready for traffic",
    "responses": {status: DOCUMENTED[status] for status in (404, 422, 503)},
}


@routes.get(paths.MODEL_READY[0], operation_id="model_ready", **MODEL_READY)
@routes.get(paths.MODEL_READY[1], operation_id="model_version_ready", **MODEL_READY)
async def model_ready(request: Request, name: str, version: Version = None) -> ModelReady:
    """200 like /readyz, for the bundle of this name."""
    bundle = service_of(request).find_bundle(request, name, version)
    service_of(request).readiness.check()
    return ModelReady(name=bundle.manifest.name, ready=True)


@routes.get(
    paths.INFERENCE_LIVE,
    operation_id="server_live",
    summary="Liveness",
    response_model=ServerHealth,
    response_description="The process answers",
)
async def server_live(request: Request) -> ServerHealth:
    """Report liveness, as /livez does."""
    return ServerHealth(live=True, ready=service_of(request).readiness.reason_unready is None)


@routes.get(
    paths.INFERENCE_READY,
    operation_id="server_ready",
    summary="Readiness",
    response_model=ServerHealth,
    response_description="Ready for traffic",
    responses={503: DOCUMENTED[503]},
)
async def server_ready(request: Request) -> ServerHealth:
    """Report readiness, as /readyz does."""
    service_of(request).readiness.check()
    return ServerHealth(live=True, ready=True)


@routes.get(
    paths.INFERENCE,
    operation_id="server_metadata",
    summary="Server metadata",
    response_model=ServerMetadata,
    response_description="Its name, version and extensions of the protocol",
    responses={422: DOCUMENTED[422]},
)
async def server_metadata() -> ServerMetadata:
    """Name, version and protocol extensions of the server."""
    return ServerMetadata(name="listwright", version=_VERSION, extensions=["binary_tensor_data"])
