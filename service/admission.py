"""Bounded admission: who is worked for, who waits, and who is told at once to come back later.

Nothing here knows what the work is: whichever door a request comes through, it goes through one :class:`Gate`.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

from ranking.pace import Deadline
from service.problems import NotReadyError, OverloadedError

T = TypeVar("T")

FORGETTING = 1 / 16
"""Weight of the newest time in the mean time in work."""

Caller = asyncio.Future[Any]
"""Done once whoever asked has gone."""


@contextmanager
def listening(receive: Callable[[], Awaitable[Any]]) -> Iterator[Caller]:
    """A future that is done once the caller has gone: after the body, that is all there is to receive."""
    task = asyncio.ensure_future(receive())
    try:
        yield task
    finally:
        task.cancel()


class Gate:
    """At most ``slots`` requests in work and ``places`` waiting, first come first served; the next is refused at once.

    For one thread, the event loop's; the work itself runs in threads, one per slot.

    Args:
        slots: requests worked for at a time.
        places: requests that may wait.
        buffer: bytes of bodies that may be held, arriving or waiting.
        clock: seconds.
    """

    def __init__(self, slots: int, places: int, buffer: int, clock: Callable[[], float] = time.perf_counter) -> None:
        self._slots, self._places, self._buffer, self._clock = slots, places, buffer, clock
        self._threads = ThreadPoolExecutor(slots, "work")
        self._free, self._held = slots, 0
        self._line: deque[asyncio.Future[None]] = deque()
        self._work_s = 0.0

    @property
    def working(self) -> int:
        """Requests in work."""
        return self._slots - self._free

    @property
    def waiting(self) -> int:
        """Requests in line."""
        return len(self._line)

    @property
    def held(self) -> int:
        """Bytes of bodies."""
        return self._held

    @property
    def is_full(self) -> bool:
        """Whether the next request is refused."""
        return self._free == 0 and len(self._line) >= self._places

    def refusal(self) -> OverloadedError:
        """What the next request is told if it is."""
        return self._overloaded(f"{self.working} requests are in work and {len(self._line)} wait")

    def check(self) -> None:
        """Raise OverloadedError if a request would be refused: asked before its body is read."""
        if self.is_full:
            raise self.refusal()

    def hold(self, size: int) -> None:
        """Count ``size`` more bytes of a body; raise OverloadedError if there is no room for them."""
        if self._held + size > self._buffer:
            raise self._overloaded(f"{self._held} bytes of other bodies are held already")
        self._held += size

    def release(self, size: int) -> None:
        """The bytes are held no more."""
        self._held -= size

    async def run(self, work: Callable[[], T], deadline: Deadline, caller: Caller) -> T:
        """What ``work`` returns, from a thread, once it is its turn.

        Raises:
            OverloadedError: if the line is full, or its turn would come after the deadline, or did not come before.
            AbandonedError: if the caller went while it waited.
            NotReadyError: if the service stopped meanwhile.
        """
        try:
            if self._free:
                self._free -= 1
            else:
                await self._wait(deadline, caller)
            began = self._clock()
            try:
                return await asyncio.get_running_loop().run_in_executor(self._threads, work)
            finally:
                self._work_s += (self._clock() - began - self._work_s) * (FORGETTING if self._work_s else 1.0)
                self._pass_on()
        except asyncio.CancelledError as error:  # the last moment of a stop: an answer, not a broken connection
            raise NotReadyError("the service stopped before the answer was ready") from error

    async def _wait(self, deadline: Deadline, caller: Caller) -> None:
        """Return with a slot, or raise without."""
        self.check()
        left_s = deadline.left_s
        if self._wait_s() > left_s:
            raise self._overloaded("the requests before this one take until its deadline")
        turn = asyncio.get_running_loop().create_future()
        self._line.append(turn)
        try:
            await asyncio.wait((turn, caller), timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
            deadline.check_awaited()
        except BaseException:
            if turn.done():
                self._pass_on()
            else:
                self._line.remove(turn)
            raise
        if not turn.done():
            self._line.remove(turn)
            raise self._overloaded("its turn did not come before the deadline")

    def _pass_on(self) -> None:
        """One slot is free: the first in line has it, or whoever comes next."""
        if self._line:
            self._line.popleft().set_result(None)
        else:
            self._free += 1

    def _wait_s(self) -> float:
        """Seconds until the turn of whoever comes now: each slot takes its share of those in work and in line."""
        return (self.working + len(self._line)) * self._work_s / self._slots

    def _overloaded(self, message: str) -> OverloadedError:
        return OverloadedError(message, max(1, math.ceil(self._wait_s())))
