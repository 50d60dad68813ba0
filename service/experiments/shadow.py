"""Rankings in the background: a bounded queue, a thread that waits, and a process that computes."""

from __future__ import annotations

import asyncio
import multiprocessing
import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import NamedTuple

from listwright.ranking.served.record import ShadowRanking
from listwright.service.child_process import JOIN_S, Background, ended
from listwright.service.experiments.failures import Failures
from listwright.service.experiments.metrics import ExperimentMetrics
from listwright.service.experiments.roster import Entry
from listwright.service.experiments.shadow_process import Found, Question, run

MOST_WAITING = 8
"""Lists that wait; more are dropped: the core has no time for them."""

REST_S = 1.0
"""Before a process that ended is started again."""

_spawn = multiprocessing.get_context("spawn")  # a fork would share the locks of threads that it does not have


class ShadowTask(NamedTuple):
    """A list that was answered.

    Args:
        entry: the experiment.
        question: for the process.
        then: gets what came of it, in the event loop's thread.
    """

    entry: Entry
    question: Question
    then: Callable[[ShadowRanking], None]


class Shadow:
    """Has lists ranked by a challenger, one after the other. :meth:`put` never waits.

    Args:
        failures: of challengers.
        metrics: where times and agreement are counted.
        background: holds the process while a request is ranked.
    """

    def __init__(self, failures: Failures, metrics: ExperimentMetrics, background: Background) -> None:
        self._failures, self._metrics, self._background = failures, metrics, background
        self._waiting: queue.Queue[ShadowTask | None] = queue.Queue(MOST_WAITING)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._process: SpawnProcess | None = None
        self._pipe: Connection | None = None
        self._end = threading.Event()
        self._rest_until = 0.0

    def put(self, task: ShadowTask) -> None:
        """Have a list ranked, or drop it and count. From the event loop's thread."""
        if self._thread is None and not self._end.is_set():
            self._loop = asyncio.get_running_loop()
            self._thread = threading.Thread(target=self._work, name="shadow", daemon=True)
            self._thread.start()
        try:
            if self._end.is_set():
                raise queue.Full
            self._waiting.put_nowait(task)
        except queue.Full:
            self._count(task.entry, "shadow_dropped")
            task.then(ShadowRanking(named(task.entry), (), "dropped: the core had no time for it"))

    def close(self) -> None:
        """End thread and process; what waits is dropped and told. Not from the event loop's thread."""
        self._end.set()
        with suppress(AttributeError, ValueError):  # there is none, or the thread has just closed it
            self._process.kill()  # type: ignore[union-attr]  # the thread that waits for it goes on at once
        with suppress(queue.Full):
            self._waiting.put_nowait(None)
        if self._thread is not None:
            self._thread.join(JOIN_S)

    def _work(self) -> None:
        while (task := self._waiting.get()) is not None:
            self._end.wait(max(0.0, self._rest_until - time.monotonic()))
            dropped = self._end.is_set()
            told = "dropped: the service stopped" if dropped else "failed"
            seen = ShadowRanking(named(task.entry), (), told) if dropped else self._ranked(task)
            if dropped:
                self._count(task.entry, "shadow_dropped")
            assert self._loop is not None
            with suppress(RuntimeError):  # the event loop has ended, and with it the log
                self._loop.call_soon_threadsafe(task.then, seen)
            if self._end.is_set() and self._waiting.empty():
                break
        self._forget_process()

    def _ranked(self, task: ShadowTask) -> ShadowRanking:
        """What the process made of a list; its end is a failure of the challenger."""
        entry, name = task.entry, task.entry.definition.name
        try:
            found = self._asked(task.question)
        except Exception as error:  # whatever becomes of the process, the thread goes on
            code = self._forget_process()
            if self._end.is_set():
                self._count(entry, "shadow_dropped")
                return ShadowRanking(named(entry), (), "dropped: the service stopped")
            why = f"the process that ranked ended with code {code} ({type(error).__name__})"
            self._failures.failed(entry, why)
            self._count(entry, "shadow_failed")
            self._end.wait(REST_S)
            return ShadowRanking(named(entry), (), f"failed: {why}")
        outcome = found.status.partition(":")[0]
        if outcome == "ok":
            self._failures.succeeded(name)
        else:
            self._failures.failed(entry, found.status)
        if found.agreement is not None:
            self._metrics.shadow_seconds.labels(name).observe(found.cpu_s)
            for measure, value in zip(("kendall_tau", "rbo", "top_1"), found.agreement, strict=True):
                self._metrics.agreement.labels(name, measure).observe(value)
        self._count(entry, f"shadow_{outcome}")
        # here and not in the process: one that has a list is stopped and let go with each request
        self._rest_until = time.monotonic() + found.cpu_s * (1.0 / entry.definition.core_share - 1.0)
        return ShadowRanking(named(entry), found.order, found.status)

    def _asked(self, question: Question) -> Found:
        if self._pipe is None:
            self._pipe, theirs = _spawn.Pipe()
            process = _spawn.Process(target=run, args=(theirs,), name="shadow", daemon=True)
            process.start()
            theirs.close()
            self._process = process
            self._pipe.recv()  # it is there: before, it must not be held
        assert self._process is not None
        with self._background.computing(self._process):
            self._pipe.send(question)
            found: Found = self._pipe.recv()
        return found

    def _forget_process(self) -> int | None:
        """End the process, if there is one; its exit code."""
        process, pipe = self._process, self._pipe
        self._process = self._pipe = None
        if pipe is not None:
            pipe.close()
        return None if process is None else ended(process)

    def _count(self, entry: Entry, outcome: str) -> None:
        self._metrics.requests.labels(entry.definition.name, outcome).inc()


def named(entry: Entry) -> str:
    """The challenger as ``name/version``."""
    assert entry.challenger is not None
    return f"{entry.challenger.manifest.name}/{entry.challenger.manifest.version}"
