"""A scrape reaches one worker and gets the sum over all: it asks the supervisor, which asks the others."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Coroutine, Hashable
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

from prometheus_client import CollectorRegistry

from listwright.service.bundles.loading import Paths
from listwright.service.telemetry.merge import Snapshot, counted, current, merged, packed, snapshot, text, unpacked
from listwright.service.telemetry.metrics import Telemetry
from listwright.service.telemetry.processes import START_TIME

WITHIN_S = 1.0
"""A worker that has not said what it counts after this long goes into the sum as it was last known."""


MOST_UNHEARD = 16
"""Questions to a supervisor that does not answer."""


@dataclass(frozen=True, slots=True)
class ScrapeRequest:
    """From a worker: collect the metrics of all workers. From the supervisor: send yours."""


@dataclass(frozen=True, slots=True)
class Keep:
    """Keep these for a rollback, as the other workers do (to a worker)."""

    paths: Paths


@dataclass(frozen=True, slots=True)
class Samples:
    """What a worker counts (to the supervisor), or what each of them does (to whom was scraped)."""

    packed: tuple[bytes, ...]


Keeper = Callable[[Paths], Coroutine[Any, Any, None]]
"""Does what :class:`Keep` asks for."""


class MetricsRelay:
    """The worker's side. For its event loop, but for the first steps.

    Args:
        pipe: to the supervisor.
        telemetry: of this process.
        keep: of this process.
    """

    def __init__(
        self, pipe: Connection, telemetry: Telemetry, keep: Callable[[Paths], Coroutine[Any, Any, None]]
    ) -> None:
        self._pipe, self._telemetry, self._keep = pipe, telemetry, keep
        self._answers: list[asyncio.Future[tuple[bytes, ...]]] = []
        self._unheard = 0
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Listen to the supervisor, from the running event loop."""
        asyncio.get_running_loop().add_reader(self._pipe.fileno(), self._hear)

    async def text(self) -> bytes:
        """What all workers count, in Prometheus' text format; what this one does if the supervisor does not answer."""
        answer: asyncio.Future[tuple[bytes, ...]] = asyncio.get_running_loop().create_future()
        self._answers.append(answer)
        try:
            self._ask()
            parts = await asyncio.wait_for(answer, 2 * WITHIN_S)
        except (OSError, TimeoutError):  # the supervisor is gone, or stopped: this worker will soon be, too
            parts = (await asyncio.to_thread(self._taken),)
        finally:
            if answer in self._answers:
                self._answers.remove(answer)
        return await asyncio.to_thread(lambda: text(merged(map(unpacked, parts))))

    def _ask(self) -> None:
        """Ask the supervisor, unless it has not read the last questions: a full pipe would stop this process."""
        if self._unheard < MOST_UNHEARD:
            self._unheard += 1
            self._pipe.send(ScrapeRequest())

    def _taken(self) -> bytes:
        taken = snapshot(self._telemetry.registry)
        taken.pop(START_TIME, None)  # a worker that is replaced is no restart of the service
        return packed(taken)

    def _hear(self) -> None:
        try:
            while self._pipe.poll():
                message: ScrapeRequest | Samples | Keep = self._pipe.recv()
                if isinstance(message, Samples):
                    self._unheard = 0
                    answers, self._answers = self._answers, []
                    for answer in answers:
                        if not answer.done():
                            answer.set_result(message.packed)
                else:
                    task = asyncio.ensure_future(
                        self._keep(message.paths) if isinstance(message, Keep) else self._say()
                    )
                    self._tasks.add(task)
                    task.add_done_callback(self._tasks.discard)
        except (EOFError, OSError):  # the supervisor is gone
            asyncio.get_running_loop().remove_reader(self._pipe.fileno())

    async def _say(self) -> None:
        taken = await asyncio.to_thread(self._taken)
        with suppress(OSError):
            self._pipe.send(Samples((taken,)))


class Outbox:
    """The supervisor's way to a worker, by a thread of its own: no other worker waits for one that hangs.

    Args:
        pipe: to the worker.
    """

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._messages: queue.Queue[ScrapeRequest | Samples | Keep | None] = queue.Queue(MOST_UNHEARD)
        self._thread = threading.Thread(target=self._send, daemon=True)
        self._thread.start()

    def put(self, message: ScrapeRequest | Samples | Keep) -> None:
        """Send a message, or drop it if the worker has not read those before: it will be known as it last was."""
        with suppress(queue.Full):
            self._messages.put_nowait(message)

    def close(self) -> None:
        """The worker has ended."""
        with suppress(queue.Full):
            self._messages.put_nowait(None)
        self._thread.join(WITHIN_S)

    def _send(self) -> None:
        with suppress(OSError):  # it has ended
            while (message := self._messages.get()) is not None:
                self._pipe.send(message)


@dataclass
class ScrapeRounds:
    """The supervisor's side: one round at a time asks every worker, and answers those that were scraped.

    What workers that ended had counted by the last round stays in the sum, or counters would go down.

    Args:
        own: what the supervisor counts itself, which goes into the sum.
    """

    own: CollectorRegistry
    due: float | None = None
    _last: dict[Hashable, bytes] = field(default_factory=dict)
    _past: Snapshot = field(default_factory=dict)
    _missing: set[Hashable] = field(default_factory=set)
    _scraped: list[Outbox] = field(default_factory=list)
    _next: list[Outbox] = field(default_factory=list)

    def asked(self, by: Outbox, workers: dict[Hashable, Outbox]) -> None:
        """A worker was scraped. One that comes while a round is under way gets the next: this one may be too old."""
        if self.due is not None:
            self._next.append(by)
            return
        self._scraped, self._missing = [by], set(workers)
        self.due = time.monotonic() + WITHIN_S
        for outbox in workers.values():
            outbox.put(ScrapeRequest())

    def told(self, worker: Hashable, taken: bytes) -> None:
        """A worker said what it counts."""
        self._last[worker] = taken
        self._missing.discard(worker)

    def ended(self, worker: Hashable) -> None:
        """A worker is no more."""
        self._missing.discard(worker)
        if worker in self._last:
            self._past = merged([self._past, counted(unpacked(self._last.pop(worker)))])

    def look(self, workers: dict[Hashable, Outbox]) -> None:
        """End the round if all have answered, or it is time; begin the next if there is one to answer."""
        if self.due is None or (self._missing and time.monotonic() < self.due):
            return
        if self._past:
            self._past = current(self._past, merged(map(unpacked, self._last.values())))
        answer = Samples((packed(self._past), packed(snapshot(self.own)), *self._last.values()))
        for outbox in self._scraped:
            outbox.put(answer)
        self.due, waiting, self._next = None, self._next, []
        if waiting:
            self.asked(waiting[0], workers)
            self._scraped = waiting
