"""Processes that compute in the background: of the lowest priority, and ended with the worker that started them."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Any

START_S = 120.0
"""Seconds that a process may take to start; then it is killed."""

LOOK_S = 0.02
"""Seconds between two checks whether the caller still waits."""

STOP_S = 2.0
"""Seconds in which a process has to stop its work; then it is killed."""

JOIN_S = 2.0
"""Seconds in which a process has to end; then it is killed."""

spawn = multiprocessing.get_context("spawn")  # a fork would share the locks of threads that it does not have

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
"""Options of ``prctl(2)``: a process gets a signal when the thread that started it ends; a process adopts the children
of its descendants that have ended."""


def lower_priority() -> None:
    """Lower the priority of this child process to idle time, and let it end with the thread that started it."""
    if sys.platform == "linux":
        # the kernel sends SIGHUP to a group that loses its parent while a member is stopped: not to the worker
        os.setpgid(0, 0)
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    try:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    except (AttributeError, OSError):
        os.nice(19)


def adopt_orphans() -> None:
    """Make processes whose parent has ended children of this one, which reaps them: see :func:`reap_orphans`."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def reap_orphans(own: Collection[int]) -> None:
    """Reap children that have ended, up to the first that other code waits for.

    Args:
        own: Process ids of the children that other code waits for.
    """
    with suppress(ChildProcessError):  # there is no child at all
        while (child := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) and child.si_pid not in own:
            os.waitpid(child.si_pid, os.WNOHANG)


def answer_messages(pipe: Connection, answer: Callable[[Any], object], idle_s: float | None = None) -> None:
    """Answer the messages of a :class:`ChildLink`, with the lowest priority, until that is closed.

    Args:
        pipe: End of the pipe that belongs to this process. A message that arrives before the reply to the last one asks
            to stop the work.
        answer: Function that returns the reply to a message.
        idle_s: Seconds without a message after which the process ends, too; None: never.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the worker handles Ctrl-C, and closes the pipe
    lower_priority()
    with suppress(EOFError, OSError):
        pipe.send(None)  # ready
        while pipe.poll(idle_s):
            if (message := pipe.recv()) is not None:  # else it came after the reply that it should have stopped
                pipe.send(answer(message))


class ChildLink:
    """A child process behind a pipe, started for the first message and again once it has ended.

    One thread calls :meth:`ask` and :meth:`join`. Any other may call :meth:`kill` and :meth:`stop`.

    Args:
        name: Name of the process.
        run: Function of the process, which gets the other end of the pipe and calls :func:`answer_messages`.
        arguments: Further arguments of the function.

    Attributes:
        stopped: Event that is set once the process is ended for good.
    """

    def __init__(self, name: str, run: Callable[..., None], *arguments: object) -> None:
        self._name, self._run, self._arguments = name, run, arguments
        self._process: SpawnProcess | None = None
        self._pipe: Connection | None = None
        self._ready, self._ends_start_at = False, 0.0
        self.stopped = threading.Event()

    def ask(self, message: object, check: Callable[[], None] = lambda: None) -> Any:
        """Send a message, and return the reply.

        Args:
            message: Message to send once the process is ready.
            check: Function that is called every :data:`LOOK_S` meanwhile. If it raises, the process stops its work, or
                is killed if that takes longer than :data:`STOP_S`.

        Raises:
            EOFError, OSError: if the process ends, or takes longer than :data:`START_S` to start.
        """
        pipe = self._pipe or self._start()
        if not self._ready:  # what is sent to a process that does not read yet would fill the pipe, and block
            self._receive(pipe, check)
            self._ready = True
        pipe.send(message)
        try:
            return self._receive(pipe, check)
        except (EOFError, OSError):
            raise
        except Exception:
            pipe.send(None)
            if pipe.poll(STOP_S):
                pipe.recv()
            else:
                self.kill()
                self.join()
            raise

    def kill(self) -> None:
        """End the process at once; a thread that waits for it goes on."""
        with suppress(AttributeError, ValueError):  # there is none, or another thread has just closed it
            self._process.kill()  # type: ignore[union-attr]

    def stop(self) -> None:
        """End the process for good."""
        self.stopped.set()
        self.kill()

    def join(self) -> int | None:
        """Wait for the end of the process, if there is one, or kill it; return its exit code, if it has one."""
        process, pipe = self._process, self._pipe
        self._process = self._pipe = None
        if pipe is not None:
            pipe.close()
        if process is None:
            return None
        process.join(JOIN_S)
        if process.is_alive():
            process.kill()
            process.join(JOIN_S)
        code = process.exitcode
        if code is not None:
            process.close()
        return code

    def _receive(self, pipe: Connection, check: Callable[[], None]) -> Any:
        while not pipe.poll(LOOK_S):
            check()
            if not self._ready and time.perf_counter() > self._ends_start_at:
                self.kill()
                raise EOFError
        return pipe.recv()

    def _start(self) -> Connection:
        pipe, theirs = spawn.Pipe()
        process = spawn.Process(target=self._run, args=(theirs, *self._arguments), name=self._name, daemon=True)
        process.start()
        theirs.close()
        self._process, self._pipe = process, pipe
        self._ready, self._ends_start_at = False, time.perf_counter() + START_S
        if self.stopped.is_set():
            self.kill()
        return pipe
