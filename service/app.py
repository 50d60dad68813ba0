"""The application: its bundles are loaded and warm before the first request."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from anyio import to_thread
from fastapi import FastAPI, Request, Response
from fastapi.encoders import jsonable_encoder
from fastapi.openapi.models import OpenAPI
from starlette.types import Receive, Scope, Send

from ranking.bundle import Bundle
from ranking.errors import AbandonedError
from service import binary_routes, examples, guard, hook, loading, problems
from service.admin import admin
from service.admission import Gate
from service.connection_limit import ConnectionLimit
from service.degradation import DegradedRun
from service.ignored import IgnoredFeatures
from service.inference import InferRequest
from service.json_door import JsonBounds
from service.keys import Key, digest_of
from service.models import Models, only
from service.pacing import Pacing, Scraped
from service.problems import OverloadedError
from service.reload import Watch, tell
from service.routes import ranking, routes, unready
from service.routing_switch import Deciders, RoutingSwitch
from service.schemas import RerankRequest
from service.settings import EVERY, Settings
from service.shedding import Shedding
from service.telemetry import Observed, Telemetry
from service.tracing import open_tracer

HOOK_THREADS = 2
"""Threads of the hook for each request that is computed at a time: as many again may hang before any is refused."""

_DESCRIPTION = """Reranks one query's candidates as a whole: a LightGBM first stage scores each alone, QILCM
rescores the best of them as one list, or a specialist does, picked by the caller, a hook or the bundle's router.
Errors are `application/problem+json` (RFC 9457)."""

_log = logging.getLogger("listwright.service")


@dataclass
class _First:
    """What is served first, until it is: a variable of its own would keep it in memory when it is served no more."""

    models: Models | None


class Contract(FastAPI):
    """FastAPI, with some things said in its document that it has no words for."""

    shedding: Shedding
    pacing: Pacing
    _text: bytes | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI; what there is no room for goes no further."""
        if self.shedding.refuses(scope):
            await self.shedding.refuse(scope, send)
            return
        try:
            await self.pacing.wait(scope, receive)
        except OverloadedError as error:
            await self.shedding.refuse(scope, send, error)
            return
        except AbandonedError:
            return
        await super().__call__(scope, receive, send)

    def setup(self) -> None:
        """FastAPI's hook for the routes of its own: the document, made once."""
        self.add_route("/openapi.json", self._document, include_in_schema=False)

    async def _document(self, _: Request) -> Response:
        if self._text is None:
            self._text = json.dumps(self.openapi()).encode()
        return Response(self._text, media_type="application/json")

    def openapi(self) -> dict[str, Any]:
        """The document: refusals under their own media type, examples word for word (FastAPI drops their nulls), and
        the words of bodies that FastAPI does not parse.
        """
        if self.openapi_schema is None:
            document = super().openapi()
            for path, operation in ((path, o) for path, found in document["paths"].items() for o in found.values()):
                guard.document(path, operation)
                if "HTTPValidationError" in str(operation["responses"].get("422")):  # a name in a path is never invalid
                    del operation["responses"]["422"]
                for status, response in operation["responses"].items():
                    if status >= "4":
                        response["content"] = {problems.MEDIA_TYPE: response["content"]["application/json"]}
            bodies = {"/rerank": examples.REQUESTS} | dict.fromkeys(binary_routes.INFER_PATHS, examples.INFERENCES)
            schemas = document["components"]["schemas"]
            for model in (RerankRequest, InferRequest):
                words = model.model_json_schema(ref_template="#/components/schemas/{model}")
                schemas = {**words.pop("$defs"), model.__name__: words, **schemas}
            document["components"]["securitySchemes"] |= guard.SCHEME
            unused = ("HTTPValidationError", "ValidationError")
            document["components"]["schemas"] = {k: v for k, v in sorted(schemas.items()) if k not in unused}
            document = self.openapi_schema = jsonable_encoder(OpenAPI(**document), by_alias=True, exclude_none=True)
            for path, shown in bodies.items():
                document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["examples"] = shown
        return super().openapi()


def create_app(
    settings: Settings | None = None,
    *,
    loaded: Bundle | Models | None = None,
    swapped: Callable[[Models], None] | None = None,
) -> FastAPI:
    """The ASGI application.

    Args:
        settings: by default from ``LISTWRIGHT_*`` environment variables.
        loaded: what is loaded already; by default what the settings name is loaded at start-up.
        swapped: told what is served after each change.
    """
    settings = settings or Settings()
    telemetry, tracer = Telemetry(), open_tracer()
    first = _First(only(loaded) if isinstance(loaded, Bundle) else loaded)
    del loaded
    keyring, switch = guard.Keyring(settings), RoutingSwitch(settings)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        if first.models is None:
            first.models = await to_thread.run_sync(loading.start, settings)
        asked = None
        if settings.hook is not None:
            asked = hook.IsolatedHook(
                hook.load(settings.hook),
                budget_s=settings.hook_budget_ms / 1000.0,
                threads=HOOK_THREADS * max(1, settings.threads),
            )
            app.state.deciders = Deciders(switch, asked)
        switch.start()
        app.state.models, first.models = first.models, None
        tell(telemetry, app.state.models)
        gc.freeze()  # else a full collection visits all that was imported: 100 ms in the middle of a request
        _log_served(app.state.models, settings)
        watching = asyncio.create_task(app.state.watch.run()) if settings.models is not None else None
        keeping = asyncio.create_task(keyring.watch()) if settings.keys_file is not None else None
        yield
        for task in (watching, keeping):
            if task is not None:
                task.cancel()
        switch.stop()
        if asked is not None:
            asked.close()
        if tracer is not None:
            await to_thread.run_sync(tracer.close)

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
    app.state.settings, app.state.telemetry, app.state.models = settings, telemetry, None
    app.state.deciders = Deciders(switch)
    app.state.scrape, app.state.scraped = telemetry.text, Scraped()
    app.state.watch = Watch(app.state, settings, telemetry, swapped)
    app.state.draining, app.state.degraded = threading.Event(), DegradedRun()
    app.state.ignored, app.state.json_bounds = IgnoredFeatures(telemetry), JsonBounds(settings)
    admin_key = settings.admin_key
    app.state.admin_key = None if admin_key is None else Key("admin", digest_of(admin_key.get_secret_value().encode()))
    app.state.gate = Gate(
        settings.threads, settings.queue, settings.max_buffered_bytes, patience_s=settings.queue_ms / 1000.0
    )
    app.shedding, app.pacing = Shedding(app.state.gate, telemetry), Pacing(keyring, app.state.admin_key)
    app.state.connection_limit = connections = ConnectionLimit(settings.max_connections, telemetry)
    telemetry.watch(
        app.state.gate,
        connections=lambda: connections.present,
        ready=lambda: unready(app.state, app.state.models) is None,
        workers=settings.workers,
    )
    routers = (*binary_routes.FAST, ranking, routes, binary_routes.routes, admin)
    answers = [route for router in routers for route in router.routes]
    app.router.routes.extend(answers)  # not by include_router, behind which FastAPI matches each request three times
    problems.install(app)
    paths = frozenset(getattr(route, "path", "") for route in answers)
    if keyring:
        open_paths = guard.HEALTH | guard.INFORMATION if settings.open_info else guard.HEALTH
        app.add_middleware(guard.Guard, keyring=keyring, open_paths=open_paths, telemetry=telemetry)
    app.add_middleware(Observed, telemetry=telemetry, paths=paths, tracer=tracer)
    return app


def _log_served(models: Models, settings: Settings) -> None:
    for ready in models.current.values():
        _log.info("serving %s/%s from %s", ready.manifest.name, ready.manifest.version, ready.path)
    for name in settings.strategies.keys() - models.current.keys() - {EVERY}:
        _log.warning("LISTWRIGHT_STRATEGY names %r, which is not served", name)
