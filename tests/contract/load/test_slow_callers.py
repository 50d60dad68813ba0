"""Callers that take their time, against a live process that gives them little."""

import json
import re
import socket
import time

import httpx
import pytest

from support.http.processes import Process
from support.http.raw_http import BODY, answer, closed, request
from support.waiting import NEVER_S, PATIENCE_S, until

pytestmark = pytest.mark.nightly  # waits for limits of time


@pytest.fixture(scope="module")
def impatient(bundle_folder):
    service = Process(
        bundle=bundle_folder, timeout_ms=400, keep_alive_s=NEVER_S, max_payload_bytes=200_000
    ).wait_until_ready()
    yield httpx.URL(service.url)
    code, log = service.stop()
    assert code == 0
    assert "unexpected error" not in log
    assert "Traceback" not in log


@pytest.fixture
def connection(impatient):
    with socket.create_connection((impatient.host, impatient.port), timeout=PATIENCE_S) as connection:
        yield connection


def buffered(service):
    """Bytes of bodies that the service holds."""
    found = re.search(r"^listwright_buffered_bytes (\S+)", httpx.get(service.url + "/metrics").text, re.MULTILINE)
    return float(found[1])


@pytest.mark.parametrize("sent", [b"P", request()[:-2], b"GET /livez HTTP/1.1\r\nX-A: b\r\n"])
def test_a_head_that_does_not_end_gets_408(connection, sent):
    connection.sendall(sent)
    status, headers, body = answer(connection)
    assert (status, headers["content-type"]) == (408, "application/problem+json")
    assert "head did not arrive within 0.4 s" in json.loads(body)["detail"]
    assert closed(connection)


@pytest.mark.parametrize("asked", [False, True])
@pytest.mark.parametrize("blank", [b"", b"\r\n"])
def test_who_is_idle_is_answered_later(connection, asked, blank):
    """Long after the time that a request may take; blank lines are no request."""
    if asked:
        connection.sendall(request() + BODY)
        assert answer(connection)[0] == 200
    connection.sendall(blank)
    time.sleep(1.0)
    connection.sendall(request() + BODY)
    status, headers, _ = answer(connection)
    assert (status, headers["connection"]) == (200, None)


def test_a_head_after_an_answer_has_its_own_deadline(connection):
    connection.sendall(request() + BODY)
    assert answer(connection)[0] == 200
    connection.sendall(b"POST")
    assert answer(connection)[0] == 408


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_that_does_not_end_gets_408(connection, chunked):
    head = (
        request(extra=1)
        if not chunked
        else request().replace(b"Content-Length: ", b"Transfer-Encoding: chunked\r\nX: ")
    )
    connection.sendall(head + (b"%x\r\n" % len(BODY) + BODY + b"\r\n" if chunked else BODY))
    status, headers, body = answer(connection)
    problem = json.loads(body)
    assert (status, problem["type"]) == (408, "urn:listwright:slow-body")
    assert f"only {len(BODY)} bytes of the body arrived within 400 ms" in problem["detail"]
    assert headers["connection"] == "close"
    assert closed(connection)


def test_a_body_that_was_refused_unread_is_not_waited_for_forever(connection):
    connection.sendall(request(extra=10**9))
    assert answer(connection)[0] == 413
    assert closed(connection)


@pytest.mark.parametrize("encoding", [b"gzip", b"deflate", b"br", b"zstd", b"gzip, gzip"])
def test_a_bomb_is_refused_before_it_arrives(connection, encoding):
    """Not a byte of it is sent, let alone inflated."""
    connection.sendall(request(b"Content-Encoding: " + encoding))
    status, _, body = answer(connection)
    assert (status, json.loads(body)["type"]) == (415, "urn:listwright:unsupported-media-type")


def test_the_clock_starts_with_the_first_byte(connection):
    """Time enough for any ranking, but not for the way that the body took."""
    body = json.dumps({"features": [[1.0, 2.0, 3.0, "A5"]] * 2, "timeout_ms": 100}).encode()
    head = request(extra=len(body) - len(BODY))
    connection.sendall(head[:10])
    time.sleep(0.06)
    connection.sendall(head[10:])
    time.sleep(0.06)
    connection.sendall(body)
    status, _, text = answer(connection)
    meta = json.loads(text)["meta"]
    assert (status, meta["status"], meta["stage_reached"]) == (200, "degraded", "input_order")
    assert meta["timings_ms"]["total"] > 100, "not only the second half of the way"


def test_slow_bodies_make_room_for_quick_ones(bundle_folder):
    """Three of them hold all the room that bodies have together; the one that began first loses it."""
    service = Process(bundle=bundle_folder, max_payload_bytes=50_000, max_buffered_bytes=150_000).wait_until_ready()
    url = httpx.URL(service.url)
    slow = [socket.create_connection((url.host, url.port), timeout=PATIENCE_S) for _ in range(3)]
    for number, connection in enumerate(slow, 1):
        connection.sendall(request(extra=49_000) + BODY + b" " * 48_999)
        until(lambda held=number * 49_000: buffered(service) >= held)
    quick = httpx.post(url.join("/rerank"), content=BODY + b" " * 45_000, headers={"content-type": "application/json"})
    assert quick.status_code == 200
    status, headers, body = answer(slow[0])
    assert (status, json.loads(body)["type"], headers["connection"]) == (429, "urn:listwright:overloaded", "close")
    assert int(headers["retry-after"]) >= 1
    assert closed(slow[0])
    slow[0].close()
    for connection in slow[1:]:
        connection.sendall(b" ")
        assert answer(connection)[0] == 200
        connection.close()
    assert buffered(service) == 0
    code, log = service.stop()
    assert code == 0
    assert "Traceback" not in log


def test_who_comes_back_after_the_keep_alive_time_is_answered_and_told_to_go(bundle_folder):
    """A connection pool with the same limit as the service asks in the very moment in which the limit is over."""
    service = Process(bundle=bundle_folder, keep_alive_s=1).wait_until_ready()
    url = httpx.URL(service.url)
    for asked, idle_s, told in ((False, 1.2, "close"), (True, 1.2, "close"), (True, 0.0, None)):
        with socket.create_connection((url.host, url.port), timeout=PATIENCE_S) as connection:
            if asked:
                connection.sendall(request() + BODY)
                assert answer(connection)[0] == 200
            time.sleep(idle_s)
            connection.sendall(request() + BODY)
            status, headers, _ = answer(connection)
            assert (status, headers["connection"]) == (200, told)
    assert service.stop()[0] == 0
