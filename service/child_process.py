"""Processes of a worker that compute in the background: they give way to requests, and end with the worker."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.context import SpawnProcess

JOIN_S = 2.0

HELD_S, LET_GO_S = 0.2, 0.02
"""Of a process, where requests follow one another without a pause: else explanations would never end there."""

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
"""Of ``prctl(2)``: the signal that a process gets when the thread that started it ends; and that a process gets the
children of its descendants that have ended."""


class Background:
    """Holds processes while a request is ranked: ``SIGSTOP`` when it begins, ``SIGCONT`` when it has ended.

    On a virtual machine, one busy process of the lowest priority on another core makes the 99th percentile of a ranking
    several times as long (``docs/decisions/0013-background-processes-are-held.md``). Where there is always a request, a
    process gets :data:`LET_GO_S` after each :data:`HELD_S`. Linux only; elsewhere nothing is held.

    Args:
        clock: seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._ranked, self._since = 0, 0.0
        self._computing: set[int] = set()
        self._holds = False

    @contextmanager
    def held(self) -> Iterator[None]:
        """While a request waits for its turn and is ranked, no process computes. From the event loop's thread."""
        self._count(1)
        try:
            yield
        finally:
            self._count(-1)

    @contextmanager
    def computing(self, process: SpawnProcess) -> Iterator[None]:
        """While the process computes, it may be held; outside it never is. From any thread.

        Args:
            process: a child that has called :func:`step_back`.
        """
        handle = _handle(process)
        if handle is None:
            yield
            return
        with self._lock:
            self._computing.add(handle)
            if self._holds:
                _send(handle, signal.SIGSTOP)
        try:
            yield
        finally:
            with self._lock:
                self._computing.remove(handle)
                _send(handle, signal.SIGCONT)
            os.close(handle)

    def _count(self, change: int) -> None:
        with self._lock:
            if self._ranked == 0:
                self._since = self._clock()
            self._ranked += change
            holds = self._ranked > 0 and (self._clock() - self._since) % (HELD_S + LET_GO_S) < HELD_S
            if holds == self._holds:
                return
            self._holds = holds
            for handle in self._computing:
                _send(handle, signal.SIGSTOP if holds else signal.SIGCONT)


def _handle(process: SpawnProcess) -> int | None:
    """A pidfd, which stays with its process; None where there is none of that kind, or the process has gone."""
    if sys.platform != "linux" or not process.is_alive() or process.pid is None:
        return None
    try:
        return os.pidfd_open(process.pid)
    except (AttributeError, OSError):  # Python, the kernel or a sandbox has no pidfd; the priority is low all the same
        return None


def _send(handle: int, number: signal.Signals) -> None:
    try:
        signal.pidfd_send_signal(handle, number)
    except (AttributeError, OSError):
        return  # it has ended, and who waits for its answer notices; or a sandbox forbids it: then nothing is held


def step_back() -> None:
    """In a child: run when nobody else wants to, and end with the thread that started it, even while it is held."""
    if sys.platform == "linux":
        # the kernel sends SIGHUP to a group that loses its parent while a member is stopped: not to the worker
        os.setpgid(0, 0)
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    try:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    except (AttributeError, OSError):
        os.nice(19)


def adopt_orphans() -> None:
    """Have processes whose parent has ended become children of this one, which reaps them: see :func:`reap_orphans`."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def reap_orphans(own: Collection[int]) -> None:
    """Let go of children that have ended, up to the first that somebody else waits for.

    Args:
        own: process ids of the children that somebody else waits for.
    """
    with suppress(ChildProcessError):  # there is no child at all
        while (found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) and found.si_pid not in own:
            os.waitpid(found.si_pid, os.WNOHANG)


def ended(process: SpawnProcess) -> int | None:
    """Wait for a process whose pipe is closed, and kill it if it does not end; its exit code, if it has one."""
    process.join(JOIN_S)
    if process.is_alive():
        process.kill()
        process.join(JOIN_S)
    code = process.exitcode
    if code is not None:
        process.close()
    return code
