"""Below HTTP: half-closed connections, upgrades, endless heads, and what is no HTTP at all."""

import json
import socket
import time

import httpx
import pytest

from support.http.processes import Process
from support.http.raw_http import BODY, answer, closed, request
from support.waiting import PATIENCE_S


@pytest.fixture
def connection(live):
    with socket.create_connection((live.base_url.host, live.base_url.port), timeout=PATIENCE_S) as connection:
        yield connection


@pytest.mark.parametrize("split", [False, pytest.param(True, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("protocol", [b"h2c", b"websocket"])
def test_an_offered_upgrade_is_ignored(connection, protocol, split):
    """Java's HttpClient offers h2c with every first request."""
    head = request(b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: " + protocol, b"HTTP2-Settings: AAMAAABkAAQ")
    connection.sendall(head if split else head + BODY)
    if split:
        time.sleep(0.05)
        connection.sendall(BODY)
    assert answer(connection)[0] == 200
    connection.sendall(request() + BODY)
    assert answer(connection)[0] == 200, "the connection goes on"


def test_a_body_that_ends_early_ends_the_connection(connection):
    connection.sendall(request(extra=1) + BODY)
    connection.shutdown(socket.SHUT_WR)
    status, headers, body = answer(connection)
    assert (status, headers["connection"]) == (400, "close")
    assert json.loads(body)["type"] == "urn:listwright:malformed-http"
    assert connection.recv(1) == b""


@pytest.mark.parametrize("line", [b"X-A: " + b"a" * 10_000, b"X-A: a\r\n" * 1000])
def test_an_endless_head_is_refused(connection, line):
    """And the refusal arrives, although there is more on its way."""
    connection.sendall(request()[:-2] + b"X-B: ")
    for _ in range(100):
        connection.sendall(line)
    status, headers, _ = answer(connection)
    assert (status, headers["connection"]) == (431, "close")
    assert closed(connection)


@pytest.mark.parametrize(
    "sent",
    [
        b"hello\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01",
        request(b"Content-Length: 3") + BODY,
        request(b"Transfer-Encoding: chunked") + b"ZZ\r\n",
        request(method=b"FOO"),
    ],
    ids=["words", "TLS", "two lengths", "bad chunk", "unknown method"],
)
def test_what_is_no_http_gets_a_problem_too(connection, sent):
    connection.sendall(sent)
    status, headers, body = answer(connection)
    assert (status, headers["content-type"]) == (400, "application/problem+json")
    assert json.loads(body)["request_id"] == headers["x-request-id"]
    assert json.loads(body)["type"] == "urn:listwright:malformed-http"


def test_a_length_of_many_zeros_is_a_number(connection):
    head = request().replace(b"Content-Length: ", b"Content-Length: " + b"0" * 5000)
    connection.sendall(head + BODY)
    assert answer(connection)[0] == 200


def test_what_was_sent_is_not_repeated_at_length(live):
    response = live.post("/rerank", content=b"{}", headers={"Content-Type": "a" * 50_000})
    assert response.status_code == 415
    assert len(response.content) < 3000


@pytest.mark.nightly
def test_an_unfinished_upload_gets_an_answer_when_the_service_stops(bundle_folder):
    service = Process(bundle=bundle_folder).wait_until_ready()
    url = httpx.URL(service.url)
    with socket.create_connection((url.host, url.port), timeout=PATIENCE_S) as connection:
        connection.sendall(request() + BODY[:5])
        time.sleep(0.2)
        service.process.send_signal(2)
        time.sleep(0.3)
        service.process.send_signal(2)  # a second Ctrl-C does not wait
        status, headers, body = answer(connection)
    assert (status, headers["content-type"]) == (503, "application/problem+json")
    assert "stopped before the body was complete" in json.loads(body)["detail"]
    assert service.wait()[0] == 0
