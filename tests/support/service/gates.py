"""Requests as a gate knows them."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

from listwright.ranking.deadline import Deadline
from listwright.service.pipeline import _run_in_turn, pool_for


class Request:
    """A request whose body has arrived.

    Args:
        deadline: of its answer.
        receive: ends once the caller has gone; None: it stays.
        held: bytes of its body.
    """

    def __init__(self, deadline=None, receive=None, held=1):
        self.deadline = deadline or Deadline()
        self.receive = receive or asyncio.Event().wait
        self.held = held


class Compute:
    """Where the pipeline works: in threads, or on the event loop."""

    def __init__(self, threads):
        self.threads, self.pool = threads, ThreadPoolExecutor(max(1, threads))

    async def run(self, gate, work, request):
        pool = pool_for(request.held, self.threads, self.pool)
        return await _run_in_turn(gate, pool, work, request.deadline, request.receive)


def run(test):
    """The test as a function: the event loop is its own."""

    def run_it():
        asyncio.run(test())

    run_it.__name__ = test.__name__
    return run_it
