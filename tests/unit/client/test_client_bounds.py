"""What a server may cost a call, on real connections: its time, and memory for its answer."""

import asyncio
import contextlib
import gc
import gzip
import json
import socket
import threading
import tracemalloc

import httpx
import numpy as np
import pytest

from listwright_client import AsyncClient, Client, DeadlineExceededError, ServerError, UnexpectedAnswerError
from listwright_client.body import encode
from listwright_client.exchange import MOST_BYTES, MOST_BYTES_OF_CANDIDATE, MOST_BYTES_OF_REFUSAL
from support.http.scripted import answer
from support.waiting import PATIENCE_S

MATRIX = np.ones((2, 3))
NIGHTLY = pytest.mark.nightly
PIECES = 10_000
"""So many that a call which waits for the last outlasts the test."""


encode(MATRIX)  # the first of a process takes long


class Peer:
    """Listens, and treats each connection by a function of it and of an event that ends the test."""

    def __init__(self, treat):
        self._treat, self.ended, self._threads, self._connections = treat, threading.Event(), [], []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self._start(self._accept)

    def _start(self, target, *values):
        self._threads.append(threading.Thread(target=target, args=values))
        self._threads[-1].start()

    def _accept(self):
        while not self.ended.is_set():
            connection, _ = self._socket.accept()
            connection.settimeout(PATIENCE_S)
            self._start(self._serve, connection)

    def _serve(self, connection):
        self._connections.append(connection)
        with connection, contextlib.suppress(OSError):
            self._treat(connection, self.ended)

    def end(self):
        self.ended.set()
        for connection in self._connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        socket.create_connection(("127.0.0.1", self.port)).close()
        for thread in self._threads:
            thread.join(PATIENCE_S)
        self._socket.close()


@pytest.fixture
def peer():
    """Starts a server that treats each connection by a function."""
    with contextlib.ExitStack() as stack:

        def start(treat):
            started = Peer(treat)
            stack.callback(started.end)
            return started

        yield start


class InOneLoop:
    """An AsyncClient that is asked like a Client, in one event loop."""

    def __init__(self, runner, client):
        self._runner, self._client = runner, client

    def __getattr__(self, name):
        return lambda *values, **options: self._runner.run(getattr(self._client, name)(*values, **options))


@pytest.fixture(params=["sync", "async", *(pytest.param(f"given {kind}", marks=NIGHTLY) for kind in ("sync", "async"))])
def connect(request):
    """Makes a client of either kind, with connections of its own or the caller's."""
    given = {"given sync": httpx.Client, "given async": httpx.AsyncClient}.get(request.param)
    with contextlib.ExitStack() as stack:
        runner = stack.enter_context(asyncio.Runner())

        def make(url, **options):
            if given is not None:
                options["http"] = given()
            if "async" not in request.param:
                stack.callback(options["http"].close if given else lambda: None)
                return stack.enter_context(Client(url, **options))
            client = AsyncClient(url, **options)
            stack.callback(lambda: runner.run((options["http"] if given else client).aclose()))
            return InOneLoop(runner, client)

        yield make


def request_of(connection):
    """Read a request; return its head and body."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(65536) or b"\r\n\r\n"
    head, _, body = data.partition(b"\r\n\r\n")
    length = next((int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0)
    while len(body) < length:
        body += connection.recv(65536)
    return head, body


def dripping(first, piece, pause=0.02):
    """After a request, sends some bytes, and then a piece again and again."""

    def treat(connection, ended):
        request_of(connection)
        connection.sendall(first)
        for _ in range(PIECES):
            if ended.wait(pause):
                break
            connection.sendall(piece)

    return treat


OK = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    ("first", "piece", "pause"),
    [
        pytest.param(b"HTTP/1.1 200 ", b"O", 0.02, id="status line", marks=NIGHTLY),
        pytest.param(OK, b"X-More: 1\r\n", 0.02, id="headers"),
        pytest.param(b"", b"HTTP/1.1 103 Early Hints\r\n\r\n", 0.002, id="hints", marks=NIGHTLY),
        pytest.param(OK + b"Content-Length: 1000000\r\n\r\n", b" ", 0.02, id="body", marks=NIGHTLY),
        pytest.param(OK + b"Transfer-Encoding: chunked\r\n\r\n1;", b"x", 0.02, id="chunk", marks=NIGHTLY),
        pytest.param(b"HTTP/1.1 503 No\r\nContent-Length: 1000000\r\n\r\n", b" ", 0.02, id="refusal", marks=NIGHTLY),
    ],
)
def test_a_drip_ends_with_the_call(peer, connect, first, piece, pause):
    client = connect(f"http://127.0.0.1:{peer(dripping(first, piece, pause)).port}", timeout=0.4)
    with pytest.raises(DeadlineExceededError, match="before an answer came"):
        client.rerank(MATRIX)


@NIGHTLY
@pytest.mark.parametrize(
    "ask",
    [lambda client: client.explain(MATRIX, candidate=0), lambda client: client.info(), lambda client: client.ready()],
    ids=["explain", "info", "ready"],
)
def test_of_every_question(peer, connect, ask):
    client = connect(f"http://127.0.0.1:{peer(dripping(OK, b'X-More: 1' + bytes([13, 10]))).port}", timeout=0.4)
    with contextlib.suppress(DeadlineExceededError):
        assert ask(client) is False


def test_on_a_connection_that_has_answered_before(peer, connect):
    def treat(connection, ended):
        request_of(connection)
        content = json.dumps(answer()).encode()
        connection.sendall(OK + b"Content-Length: %d\r\n\r\n" % len(content) + content)
        dripping(OK, b"X-More: 1\r\n")(connection, ended)

    client = connect(f"http://127.0.0.1:{peer(treat).port}", timeout=PATIENCE_S)
    assert client.rerank(MATRIX).attempts == 1
    with pytest.raises(DeadlineExceededError):
        client.rerank(MATRIX, timeout=0.4)


@NIGHTLY
def test_a_request_that_is_read_slowly_ends_with_the_call(peer, connect):
    def treat(connection, ended):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        while not ended.wait(0.02) and connection.recv(4096):
            pass

    client = connect(f"http://127.0.0.1:{peer(treat).port}", timeout=0.4)
    with pytest.raises(DeadlineExceededError):
        client.rerank(np.zeros((4000, 1000)))


@NIGHTLY
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # httpcore leaves a half-open connection of asyncio's to Python
def test_so_does_a_handshake(peer, connect):
    def treat(connection, ended):
        connection.recv(65536)
        connection.sendall(b"\x16\x03\x03\x40\x00")  # a record of 16 KiB, which comes byte by byte
        for _ in range(PIECES):
            if ended.wait(0.02):
                break
            connection.sendall(b"\x02")

    client = connect(f"https://127.0.0.1:{peer(treat).port}", timeout=0.4)
    with pytest.raises(DeadlineExceededError):
        client.rerank(MATRIX)
    gc.collect()


def test_addresses_of_one_host_share_the_time(monkeypatch):
    """None of them takes a connection: their queues are full."""
    with contextlib.ExitStack() as stack:
        full = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        place = full.getsockname()
        for _ in range(2):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(place)
        places = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", place)] * 4
        monkeypatch.setattr(socket, "getaddrinfo", lambda *values, **options: places)
        timeouts, connect = [], socket.socket.settimeout
        monkeypatch.setattr(
            socket.socket, "settimeout", lambda own, value: timeouts.append(value) or connect(own, value)
        )
        with Client("http://many.test", timeout=0.4) as client, pytest.raises(DeadlineExceededError):
            client.rerank(MATRIX)
    assert len(timeouts) == 4
    assert 0 < sum(timeouts) <= 0.4


def endless(head, piece=b" " * 65536):
    def treat(connection, ended):
        request_of(connection)
        connection.sendall(head)
        while not ended.is_set():
            connection.sendall(piece)

    return treat


def test_an_answer_without_end_is_read_up_to_a_bound(peer, connect):
    client = connect(f"http://127.0.0.1:{peer(endless(OK + bytes([13, 10]))).port}", timeout=PATIENCE_S)
    tracemalloc.start()
    with pytest.raises(
        UnexpectedAnswerError, match=f"more than {MOST_BYTES + 2 * MOST_BYTES_OF_CANDIDATE} bytes"
    ) as caught:
        client.rerank(MATRIX)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (caught.value.status, caught.value.attempts) == (200, 1)
    assert peak < 4 * MOST_BYTES


def test_so_is_a_refusal(peer, connect):
    head = b"HTTP/1.1 500 No\r\n\r\n"
    client = connect(f"http://127.0.0.1:{peer(endless(head)).port}", timeout=PATIENCE_S)
    tracemalloc.start()
    with pytest.raises(ServerError):
        client.info()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * MOST_BYTES_OF_REFUSAL


@pytest.mark.parametrize(("length", "is_read"), [(0, True), (1, False)])
def test_the_edge_of_the_bound(client, server, length, is_read):
    content = json.dumps(answer()).encode()
    content += b" " * (MOST_BYTES + 2 * MOST_BYTES_OF_CANDIDATE - len(content) + length)
    server.says(lambda request: httpx.Response(200, content=content))
    if is_read:
        assert client.rerank(MATRIX).attempts == 1
    else:
        with pytest.raises(UnexpectedAnswerError, match="more than"):
            client.rerank(MATRIX)


@pytest.mark.parametrize("encoding", ["gzip", "br", "gzip, gzip"])
def test_nothing_is_decompressed(peer, connect, encoding):
    bomb = gzip.compress(b" " * 2**24)
    sent = []

    def treat(connection, ended):
        sent.append(request_of(connection)[0].lower())
        head = b"Content-Length: %d\r\nContent-Encoding: %s\r\n\r\n" % (len(bomb), encoding.encode())
        connection.sendall(OK + head + bomb)

    client = connect(f"http://127.0.0.1:{peer(treat).port}", timeout=PATIENCE_S)
    tracemalloc.start()
    with pytest.raises(UnexpectedAnswerError, match="compressed"):
        client.rerank(MATRIX)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert b"accept-encoding: identity" in sent[0]
    assert peak < 2**22


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # of connections whose loop ended before they were closed
def test_an_async_client_serves_one_event_loop_after_the_other(peer):
    def treat(connection, ended):
        content = json.dumps(answer()).encode()
        while not ended.is_set():
            request_of(connection)
            connection.sendall(OK + b"Content-Length: %d\r\n\r\n" % len(content) + content)

    async def ask(client):
        asked = [client.rerank(MATRIX) for _ in range(3)]
        return [ranking.attempts for ranking in await asyncio.gather(*asked)]

    def ask_in_four_loops():
        client = AsyncClient(f"http://127.0.0.1:{peer(treat).port}", retries=0)
        assert asyncio.run(ask(client)) == asyncio.run(ask(client)) == asyncio.run(ask(client)) == [1, 1, 1]
        asyncio.run(client.aclose())
        with pytest.raises(RuntimeError, match="closed"):
            asyncio.run(ask(client))

    ask_in_four_loops()
    gc.collect()


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # of connections whose loop ended before they were closed
def test_a_given_pool_of_another_loop_is_named(peer):
    def treat(connection, ended):
        content = json.dumps(answer()).encode()
        while not ended.is_set():
            request_of(connection)
            connection.sendall(OK + b"Content-Length: %d\r\n\r\n" % len(content) + content)

    async def ask(client):
        await client.rerank(MATRIX)

    def ask_in_two_loops():
        client = AsyncClient(f"http://127.0.0.1:{peer(treat).port}", http=httpx.AsyncClient())
        asyncio.run(ask(client))
        with pytest.raises(RuntimeError, match="given: make both in each loop"):
            asyncio.run(ask(client))

    ask_in_two_loops()
    gc.collect()
