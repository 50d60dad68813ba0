"""A connection's timers, with a loop and a transport of our own."""

import pytest
from uvicorn import Config
from uvicorn.server import ServerState

from service.connection import Connection
from service.crowd import Crowd
from service.telemetry import Telemetry


class Timer:
    def __init__(self, seconds, callback):
        self.seconds, self.callback, self.cancelled = seconds, callback, False

    def cancel(self):
        self.cancelled = True


class Loop:
    def __init__(self):
        self.timers = []

    def call_later(self, seconds, callback):
        self.timers.append(Timer(seconds, callback))
        return self.timers[-1]

    def ring(self):
        """Let all timers that were not cancelled end."""
        timers, self.timers = self.timers, []
        for timer in timers:
            if not timer.cancelled:
                timer.callback()


class Transport:
    def __init__(self):
        self.ended, self.unsent = None, 0

    def abort(self):
        self.ended = "aborted"

    def close(self):
        self.ended = "closed"

    def is_closing(self):
        return self.ended is not None

    def get_write_buffer_size(self):
        return self.unsent

    def get_extra_info(self, name):
        return None


@pytest.fixture
def loop():
    return Loop()


@pytest.fixture
def connection(loop):
    config = Config(app=lambda scope: None, log_config=None)
    config.load()
    crowd = Crowd(1, Telemetry())
    connection = Connection(
        config=config, server_state=ServerState(), app_state={}, _loop=loop, patience_s=7.0, crowd=crowd
    )
    connection.connection_made(Transport())
    return connection


def test_a_caller_that_does_not_take_its_answer_is_cut_off(connection, loop):
    connection.pause_writing()
    assert loop.timers[-1].seconds == 7.0
    loop.timers[-1].callback()
    assert connection.transport.ended == "aborted"


def test_a_caller_that_takes_it_in_time_is_not(connection, loop):
    connection.pause_writing()
    connection.resume_writing()
    assert loop.timers[-1].cancelled


@pytest.mark.parametrize(("unsent", "ended"), [(0, "closed"), (1, "aborted")])
def test_an_idle_connection_is_closed_whether_or_not_it_took_all(connection, unsent, ended):
    connection.transport.unsent = unsent
    connection.timeout_keep_alive_handler()
    assert connection.transport.ended == ended


def test_no_timer_outlives_its_connection(connection, loop):
    connection.pause_writing()
    connection.connection_lost(None)
    assert all(timer.cancelled for timer in loop.timers)
