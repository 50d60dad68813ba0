"""The limit on a process's connections. Beyond it a new one is refused, or takes the place of an idle one.

Probes are answered beyond it, too: callers that take all connections must not get the process restarted by its probe.
So the limit is never above what the system lets a process open.
"""

from __future__ import annotations

import http
import logging
import resource
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from listwright.ranking.errors import ListwrightError
from listwright.service.paths import is_probe
from listwright.service.problems import problem
from listwright.service.settings import PREFIX, Settings
from listwright.service.telemetry.access_log import identify
from listwright.service.telemetry.logs import Repeats
from listwright.service.telemetry.metrics import Telemetry

if TYPE_CHECKING:
    from listwright.service.transport.connection import Connection

OUTSIDE = 100
"""New connections beyond the limit that may be waiting for their refusal. Beyond these the oldest silent one is cut."""

FILES = 64
"""Open files of a process besides its connections: libraries, logs, pipes, the bundle that it reads."""

BURST = 2048
"""Connections that the system may hold ready (the backlog): all at once, for a moment, before they are counted."""

FILES_OF_WORKER = 8
"""Open files of the supervisor for each of its workers."""

LEAST = 8
"""Connections without which a process could not even answer its probes."""

PATIENCE_S = 1.0
"""Seconds that a connection beyond the limit may take to send a request, and to read its refusal."""

RETRY_AFTER_S = 1
"""``Retry-After`` of the refusal: connections come and go by the moment."""

IDLE_S = 1.0
"""Seconds that a connection must be idle before it may be closed for a new one."""

LOG_S = 10.0
"""Seconds between two log lines, each of which counts the new connections since the last."""

_log = logging.getLogger("listwright.connections")


class OpenFilesError(ListwrightError):
    """Error for a system that lets a process open too few files to serve."""


class ConnectionLimit:
    """The connections of one process. For one thread: the event loop's.

    At the limit a new one takes the place of the connection that has been idle longest, if that is a while, as in
    nginx; otherwise it is refused. So callers that keep many connections open do not shut out others.

    Args:
        most: Number of connections that are served.
        telemetry: Metrics that count the connections beyond it.
        clock: Clock in seconds.
        outside: Number of connections beyond it that may be waiting for their refusal.
    """

    def __init__(
        self, most: int, telemetry: Telemetry, clock: Callable[[], float] = time.monotonic, outside: int = OUTSIDE
    ) -> None:
        self._most, self._telemetry, self._clock, self._most_outside = most, telemetry, clock, outside
        self._inside: set[Connection] = set()
        self._outside: set[Connection] = set()
        self._silent: dict[Connection, None] = {}
        """Connections outside whose request has not begun; the oldest first."""
        self._idle: dict[Connection, float] = {}
        """Start of each connection's idle time; the longest first."""
        self._excess = Repeats(LOG_S, clock)

    @property
    def inside(self) -> int:
        """Connections that are served."""
        return len(self._inside)

    @property
    def outside(self) -> int:
        """Connections beyond the limit, which wait for their refusal."""
        return len(self._outside)

    @property
    def present(self) -> int:
        """Connections that are open."""
        return self.inside + self.outside

    def enter(self, connection: Connection) -> bool:
        """Count a new connection; return whether it is served."""
        if self.inside >= self._most:
            self._make_room()
        if self.inside < self._most:
            self._inside.add(connection)
            return True
        self._outside.add(connection)
        self._telemetry.excess_connections.inc()
        if count := self._excess.note():
            _log.warning("%s: new connections get 503", self._describe(), extra={"facts": {"excess": count}})
        self._silent[connection] = None
        if self.outside > self._most_outside:
            longest = next(iter(self._silent))
            self.leave(longest)
            longest.abort()
        return False

    def leave(self, connection: Connection) -> None:
        """Remove a connection that has ended."""
        self._inside.discard(connection)
        self._outside.discard(connection)
        self._silent.pop(connection, None)
        self._idle.pop(connection, None)

    def mark_idle(self, connection: Connection) -> None:
        """Note that a served connection waits for its next request."""
        self._idle[connection] = self._clock()

    def mark_busy(self, connection: Connection) -> float:
        """Note that a connection's request has begun; return the seconds that it was idle, 0 if it was not."""
        self._silent.pop(connection, None)
        now = self._clock()
        return now - self._idle.pop(connection, now)

    def _make_room(self) -> None:
        long_enough = self._clock() - IDLE_S
        for idle, since in self._idle.items():
            if since > long_enough:
                return
            if not idle.unsent:
                self.leave(idle)  # it is gone only after the event loop's next turn
                self._telemetry.evicted_connections.inc()
                idle.close_idle()
                return

    def app_for(self, path: str, app: ASGIApp) -> ASGIApp:
        """Return the application for a request on a connection that is not served: probes reach the real one."""
        return app if is_probe(path) else self._refuse

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 503, with the body and headers of any other refusal."""
        facts, own = identify({name: value.decode("latin-1") for name, value in scope["headers"]})
        scope["state"]["request_id"] = facts["request_id"]
        answer = problem(
            Request(scope),
            http.HTTPStatus.SERVICE_UNAVAILABLE,
            "too-many-connections",
            f"{self._describe()}: ask again in {RETRY_AFTER_S} s, or over a connection that you have",
            headers={"Retry-After": str(RETRY_AFTER_S)},
        )
        answer.raw_headers += own
        await answer(scope, receive, send)

    def _describe(self) -> str:
        return f"{self._most} connections are open, which is the limit ({PREFIX}MAX_CONNECTIONS)"


def fit_into_open_files(settings: Settings) -> Settings:
    """Fit the settings' connections into the open files of the process (``RLIMIT_NOFILE``); return the settings.

    The soft limit is raised, as far as the settings need it and the hard one allows it; else the setting is lowered.
    Both are logged. Processes that are started later have the limit of this one.

    Raises:
        OpenFilesError: if the limit leaves no room for a service.
    """
    supervised = settings.workers * FILES_OF_WORKER if settings.workers > 1 else 0
    ports = 1 if settings.grpc_port is None else 2  # each with as many connections
    goal = FILES + max(ports * settings.max_connections + OUTSIDE, supervised)
    limit = _raise_limit(goal + BURST)
    if limit >= goal:
        return settings
    room = limit - FILES
    if room < max(LEAST, supervised):
        needed = FILES + max(LEAST, supervised)
        raise OpenFilesError(
            f"a process may have {limit} open files, and {settings.workers} workers need {needed} at least: raise the "
            f"hard limit (ulimit -Hn), or set fewer {PREFIX}WORKERS"
        )
    most = min(settings.max_connections, (room - min(OUTSIDE, room // 4)) // ports)
    if most < settings.max_connections:
        _log.warning(
            "%sMAX_CONNECTIONS is lowered from %d to %d, as a process may have %d open files: raise the hard limit "
            "(ulimit -Hn) to %d, or lower the setting",
            PREFIX,
            settings.max_connections,
            most,
            limit,
            goal,
        )
    return settings.model_copy(update={"max_connections": most})


def room_outside(most: int) -> int:
    """Return how many connections beyond ``most`` the open files of this process leave room for."""
    return max(1, min(OUTSIDE, _limit() - FILES - most))


def _raise_limit(goal: int) -> int:
    """Raise the soft limit of open files to ``wanted``, or as far as possible; return it."""
    soft, (_, hard) = _limit(), resource.getrlimit(resource.RLIMIT_NOFILE)
    soft_goal = goal if hard == resource.RLIM_INFINITY else min(goal, hard)
    if soft >= soft_goal:
        return soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft_goal, hard))
    except (OSError, ValueError):  # the system has a limit of its own below an endless hard one
        return soft
    _log.info("a process may have %d open files instead of %d, for %sMAX_CONNECTIONS", soft_goal, soft, PREFIX)
    return soft_goal


def _limit() -> int:
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft
