"""The worker's end of the socket to the process that ranks in the background."""

from __future__ import annotations

import asyncio
import multiprocessing
import pickle
import socket
from multiprocessing.context import SpawnProcess

from listwright.service.child_process import ended
from listwright.service.experiments.shadow_process import LENGTH, Found, Question, run

MOST_AT_ONCE = 2**16
"""Bytes of one reading."""

_spawn = multiprocessing.get_context("spawn")  # a fork would share the locks of threads that it does not have


class ShadowLink:
    """Asks one process, which it starts. The event loop waits for the answer, no thread.

    A thread would take the interpreter's lock from requests, and each change of thread costs more than the message.

    Args:
        process: that runs.
        ours: the socket to it.
    """

    def __init__(self, process: SpawnProcess, ours: socket.socket) -> None:
        self._process, self._socket = process, ours

    @classmethod
    def started(cls) -> ShadowLink:
        """A link to a new process. It blocks for some milliseconds."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        process = _spawn.Process(target=run, args=(theirs,), name="shadow", daemon=True)
        process.start()
        theirs.close()
        return cls(process, ours)

    async def ask(self, question: Question) -> Found:
        """What the process makes of a list.

        Raises:
            EOFError: if the process ends.
            OSError: if it has ended.
        """
        await asyncio.get_running_loop().sock_sendall(self._socket, pickle.dumps(question, pickle.HIGHEST_PROTOCOL))
        found = await self._read(LENGTH.size)
        (length,) = LENGTH.unpack_from(found)
        if len(found) < LENGTH.size + length:
            found += await self._read(LENGTH.size + length - len(found))
        answer: Found = pickle.loads(memoryview(found)[LENGTH.size :])  # noqa: S301 - written by a process of ours
        return answer

    def kill(self) -> None:
        """End the process at once; who waits for it gets an error. Not after :meth:`end`."""
        self._process.kill()

    def end(self) -> int | None:
        """End the process; its exit code. It blocks until the process has ended."""
        self._socket.close()
        return ended(self._process)

    async def _read(self, least: int) -> bytearray:
        """At least so many bytes; an answer comes as a whole, but for a very long list."""
        loop, found = asyncio.get_running_loop(), bytearray()
        while len(found) < least:
            part = await loop.sock_recv(self._socket, MOST_AT_ONCE)
            if not part:
                raise EOFError("the process has closed its socket")
            found += part
        return found
