"""What the service counts and times: Prometheus metrics, and one id per request."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ranking.candidates import Ranking

SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
CANDIDATES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)

_REQUEST_ID = re.compile(r"[!-~]{1,128}")


class Telemetry:
    """The metrics of one process, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter("listwright_requests", "Answered requests", ["path", "status"], registry=self.registry)
        self.degraded = Counter(
            "listwright_degraded",
            "Answers by an earlier stage than asked for",
            ["stage_reached"],
            registry=self.registry,
        )
        self.seconds = Histogram(
            "listwright_stage_seconds", "Time by stage", ["stage"], buckets=SECONDS, registry=self.registry
        )
        self.candidates = Histogram("listwright_candidates", "List lengths", buckets=CANDIDATES, registry=self.registry)
        self.bundle = Gauge("listwright_bundle_info", "The served bundle", ["model", "version"], registry=self.registry)

    def observe(self, ranking: Ranking, parse_s: float, total_s: float) -> None:
        """Count one ranking."""
        self.candidates.observe(len(ranking.order))
        self.seconds.labels("parse").observe(parse_s)
        for stage, milliseconds in ranking.timings_ms.items():
            self.seconds.labels(stage).observe(milliseconds / 1000.0)
        self.seconds.labels("total").observe(total_s)
        if ranking.degraded:
            self.degraded.labels(ranking.stage_reached).inc()


class RequestIds:
    """ASGI middleware: accepts or makes ``X-Request-ID``, answers with it, counts the response by status.

    Args:
        app: what it wraps.
        telemetry: where responses are counted.
        paths: paths that get a label of their own; all others share one, or callers could make metrics grow.
    """

    def __init__(self, app: ASGIApp, telemetry: Telemetry, paths: frozenset[str]) -> None:
        self.app, self.telemetry, self.paths = app, telemetry, paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        sent = dict(scope["headers"]).get(b"x-request-id", b"").decode("latin-1")
        request_id = sent if _REQUEST_ID.fullmatch(sent) else uuid.uuid4().hex
        scope.setdefault("state", {})["request_id"] = request_id

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"x-request-id", request_id.encode())]
                path = scope["path"] if scope["path"] in self.paths else "other"
                self.telemetry.requests.labels(path, str(message["status"])).inc()
            await send(message)

        await self.app(scope, receive, answer)


@contextmanager
def timed(into: dict[str, float], name: str) -> Iterator[None]:
    """Store the seconds that a block takes."""
    started = time.perf_counter()
    try:
        yield
    finally:
        into[name] = time.perf_counter() - started
