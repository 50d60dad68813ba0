"""Taking connections off a port that several processes share, so that each gets its part.

Proxies keep few connections open. An event loop that takes all waiting connections leaves none to the others, and a
worker without connections is a core without work.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable
from socket import socket

PAUSE_S = 0.001
"""For each connection that a process has, it lets the others go first this long: as short as the event loop can."""

MOST_PAUSES = 3
"""With more connections than these an even share comes by itself, and new connections should not wait for it."""

CALM_CHECKS, CALM_S, MOST_AT_ONCE = 8, 0.02, 256
"""Under a rush an even share comes by itself. So after this many checks in a row, each within this time of the last and
none of which took all that waited, each check takes twice as many as the last, up to a maximum."""

AT_ONCE_BEYOND = 16
"""At the limit a check takes no more than these: each is an open file until it is counted and refused."""

EXHAUSTED_S = 1.0
"""After the system has refused to give a connection for lack of files or memory."""

BACKLOG = 2048

_log = logging.getLogger("listwright.connections")


class FairAccept:
    """Takes connections one at a time, the later the more there are already. For one thread: the event loop's.

    Where all room is taken by callers that are entering, a newcomer has the one cut off that has been longest: a TLS
    handshake waits for its caller, who may never speak.

    Args:
        port: bound; shared with other processes.
        take: makes a connection of what was accepted.
        present: how many there are.
        most: how many there may be.
        pause_s: for each of them, up to :data:`MOST_PAUSES`, the others go first; 0: there are no other processes.
    """

    def __init__(
        self,
        port: socket,
        take: Callable[[socket], Awaitable[object]],
        present: Callable[[], int],
        most: int,
        pause_s: float = PAUSE_S,
    ) -> None:
        self.port, self._take, self._present, self._most, self._pause_s = port, take, present, most, pause_s
        self._entering: dict[asyncio.Task[None], None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._rush, self._looked = 0, 0.0

    def open(self) -> None:
        """Begin."""
        self.port.setblocking(False)
        self.port.listen(BACKLOG)
        asyncio.get_running_loop().add_reader(self.port, self._readable)

    def close(self) -> None:
        """Take no more; the port stays as it is."""
        asyncio.get_running_loop().remove_reader(self.port)
        if self._timer is not None:
            self._timer.cancel()

    def _readable(self) -> None:
        pause_s = min(self._present() + len(self._entering), MOST_PAUSES) * self._pause_s
        if pause_s:
            self._wait(pause_s, self._accept)
        else:
            self._accept()

    def _wait(self, seconds: float, then: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(self.port)
        self._timer = loop.call_later(seconds, then)

    def _accept(self) -> None:
        now = asyncio.get_running_loop().time()
        self._rush = self._rush + 1 if now - self._looked < CALM_S else 0
        self._looked = now
        room = self._most - self._present() - len(self._entering)
        try:
            for _ in range(min(2 ** max(0, self._rush - CALM_CHECKS), MOST_AT_ONCE, max(room, AT_ONCE_BEYOND))):
                self._take_one()
        except BlockingIOError:  # no connection waits any more: perhaps another process was first
            self._rush = 0
        except OSError as error:
            _log.error("no connection can be taken for %g s: %s", EXHAUSTED_S, error)
            self._wait(EXHAUSTED_S, self._accept)
            return
        asyncio.get_running_loop().add_reader(self.port, self._readable)

    def _take_one(self) -> None:
        try:
            accepted, _ = self.port.accept()
        except ConnectionAbortedError:  # the caller has gone
            return
        task = asyncio.get_running_loop().create_task(self._enter(accepted))
        self._entering[task] = None
        task.add_done_callback(lambda task: self._entering.pop(task, None))
        if len(self._entering) > max(self._most - self._present(), AT_ONCE_BEYOND):
            longest = next(iter(self._entering))
            del self._entering[longest]
            longest.cancel()

    async def _enter(self, accepted: socket) -> None:
        accepted.setblocking(False)
        try:
            await self._take(accepted)
        except (OSError, ssl.SSLError, TimeoutError) as error:
            _log.debug("a connection ended before it began: %s", error)
