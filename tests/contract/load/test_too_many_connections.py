"""More connections than are served, at a live process that serves two."""

import json
import socket
from contextlib import suppress

import httpx
import pytest

from support.http.processes import Process
from support.http.raw_http import BODY, answer, request
from support.waiting import NEVER_S, PATIENCE_S, until

HEADERS = {"content-type": "application/json"}
"""Milliseconds: those inside stay there as long as a test takes."""


@pytest.fixture(scope="module")
def service(bundle_folder):
    service = Process(bundle=bundle_folder, max_connections=2, timeout_ms=1000 * NEVER_S).wait_until_ready()
    yield httpx.URL(service.url)
    code, log = service.stop()
    assert code == 0
    assert "Traceback" not in log
    assert "2 connections are open, which is the limit (LISTWRIGHT_MAX_CONNECTIONS): new connections get 503" in log


def connect(url):
    return socket.create_connection((url.host, url.port), timeout=PATIENCE_S)


def value(metrics, name):
    (found,) = [float(line.split()[1]) for line in metrics.splitlines() if line.startswith(name + " ")]
    return found


BEGUN = 10
"""Bytes of a request that those inside have sent: they are not idle, and keep their places."""


@pytest.fixture
def full(service):
    """Its address, and two that have come and stay."""
    made = []

    def alone():
        """The service has heard that those of the test before are gone."""
        made.append(connect(service))
        made[-1].sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        _, headers, metrics = answer(made[-1])
        if "connection" in headers or value(metrics.decode(), "listwright_open_connections") != 1:
            made.pop().close()
        return made

    until(alone)
    with made[0] as one, connect(service) as other:
        for connection in (one, other):
            connection.sendall(request()[:BEGUN])
        yield service, one, other


@pytest.mark.nightly
@pytest.mark.parametrize(("workers", "files"), [(1, 100), (2, 100), (1, 72)])
def test_few_open_files_leave_room_for_probes(bundle_folder, workers, files):
    """Idle callers fill the process, and not its table of open files."""
    service = Process("prlimit", f"--nofile={files}:{files}", bundle=bundle_folder, workers=workers)
    service.wait_until_ready()
    url = httpx.URL(service.url)
    idle = [connect(url) for _ in range(2 * files)]
    for path in ("/livez", "/readyz", "/metrics") * 3:
        assert httpx.get(url.join(path), timeout=PATIENCE_S).status_code == 200
    assert sample(url, "process_open_fds") < sample(url, "process_max_fds")
    for connection in idle:
        connection.close()
    code, log = service.stop()
    assert code == 0
    assert len([line for line in log.splitlines() if "MAX_CONNECTIONS is lowered from 800" in line]) == 1
    assert "Too many open files" not in log


def sample(url, name):
    return value(httpx.get(url.join("/metrics")).text, name)


def test_a_newcomer_is_told_so_and_those_inside_are_served(full):
    url, one, other = full
    refused = httpx.post(url.join("/rerank"), content=BODY, headers={**HEADERS, "X-Request-ID": "mine"})
    assert refused.status_code == 503
    assert refused.headers["content-type"] == "application/problem+json"
    assert refused.headers["retry-after"] == "1"
    assert refused.headers["connection"] == "close"
    assert refused.headers["x-request-id"] == "mine"
    assert refused.headers["cache-control"] == "no-store"
    problem = refused.json()
    assert (problem["type"], problem["request_id"]) == ("urn:listwright:too-many-connections", "mine")
    assert "2 connections are open, which is the limit (LISTWRIGHT_MAX_CONNECTIONS)" in problem["detail"]
    for connection in (one, other):
        connection.sendall(request()[BEGUN:] + BODY)
        assert answer(connection)[0] == 200


def test_a_newcomer_gets_one_answer_whatever_it_has_sent(full):
    with connect(full[0]) as newcomer:
        newcomer.sendall((request() + BODY) * 3)
        status, _, body = answer(newcomer)
        assert (status, json.loads(body)["status"]) == (503, 503)
        with suppress(ConnectionError):  # what it had sent more is not read
            assert newcomer.recv(65536) == b""


@pytest.mark.parametrize(
    "path", ["/livez", "/readyz", "/metrics", "/v2/health/live", "/v2/health/ready", "/v2/models/shop/ready"]
)
def test_probes_are_answered_and_have_to_go(full, path):
    answered = httpx.get(full[0].join(path))
    assert answered.status_code == 200
    assert answered.headers["connection"] == "close"


@pytest.mark.nightly
def test_a_newcomer_that_says_nothing_is_not_waited_for(full):
    with connect(full[0]) as newcomer:
        assert newcomer.recv(1) == b"", "long before the deadline of a request"


@pytest.mark.nightly
def test_a_newcomer_that_stops_in_its_head_is_not_either(full):
    with connect(full[0]) as newcomer:
        newcomer.sendall(request()[:-2])
        assert answer(newcomer)[0] == 408


def test_they_are_counted(full):
    url = full[0]
    excess = sample(url, "listwright_excess_connections_total")
    assert httpx.get(url.join("/info")).status_code == 503
    assert sample(url, "listwright_excess_connections_total") == excess + 2, "who asked for the metrics is one too"
    assert sample(url, "listwright_open_connections") >= 3


def first_served(url):
    """Statuses of questions up to the first that is served."""
    statuses = []

    def served():
        statuses.append(httpx.get(url.join("/info")).status_code)
        return statuses[-1] == 200

    until(served)
    return statuses


def test_who_leaves_makes_room(full):
    url, one, _ = full
    one.close()
    assert set(first_served(url)) <= {200, 503}


@pytest.mark.nightly
def test_who_is_idle_makes_room(full):
    url, one, other = full
    other.sendall(request()[BEGUN:] + BODY)
    assert answer(other)[0] == 200
    assert first_served(url)[0] == 503, "it was busy a moment ago"
    assert other.recv(1) == b"", "its place was taken"
    one.sendall(request()[BEGUN:] + BODY)
    assert answer(one)[0] == 200, "who had begun to ask keeps its place"
    assert sample(url, "listwright_evicted_connections_total") >= 1
