"""Callers that have closed their side: those that listen still get their answer, those that have gone cost nothing more."""

import socket
import threading

import pytest

from listwright.service import pipeline
from support.http.raw_http import BODY, answer, request
from support.service.threaded_service import LONG_MS, serving
from support.waiting import PATIENCE_S, until

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


@pytest.fixture(scope="module")
def served(bundle_folder):
    with serving(bundle_folder, threads=1, timeout_ms=LONG_MS) as served:
        yield served


@pytest.fixture
def held(monkeypatch):
    """Rankings wait until this is set."""
    go, rank = threading.Event(), pipeline.rank

    def waiting(*arguments, **options):
        assert go.wait(PATIENCE_S)
        return rank(*arguments, **options)

    monkeypatch.setattr(pipeline, "rank", waiting)
    yield go
    go.set()


def connect(served):
    host, _, port = served.url.removeprefix("http://").partition(":")
    return socket.create_connection((host, int(port)), timeout=PATIENCE_S)


def test_who_closes_its_connection_loses_its_place(served, held):
    gate = served.app.service.gate
    with connect(served) as working:
        working.sendall(request() + BODY)
        until(lambda: gate.working == 1)
        with connect(served) as waiting:
            waiting.sendall(request() + BODY)
            until(lambda: gate.waiting == 1)
        until(lambda: gate.waiting == 0)
        assert gate.working == 1
        held.set()
        assert answer(working)[0] == 200


def test_who_only_closes_its_side_is_asked_whether_it_listens_and_gets_its_answer(served, held):
    with connect(served) as working:
        working.sendall(request() + BODY)
        working.shutdown(socket.SHUT_WR)
        asked = b""
        while len(asked) < 2 * len(CONTINUE):
            received = working.recv(len(CONTINUE))
            assert received, "closed before it was asked twice"
            asked += received
        assert asked == 2 * CONTINUE
        held.set()
        status, headers, _ = answer(working)  # reads over what comes before it, as every caller must
        assert (status, headers["connection"]) == (200, "close")


@pytest.mark.nightly
def test_who_speaks_http_1_0_knows_no_such_questions(served, held):
    with connect(served) as working:
        working.sendall((request() + BODY).replace(b" HTTP/1.1", b" HTTP/1.0"))
        working.shutdown(socket.SHUT_WR)
        working.settimeout(0.5)
        with pytest.raises(TimeoutError):
            working.recv(1)
        working.settimeout(PATIENCE_S)
        held.set()
        assert answer(working)[0] == 200
