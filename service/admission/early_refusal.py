"""Refusing what there is no room for, at the lowest price: under a flood the refusals are most of the work."""

from __future__ import annotations

import http
import logging
import time
from collections.abc import Awaitable, Callable

from starlette.types import ASGIApp, Receive, Scope, Send

from listwright.ranking.errors import AbandonedError
from listwright.service import paths, problems
from listwright.service.admission.gate import Gate
from listwright.service.errors import OverloadedError
from listwright.service.telemetry.access_log import identified
from listwright.service.telemetry.metrics import Telemetry

LOG_S = 10.0
"""Seconds between two log lines, each of which counts the refusals since the last."""

_log = logging.getLogger("listwright.requests")


def ranks(scope: Scope) -> bool:
    """Whether this is a request to rank."""
    return scope["method"] == "POST" and paths.RANKINGS.fullmatch(scope["path"]) is not None


class EarlyRefusal:
    """ASGI middleware: a request that there is no room for is answered here; only its head is looked at.

    Args:
        app: the application that it wraps.
        gate: that may be full.
        telemetry: where answers are counted.
        pace: returns once a request that ranks nothing may go on; or raises OverloadedError, or AbandonedError if the
            caller went meanwhile.
        unpaced: paths of requests that rank nothing and have bounds of their own.
        clock: seconds.
    """

    def __init__(
        self,
        app: ASGIApp,
        gate: Gate,
        telemetry: Telemetry,
        pace: Callable[[Scope, Receive], Awaitable[None]],
        clock: Callable[[], float] = time.monotonic,
        *,
        unpaced: frozenset[str] = frozenset(),
    ) -> None:
        self.app, self._gate, self._telemetry, self._pace, self._clock = app, gate, telemetry, pace, clock
        self._unpaced = unpaced
        self._said, self._since = -LOG_S, 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if self.refuses(scope):
            await self.refuse(scope, send)
            return
        if scope["type"] == "http" and not ranks(scope) and scope["path"] not in self._unpaced:
            try:
                await self._pace(scope, receive)
            except OverloadedError as error:
                await self.refuse(scope, send, error)
                return
            except AbandonedError:
                return
        await self.app(scope, receive, send)

    def refuses(self, scope: Scope) -> bool:
        """Whether this is a request to rank, and there is no room for it."""
        return scope["type"] == "http" and self._gate.is_full and ranks(scope)

    async def refuse(self, scope: Scope, send: Send, error: OverloadedError | None = None) -> None:
        """429, with the same body and headers as any other refusal; without an error, that of the gate."""
        error = error or self._gate.refusal()
        facts, own = identified({name: value.decode("latin-1") for name, value in scope["headers"]})
        status = http.HTTPStatus.TOO_MANY_REQUESTS
        body = problems.encoded(status, "overloaded", str(error), facts["request_id"], path=scope["path"])
        headers = [
            (b"content-type", problems.MEDIA_TYPE.encode()),
            (b"content-length", str(len(body)).encode()),
            (b"retry-after", str(error.retry_after_s).encode()),
            *own,
        ]
        await send({"type": "http.response.start", "status": status.value, "headers": headers})
        await send({"type": "http.response.body", "body": body})
        self._note(scope["path"] if ranks(scope) else "other", error)

    def _note(self, path: str, error: OverloadedError) -> None:
        self._telemetry.requests.labels(paths.route_of(path), "429").inc()
        self._since += 1
        now = self._clock()
        if now - self._said >= LOG_S:
            self._said, count, self._since = now, self._since, 0
            _log.warning("%s", error, extra={"facts": {"status": 429, "refused": count}})
