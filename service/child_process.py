"""Processes that compute in the background: of the lowest priority, and ended with the worker that started them."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Collection
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess

JOIN_S = 2.0

spawn = multiprocessing.get_context("spawn")  # a fork would share the locks of threads that it does not have

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
"""Of ``prctl(2)``: the signal that a process gets when the thread that started it ends; and that a process gets the
children of its descendants that have ended."""


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
        own: process ids of the children that other code waits for.
    """
    with suppress(ChildProcessError):  # there is no child at all
        while (child := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) and child.si_pid not in own:
            os.waitpid(child.si_pid, os.WNOHANG)


class ChildLink:
    """A child process and the pipe to it, where there is one."""

    _process: SpawnProcess | None = None
    _pipe: Connection | None = None

    def kill(self) -> None:
        """End the process at once; a thread that waits for it goes on."""
        with suppress(AttributeError, ValueError):  # there is none, or another thread has just closed it
            self._process.kill()  # type: ignore[union-attr]

    def _start_process(self, name: str, run: Callable[..., None], *arguments: object) -> Connection:
        """Start a process that gets its end of a pipe; return the other end."""
        pipe, theirs = spawn.Pipe()
        process = spawn.Process(target=run, args=(theirs, *arguments), name=name, daemon=True)
        process.start()
        theirs.close()
        self._process, self._pipe = process, pipe
        return pipe

    def _forget_process(self) -> int | None:
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
