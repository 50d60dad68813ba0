"""Connections without a socket: timers that a test rings, a transport that keeps what is written."""

import asyncio
from contextlib import contextmanager

from uvicorn import Config
from uvicorn.server import ServerState

from listwright.service.telemetry.metrics import Telemetry
from listwright.service.transport.connection import Connection
from listwright.service.transport.connection_limit import ConnectionLimit


class Timer:
    def __init__(self, seconds, callback):
        self.seconds, self.callback, self.cancelled = seconds, callback, False

    def cancel(self):
        self.cancelled = True


class Loop(asyncio.AbstractEventLoop):
    """As much of an event loop as timers need."""

    def __init__(self):
        self.timers = []

    def call_later(self, seconds, callback):
        self.timers.append(Timer(seconds, callback))
        return self.timers[-1]

    @property
    def running(self):
        return [timer for timer in self.timers if not timer.cancelled]

    def ring(self):
        """Let all timers that were not cancelled end."""
        timers, self.timers = self.running, []
        for timer in timers:
            timer.callback()


class Transport(asyncio.Transport):
    """Keeps what is written, and knows whether it would read on and how it ended."""

    def __init__(self, *, tls=False):
        self.ended, self.unsent, self.tls = None, 0, tls
        self.written, self.reading, self.half_closed = b"", True, False

    def write(self, data):
        self.written += data

    def can_write_eof(self):
        return not self.tls

    def write_eof(self):
        self.half_closed = True

    def pause_reading(self):
        self.reading = False

    def resume_reading(self):
        self.reading = True

    def abort(self):
        self.ended = "aborted"

    def close(self):
        self.ended = "closed"

    def is_closing(self):
        return self.ended is not None

    def get_write_buffer_size(self):
        return self.unsent

    def get_extra_info(self, name, default=None):
        return object() if self.tls and name == "sslcontext" else None


def connect(app, *, limit=None, loop=None, tls=False, patience_s=60.0, keep_alive_s=75.0, refused=lambda status: None):
    """A connection that has just been made."""
    config = Config(app=app, log_config=None)
    config.load()
    config.loaded_app = app
    connection = Connection(
        config=config,
        server_state=ServerState(),
        app_state={},
        _loop=loop,
        patience_s=patience_s,
        keep_alive_s=keep_alive_s,
        limit=limit or ConnectionLimit(1, Telemetry()),
        refused=refused,
    )
    connection.connection_made(Transport(tls=tls))
    return connection


@contextmanager
def connected(app, **options):
    """A connection, which is lost in the end; from within a running event loop."""
    connection = connect(app, **options)
    try:
        yield connection
    finally:
        if connection in connection._server_state.connections:  # not lost yet
            connection.connection_lost(None)


async def turns(count=20):
    """Let everything that is ready run."""
    for _ in range(count):
        await asyncio.sleep(0)
