"""Bounds of a request that the framing does not set: what costs time, and what could be read in two ways."""

import asyncio

import pytest

from listwright.service.transport import connection
from listwright.service.transport.framing import MAX_BLANK_BYTES, MAX_HEAD_BYTES, MAX_PARAMETERS, MAX_TARGET_BYTES
from support.service.connections import connected, turns
from support.waiting import until_async

GET = b"GET %s HTTP/1.1\r\nHost: x\r\n%s\r\n"


def asked(sent, refused=lambda status: None):
    """What the application sees of bytes, and what is answered."""
    seen = []

    async def app(scope, receive, send):
        seen.append(scope)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})

    async def scenario():
        with connected(app, refused=refused) as one:
            for packet in sent if isinstance(sent, list) else [sent]:
                one.data_received(packet)
                await turns()
            return one.transport.written

    return seen, asyncio.run(scenario())


def test_cookies_are_not_passed_on():
    """Python parses them in quadratic time: 64 KiB of backslashes take ten seconds."""
    seen, _ = asked(GET % (b"/livez", b"Cookie: a=1\r\nX-Other: b\r\nCOOKIE: c\r\n"))
    assert [name for name, _ in seen[0]["headers"]] == [b"host", b"x-other"]


def test_the_limits_of_a_head_are_those_of_each_request():
    request = GET % (b"/livez", b"X-Filler: " + b"x" * (MAX_HEAD_BYTES // 4) + b"\r\n")
    assert asked([request] * 10)[1].count(b" 200 ") == 10


@pytest.mark.parametrize(
    ("target", "status"),
    [
        (b"/" + b"x" * (MAX_TARGET_BYTES - 1), b"200"),
        (b"/" + b"x" * MAX_TARGET_BYTES, b"414"),
        (b"/info?" + b"&".join([b"a"] * MAX_PARAMETERS), b"200"),
        (b"/info?" + b"&".join([b"a"] * (MAX_PARAMETERS + 1)), b"414"),
        (b"/info?" + b"%&" * 30_000, b"414"),
        (b"/%6detrics", b"400"),
        (b"/%61dmin/reload", b"400"),
        (b"/admin%2Freload", b"400"),
        (b"/admin%2freload", b"400"),
        (b"/v2/models/%7E", b"400"),
        (b"/v2/models/a%2D1", b"400"),
        (b"/v2/models/gr%C3%B6%C3%9Fe%20x", b"200"),
        (b"/info?model=%61%2F", b"200"),
    ],
)
def test_targets(target, status):
    """A proxy that denies /metrics or /admin/ must see these words where we do."""
    assert asked(GET % (target, b""))[1].split()[1] == status


@pytest.mark.parametrize("code", range(128))
def test_what_needs_no_percent_sign_must_not_have_one(code):
    refused = chr(code).isalnum() or chr(code) in "-._~/"
    for spelled in (b"%%%02X" % code, b"%%%02x" % code):
        assert asked(GET % (b"/a" + spelled, b""))[1].split()[1] == (b"400" if refused else b"200")


def test_empty_lines_have_an_end():
    most = b"\r\n" * (MAX_BLANK_BYTES // 2)
    request = GET % (b"/", b"")
    assert asked(most + request)[1].split()[1] == b"200"
    assert asked([most, request, most, request])[1].count(b" 200 ") == 2, "between requests counted anew"
    assert asked([most, b"\r\n"])[1].split()[1] == b"400"
    assert asked(b"\r\n" * 100 + request)[1].split()[1] == b"400"


def test_refusals_are_counted_and_have_no_body_for_head():
    statuses = []
    for sent in (b"HEAD /%61 HTTP/1.1\r\nHost: x\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", b"nonsense\r\n\r\n"):
        head, _, body = asked(sent, refused=statuses.append)[1].partition(b"\r\n\r\n")
        assert (body == b"") == sent.startswith(b"HEAD")
        assert b"content-length: " in head
    assert statuses == [400, 400, 400]


def test_a_body_that_is_answered_already_is_dropped_slowly(monkeypatch):
    """After a megabyte the connection takes breaks: dropping costs time that others need."""
    monkeypatch.setattr(connection, "DROPPED_PAUSE_S", 0.01)
    size = connection.LINGER_BYTES * 2

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})

    async def scenario():
        with connected(app) as one:
            one.data_received(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % size)
            await turns()
            one.data_received(b"x" * (size // 2))
            assert one.transport.reading
            one.data_received(b"x")
            assert not one.transport.reading
            await until_async(lambda: one.transport.reading)
            one.data_received(b"x" * (size // 2 - 1) + b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n")
            await until_async(lambda: one.transport.written.count(b" 200 ") == 2)
            one.data_received(b"x" * 9)
            assert one.transport.reading, "of the next one as much again is free"

    asyncio.run(scenario())
