"""A connection's timers, with a loop and a transport of our own."""

import asyncio

import pytest

from listwright.service.transport.connection import GRACE_S
from support.service.connections import Loop, connect, connected, turns
from support.waiting import until_async


@pytest.fixture
def loop():
    return Loop()


@pytest.fixture
def connection(loop):
    return connect(lambda scope: None, loop=loop, patience_s=7.0)


def test_a_caller_that_does_not_take_its_answer_is_cut_off(connection, loop):
    connection.transport.unsent = 100_000
    connection.pause_writing()
    assert loop.timers[-1].seconds == 7.0
    loop.timers[-1].callback()
    assert connection.transport.ended == "aborted"


def test_a_caller_that_takes_it_in_time_is_not(connection, loop):
    connection.transport.unsent = 100_000
    connection.pause_writing()
    connection.transport.unsent = 10_000
    connection.resume_writing()
    connection.transport.unsent = 0
    assert [timer.seconds for timer in loop.running][1:] == [7.0], "begun anew"
    loop.timers[-1].callback()
    assert connection.transport.ended is None


def test_the_last_of_an_answer_has_to_leave_as_well(connection, loop):
    connection.transport.unsent = 100_000
    connection.pause_writing()
    connection.transport.unsent = 10_000
    connection.resume_writing()
    loop.timers[-1].callback()
    assert connection.transport.ended == "aborted"


def answered(connection):
    """The application of a connection that gets an answer of which 1,000 bytes do not leave."""

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        connection().transport.unsent = 1000
        await send({"type": "http.response.body", "body": b"ok"})

    return app


LAST = {
    "close": b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    "1.0": b"GET / HTTP/1.0\r\n\r\n",
    "half-closed": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
}


@pytest.mark.parametrize("how", LAST)
def test_no_connection_closes_for_ever(how):
    """Its answer never leaves, and the system would wait for that without end."""
    found = []

    async def scenario():
        with connected(answered(lambda: found[0]), patience_s=0.05) as one:
            found.append(one)
            one.data_received(LAST[how])
            if how == "half-closed":
                one.eof_received()
            await turns()
            assert one.transport.ended == ("closed" if how != "half-closed" else one.transport.ended)
            await until_async(lambda: one.transport.ended == "aborted")

    asyncio.run(scenario())


@pytest.mark.parametrize("ends", ["shutdown", "_close", "eof_received"])
def test_whatever_closes_it_has_an_end(connection, loop, ends):
    connection.transport.unsent = 1000
    getattr(connection, ends)()
    assert loop.running[-1].seconds == 7.0
    loop.running[-1].callback()
    assert connection.transport.ended == "aborted"


def test_a_caller_that_took_it_without_a_word_is_not_either(connection, loop):
    """Small answers wait in the buffer without the event loop saying so."""
    connection.pause_writing()
    loop.timers[-1].callback()
    assert connection.transport.ended is None


def test_a_new_connection_may_be_idle_as_long_as_any(connection, loop):
    assert [timer.seconds for timer in loop.running] == [75.0 + GRACE_S]


@pytest.mark.parametrize("blank", [b"\r\n", b"\r\n\r\n\r\n"])
def test_blank_lines_change_nothing(connection, loop, blank):
    """They are no request (RFC 9112, section 2.2), and who sends them is as idle as before."""
    (before,) = loop.running
    connection.data_received(blank)
    assert loop.running == [before]


@pytest.mark.parametrize(("unsent", "ended"), [(0, "closed"), (1, "aborted")])
def test_an_idle_connection_is_closed_whether_or_not_it_took_all(connection, loop, unsent, ended):
    connection.transport.unsent = unsent
    loop.ring()
    assert connection.transport.ended == ended


def test_a_request_has_a_deadline_from_its_first_byte(connection, loop):
    connection.data_received(b"P")
    assert [timer.seconds for timer in loop.running] == [7.0]
    connection.data_received(b"OST")
    assert [timer.seconds for timer in loop.running] == [7.0]


def test_no_timer_outlives_its_connection(connection, loop):
    connection.data_received(b"P")
    connection.pause_writing()
    connection.connection_lost(None)
    assert loop.running == []


ASKED = b"POST /rerank HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n"


async def refusing(scope, receive, send):
    """Answers without a look at the body."""
    await send({"type": "http.response.start", "status": 413, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})


def timers(connection):
    """Which of its timers run."""
    running = {name: getattr(connection, f"_{name}_timer") for name in ("read", "write", "idle")}
    return {name for name, timer in running.items() if timer is not None and not timer.cancelled()}


@pytest.mark.parametrize(("unsent", "leaving"), [(0, set()), (1, {"write"})])
def test_a_request_that_is_refused_unread_is_waited_for_and_then_the_connection_is_idle(unsent, leaving):
    async def see():
        with connected(refusing) as connection:
            connection.transport.unsent = unsent
            assert timers(connection) == {"idle"}
            connection.data_received(ASKED + b"{")
            await turns()
            assert connection.transport.written.startswith(b"HTTP/1.1 413 ")
            assert timers(connection) == {"read"} | leaving
            connection.data_received(b"}")
            assert timers(connection) == {"idle"} | leaving

    asyncio.run(see())
