"""One id, one count and one log line for each request."""

from __future__ import annotations

import logging
import re
import time
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from listwright.service.paths import PROBES
from listwright.service.telemetry.metrics import Telemetry
from listwright.service.telemetry.tracer import Traced

if TYPE_CHECKING:
    from listwright.service.telemetry.otel import OtelTracer

_REQUEST_ID = re.compile(r"[!-~]{1,128}")
_TRACEPARENT = re.compile(
    r"(?!ff|00.{54})[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-[!-~]{0,100})?"
)
_TRACE_HEADERS = {"traceparent": b"traceparent", "tracestate": b"tracestate"}

_log = logging.getLogger("listwright.requests")


def identify(sent: Mapping[bytes, str]) -> tuple[dict[str, Any], list[tuple[bytes, bytes]]]:
    """Return the ids of a request as facts for its log line, and as headers of its answer.

    Args:
        sent: Headers of the request.
    """
    request_id = sent.get(b"x-request-id", "")
    if not _REQUEST_ID.fullmatch(request_id):
        request_id = uuid.uuid4().hex
    facts: dict[str, Any] = {"request_id": request_id}
    own = [(b"x-request-id", request_id.encode())]
    if trace := _TRACEPARENT.fullmatch(sent.get(b"traceparent", "")):
        facts["trace_id"] = trace[1]
        own.append((b"traceparent", trace[0].encode()))
    return facts, own


class AccessLog:
    """ASGI middleware: every request gets an id (the caller's ``X-Request-ID`` or a new one), a count and a log line.

    A caller's ``traceparent`` (W3C Trace Context) comes back in the answer, and its trace id stands in the log line.

    Args:
        app: Application that the middleware wraps. The log line has what an endpoint puts into ``request.state.facts``.
            A callable at ``request.state.after_answer`` is called once the answer is sent, so no caller waits for it.
        telemetry: Metrics that count the answers.
        paths: Paths of routes that get a label of their own; all else shares one, or callers could make metrics grow.
        tracer: Tracer that makes spans of requests; None: no spans.
    """

    def __init__(self, app: ASGIApp, telemetry: Telemetry, paths: frozenset[str], tracer: OtelTracer | None) -> None:
        self.app, self.telemetry, self.paths, self.tracer = app, telemetry, paths, tracer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and count and log it (ASGI)."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = time.perf_counter()
        sent = {name: value.decode("latin-1") for name, value in scope["headers"]}
        facts, own = identify(sent)
        state = scope.setdefault("state", {})
        state.setdefault("arrived", started)  # our connections set it, at the first byte of the head
        state.update(request_id=facts["request_id"], facts=facts)
        status = 500  # of an exception that is answered further out

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], *own]
            await send(message)

        try:
            await self.app(scope, receive, answer)
        finally:
            if (after_answer := state.pop("after_answer", None)) is not None:  # it holds the request, which holds it
                after_answer()
            path = getattr(scope.get("route"), "path", scope["path"])  # no route: refused before routing
            path = path if path in self.paths else "other"
            self.telemetry.requests.labels(path, str(status)).inc()
            ended = time.perf_counter()
            facts |= {"path": path, "status": status, "ms": round((ended - started) * 1000.0, 3)}
            if self.tracer is not None and path not in PROBES:
                headers = {name: sent[key] for name, key in _TRACE_HEADERS.items() if key in sent}
                name, began = f"{scope['method']} {path}", state.get("began")
                traced = Traced(name, state["arrived"], began, ended, status, facts, headers)
                facts["trace_id"] = self.tracer.record(traced)
            level = logging.WARNING if facts.get("reason") else logging.DEBUG if path in PROBES else logging.INFO
            _log.log(level, "%s %s", scope["method"], path, extra={"facts": facts})
