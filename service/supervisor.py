"""Several worker processes behind one listening socket, and the supervisor that starts, watches and replaces them.

All workers share one socket, not one per process (SO_REUSEPORT): another worker accepts the connections that a killed
one has not accepted. A worker sends heartbeats over a pipe of its own. Only they show that its event loop waits for
Python's global lock or for a disk, as the process itself stays alive. A worker that is scraped answers with the sum
over all workers: it asks the supervisor, which asks the others.
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import queue
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any

from prometheus_client import CollectorRegistry

from listwright.ranking.errors import ListwrightError
from listwright.service import hook
from listwright.service.app import create_app, server_of
from listwright.service.bundles import loading
from listwright.service.bundles.loading import BundleFolders, Paths
from listwright.service.bundles.models import Models
from listwright.service.child_process import adopt_orphans, reap_orphans, spawn
from listwright.service.settings import Settings
from listwright.service.telemetry import logs
from listwright.service.telemetry.merge import (
    START_TIME,
    Snapshot,
    drop_gauges,
    drop_unserved_versions,
    merge,
    own_metrics,
    pack,
    snapshot,
    text,
    unpack,
)
from listwright.service.telemetry.metrics import Telemetry
from listwright.service.transport.server import FINISH_WITHIN_S, announce, ignore_signals

LONGEST_PAUSE_S = 30.0
"""Longest pause between the end of a worker and the start of the next, where they keep ending."""

STEADY_AFTER_S = 60.0
"""Seconds after the last end of a worker from which the next one counts as the first: it is replaced at once."""

MOST_KILLED = 8
"""Workers that are killed one after the other before any can serve; with the pauses between, about two minutes."""

KILL_AFTER_S = FINISH_WITHIN_S + 3.0
"""Seconds after draining at which a worker that has not ended is killed."""

_log = logging.getLogger("listwright.workers")


def supervise(settings: Settings, ports: Sequence[socket.socket]) -> int:
    """Serve with several workers until a signal ends it; return the exit code.

    Passes SIGTERM and SIGINT on, and in front of a folder of bundles SIGHUP, replaces workers that die, and ends by
    itself only when no worker can serve.

    Args:
        settings: Settings of the service.
        ports: Sockets that are bound, not listening yet.
    """
    announce(settings, ports)
    workers = Workers(settings, ports)
    woken, waker = socket.socketpair()
    woken.setblocking(False)
    waker.setblocking(False)
    signal.set_wakeup_fd(waker.fileno())
    stop_or_reload = (signal.SIGTERM, signal.SIGINT, *([signal.SIGHUP] if settings.models is not None else []))
    for handled in (*stop_or_reload, signal.SIGCHLD):
        signal.signal(handled, lambda *_: None)  # its number arrives through the socket pair
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGHUP,))
    adopt_orphans()
    while not workers.ended:
        workers.start_missing()
        for ready in wait([woken, *workers.watched()], timeout=workers.pause_s()):
            if ready is woken:
                for number in woken.recv(64):
                    if number in stop_or_reload:
                        workers.handle_signal(signal.Signals(number))
        workers.look()
        reap_orphans(workers.pids())
    ignore_signals()
    return workers.code


@dataclass
class Worker:
    """One worker process, as its supervisor sees it."""

    process: SpawnProcess
    pipe: Connection
    outbox: Outbox
    heartbeat: HeartbeatMonitor
    ready: bool = False
    folders: BundleFolders | None = None


class Workers:
    """All worker processes.

    Args:
        settings: Settings of the service.
        ports: Sockets that are bound, not listening yet.
    """

    def __init__(self, settings: Settings, ports: Sequence[socket.socket]) -> None:
        self.code = 0
        self._settings, self._ports = settings, ports
        self._workers: list[Worker] = []
        own = CollectorRegistry()
        self._restarts, self._rounds = own_metrics(own), ScrapeRounds(own)
        self._folders: BundleFolders | None = None
        self._last_error: str | None = None
        self._stop_by: float | None = None
        self._deaths, self._killed, self._died_at, self._start_at = 0, 0, -STEADY_AFTER_S, 0.0
        self._check_at: float | None = None

    @property
    def ended(self) -> bool:
        """Whether there is nothing left to look after."""
        return self._stop_by is not None and not self._workers

    def watched(self) -> list[Any]:
        """Return objects that become ready when a worker ends or sends a message."""
        return [w.process.sentinel for w in self._workers] + [w.pipe for w in self._workers if not w.pipe.closed]

    def pids(self) -> set[int]:
        """Return the ids of the worker processes."""
        return {worker.process.pid for worker in self._workers if worker.process.pid is not None}

    def pause_s(self) -> float | None:
        """Return the seconds until something is due; None if nothing is."""
        start_at = self._start_at if len(self._workers) < self._count_due() else None
        moments = [at for at in (self._stop_by or start_at, self._rounds.due, self._check_at) if at is not None]
        return max(0.0, min(moments) - time.monotonic()) if moments else None

    def start_missing(self) -> None:
        """Start workers until there are enough, unless it is too early after the last death."""
        while len(self._workers) < self._count_due() and time.monotonic() >= self._start_at:
            ours, theirs = spawn.Pipe()
            beats_in, beats_out = spawn.Pipe(duplex=False)
            process = spawn.Process(target=work, args=(self._settings, self._ports, theirs, beats_out, self._folders))
            before = signal.pthread_sigmask(signal.SIG_BLOCK, HELD)
            process.start()
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            theirs.close()
            beats_out.close()
            self._workers.append(Worker(process, ours, Outbox(ours), HeartbeatMonitor(beats_in)))

    def handle_signal(self, number: signal.Signals) -> None:
        """Pass a signal on; SIGTERM and SIGINT begin the shutdown."""
        if number != signal.SIGHUP and self._stop_by is None:
            self._stop(0)
        for worker in self._workers:
            self._signal(worker, number)

    def look(self) -> None:
        """Read messages of workers, and record those that have ended."""
        for worker in list(self._workers):
            self._receive(worker)
            if not worker.process.is_alive():
                self._receive(worker)  # its last messages
                self._workers.remove(worker)
                self._rounds.remove(worker.process.pid)
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
        """Kill workers whose event loop hangs; those that load, or end, have limits of their own."""
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

    def _count_due(self) -> int:
        return self._settings.workers if self._stop_by is None else 0

    def _serving(self) -> dict[Hashable, Outbox]:
        return {worker.process.pid: worker.outbox for worker in self._workers if worker.ready}

    def _receive(self, worker: Worker) -> None:
        try:
            while not worker.pipe.closed and worker.pipe.poll():
                message: BundleFolders | str | ScrapeRequest | Samples = worker.pipe.recv()
                if isinstance(message, str):
                    if message != self._last_error:  # all workers report it
                        logs.say(f"error: {message}")
                    self._last_error = message
                elif isinstance(message, ScrapeRequest):
                    self._rounds.begin(worker.outbox, self._serving())
                elif isinstance(message, Samples):
                    self._rounds.add(worker.process.pid, message.parts[0])
                else:
                    worker.ready, self._killed = True, 0
                    self._sync_versions(worker, message)
        except (EOFError, ConnectionResetError):  # it is about to end
            worker.pipe.close()

    def _sync_versions(self, worker: Worker, folders: BundleFolders) -> None:
        """Note what a worker serves; have the others reload at once, and keep the same previous versions."""
        worker.folders = folders
        alike = [
            o.folders for o in self._workers if o is not worker and o.folders and o.folders.current == folders.current
        ]
        if alike:  # the first to report the current versions has reported the previous ones
            self._folders = alike[0]
            if folders.previous != alike[0].previous:
                worker.outbox.put(Keep(alike[0].previous))
            return
        first = self._folders is None
        self._folders = folders
        for other in self._workers:
            if other is not worker and not first:
                self._signal(other, signal.SIGHUP)

    def _record_end(self, worker: Worker) -> None:
        worker.process.join()
        worker.outbox.close()
        worker.pipe.close()
        worker.heartbeat.pipe.close()
        pid, code = worker.process.pid, worker.process.exitcode or 0
        if self._stop_by is not None:
            if code not in (0, -signal.SIGTERM, -signal.SIGINT):  # they end one that was still loading
                self.code = self.code or max(code, 1)
            return
        how = f"with code {code}" if code >= 0 else f"by {signal.Signals(-code).name}"
        self._killed += not worker.ready and code == -signal.SIGKILL  # probably for lack of memory, which may pass
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


HELD = (signal.SIGINT, signal.SIGHUP)
"""Signals that are blocked while a worker starts, until it can handle them."""


def work(
    settings: Settings,
    ports: Sequence[socket.socket],
    pipe: Connection,
    beats: Connection,
    others: BundleFolders | None,
) -> None:
    """Load, serve and end, in a worker process.

    Args:
        settings: Settings of the service.
        ports: Bound sockets, which the workers share.
        pipe: Pipe to the supervisor. It gets the folders of the served bundles, first when the worker is ready and then
            after each swap, or the reason why nothing can be served; and metrics.
        beats: Pipe to the supervisor for heartbeats of the event loop.
        others: Folders of the other workers, in case that a bundle is refused, and of what they keep for a rollback.
    """
    os.setpgrp()  # the supervisor passes Ctrl-C on
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a thread of a library may take it, blocked as it is
    logs.configure(settings.log_level)
    try:
        _serve(settings, ports, pipe, beats, others)
    finally:
        logs.close()


def _serve(
    settings: Settings,
    ports: Sequence[socket.socket],
    pipe: Connection,
    beats: Connection,
    others: BundleFolders | None,
) -> None:
    def send_folders(models: Models) -> None:
        pipe.send(BundleFolders.of(models))

    try:
        app = create_app(settings, models=loading.start(settings, others), on_swap=send_folders)
    except ListwrightError as error:
        pipe.send(str(error))
        sys.exit(1)
    parent = multiprocessing.parent_process()
    assert parent is not None
    sentinel = parent.sentinel

    def orphaned() -> None:  # no supervisor would end this process, and it holds the port
        asyncio.get_running_loop().remove_reader(sentinel)
        server.handle_exit(signal.SIGTERM, None)

    relay = MetricsRelay(pipe, app.service.telemetry, app.service.reloader.keep)
    app.service.scraped.scrape = relay.text
    heartbeat = HeartbeatSender(beats, settings.hang_s / CHECKS)

    def started() -> None:
        asyncio.get_running_loop().add_reader(sentinel, orphaned)
        relay.start()
        heartbeat.beat()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HELD)
        assert app.service.current.models is not None  # they are loaded before the server starts
        send_folders(app.service.current.models)

    server = server_of(app, started)
    server.run(list(ports))
    if settings.hook is not None or app.service.reloader.hangs:
        hook.exit_soon(0)


WITHIN_S = 1.0
"""Seconds in which a worker has to send its metrics; after that its last ones go into the sum."""


MOST_UNREAD = 16
"""Most unread messages in a pipe."""


@dataclass(frozen=True, slots=True)
class ScrapeRequest:
    """Message of a worker: collect the metrics of all workers; of the supervisor: send your own."""


@dataclass(frozen=True, slots=True)
class Keep:
    """Message to a worker: keep these versions for a rollback, as the other workers do."""

    paths: Paths


@dataclass(frozen=True, slots=True)
class Samples:
    """Metrics of a worker (to the supervisor), or of each of them (to the worker that was scraped)."""

    parts: tuple[bytes, ...]


class MetricsRelay:
    """Metrics of all workers, on the worker's side. For its event loop.

    Args:
        pipe: Pipe to the supervisor.
        telemetry: Metrics of this process.
        keep: Function that keeps the versions of some folders for a rollback.
    """

    def __init__(
        self, pipe: Connection, telemetry: Telemetry, keep: Callable[[Paths], Coroutine[Any, Any, None]]
    ) -> None:
        self._pipe, self._telemetry, self._keep = pipe, telemetry, keep
        self._answers: list[asyncio.Future[tuple[bytes, ...]]] = []
        self._unread = 0
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Listen to the supervisor, from the running event loop."""
        asyncio.get_running_loop().add_reader(self._pipe.fileno(), self._receive)

    async def text(self) -> bytes:
        """Return the metrics of all workers as text; only this one's if the supervisor does not answer."""
        answer: asyncio.Future[tuple[bytes, ...]] = asyncio.get_running_loop().create_future()
        self._answers.append(answer)
        try:
            if self._unread < MOST_UNREAD:  # else the supervisor has not read the last ones: a full pipe would block
                self._unread += 1
                self._pipe.send(ScrapeRequest())
            parts = await asyncio.wait_for(answer, 2 * WITHIN_S)
        except (OSError, TimeoutError):  # the supervisor has ended or is stopped, and this worker soon will be
            parts = (await asyncio.to_thread(self._own_samples),)
        finally:
            if answer in self._answers:
                self._answers.remove(answer)
        return await asyncio.to_thread(lambda: text(merge(map(unpack, parts))))

    def _own_samples(self) -> bytes:
        samples = snapshot(self._telemetry.registry)
        samples.pop(START_TIME, None)  # a worker that is replaced is no restart of the service
        return pack(samples)

    def _receive(self) -> None:
        try:
            while self._pipe.poll():
                message: ScrapeRequest | Samples | Keep = self._pipe.recv()
                if isinstance(message, Samples):
                    self._unread = 0
                    answers, self._answers = self._answers, []
                    for answer in answers:
                        if not answer.done():
                            answer.set_result(message.parts)
                else:
                    task = asyncio.ensure_future(
                        self._keep(message.paths) if isinstance(message, Keep) else self._send_samples()
                    )
                    self._tasks.add(task)
                    task.add_done_callback(self._tasks.discard)
        except (EOFError, OSError):  # the supervisor is gone
            asyncio.get_running_loop().remove_reader(self._pipe.fileno())

    async def _send_samples(self) -> None:
        samples = await asyncio.to_thread(self._own_samples)
        with suppress(OSError):
            self._pipe.send(Samples((samples,)))


class Outbox:
    """Messages from the supervisor to a worker, sent by a thread of its own: a worker that hangs delays no other.

    Args:
        pipe: Pipe to the worker.
    """

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._messages: queue.Queue[ScrapeRequest | Samples | Keep | None] = queue.Queue(MOST_UNREAD)
        self._thread = threading.Thread(target=self._send, daemon=True)
        self._thread.start()

    def put(self, message: ScrapeRequest | Samples | Keep) -> None:
        """Queue a message, or drop it if the worker has not read those before."""
        with suppress(queue.Full):
            self._messages.put_nowait(message)

    def close(self) -> None:
        """End the thread, after the worker has ended."""
        with suppress(queue.Full):
            self._messages.put_nowait(None)
        self._thread.join(WITHIN_S)

    def _send(self) -> None:
        with suppress(OSError):  # it has ended
            while (message := self._messages.get()) is not None:
                self._pipe.send(message)


@dataclass
class ScrapeRounds:
    """Metrics of all workers, on the supervisor's side: one round at a time collects them, and answers scrapes.

    The last counts of workers that ended stay in the sum, or counters would go down.

    Args:
        own: Metrics of the supervisor itself, which go into the sum.
    """

    own: CollectorRegistry
    due: float | None = None
    _last: dict[Hashable, bytes] = field(default_factory=dict)
    _past: Snapshot = field(default_factory=dict)
    _missing: set[Hashable] = field(default_factory=set)
    _scraped: list[Outbox] = field(default_factory=list)
    _next: list[Outbox] = field(default_factory=list)

    def begin(self, scraped: Outbox, workers: dict[Hashable, Outbox]) -> None:
        """Begin a round for a worker that was scraped; if one is under way, after it, as it may be too old."""
        if self.due is not None:
            self._next.append(scraped)
            return
        self._scraped, self._missing = [scraped], set(workers)
        self.due = time.monotonic() + WITHIN_S
        for outbox in workers.values():
            outbox.put(ScrapeRequest())

    def add(self, worker: Hashable, samples: bytes) -> None:
        """Add a worker's metrics to the round."""
        self._last[worker] = samples
        self._missing.discard(worker)

    def remove(self, worker: Hashable) -> None:
        """Keep the counts of a worker that has ended."""
        self._missing.discard(worker)
        if worker in self._last:
            self._past = merge([self._past, drop_gauges(unpack(self._last.pop(worker)))])

    def look(self, workers: dict[Hashable, Outbox]) -> None:
        """End the round if all have answered, or it is due; begin the next if a scrape waits."""
        if self.due is None or (self._missing and time.monotonic() < self.due):
            return
        if self._past:
            self._past = drop_unserved_versions(self._past, merge(map(unpack, self._last.values())))
        answer = Samples((pack(self._past), pack(snapshot(self.own)), *self._last.values()))
        for outbox in self._scraped:
            outbox.put(answer)
        self.due, waiting, self._next = None, self._next, []
        if waiting:
            self.begin(waiting[0], workers)
            self._scraped = waiting


CHECKS = 10
"""Checks in a row that find no heartbeat until a worker counts as hung."""

_PIPE = 2**16
"""Bytes that a pipe holds at most."""


class HeartbeatSender:
    """Heartbeats of a worker, from its event loop.

    Args:
        pipe: Pipe to the supervisor, for nothing else.
        every_s: Seconds between two beats.
    """

    def __init__(self, pipe: Connection, every_s: float) -> None:
        self._pipe, self._every_s = pipe, every_s
        os.set_blocking(pipe.fileno(), False)

    def beat(self) -> None:
        """Send a heartbeat, now and periodically, from the running event loop."""
        with suppress(OSError):  # full, where the supervisor is stopped; broken, where it is gone
            os.write(self._pipe.fileno(), b".")
        asyncio.get_running_loop().call_later(self._every_s, self.beat)


class HeartbeatMonitor:
    """Heartbeats of a worker, as the supervisor checks them.

    Checks without a heartbeat are counted, not seconds. After a pause of the supervisor or of the machine, one check
    finds none, and nothing is killed.

    Args:
        pipe: Pipe from the worker.
    """

    def __init__(self, pipe: Connection) -> None:
        self.pipe = pipe
        self._missed = 0

    def stops(self) -> bool:
        """Check once; return whether it is the last of too many checks in a row without a heartbeat."""
        heard = self.pipe.poll() and os.read(self.pipe.fileno(), _PIPE)
        self._missed = 0 if heard else self._missed + 1
        return self._missed == CHECKS
