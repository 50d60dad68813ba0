"""The methods of the Open Inference Protocol over gRPC and of gRPC's health service, as endpoints.

They have the bundles, limits, errors and counts of :mod:`listwright.service.api.open_inference`; the message of a call
is the body of a request, see :mod:`listwright.service.grpc.server`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

from fastapi import APIRouter, Request, Response
from starlette.responses import StreamingResponse
from starlette.routing import Match
from starlette.types import Scope

from listwright.ranking.bundle import Bundle
from listwright.service import paths
from listwright.service.api.open_inference import server_metadata
from listwright.service.api.routing import PlainRoute, service_of
from listwright.service.errors import UndecodableBodyError, UnknownModelError
from listwright.service.grpc.codec import MEDIA_TYPE, MESSAGES, InferCodec, decode
from listwright.service.pipeline import answer
from listwright.service.readiness import Readiness
from listwright.service.wire import open_inference as inference
from listwright.service.wire.schemas import read_outer_options


class GrpcRoute(PlainRoute):
    """A route of calls. A request over HTTP, which is of version 1 here, finds nothing at its path."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Return whether the route answers a request (Starlette's hook)."""
        return super().matches(scope) if scope["http_version"] == "2" else (Match.NONE, {})


routes = APIRouter(route_class=GrpcRoute)


def _respond(message: str, /, **fields: Any) -> Response:
    return Response(MESSAGES[message](**fields).SerializeToString(), media_type=MEDIA_TYPE)


@routes.post(paths.GRPC_INFER, include_in_schema=False)
async def infer(request: Request) -> Response:
    """Rank by the version that is named, or the current one."""
    service = service_of(request)
    models = service.current.require()
    bounds, _ = service.json_bounds.of(models)
    outer_options, most = read_outer_options(request, inference.InferEnvelope), service.settings.max_candidates
    codec = InferCodec(bounds, models, most, outer_options, request.state.left_ms, request.state)
    return await answer(request, service, codec)


async def _read(request: Request, message: str) -> Any:
    """Return the message of a call."""
    content = await request.state.read_message()
    if content is None:
        raise UndecodableBodyError("the call has no message")
    return decode(message, content)


async def _find_bundle(request: Request) -> Bundle:
    """Return the bundle that a call names."""
    asked_for = await _read(request, "ModelReadyRequest")
    return service_of(request).find_bundle(request, asked_for.name or None, asked_for.version or None)


@routes.post(paths.GRPC_MODEL, include_in_schema=False)
async def model_metadata(request: Request) -> Response:
    """Describe the bundle's tensors."""
    described = inference.describe(await _find_bundle(request))
    fields = ("name", "versions", "platform", "inputs", "outputs")
    return _respond("ModelMetadataResponse", **described.model_dump(include=set(fields)))


@routes.post(paths.GRPC_MODEL_READY, include_in_schema=False)
async def model_ready(request: Request) -> Response:
    """Report readiness, as /readyz does, for the bundle of this name."""
    await _find_bundle(request)
    return _respond("ModelReadyResponse", ready=service_of(request).readiness.reason_unready is None)


@routes.post(paths.GRPC_LIVE, include_in_schema=False)
async def server_live(request: Request) -> Response:  # noqa: ARG001 - as every endpoint is called
    """Report liveness, as /livez does."""
    return _respond("ServerLiveResponse", live=True)


@routes.post(paths.GRPC_READY, include_in_schema=False)
async def server_ready(request: Request) -> Response:
    """Report readiness, as /readyz does."""
    return _respond("ServerReadyResponse", ready=service_of(request).readiness.reason_unready is None)


@routes.post(paths.GRPC_METADATA, include_in_schema=False)
async def metadata(request: Request) -> Response:  # noqa: ARG001
    """Name and version of the server."""
    described = await server_metadata()
    return _respond("ServerMetadataResponse", name=described.name, version=described.version)


SERVING, NOT_SERVING, SERVICE_UNKNOWN = 1, 2, 3
SERVICES = ("", paths.GRPC_SERVICE)
"""Names that the health service knows; the first is the server."""

WATCH_S = 0.5  # between two looks at the state


def _state_of(readiness: Readiness, name: str) -> int:
    if name not in SERVICES:
        return SERVICE_UNKNOWN
    return SERVING if readiness.reason_unready is None else NOT_SERVING


@routes.post(paths.GRPC_CHECK, include_in_schema=False)
async def check(request: Request) -> Response:
    """Report readiness, as /readyz does."""
    name = (await _read(request, "HealthCheckRequest")).service
    if (state := _state_of(service_of(request).readiness, name)) == SERVICE_UNKNOWN:
        raise UnknownModelError(f"there is no service {name!r}: ask for {paths.GRPC_SERVICE!r}, or for none")
    return _respond("HealthCheckResponse", status=state)


@routes.post(paths.GRPC_LIST, include_in_schema=False)
async def list_states(request: Request) -> Response:
    """Report readiness, for each name."""
    states = [{"key": name, "value": {"status": _state_of(service_of(request).readiness, name)}} for name in SERVICES]
    return _respond("HealthListResponse", statuses=states)


@routes.post(paths.GRPC_WATCH, include_in_schema=False)
async def watch(request: Request) -> Response:
    """Report readiness now and at each change, until the server stops."""
    name = (await _read(request, "HealthCheckRequest")).service

    async def changes() -> AsyncIterator[bytes]:
        last, ended = 0, False
        while not ended:
            ended = request.state.stopping.is_set()
            if (state := _state_of(service_of(request).readiness, name)) != last:
                yield MESSAGES["HealthCheckResponse"](status=state).SerializeToString()
            last = state
            with suppress(TimeoutError):
                await asyncio.wait_for(request.state.stopping.wait(), WATCH_S)

    return StreamingResponse(changes(), media_type=MEDIA_TYPE)
