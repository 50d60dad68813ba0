"""Rankings in the background: a bounded queue, a thread that waits, and a process that computes."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from listwright.ranking.served_log.record import ShadowRanking
from listwright.service.child_process import JOIN_S, ChildLink
from listwright.service.experiments.roster import NO_TIME, Entry, ExperimentMetrics, Failures
from listwright.service.experiments.shadow_process import ChallengerRanking, Question, run
from listwright.service.participation import Participation

MOST_WAITING = 8
"""Lists that wait; more are dropped: the core has no time for them."""

REST_S = 1.0
"""Seconds before a process that ended is started again."""


class ShadowTask(NamedTuple):
    """A list that was answered.

    Args:
        entry: Experiment that the list takes part in.
        question: Question for the process.
        then: Function that is called with the outcome, in the event loop's thread.
    """

    entry: Entry
    question: Question
    then: Callable[[ShadowRanking], None]


class Shadow:
    """Queue of lists that a challenger ranks in the background. :meth:`put` never waits.

    All lists that wait are ranked in one go, then the challenger pauses: so few requests compete with it.

    Args:
        failures: Failures of challengers.
        metrics: Metrics of times and agreement.
    """

    def __init__(self, failures: Failures, metrics: ExperimentMetrics) -> None:
        self._failures, self._metrics = failures, metrics
        self._waiting: deque[ShadowTask] = deque()
        self._changed, self._link = threading.Condition(), ChildLink("shadow", run)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._rest_until = 0.0

    def put(self, task: ShadowTask) -> None:
        """Queue a list, or drop it and count. From the event loop's thread."""
        if self._thread is None and not self._link.stopped.is_set():
            self._loop = asyncio.get_running_loop()
            self._thread = threading.Thread(target=self._work, name="shadow", daemon=True)
            self._thread.start()
        with self._changed:
            if accepted := self.has_room() and not self._link.stopped.is_set():
                self._waiting.append(task)
                self._changed.notify()
        if not accepted:
            task.then(self._count_drop(task.entry, NO_TIME))

    def has_room(self) -> bool:
        """Return whether another list may wait."""
        return len(self._waiting) < MOST_WAITING

    def drop(self, entry: Entry) -> Participation:
        """Count a request whose list there is no room for; return its part. From any thread."""
        self._metrics.requests.count(entry.definition.name, "shadow_dropped")
        return entry.part_without_room

    def close(self) -> None:
        """End thread and process; what waits is dropped and reported. Not from the event loop's thread."""
        with self._changed:
            self._link.stop()
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(JOIN_S)

    def _work(self) -> None:
        while tasks := self._next():
            self._rank(tasks)
        while self._waiting:
            self._finish_first(self._count_drop(self._waiting[0].entry, "the service stopped"))
        self._link.join()

    def _next(self) -> tuple[ShadowTask, ...]:
        """Wait for lists and for the end of the pause; return all lists that wait, none at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._link.stopped.is_set())
        if self._link.stopped.wait(max(0.0, self._rest_until - time.monotonic())):
            return ()
        with self._changed:
            return tuple(self._waiting)

    def _rank(self, tasks: tuple[ShadowTask, ...]) -> None:
        """Have the first waiting lists ranked; if the process ends, its current list counts as failed."""
        try:
            for task in tasks:
                self._finish_first(self._account(task.entry, self._link.ask(task.question)))
        except Exception as error:  # the thread outlives the process
            code = self._link.join()
            if not self._link.stopped.is_set():
                why = f"the process that ranked ended with code {code} ({type(error).__name__})"
                entry = self._waiting[0].entry
                self._failures.note_failure(entry, why)
                self._metrics.requests.count(entry.definition.name, "shadow_failed")
                self._finish_first(ShadowRanking(entry.challenger_name, (), f"failed: {why}"))
                self._link.stopped.wait(REST_S)

    def _finish_first(self, outcome: ShadowRanking) -> None:
        """Remove the first waiting list, and report its outcome in the event loop."""
        task = self._waiting.popleft()
        assert self._loop is not None
        with suppress(RuntimeError):  # the event loop has ended, and with it the log
            self._loop.call_soon_threadsafe(task.then, outcome)

    def _account(self, entry: Entry, answer: ChallengerRanking) -> ShadowRanking:
        """Count the outcome of a list, and extend the pause by its share."""
        name = entry.definition.name
        outcome = answer.status.partition(":")[0]
        if outcome == "ok":
            self._failures.note_success(name)
        else:
            self._failures.note_failure(entry, answer.status)
        if answer.agreement is not None:
            self._metrics.shadow_seconds.labels(name).observe(answer.cpu_s)
            for measure, value in zip(("kendall_tau", "rbo", "top_1"), answer.agreement, strict=True):
                self._metrics.agreement.labels(name, measure).observe(value)
        self._metrics.requests.count(name, f"shadow_{outcome}")
        rest_s = answer.cpu_s * (1.0 / entry.definition.core_share - 1.0)
        self._rest_until = max(self._rest_until, time.monotonic()) + rest_s
        return ShadowRanking(entry.challenger_name, answer.order, answer.status)

    def _count_drop(self, entry: Entry, why: str) -> ShadowRanking:
        self._metrics.requests.count(entry.definition.name, "shadow_dropped")
        return ShadowRanking(entry.challenger_name, (), f"dropped: {why}")
