"""Bounded admission: which requests are computed, which wait, and which are refused at once.

Refusals are as cheap as possible: under a flood they are most of the work.
"""

from __future__ import annotations

import asyncio
import http
import logging
import math
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from statistics import median_high
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from listwright.ranking.deadline import Deadline
from listwright.ranking.errors import AbandonedError
from listwright.service import paths, problems
from listwright.service.errors import NotReadyError, OverloadedError
from listwright.service.telemetry.access_log import identify
from listwright.service.telemetry.logs import Repeats
from listwright.service.telemetry.metrics import Telemetry

LONGEST_S = 3600.0
"""Longest wait: a timer cannot be infinite."""

OWN_TURNS = 3
"""Turns of a request that comes now: its own, and two more. The event loop may compute before it reads the request, and
again before it answers."""

REMEMBERED = 8
"""Last turns whose median is the expected length of the next ones: a burst behind a stall is no reason to refuse. A
request that waits longer than expected is refused in the end."""

Caller = asyncio.Future[Any]
"""Future that is done once the caller has disconnected."""


@contextmanager
def watch_caller(receive: Receive) -> Iterator[Caller]:
    """Yield a future that is done once the caller has disconnected: after the body, nothing else is received."""
    task = asyncio.ensure_future(receive())
    try:
        yield task
    finally:
        task.cancel()


class Gate:
    """``slots`` requests in work and ``places`` waiting, first come first served; the next is refused at once.

    For one thread, the event loop's.

    Args:
        slots: Number of requests in work at a time.
        places: Number of requests that may wait.
        patience_s: Seconds within which a turn must end. A request is refused at once if the last turns were too long
            for that, and later if it waits too long; but one for each slot may always wait.
        clock: Clock in seconds.
    """

    def __init__(
        self, slots: int, places: int, *, patience_s: float = math.inf, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._slots, self._places, self._clock = slots, places, clock
        self._patience_s = patience_s
        self._free = slots
        self._line: deque[asyncio.Future[float | None]] = deque()
        self._turns_s: deque[float] = deque(maxlen=REMEMBERED)

    @property
    def working(self) -> int:
        """Requests in work."""
        return self._slots - self._free

    @property
    def waiting(self) -> int:
        """Requests in line."""
        return len(self._line)

    @property
    def retry_after_s(self) -> int:
        """Whole seconds, at least one, until the turn of a request that comes now."""
        return max(1, math.ceil(self._wait_s()))

    @property
    def is_full(self) -> bool:
        """Whether the next request is refused."""
        if self._free or not self._line:
            return self._free == 0 and self._places == 0
        waiting = len(self._line)
        return waiting >= self._places or (waiting >= self._slots and self._wait_s(OWN_TURNS) > self._patience_s)

    def refusal(self) -> OverloadedError:
        """Return the error for the next request if it is refused."""
        return self._overloaded(f"{self.working} requests are in work and {len(self._line)} wait")

    def check(self) -> None:
        """Raise OverloadedError if a request would be refused; called before its body is read."""
        if self.is_full:
            raise self.refusal()

    @asynccontextmanager
    async def turn(self, deadline: Deadline, receive: Receive, *, on_loop: bool) -> AsyncIterator[Deadline]:
        """Wait for a slot, and hold it until the block ends.

        Args:
            deadline: Time by which the turn must have come.
            receive: ASGI channel of the request, whose body has arrived.
            on_loop: True if the work is done on the event loop, which cannot notice meanwhile that the caller goes.

        Yields:
            The deadline for the work. It also knows whether the caller is still there, unless a slot was free for work
            on the event loop.

        Raises:
            OverloadedError: if the line is full, or its turn would come after the deadline, or did not come in time.
            AbandonedError: if the caller went while it waited.
            NotReadyError: if the service stopped meanwhile.
        """
        try:
            if self._free and on_loop:
                with self._time_turn(self._take()):
                    # requests that have arrived meanwhile take a place or are refused, before the loop is busy
                    await asyncio.sleep(0)
                    yield deadline
                return
            with watch_caller(receive) as caller:
                deadline = Deadline(deadline.at, caller.done)
                with self._time_turn(self._take() if self._free else await self._wait(deadline, caller)):
                    yield deadline
        except asyncio.CancelledError as error:  # at the end of a stop, answer instead of breaking the connection
            raise NotReadyError("the service stopped before the answer was ready") from error

    def _take(self) -> float:
        """Take a free slot; return the time."""
        self._free -= 1
        return self._clock()

    @contextmanager
    def _time_turn(self, began: float) -> Iterator[None]:
        """Record the duration of a turn, counted from when its slot was free, and release the slot."""
        try:
            yield
        finally:
            self._turns_s.append(self._clock() - began)
            self._release_slot()

    async def _wait(self, deadline: Deadline, caller: Caller) -> float:
        """Wait in line for a slot; return since when it was free, or raise without it."""
        self.check()
        left_s = deadline.left_s
        if self._wait_s() > left_s:
            raise self._overloaded("the requests before this one take until its deadline")
        if self._wait_s(OWN_TURNS) <= self._patience_s:  # else it is the one that may always wait
            left_s = min(left_s, self._patience_s - (OWN_TURNS - 1) * self._turn_s)
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[float | None] = loop.create_future()
        self._line.append(turn)
        give_up = partial(self._give_up, turn)
        timer = loop.call_later(min(left_s, LONGEST_S), give_up)
        caller.add_done_callback(give_up)
        try:
            began = await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._line.remove(turn)
            else:
                self._release_slot()
            raise
        finally:
            timer.cancel()
            caller.remove_done_callback(give_up)
        if began is not None and not deadline.abandoned():
            return began
        if began is not None:
            self._release_slot()
        deadline.check_awaited()
        raise self._overloaded("its turn did not come in time")

    def _give_up(self, turn: asyncio.Future[float | None], _caller: Caller | None = None) -> None:
        """Leave the line: the caller has gone, or it is too late."""
        if not turn.done():
            self._line.remove(turn)
            turn.set_result(None)

    def _release_slot(self) -> None:
        """Hand a slot to the first in line, or free it."""
        if self._line:
            self._line.popleft().set_result(self._clock())
        else:
            self._free += 1

    def _wait_s(self, more: int = 0) -> float:
        """Return the seconds until the turn of a request that comes now, or ``more`` turns later, over all slots."""
        return (self.working + len(self._line) + more) * self._turn_s / self._slots

    @property
    def _turn_s(self) -> float:
        """Expected seconds of the next turns; 0.0 before the first."""
        return median_high(self._turns_s) if self._turns_s else 0.0

    def _overloaded(self, message: str) -> OverloadedError:
        return OverloadedError(message, self.retry_after_s)


LOG_S = 10.0
"""Seconds between two log lines, each of which counts the refusals since the last."""

_log = logging.getLogger("listwright.requests")


def ranks_a_list(scope: Scope) -> bool:
    """Return whether a request is one to rank."""
    return scope["method"] == "POST" and paths.RANKINGS.fullmatch(scope["path"]) is not None


class EarlyRefusal:
    """ASGI middleware that refuses requests for which there is no room, by their head alone.

    Args:
        app: Application that the middleware wraps.
        gate: Gate that may have no room.
        telemetry: Metrics that count the answers.
        throttle: Function that returns once a request that ranks nothing may go on. It raises OverloadedError, or
            AbandonedError if the caller has gone meanwhile.
        unthrottled: Paths of requests that rank nothing and have bounds of their own.
        clock: Clock in seconds.
    """

    def __init__(
        self,
        app: ASGIApp,
        gate: Gate,
        telemetry: Telemetry,
        throttle: Callable[[Scope, Receive], Awaitable[None]],
        clock: Callable[[], float] = time.monotonic,
        *,
        unthrottled: frozenset[str] = frozenset(),
    ) -> None:
        self.app, self._gate, self._telemetry, self._throttle = app, gate, telemetry, throttle
        self._unthrottled, self._refusals = unthrottled, Repeats(LOG_S, clock)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on (ASGI)."""
        if self.refuses(scope):
            await self.refuse(scope, send)
            return
        if scope["type"] == "http" and not ranks_a_list(scope) and scope["path"] not in self._unthrottled:
            try:
                await self._throttle(scope, receive)
            except OverloadedError as error:
                await self.refuse(scope, send, error)
                return
            except AbandonedError:
                return
        await self.app(scope, receive, send)

    def refuses(self, scope: Scope) -> bool:
        """Return whether this is a request to rank for which there is no room."""
        return scope["type"] == "http" and self._gate.is_full and ranks_a_list(scope)

    async def refuse(self, scope: Scope, send: Send, error: OverloadedError | None = None) -> None:
        """Answer 429, with the body and headers of any other refusal; without an error, with that of the gate."""
        error = error or self._gate.refusal()
        facts, own = identify({name: value.decode("latin-1") for name, value in scope["headers"]})
        status = http.HTTPStatus.TOO_MANY_REQUESTS
        body = problems.encode(status, "overloaded", str(error), facts["request_id"], path=scope["path"])
        headers = [
            (b"content-type", problems.MEDIA_TYPE.encode()),
            (b"content-length", str(len(body)).encode()),
            (b"retry-after", str(error.retry_after_s).encode()),
            *own,
        ]
        await send({"type": "http.response.start", "status": status.value, "headers": headers})
        await send({"type": "http.response.body", "body": body})
        path = scope["path"] if ranks_a_list(scope) else "other"
        self._telemetry.requests.labels(paths.route_of(path), "429").inc()
        if count := self._refusals.note():
            _log.warning("%s", error, extra={"facts": {"status": 429, "refused": count}})
