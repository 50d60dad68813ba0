"""Requests that wait in one connection for the one before, and who is told when it ends: the real parser, no socket."""

import asyncio

import pytest
from uvicorn import Config
from uvicorn.server import ServerState

from service.connection import MAX_PIPELINED, Connection
from service.crowd import Crowd
from service.telemetry import Telemetry
from unit.service.test_patience import Transport

ONE = b"GET /livez HTTP/1.1\r\n\r\n"


class Wire(Transport):
    """A transport that keeps what is written, and knows whether it would read on."""

    def __init__(self, *, tls=False):
        super().__init__()
        self.written, self.reading, self._tls = b"", True, tls

    def write(self, data):
        self.written += data

    def pause_reading(self):
        self.reading = False

    def resume_reading(self):
        self.reading = True

    def get_extra_info(self, name):
        return object() if self._tls and name == "sslcontext" else None


class Slow:
    """An application whose answers wait until they are let go; it knows who began, and who was told of the end."""

    def __init__(self):
        self.began, self.told, self.go = 0, [], asyncio.Semaphore(0)

    async def __call__(self, scope, receive, send):
        self.began += 1
        number = self.began
        assert (await receive())["type"] == "http.request"
        gone, turn = asyncio.ensure_future(receive()), asyncio.ensure_future(self.go.acquire())
        await asyncio.wait((gone, turn), return_when=asyncio.FIRST_COMPLETED)
        turn.cancel()
        if gone.done():
            self.told.append((number, gone.result()["type"]))
            return
        gone.cancel()
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})


def connected(see, *, tls=False):
    """Run ``await see(connection, app)`` on a connection that has just been made."""

    async def run():
        app = Slow()
        config = Config(app=app, log_config=None)
        config.load()
        config.loaded_app = app
        crowd = Crowd(1, Telemetry())
        connection = Connection(config=config, server_state=ServerState(), app_state={}, patience_s=60.0, crowd=crowd)
        connection.connection_made(Wire(tls=tls))
        await see(connection, app)
        if connection in connection.connections:  # not lost yet
            connection.connection_lost(None)
        await turns()

    asyncio.run(run())


async def turns():
    """Let everything that is ready run."""
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.mark.parametrize("packets", [1, 1 + MAX_PIPELINED], ids=["at once", "one by one"])
def test_as_many_requests_as_may_wait_do(packets):
    async def see(connection, app):
        for _ in range(packets):
            connection.data_received(ONE * ((1 + MAX_PIPELINED) // packets))
        await turns()
        assert (app.began, len(connection.pipeline)) == (1, MAX_PIPELINED)
        assert connection.transport.ended is None

    connected(see)


def test_one_more_ends_the_connection_and_none_of_the_packet_is_kept():
    async def see(connection, app):
        connection.data_received(ONE)
        await turns()
        connection.data_received(ONE * 20_000)
        assert connection.transport.ended == "closed"
        assert connection.transport.written.startswith(b"HTTP/1.1 400 ")
        assert len(connection.pipeline) == 0
        await turns()
        assert app.told == [(1, "http.disconnect")], "and whoever was at work has been told"
        assert app.began == 1

    connected(see)


def test_nothing_is_read_while_requests_wait():
    async def see(connection, app):
        connection.data_received(ONE * 3)
        await turns()
        seen = []
        while connection.pipeline:
            seen.append((len(connection.pipeline), connection.transport.reading))
            app.go.release()
            await turns()
        assert seen == [(2, False), (1, False)]
        assert connection.transport.reading, "the last of them is at work: the next may come"
        app.go.release()
        await turns()
        assert connection.transport.written.count(b"HTTP/1.1 204 ") == 3

    connected(see)


@pytest.mark.parametrize("end", ["lost", "aborted", "refused"])
def test_who_is_at_work_is_told_of_the_end_and_nobody_else_begins(end):
    """uvicorn would tell the request that came last, which has not even begun."""

    async def see(connection, app):
        connection.data_received(ONE * 3)
        await turns()
        if end == "lost":
            connection.connection_lost(ConnectionResetError())
        elif end == "aborted":
            connection.pause_writing()
            connection._leaving.cancel()
            connection._abort()
        else:
            connection.data_received(b"\0")
        await turns()
        assert app.told == [(1, "http.disconnect")]
        assert (app.began, len(connection.pipeline)) == (1, 0)

    connected(see)


@pytest.mark.parametrize(("tls", "kept"), [(False, True), (True, False)])
def test_a_half_closed_connection_is_kept_for_its_answer_but_not_under_tls(tls, kept):
    async def see(connection, app):
        connection.data_received(ONE)
        await turns()
        assert connection.eof_received() is kept
        app.go.release()
        await turns()
        assert b"connection: close" in connection.transport.written
        assert connection.transport.ended == "closed"

    connected(see, tls=tls)


@pytest.mark.parametrize("tls", [False, True])
def test_a_connection_that_closes_in_the_middle_or_after_its_answer_is_not_kept(tls):
    async def see(connection, app):
        assert connection.eof_received() is False
        connection.data_received(b"POST /rerank HTTP/1.1\r\nContent-Length: 2\r\n\r\n{")
        assert connection.eof_received() is False
        connection.data_received(b"}")
        app.go.release()
        await turns()
        assert connection.eof_received() is False

    connected(see, tls=tls)
