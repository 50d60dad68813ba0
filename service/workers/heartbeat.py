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
"""Looks in a row that find nothing until a worker counts as hung."""

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

    Silence is counted in looks and not by the clock: a supervisor that was stopped itself, or a machine that was, finds
    one look without a beat afterwards, and no reason to kill.

    Args:
        pipe: from the worker.
    """

    def __init__(self, pipe: Connection) -> None:
        self.pipe = pipe
        self._missed = 0

    def stops(self) -> bool:
        """Look; whether this is the look that makes it too many without a beat."""
        heard = self.pipe.poll() and os.read(self.pipe.fileno(), _PIPE)
        self._missed = 0 if heard else self._missed + 1
        return self._missed == CHECKS
