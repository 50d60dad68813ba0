"""The application: one bundle, loaded and warm before the first request."""

from __future__ import annotations

import gc
import logging
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from multiprocessing import parent_process
from typing import Any

import numpy as np
from anyio import CapacityLimiter, to_thread
from fastapi import FastAPI

from ranking import bundle
from ranking.bundle import Bundle
from ranking.candidates import CandidateList
from service import binary_routes, examples, hook, problems
from service.inference import InferRequest
from service.routes import routes
from service.settings import Settings
from service.telemetry import Observed, Telemetry

WARM_UP_LENGTHS = (1, 10, 100)

HOOK_THREADS = 2
"""Threads of the hook for each request that is computed at a time: as many again may hang before any is refused."""

_DESCRIPTION = """Reranks one query's candidates as a whole: a LightGBM first stage scores each alone, QILCM
rescores the best of them as one list, or a specialist does, picked by the caller, a hook or the bundle's router.
Errors are `application/problem+json` (RFC 9457)."""

_log = logging.getLogger("listwright.service")


class Contract(FastAPI):
    """FastAPI, with some things said in its document that it has no words for."""

    def openapi(self) -> dict[str, Any]:
        """The document: refusals under their own media type, examples word for word (FastAPI drops their nulls), and
        the words of a body that FastAPI does not parse.
        """
        if self.openapi_schema is None:
            document = super().openapi()
            for operation in (o for path in document["paths"].values() for o in path.values()):
                if "HTTPValidationError" in str(operation["responses"].get("422")):  # a name in a path is never invalid
                    del operation["responses"]["422"]
                for status, response in operation["responses"].items():
                    if status >= "4":
                        response["content"] = {problems.MEDIA_TYPE: response["content"]["application/json"]}
            bodies = {"/rerank": examples.REQUESTS} | dict.fromkeys(binary_routes.INFER_PATHS, examples.INFERENCES)
            for path, shown in bodies.items():
                document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["examples"] = shown
            request = InferRequest.model_json_schema(ref_template="#/components/schemas/{model}")
            words = {**request.pop("$defs"), "InferRequest": request}
            unused = ("HTTPValidationError", "ValidationError")
            schemas = {k: v for k, v in document["components"]["schemas"].items() if k not in unused}
            document["components"]["schemas"] = dict(sorted((schemas | words).items()))
        return super().openapi()


def create_app(settings: Settings | None = None, *, loaded: Bundle | None = None) -> FastAPI:
    """The ASGI application.

    Args:
        settings: by default from ``LISTWRIGHT_*`` environment variables.
        loaded: a bundle that is loaded already; by default ``settings.bundle`` is loaded at start-up.
    """
    settings = settings or Settings()  # type: ignore[call-arg]
    telemetry = Telemetry()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.limiter = CapacityLimiter(settings.threads)
        ready = loaded
        if ready is None:
            ready = await to_thread.run_sync(bundle.load, settings.bundle)
        await to_thread.run_sync(warm_up, ready, settings.max_candidates)
        if settings.hook is not None:
            app.state.hook = hook.IsolatedHook(
                hook.load(settings.hook),
                budget_s=settings.hook_budget_ms / 1000.0,
                threads=HOOK_THREADS * settings.threads,
            )
        telemetry.bundle.labels(ready.manifest.name, ready.manifest.version).set(1)
        app.state.bundle = ready
        gc.freeze()  # else a full collection visits all that was imported: 100 ms in the middle of a request
        _log.info("serving %s/%s from %s", ready.manifest.name, ready.manifest.version, ready.path)
        yield
        if app.state.hook is not None:
            app.state.hook.close()
            if parent_process() is not None:  # a worker, which ends with this
                hook.leave(0)

    app = Contract(
        title="Listwright",
        version=version("listwright"),
        summary="Listwise reranking",
        description=_DESCRIPTION,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.settings, app.state.telemetry, app.state.bundle, app.state.hook = settings, telemetry, None, None
    app.state.draining = threading.Event()
    answers = [r for router in (*binary_routes.FAST, routes, binary_routes.routes) for r in router.routes]
    app.router.routes.extend(answers)  # not by include_router, behind which FastAPI matches each request three times
    problems.install(app)
    paths = frozenset(getattr(route, "path", "") for route in answers)
    app.add_middleware(Observed, telemetry=telemetry, paths=paths)
    return app


def warm_up(ready: Bundle, max_candidates: int) -> None:
    """Rank lists of every size class once, so that the first caller does not pay for allocations."""
    width = len(ready.reranker.schema)
    for length in sorted({*WARM_UP_LENGTHS, ready.manifest.second_stage.cutoff, max_candidates}):
        if length <= max_candidates:
            candidates = CandidateList(np.zeros((length, width), dtype=np.float32))
            for strategy in ("auto", *ready.manifest.strategies):
                ready.reranker.rerank(candidates, strategy=strategy)
