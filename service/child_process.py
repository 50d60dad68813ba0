"""Processes that compute in the background: of the lowest priority, and ended with the worker that started them."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Collection
from contextlib import suppress
from multiprocessing.context import SpawnProcess

JOIN_S = 2.0

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


def end(process: SpawnProcess) -> int | None:
    """Wait for a process whose pipe is closed, and kill it if it does not end; return its exit code, if it has one."""
    process.join(JOIN_S)
    if process.is_alive():
        process.kill()
        process.join(JOIN_S)
    code = process.exitcode
    if code is not None:
        process.close()
    return code
