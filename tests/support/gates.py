"""Requests as a gate knows them."""

import asyncio

from listwright.ranking.deadline import Deadline


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
