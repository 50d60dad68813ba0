"""How many are connected: up to a limit, beyond which newcomers are told so, and let go.

Probes are answered beyond it, too: who takes all connections must not get the process restarted by its own probe.
"""

from __future__ import annotations

import http
import logging
import time
from collections.abc import Callable

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from service.problems import problem
from service.settings import PREFIX
from service.telemetry import PROBES, Telemetry, identified

OUTSIDE = 100
"""Newcomers beyond the limit that may be on their way out; who comes then is cut off without a word."""

PATIENCE_S = 1.0
"""How long each of them may take to ask, and to take its refusal."""

RETRY_AFTER_S = 1
"""What each is told: connections come and go by the moment."""

LOG_S = 10.0
"""Seconds between two log lines, each of which counts the newcomers since the last."""

_log = logging.getLogger("listwright.connections")


class Crowd:
    """The connections of one process. For one thread: the event loop's.

    Args:
        most: connections that are served.
        telemetry: where those beyond it are counted.
        clock: seconds.
    """

    def __init__(self, most: int, telemetry: Telemetry, clock: Callable[[], float] = time.monotonic) -> None:
        self.inside = self.outside = 0
        self._most, self._telemetry, self._clock = most, telemetry, clock
        self._said, self._since = -LOG_S, 0

    @property
    def present(self) -> int:
        """Connections that are open."""
        return self.inside + self.outside

    @property
    def overflows(self) -> bool:
        """Whether there are too many even to be told so."""
        return self.outside > OUTSIDE

    def enter(self) -> bool:
        """Count a newcomer; whether it is served."""
        if self.inside < self._most:
            self.inside += 1
            return True
        self.outside += 1
        self._note()
        return False

    def leave(self, *, served: bool) -> None:
        """A connection has ended; ``served`` is what :meth:`enter` said of it."""
        if served:
            self.inside -= 1
        else:
            self.outside -= 1

    def answering(self, path: str, app: ASGIApp) -> ASGIApp:
        """What answers a request for ``path`` on a connection that is not served."""
        return app if path in PROBES else self._refuse

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        """503, with the same body and headers as any other refusal."""
        facts, own = identified({name: value.decode("latin-1") for name, value in scope["headers"]})
        scope["state"]["request_id"] = facts["request_id"]
        answer = problem(
            Request(scope),
            http.HTTPStatus.SERVICE_UNAVAILABLE,
            "too-many-connections",
            f"{self._words()}: ask again in {RETRY_AFTER_S} s, or over a connection that you have",
            headers={"Retry-After": str(RETRY_AFTER_S)},
        )
        answer.raw_headers += own
        await answer(scope, receive, send)

    def _note(self) -> None:
        self._telemetry.excess_connections.inc()
        self._since += 1
        now = self._clock()
        if now - self._said >= LOG_S:
            self._said, count, self._since = now, self._since, 0
            _log.warning("%s: newcomers get 503", self._words(), extra={"facts": {"excess": count}})

    def _words(self) -> str:
        return f"{self._most} connections are open, which is the limit ({PREFIX}MAX_CONNECTIONS)"
