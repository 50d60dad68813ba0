"""Requests that wait in one connection for the one before, and who is told when it ends: the real parser, no socket."""

import asyncio

import pytest

from listwright.service.transport.connection import LINGER_BYTES, MAX_PIPELINED
from support.service import connections
from support.service.connections import turns

ONE = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"
POST = b"POST /rerank HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n"
CHUNKED = b"POST /rerank HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"


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
        with connections.connected(app, tls=tls) as connection:
            await see(connection, app)
        await turns()

    asyncio.run(run())


@pytest.mark.parametrize("packets", [1, 1 + MAX_PIPELINED], ids=["at once", "one by one"])
def test_as_many_requests_as_may_wait_do(packets):
    async def see(connection, app):
        for _ in range(packets):
            connection.data_received(ONE * ((1 + MAX_PIPELINED) // packets))
        await turns()
        assert (app.began, len(connection.pipeline)) == (1, MAX_PIPELINED)
        assert connection.transport.ended is None

    connected(see)


def test_one_more_ends_the_connection_after_the_answers_to_those_that_may_wait():
    async def see(connection, app):
        connection.data_received(ONE)
        await turns()
        connection.data_received(ONE * 20_000)
        assert len(connection.pipeline) == MAX_PIPELINED
        for _ in range(1 + MAX_PIPELINED):
            app.go.release()
        await turns(20 * MAX_PIPELINED)
        assert app.began == 1 + MAX_PIPELINED
        assert connection.transport.written.count(b"HTTP/1.1 204 ") == 1 + MAX_PIPELINED
        assert connection.transport.written.count(b"HTTP/1.1 400 ") == 1
        assert connection.transport.half_closed

    connected(see)


@pytest.mark.parametrize("waiting", [0, 2])
@pytest.mark.parametrize("faulty", [b"\0", b"GET / HTTP/1.1\r\n\r\n", POST.replace(b"POST", b"CONNECT")])
def test_a_fault_is_told_after_the_answers_to_the_requests_before_it(waiting, faulty):
    """Or the refusal would be taken for the answer to one of them."""

    async def see(connection, app):
        connection.data_received(ONE * (1 + waiting) + faulty)
        connection.data_received(ONE)  # too late
        for _ in range(1 + waiting):
            app.go.release()
        await turns(200)
        statuses = [line.split()[1] for line in connection.transport.written.split(b"\r\n") if line[:5] == b"HTTP/"]
        assert statuses[:-1] == [b"204"] * (1 + waiting)
        assert statuses[-1] in (b"400", b"501")
        assert app.began == 1 + waiting
        assert connection.transport.half_closed

    connected(see)


@pytest.mark.parametrize(("sent", "ended"), [(LINGER_BYTES, None), (LINGER_BYTES + 1, "aborted")])
def test_not_everything_that_comes_after_a_refusal_is_read(sent, ended):
    async def see(connection, app):
        connection.data_received(b"\0")
        assert connection.transport.half_closed
        connection.data_received(bytes(sent))
        assert connection.transport.ended == ended

    connected(see)


@pytest.mark.parametrize("before", [0, 1])
def test_a_request_with_a_faulty_body_is_refused_in_its_turn(before):
    async def see(connection, app):
        connection.data_received(ONE * before + CHUNKED + b"zz\r\n")
        for _ in range(before):
            app.go.release()
        await turns(100)
        statuses = [line.split()[1] for line in connection.transport.written.split(b"\r\n") if line[:5] == b"HTTP/"]
        assert statuses == [b"204"] * before + [b"400"]

    connected(see)


def test_nothing_is_read_while_requests_wait():
    async def see(connection, app):
        connection.data_received(ONE * 3)
        await turns()
        seen = []
        while connection.pipeline and len(seen) < 3:
            seen.append((len(connection.pipeline), connection.transport.reading))
            app.go.release()
            await turns()
        assert seen == [(2, False), (1, False)]
        assert connection.transport.reading, "the last of them is at work: the next may come"
        app.go.release()
        await turns()
        assert connection.transport.written.count(b"HTTP/1.1 204 ") == 3

    connected(see)


@pytest.mark.parametrize("end", ["lost", "aborted"])
def test_who_is_at_work_is_told_of_the_end_and_nobody_else_begins(end):
    """uvicorn would tell the request that came last, which has not even begun."""

    async def see(connection, app):
        connection.data_received(ONE * 3)
        await turns()
        if end == "lost":
            connection.connection_lost(ConnectionResetError())
        else:
            connection.pause_writing()
            connection._write_timer.cancel()
            connection.abort()
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


@pytest.mark.parametrize("sent", [b"GET /livez HTT", POST, POST + b"{"])
def test_a_request_that_ends_early_is_refused(sent):
    """RFC 9112, section 8."""

    async def see(connection, app):
        connection.data_received(sent)
        await turns()
        assert connection.eof_received() is True
        assert connection.transport.written.startswith(b"HTTP/1.1 400 ")
        assert connection.transport.half_closed
        assert app.told == []

    connected(see)


@pytest.mark.parametrize("tls", [False, True])
def test_a_connection_that_closes_before_or_after_its_request_is_not_kept(tls):
    async def see(connection, app):
        assert connection.eof_received() is False
        connection.data_received(POST + b"{}")
        app.go.release()
        await turns()
        assert connection.eof_received() is False

    connected(see, tls=tls)


@pytest.mark.parametrize(("version", "asked"), [(b"1.1", True), (b"1.0", False)])
def test_a_body_is_asked_for_where_that_is_understood(version, asked):
    """RFC 9110, section 10.1.1."""

    async def see(connection, app):
        connection.data_received(POST.replace(b"1.1", version)[:-2] + b"Expect: 100-continue\r\n\r\n")
        await turns()
        assert (b"HTTP/1.1 100 " in connection.transport.written) is asked

    connected(see)


def test_nothing_is_written_after_a_refusal():
    """Not even that the body is wanted: the application asks for it only then."""

    async def see(connection, app):
        connection.data_received(CHUNKED[:-2] + b"Expect: 100-continue\r\n\r\nzz\r\n")
        await turns()
        assert connection.transport.written.count(b"HTTP/1.1 ") == 1
        assert connection.transport.written.startswith(b"HTTP/1.1 400 ")

    connected(see)
