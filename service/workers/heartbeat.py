"""Whether a worker's event loop still turns: it says so over a pipe, and the supervisor looks.

A loop that waits for something which keeps Python's global lock, or for a disk that is gone, belongs to a process that
lives and answers no request; nothing else would show that.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from multiprocessing.connection import Connection

CHECKS = 10
"""Checks in a row that find no heartbeat until a worker counts as hung."""

_PIPE = 2**16
"""Bytes that a pipe holds at most."""


class HeartbeatSender:
    """The worker's side, for its event loop.

    Args:
        pipe: to the supervisor, for nothing else.
        every_s: seconds between two beats.
    """

    def __init__(self, pipe: Connection, every_s: float) -> None:
        self._pipe, self._every_s = pipe, every_s
        os.set_blocking(pipe.fileno(), False)

    def beat(self) -> None:
        """Say that the running event loop turns, now and from now on."""
        with suppress(OSError):  # full, where the supervisor is stopped; broken, where it is gone: not our matter
            os.write(self._pipe.fileno(), b".")
        asyncio.get_running_loop().call_later(self._every_s, self.beat)


class HeartbeatMonitor:
    """The supervisor's side.

    Checks without a heartbeat are counted, not seconds. After a pause of the supervisor or of the machine, one check
    finds none, and nothing is killed.

    Args:
        pipe: from the worker.
    """

    def __init__(self, pipe: Connection) -> None:
        self.pipe = pipe
        self._missed = 0

    def stops(self) -> bool:
        """Check once; whether this check makes it too many in a row without a heartbeat."""
        heard = self.pipe.poll() and os.read(self.pipe.fileno(), _PIPE)
        self._missed = 0 if heard else self._missed + 1
        return self._missed == CHECKS
