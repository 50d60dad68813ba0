"""Several serving processes behind one listening socket, and the process that looks after them.

One socket, and not one per process (SO_REUSEPORT): what a killed worker has not accepted yet, another one does.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import socket
import time
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any

from prometheus_client import CollectorRegistry

from listwright.service.bundles.loading import Served
from listwright.service.child_process import adopt_orphans, reap_orphans
from listwright.service.settings import Settings
from listwright.service.telemetry import logs
from listwright.service.telemetry.processes import own_metrics
from listwright.service.transport.server import FINISH_WITHIN_S, announce
from listwright.service.workers.heartbeat import CHECKS, HeartbeatMonitor
from listwright.service.workers.metrics_relay import Keep, Outbox, Samples, ScrapeRequest, ScrapeRounds
from listwright.service.workers.worker import HELD, work

LONGEST_PAUSE_S = 30.0
"""Between the end of a worker and the start of the next, where they keep ending."""

STEADY_AFTER_S = 60.0
"""A worker that ends this long after the one before is a single case: it is replaced at once."""

MOST_KILLED = 8
"""Workers that are killed one after the other before any can serve; with the pauses between, about two minutes."""

KILL_AFTER_S = FINISH_WITHIN_S + 3.0
"""Past the last moment of draining: a worker that has not ended by then never will."""

_spawn = multiprocessing.get_context("spawn")  # a fork would share the locks of threads that it does not have
_log = logging.getLogger("listwright.workers")


def supervise(settings: Settings, ports: Sequence[socket.socket]) -> int:
    """Serve with several workers until told to stop; the exit code.

    Passes SIGTERM and SIGINT on, and in front of a folder of bundles SIGHUP, replaces workers that die, and ends by
    itself only when no worker can serve.

    Args:
        settings: of the service.
        ports: bound, not listening yet.
    """
    announce(settings, ports)
    workers = Workers(settings, ports)
    woken, waker = socket.socketpair()
    woken.setblocking(False)
    waker.setblocking(False)
    signal.set_wakeup_fd(waker.fileno())
    stop_or_reload = (signal.SIGTERM, signal.SIGINT, *([signal.SIGHUP] if settings.models is not None else []))
    for heeded in (*stop_or_reload, signal.SIGCHLD):
        signal.signal(heeded, lambda *_: None)  # its number arrives through the socket pair
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGHUP,))
    adopt_orphans()
    while not workers.ended:
        workers.start_missing()
        for ready in wait([woken, *workers.watched()], timeout=workers.pause_s()):
            if ready is woken:
                for number in woken.recv(64):
                    if number in stop_or_reload:
                        workers.heed(signal.Signals(number))
        workers.look()
        reap_orphans(workers.pids())
    return workers.code


@dataclass
class Worker:
    """One worker process, as its supervisor sees it."""

    process: SpawnProcess
    pipe: Connection
    outbox: Outbox
    heartbeat: HeartbeatMonitor
    ready: bool = False
    served: Served | None = None


class Workers:
    """All of them.

    Args:
        settings: of the service.
        ports: bound, not listening yet.
    """

    def __init__(self, settings: Settings, ports: Sequence[socket.socket]) -> None:
        self.code = 0
        self._settings, self._ports = settings, ports
        self._workers: list[Worker] = []
        own = CollectorRegistry()
        self._restarts, self._rounds = own_metrics(own), ScrapeRounds(own)
        self._served: Served | None = None
        self._said: str | None = None
        self._stop_by: float | None = None
        self._deaths, self._killed, self._died_at, self._start_at = 0, 0, -STEADY_AFTER_S, 0.0
        self._check_at: float | None = None

    @property
    def ended(self) -> bool:
        """Whether there is nothing left to look after."""
        return self._stop_by is not None and not self._workers

    def watched(self) -> list[Any]:
        """What shows that a worker has ended, or has something to tell."""
        return [w.process.sentinel for w in self._workers] + [w.pipe for w in self._workers if not w.pipe.closed]

    def pids(self) -> set[int]:
        """Of the worker processes."""
        return {worker.process.pid for worker in self._workers if worker.process.pid is not None}

    def pause_s(self) -> float | None:
        """How long nothing needs to be done unless something happens; None for as long as it takes."""
        start_at = self._start_at if len(self._workers) < self._wanted() else None
        moments = [at for at in (self._stop_by or start_at, self._rounds.due, self._check_at) if at is not None]
        return max(0.0, min(moments) - time.monotonic()) if moments else None

    def start_missing(self) -> None:
        """Start workers until there are enough, unless it is too early after the last death."""
        while len(self._workers) < self._wanted() and time.monotonic() >= self._start_at:
            ours, theirs = _spawn.Pipe()
            beats_in, beats_out = _spawn.Pipe(duplex=False)
            process = _spawn.Process(target=work, args=(self._settings, self._ports, theirs, beats_out, self._served))
            before = signal.pthread_sigmask(signal.SIG_BLOCK, HELD)
            process.start()
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            theirs.close()
            beats_out.close()
            self._workers.append(Worker(process, ours, Outbox(ours), HeartbeatMonitor(beats_in)))

    def heed(self, number: signal.Signals) -> None:
        """Pass a signal on; SIGTERM and SIGINT are the beginning of the end."""
        if number != signal.SIGHUP and self._stop_by is None:
            self._stop(0)
        for worker in self._workers:
            self._signal(worker, number)

    def look(self) -> None:
        """Read what workers report, and find those that have ended."""
        for worker in list(self._workers):
            self._hear(worker)
            if not worker.process.is_alive():
                self._hear(worker)  # its last words
                self._workers.remove(worker)
                self._rounds.ended(worker.process.pid)
                self._record_end(worker)
        self._rounds.look(self._serving())
        self._kill_hung()
        if self._stop_by is not None and time.monotonic() >= self._stop_by:
            for worker in self._workers:
                _log.error("worker %s does not end: killed", worker.process.pid)
                worker.process.kill()
                self.code = self.code or 1
            self._stop_by = time.monotonic() + KILL_AFTER_S

    def _kill_hung(self) -> None:
        """Kill workers that answer no more; those that load, or end, have limits of their own."""
        serving = [worker for worker in self._workers if worker.ready and self._stop_by is None]
        if not serving:
            self._check_at = None
        elif self._check_at is None or time.monotonic() >= self._check_at:
            hang_s = self._settings.hang_s
            self._check_at = time.monotonic() + hang_s / CHECKS
            for worker in serving:
                if worker.heartbeat.stops():
                    _log.error("the event loop of worker %s has hung for %g s: killed", worker.process.pid, hang_s)
                    worker.process.kill()

    def _wanted(self) -> int:
        return self._settings.workers if self._stop_by is None else 0

    def _serving(self) -> dict[Hashable, Outbox]:
        return {worker.process.pid: worker.outbox for worker in self._workers if worker.ready}

    def _hear(self, worker: Worker) -> None:
        try:
            while not worker.pipe.closed and worker.pipe.poll():
                served: Served | str | ScrapeRequest | Samples = worker.pipe.recv()
                if isinstance(served, str):
                    self._say(served)
                    continue
                if isinstance(served, ScrapeRequest):
                    self._rounds.asked(worker.outbox, self._serving())
                    continue
                if isinstance(served, Samples):
                    self._rounds.told(worker.process.pid, served.packed[0])
                    continue
                worker.ready, self._killed = True, 0
                self._learn(worker, served)
        except (EOFError, ConnectionResetError):  # it is about to end
            worker.pipe.close()

    def _learn(self, worker: Worker, served: Served) -> None:
        """What a worker serves: the others need not wait until they look for themselves, and all keep the same."""
        worker.served = served
        alike = [o.served for o in self._workers if o is not worker and o.served and o.served.current == served.current]
        if alike:  # who told first of what is served now has said what it was before
            self._served = alike[0]
            if served.kept != alike[0].kept:
                worker.outbox.put(Keep(alike[0].kept))
            return
        first = self._served is None
        self._served = served
        for other in self._workers:
            if other is not worker and not first:
                self._signal(other, signal.SIGHUP)

    def _say(self, error: str) -> None:
        """What is wrong with a bundle all workers find, and it is said once."""
        if error != self._said:
            logs.say(f"error: {error}")
        self._said = error

    def _record_end(self, worker: Worker) -> None:
        worker.process.join()
        worker.outbox.close()
        worker.pipe.close()
        worker.heartbeat.pipe.close()
        pid, code = worker.process.pid, worker.process.exitcode or 0
        if self._stop_by is not None:
            if code not in (0, -signal.SIGTERM):  # SIGTERM ends one that was still loading
                self.code = self.code or max(code, 1)
            return
        how = f"with code {code}" if code >= 0 else f"by {signal.Signals(-code).name}"
        self._killed += not worker.ready and code == -signal.SIGKILL  # for memory: later there may be enough
        alone = not worker.ready and not any(other.ready for other in self._workers)
        if alone and not (code == -signal.SIGKILL and self._killed <= MOST_KILLED):
            _log.critical("worker %s ended %s before it could serve, and no other serves: stopping", pid, how)
            self._stop(code if code > 0 else 1)
            for other in self._workers:
                self._signal(other, signal.SIGTERM)
            return
        now = time.monotonic()
        self._deaths = 1 if now - self._died_at > STEADY_AFTER_S else self._deaths + 1
        self._died_at = now
        pause_s = 0.0 if self._deaths == 1 else min(LONGEST_PAUSE_S, 2.0 ** (self._deaths - 2))
        self._start_at = now + pause_s
        self._restarts.inc()
        _log.error("worker %s ended %s: another is started in %g s", pid, how, pause_s)

    def _stop(self, code: int) -> None:
        self.code = code
        self._stop_by = time.monotonic() + self._settings.drain_s + KILL_AFTER_S
        for port in self._ports:
            port.close()  # else callers would wait at a port without a process

    @staticmethod
    def _signal(worker: Worker, number: signal.Signals) -> None:
        if worker.process.is_alive() and worker.process.pid is not None:
            os.kill(worker.process.pid, number)
