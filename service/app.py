"""The application; its bundles are loaded and warm before the first request."""

from __future__ import annotations

import asyncio
import gc
import http
import json
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from copy import copy
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from anyio import to_thread
from fastapi import FastAPI, Request, Response
from fastapi.routing import APIRoute

from listwright.ranking.bundle import Bundle
from listwright.service import hook, paths, problems, readiness
from listwright.service.admission.gate import EarlyRefusal
from listwright.service.admission.throttle import RequestThrottle
from listwright.service.api import admin, events, explain, info, open_inference, rerank
from listwright.service.api.openapi import complete
from listwright.service.auth.middleware import KeyMiddleware, Keyring
from listwright.service.bundles import loading
from listwright.service.bundles.models import Models, models_of
from listwright.service.bundles.reload import count_models, hold_model_copies
from listwright.service.bundles.routing_switch import RoutingSwitch
from listwright.service.composition import Service, compose
from listwright.service.settings import ALL_MODELS, Settings
from listwright.service.telemetry.access_log import AccessLog
from listwright.service.telemetry.metrics import Telemetry
from listwright.service.telemetry.tracer import open_tracer
from listwright.service.transport.server import DrainingServer
from listwright.service.wire.schemas import check_query

if TYPE_CHECKING:
    from listwright.service.telemetry.otel import OtelTracer

HOOK_THREADS = 2
"""Threads of the hook for each request that is computed at a time: as many again may hang before any is refused."""

_DESCRIPTION = """Reranks the candidates of one query. A LightGBM first stage scores every candidate. A second stage
such as QILCM, or a specialist, then scores the best of them together, as one list. The caller, a hook or
the bundle's router picks the specialist. Errors are `application/problem+json` (RFC 9457)."""

_log = logging.getLogger("listwright.service")


@dataclass
class _First:
    """Initial models, released once served: a plain variable would keep them in memory after a reload."""

    models: Models | None


class Contract(FastAPI):
    """FastAPI application with a complete document and its service."""

    service: Service
    _text: bytes | None = None

    def setup(self) -> None:
        """Add FastAPI's own route, the document, which is made once."""
        self.add_route(paths.OPENAPI, self._document, include_in_schema=False)

    async def _document(self, request: Request) -> Response:
        check_query(request)
        if self._text is None:
            self._text = json.dumps(self.openapi()).encode()
        return Response(self._text, media_type="application/json")

    def openapi(self) -> dict[str, Any]:
        """Return the completed OpenAPI document (FastAPI's hook)."""
        if self.openapi_schema is None:
            self.openapi_schema = complete(super().openapi())
        return self.openapi_schema


def create_app(
    settings: Settings | None = None,
    *,
    models: Bundle | Models | None = None,
    on_swap: Callable[[Models], None] | None = None,
) -> Contract:
    """Create the ASGI application.

    Args:
        settings: Settings of the service; None: those of the ``LISTWRIGHT_*`` environment variables.
        models: Models that are loaded already; None: those that the settings name are loaded at start-up.
        on_swap: Function that is called with the served models after each change.
    """
    settings = settings or Settings()
    telemetry, tracer = Telemetry(), open_tracer()
    first = _First(models_of(models, settings.model_name) if isinstance(models, Bundle) else models)
    del models
    keyring, switch = Keyring(settings), RoutingSwitch(settings)
    service = compose(settings, telemetry, switch, on_swap)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            # closed in reverse order: experiments before the log, which they still write to
            for part in (tracer, service.served_log, service.experiments, service.events, service.explainer):
                if part is not None:
                    await stack.enter_async_context(_ending(part.close))
            if first.models is None:
                first.models = await to_thread.run_sync(loading.start, settings)
            if settings.hook is not None:
                called, threads = hook.load(settings.hook), HOOK_THREADS * max(1, settings.threads)
                operator_hook = hook.IsolatedHook(called, budget_s=settings.hook_budget_ms / 1000.0, threads=threads)
                await stack.enter_async_context(_ending(operator_hook.close))
                service.routing_policy.hook = operator_hook
            switch.start()
            await stack.enter_async_context(_ending(switch.stop))
            models, first.models = first.models, None
            service.current.models = models
            count_models(telemetry, models)
            hold_model_copies(models, settings)
            gc.freeze()  # else a full collection visits all that was imported: 100 ms in the middle of a request
            _log_models(models, settings)
            del models  # or this frame would keep it when it is served no more
            if service.experiments is not None:
                service.experiments.start()
            if service.rules is not None:
                service.rules.start()
                await stack.enter_async_context(_ending(service.rules.stop))
            if settings.models is not None:
                stack.callback(asyncio.create_task(service.reloader.run()).cancel)
            if settings.keys_file is not None:
                stack.callback(asyncio.create_task(keyring.watch()).cancel)
            yield

    app = Contract(
        title="Listwright",
        version=version("listwright"),
        summary="Listwise reranking",
        description=_DESCRIPTION,
        license_info={"name": "Apache License 2.0", "identifier": "Apache-2.0"},
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.service = service
    telemetry.watch(_gauges(service))
    _route(app, keyring, tracer)
    return app


@asynccontextmanager
async def _ending(close: Callable[[], None]) -> AsyncIterator[None]:
    """Call a function at the end, in a thread. A callback of the stack would lose errors that were raised before."""
    try:
        yield
    finally:
        await to_thread.run_sync(close)


def _route(app: Contract, keyring: Keyring, tracer: OtelTracer | None) -> None:
    """Give the application its paths, its error bodies and its middleware, the innermost first."""
    service, telemetry = app.service, app.service.telemetry
    ranking = (open_inference.fast, rerank.ranking)
    others = (readiness.routes, info.routes, open_inference.routes, admin.admin, events.routes, explain.routes)
    answers, keyless = [route for router in (*ranking, *others) for route in router.routes], frozenset[str]()
    if service.settings.ui:
        from listwright.service.ui.routes import routes as page_routes  # noqa: PLC0415 - nothing of it is loaded elsewhere

        page, keyless = page_routes()
        answers += page.routes
    if service.settings.grpc_port is not None:
        from listwright.service.grpc.routes import routes as grpc_routes  # noqa: PLC0415 - as above

        answers += grpc_routes.routes
    # HEAD where GET is answered (RFC 9110, section 9.1), by routes that the document does not name; the server leaves
    # out the body
    heads = [copy(route) for route in answers if isinstance(route, APIRoute) and "GET" in (route.methods or ())]
    for head in heads:
        head.methods, head.include_in_schema = {"HEAD"}, False
    answers += heads
    app.router.routes.extend(answers)  # not by include_router, behind which FastAPI matches each request three times
    problems.install(app)
    known = frozenset(getattr(route, "path", "") for route in answers)
    if keyring:
        keyless |= paths.HEALTH | paths.GRPC_HEALTH | (paths.INFORMATION if service.settings.open_info else frozenset())
        app.add_middleware(KeyMiddleware, keyring=keyring, open_paths=keyless, telemetry=telemetry)
    app.add_middleware(AccessLog, telemetry=telemetry, paths=known, tracer=tracer)
    throttle = RequestThrottle(keyring, service.admin_key)
    unthrottled = frozenset() if service.events is None else frozenset((paths.EVENTS,))  # bounded by what it writes
    app.add_middleware(
        EarlyRefusal, gate=service.gate, telemetry=telemetry, throttle=throttle.wait, unthrottled=unthrottled
    )


def server_of(app: Contract, started: Callable[[], None] | None = None) -> DrainingServer:
    """Return a server for the application; it sets ``draining`` when the shutdown begins.

    Args:
        app: Application that :func:`create_app` made.
        started: Function that is called in the event loop once requests are answered.
    """
    service = app.service

    def count(status: http.HTTPStatus) -> None:
        service.telemetry.requests.labels("other", str(status.value)).inc()

    grpc = None
    if service.settings.grpc_port is not None:
        from listwright.service.grpc.server import GrpcServer  # noqa: PLC0415 - an extra, see pyproject.toml

        grpc = GrpcServer(app, service.settings, lambda: service.gate.retry_after_s)
    return DrainingServer(
        app,
        service.settings,
        limit=service.connection_limit,
        draining=service.readiness.draining,
        refused=count,
        reload=service.reloader.wake,
        grpc=grpc,
        started=started,
    )


def _gauges(service: Service) -> dict[str, tuple[str, Callable[[], float]]]:
    bodies, connections, readiness = service.bodies, service.connection_limit, service.readiness
    return {
        "listwright_waiting_requests": ("Requests that wait for their turn", lambda: service.gate.waiting),
        "listwright_working_requests": ("Requests in work", lambda: service.gate.working),
        "listwright_buffered_bytes": ("Bytes of bodies held, arriving, waiting or in work", lambda: bodies.held),
        "listwright_open_connections": ("Connections that are open", lambda: connections.present),
        "listwright_ready_workers": (
            "Workers to which traffic may come",
            lambda: readiness.reason_unready is None,
        ),
        "listwright_workers": ("Workers that should be ready", lambda: service.settings.workers),
    }


def _log_models(models: Models, settings: Settings) -> None:
    for ready in models.current.values():
        _log.info("serving %s/%s from %s", ready.manifest.name, ready.manifest.version, ready.path)
    for name in settings.strategies.keys() - models.current.keys() - {ALL_MODELS}:
        _log.warning("LISTWRIGHT_STRATEGY names %r, which is not served", name)
