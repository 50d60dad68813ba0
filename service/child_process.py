"""Processes of a worker that compute in the background: they give way to requests, and end with the worker."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.context import SpawnProcess

JOIN_S = 2.0

_PR_SET_PDEATHSIG = 1
"""Of ``prctl(2)``: the signal that a process gets when the thread that started it ends."""


class Background:
    """Holds processes while a request is ranked: ``SIGSTOP`` when it begins, ``SIGCONT`` when it has ended.

    On a virtual machine, one busy process of the lowest priority on another core makes the 99th percentile of a ranking
    several times as long (``docs/decisions/0013-background-processes-are-held.md``). Linux only; elsewhere nothing is
    held.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ranked = 0
        self._computing: set[int] = set()

    @contextmanager
    def held(self) -> Iterator[None]:
        """While a request is ranked no process computes. From the event loop's thread."""
        self._count(1)
        try:
            yield
        finally:
            self._count(-1)

    @contextmanager
    def computing(self, process: SpawnProcess) -> Iterator[None]:
        """While the process computes, it may be held; outside it never is. From any thread.

        Args:
            process: a child that has started.
        """
        handle = _handle(process)
        if handle is None:
            yield
            return
        with self._lock:
            self._computing.add(handle)
            if self._ranked:
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
            before, self._ranked = self._ranked, self._ranked + change
            if before and self._ranked:
                return
            for handle in self._computing:
                _send(handle, signal.SIGSTOP if self._ranked else signal.SIGCONT)


def _handle(process: SpawnProcess) -> int | None:
    """A pidfd, which never means another process; None where there is none of that kind, or the process has gone."""
    if sys.platform != "linux" or process.pid is None:
        return None
    try:
        return os.pidfd_open(process.pid)
    except OSError:  # an old kernel, or a sandbox that knows no pidfd: the process has a low priority all the same
        return None


def _send(handle: int, number: signal.Signals) -> None:
    try:
        signal.pidfd_send_signal(handle, number)
    except ProcessLookupError:
        return  # it has ended; who waits for its answer notices


def step_back() -> None:
    """In a child: run when nobody else wants to, and end with the thread that started it, even while it is held."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    try:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    except (AttributeError, OSError):
        os.nice(19)


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
