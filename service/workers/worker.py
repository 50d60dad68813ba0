"""A worker process: one of several that serve behind one listening socket."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import sys
from collections.abc import Sequence
from multiprocessing.connection import Connection
from socket import socket

from listwright.ranking.errors import ListwrightError
from listwright.service import hook
from listwright.service.app import create_app, server_of
from listwright.service.bundles import loading
from listwright.service.bundles.loading import Served
from listwright.service.bundles.served import Models
from listwright.service.settings import Settings
from listwright.service.telemetry import logs
from listwright.service.workers.heartbeat import CHECKS, HeartbeatSender
from listwright.service.workers.metrics_relay import MetricsRelay

HELD = (signal.SIGINT, signal.SIGHUP)
"""Signals that wait while a worker starts, until it can heed them."""


def work(
    settings: Settings, ports: Sequence[socket], pipe: Connection, beats: Connection, others: Served | None
) -> None:
    """Load, serve, end.

    Args:
        settings: of the service.
        ports: bound; shared with the other workers.
        pipe: tells the supervisor what is served, first when ready and then after each swap; or why nothing can be;
            and what is counted.
        beats: tells it that the event loop turns.
        others: what they serve, in case that a bundle is refused, and what they keep for a rollback.
    """
    os.setpgrp()  # Ctrl-C is the supervisor's to pass on
    logs.configure(settings.log_level)
    try:
        _serve(settings, ports, pipe, beats, others)
    finally:
        logs.close()


def _serve(
    settings: Settings, ports: Sequence[socket], pipe: Connection, beats: Connection, others: Served | None
) -> None:
    def tell(served: Models) -> None:
        pipe.send(Served.of(served))

    try:
        app = create_app(settings, loaded=loading.start(settings, others), swapped=tell)
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
        tell(app.service.current.models)

    server = server_of(app, started)
    server.run(list(ports))
    if settings.hook is not None or app.service.reloader.hangs:
        hook.leave(0)
