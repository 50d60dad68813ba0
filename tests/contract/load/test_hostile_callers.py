"""28 callers who do their worst to one worker, each in a way of its own, while ordinary requests are answered."""

import gc
import socket
import struct
import threading

import httpx
import psutil
import pytest

from support.http.processes import Process
from support.http.raw_http import BODY, LONG, answer, request
from support.waiting import NEVER_S, PATIENCE_S

CALLERS = 28
TRIES = 15_000  # of a caller whom something must stop: five minutes of bytes that come one by one
ROUNDS = 3
HEADERS = {"Content-Type": "application/json"}
CHUNKED = request().replace(b"Content-Length: ", b"Transfer-Encoding: chunked\r\nX: ")


def says_nothing(connection, pause):
    """As idle as others between two requests: it may stay as long as nobody needs its place."""
    pause(2.0)
    connection.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
    assert answer(connection)[0] == 200


def stops_in_the_head(connection, pause):
    connection.sendall(request()[:-2])
    assert answer(connection)[0] == 408


def dribbles_its_head(connection, pause):
    try:
        for _ in range(TRIES):
            pause(0.02)
            connection.sendall(b"P")
    except ConnectionError:
        return
    raise AssertionError("nothing stopped it")


def stops_in_the_body(connection, pause):
    connection.sendall(request(extra=1) + BODY)
    assert answer(connection)[0] == 408


def dribbles_its_body(connection, pause):
    connection.sendall(request(extra=10_000))
    status = None
    try:
        for byte in BODY * 100:
            connection.sendall(bytes([byte]))
            pause(0.01)
    except ConnectionError:
        status = "cut off"
    assert status == "cut off"


def stops_in_a_chunk(connection, pause):
    connection.sendall(CHUNKED + b"ff\r\n{")
    assert answer(connection)[0] == 408


def takes_no_answers(connection, pause):
    """Asks on and on, and reads nothing."""
    asked = request(extra=len(LONG) - len(BODY)) + LONG
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    try:
        for _ in range(5000):
            connection.sendall(asked)
    except ConnectionError:
        return
    raise AssertionError("nothing stopped it")


def goes_away_with_questions_open(connection, pause):
    """Resets the connection while one request is at work and others wait behind it."""
    connection.sendall((request(extra=len(LONG) - len(BODY)) + LONG) * 8)
    pause(0.02)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def asks_for_thousands_at_once(connection, pause):
    try:
        connection.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n" * 20_000)
        while connection.recv(65536):
            pass
    except ConnectionError:
        pass


def asks_on_and_on(connection, pause):
    """Requests without end, none of them too many by itself; reads all answers."""
    one = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"
    for _ in range(50):
        connection.sendall(one * 20)
        answers = b""
        while answers.count(b'{"status":"ok"}') < 20:
            received = connection.recv(65536)
            assert received, "closed before all were answered"
            answers += received


def sends_blank_lines(connection, pause):
    """No request, and no sign of life either."""
    for _ in range(20):
        connection.sendall(b"\r\n" * 500)
        pause(0.01)
    assert connection.recv(65536).startswith(b"HTTP/1.1 400")


def sends_trailers_without_end(connection, pause):
    connection.sendall(CHUNKED + b"0\r\n")
    try:
        for _ in range(TRIES):
            connection.sendall(b"a:\r\n" * 4096)
    except ConnectionError:
        return
    raise AssertionError("nothing stopped it")


def sends_one_byte_a_chunk(connection, pause):
    connection.sendall(CHUNKED)
    for _ in range(100):
        connection.sendall(b"1\r\n \r\n" * 1000)
    assert answer(connection)[0] in (400, 429)  # on a busy machine it may have waited for too long


def goes_away(connection, pause):
    connection.sendall(request(extra=1) + BODY)


WAYS = (
    says_nothing,
    stops_in_the_head,
    dribbles_its_head,
    stops_in_the_body,
    dribbles_its_body,
    stops_in_a_chunk,
    takes_no_answers,
    goes_away,
    goes_away_with_questions_open,
    asks_for_thousands_at_once,
    asks_on_and_on,
    sends_blank_lines,
    sends_trailers_without_end,
    sends_one_byte_a_chunk,
)


@pytest.fixture(scope="module")
def service(bundle_folder):
    service = Process(
        bundle=bundle_folder,
        timeout_ms=1500,
        keep_alive_s=NEVER_S,
        max_payload_bytes=200_000,
        queue=64,
        queue_ms=60_000,  # some callers send work: on a busy machine the expected wait alone would refuse others
    ).wait_until_ready()
    yield service
    code, log = service.stop()
    assert code == 0
    assert "unexpected error" not in log
    assert "Traceback" not in log


def attack(url, faults):
    """All callers at once; when the last of them is done, all connections are closed."""
    never = threading.Event()

    def one(number):
        way = WAYS[number % len(WAYS)]
        try:
            with socket.create_connection((url.host, url.port), timeout=PATIENCE_S) as connection:
                way(connection, never.wait)
        except Exception as error:
            faults.append(f"{way.__name__}: {error!r}")

    threads = [threading.Thread(target=one, args=(number,)) for number in range(CALLERS)]
    for thread in threads:
        thread.start()
    return threads


def held(process):
    """Open files and memory, once nobody is connected."""
    return process.num_fds(), process.memory_info().rss


@pytest.mark.nightly
def test_slow_callers_hold_up_nobody_and_leave_nothing_behind(service):
    url, process = httpx.URL(service.url), psutil.Process(service.process.pid)
    statuses, faults, after = [], [], []
    for _ in range(ROUNDS):
        threads = attack(url, faults)
        with httpx.Client(base_url=url, timeout=PATIENCE_S) as client:
            while any(thread.is_alive() for thread in threads):
                statuses.append(client.post("/rerank", content=BODY, headers=HEADERS).status_code)
        for thread in threads:
            thread.join()
        gc.collect()
        metrics = httpx.get(url.join("/metrics")).text
        after.append(held(process))
    assert faults == []
    assert len(statuses) >= ROUNDS * 10
    assert set(statuses) == {200}
    for gauge in ("waiting_requests", "working_requests", "buffered_bytes"):
        assert f"listwright_{gauge} 0.0" in metrics, gauge
    assert 'status="500"' not in metrics
    (files, memory), (files_then, memory_then) = after[0], after[-1]
    assert files_then <= files + 2
    assert memory_then <= memory + 16 * 2**20, "the first round warms up; the others add nothing"
