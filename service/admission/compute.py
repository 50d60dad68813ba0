"""Where rankings are computed: in threads, or on the event loop itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from listwright.ranking.deadline import Deadline
from listwright.service.admission.body import BoundedRequest
from listwright.service.admission.gate import Gate

T = TypeVar("T")

SMALL = 4 * 2**20
"""Bytes of a body whose ranking may block the event loop: a thousand candidates by name, 10 ms."""


class Compute:
    """Where rankings are computed: in threads, or on the event loop itself.

    Without threads, a body of at most :data:`SMALL` bytes is worked for on the event loop. Two changes of thread take
    longer than all else around a ranking, as one waits for the other.

    Args:
        threads: requests computed at a time, each in a thread of its own; 0 is one at a time, on the event loop.
    """

    def __init__(self, threads: int) -> None:
        self.slots = max(1, threads)
        self._threaded = threads > 0
        self._pool = ThreadPoolExecutor(self.slots, "work")

    async def run(self, gate: Gate, job: Callable[[Deadline], T], request: BoundedRequest) -> T:
        """What ``job`` returns, once it is the request's turn.

        Args:
            gate: that the request waits at.
            job: gets the deadline.
            request: whose body has arrived.

        Raises:
            ListwrightError: of :meth:`listwright.service.admission.gate.Gate.turn`, or of the job.
        """
        on_loop = not self._threaded and request.held <= SMALL
        async with gate.turn(request.deadline, request.receive, on_loop=on_loop) as deadline:
            if on_loop:
                return job(deadline)
            return await asyncio.get_running_loop().run_in_executor(self._pool, job, deadline)
