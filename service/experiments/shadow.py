"""Rankings in the background: a bounded queue, a task that waits, and a process that computes."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from listwright.ranking.served.record import ShadowRanking
from listwright.service.experiments.failures import Failures
from listwright.service.experiments.metrics import ExperimentMetrics
from listwright.service.experiments.roster import Entry
from listwright.service.experiments.shadow_link import ShadowLink
from listwright.service.experiments.shadow_process import Found, Question

MOST_WAITING = 8
"""Lists that wait; more are dropped: the core has no time for them."""

REST_S = 1.0
"""Before a process that ended is started again."""


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
    """Has lists ranked by a challenger, one after the other. All of it belongs to the event loop's thread.

    Args:
        failures: of challengers.
        metrics: where times and agreement are counted.
    """

    def __init__(self, failures: Failures, metrics: ExperimentMetrics) -> None:
        self._failures, self._metrics = failures, metrics
        self._waiting: deque[ShadowTask] = deque()
        self._work: asyncio.Task[None] | None = None
        self._link: ShadowLink | None = None
        self._end = asyncio.Event()

    def put(self, task: ShadowTask) -> None:
        """Have a list ranked, or drop it and count. It never waits."""
        if self._end.is_set() or len(self._waiting) >= MOST_WAITING:
            task.then(self._dropped(task.entry, "the core had no time for it"))
            return
        self._waiting.append(task)
        if self._work is None or self._work.done():
            self._work = asyncio.get_running_loop().create_task(self._rank_waiting())

    async def close(self) -> None:
        """End the process; what waits is dropped and told."""
        self._end.set()
        if self._link is not None:
            self._link.kill()
        if self._work is not None:
            await self._work
        await self._forget_process()

    async def _rank_waiting(self) -> None:
        while self._waiting:
            task = self._waiting.popleft()
            task.then(await self._ranked(task))

    async def _ranked(self, task: ShadowTask) -> ShadowRanking:
        """What the process made of a list; its end is a failure of the challenger."""
        entry, name = task.entry, task.entry.definition.name
        try:
            found = await self._asked(task.question)
        except Exception as error:  # whatever becomes of the process, the next list is ranked
            code = await self._forget_process()
            if self._end.is_set():
                return self._dropped(entry, "the service stopped")
            why = f"the process that ranked ended with code {code} ({type(error).__name__})"
            self._failures.failed(entry, why)
            self._count(entry, "shadow_failed")
            with suppress(TimeoutError):
                await asyncio.wait_for(self._end.wait(), REST_S)
            return ShadowRanking(named(entry), (), f"failed: {why}")
        outcome = found.status.partition(":")[0]
        if outcome == "ok":
            self._failures.succeeded(name)
        else:
            self._failures.failed(entry, found.status)
        if found.agreement is not None:
            self._metrics.shadow_seconds.labels(name).observe(found.seconds)
            for measure, value in zip(("kendall_tau", "rbo", "top_1"), found.agreement, strict=True):
                self._metrics.agreement.labels(name, measure).observe(value)
        self._count(entry, f"shadow_{outcome}")
        return ShadowRanking(named(entry), found.order, found.status)

    async def _asked(self, question: Question) -> Found:
        if self._link is None and not self._end.is_set():
            self._link = await asyncio.to_thread(ShadowLink.started)
        if self._link is None or self._end.is_set():
            raise EOFError("the service stops")
        return await self._link.ask(question)

    async def _forget_process(self) -> int | None:
        """End the process, if there is one; its exit code."""
        link, self._link = self._link, None
        return None if link is None else await asyncio.to_thread(link.end)

    def _dropped(self, entry: Entry, why: str) -> ShadowRanking:
        self._count(entry, "shadow_dropped")
        return ShadowRanking(named(entry), (), f"dropped: {why}")

    def _count(self, entry: Entry, outcome: str) -> None:
        self._metrics.requests.labels(entry.definition.name, outcome).inc()


def named(entry: Entry) -> str:
    """The challenger as ``name/version``."""
    assert entry.challenger is not None
    return f"{entry.challenger.manifest.name}/{entry.challenger.manifest.version}"
