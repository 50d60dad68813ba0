"""Attempts, pauses and deadlines of both clients, in a time of their own."""

import asyncio
import os
import socket

import httpx
import numpy as np
import pytest

from listwright_client import (
    AsyncClient,
    Client,
    ConnectionFailedError,
    DeadlineExceededError,
    OverloadedError,
    RequestError,
    ServerError,
    UnavailableError,
)
from support.http.scripted import URL, answer, breaking, good, refusing

MATRIX = np.ones((2, 3))
NEVER_ANSWERED = (httpx.ConnectError, httpx.ReadError, httpx.WriteError, httpx.CloseError, httpx.RemoteProtocolError)


def test_one_good_answer(client, server):
    first_to_last = [{**answer(length=3)["results"][n], "rank": rank} for rank, n in enumerate((2, 0, 1), start=1)]
    server.says(good(length=3, scores=[0.25, None, 0.75], ranks=[2, 3, 1], results=first_to_last, id="q"))
    ranking = client.rerank(np.ones((3, 3)), id="q", request_id="r-1")
    np.testing.assert_array_equal(ranking.scores, [0.25, np.nan, 0.75])
    assert ranking.ranks.tolist() == [2, 3, 1]
    assert ranking.order.tolist() == [2, 0, 1]
    assert (ranking.id, ranking.model, ranking.version) == ("q", "shop", "7")
    assert (ranking.request_id, ranking.attempts, ranking.degraded) == ("r-1", 1, False)
    assert ranking.results[0].stage == "second"
    assert ranking.meta.timings_ms == {"total": 1.0}
    assert ranking.meta.ignored == (), "of a service before there were any"
    with pytest.raises(ValueError, match="read-only"):
        ranking.scores[0] = 1.0
    assert server.pauses == []


def test_probabilities_and_weights_are_read(client, server):
    results = [
        {**result, "probability": share} for result, share in zip(answer()["results"], (0.75, None), strict=True)
    ]
    meta = {**answer()["meta"], "weights": {"booked": 1, "margin": 0.5}}
    server.says(good(results=results, probabilities=[0.75, None], meta=meta), good())
    ranking = client.rerank(MATRIX, probabilities=True, weights={"margin": 0.5})
    np.testing.assert_array_equal(ranking.probabilities, [0.75, np.nan])
    assert [result.probability for result in ranking.results] == [0.75, None]
    assert ranking.meta.weights == {"booked": 1, "margin": 0.5}
    with pytest.raises(ValueError, match="read-only"):
        ranking.probabilities[0] = 1.0
    without = client.rerank(MATRIX)
    assert (without.probabilities, without.results[0].probability, without.meta.weights) == (None, None, None)


@pytest.mark.parametrize("option", [{"probabilities": True}, {"min_probability": 0.5}, {"weights": {"margin": 0.5}}])
def test_a_service_that_does_not_know_an_option_is_not_asked_again(client, server, option):
    server.says(refusing(422))
    with pytest.raises(RequestError) as caught:
        client.rerank(MATRIX, **option)
    assert (caught.value.status, caught.value.attempts, len(server.requests)) == (422, 1, 1)


@pytest.mark.parametrize("status", [429, 503])
def test_a_refusal_that_passes_is_asked_again(client, server, status):
    server.says(refusing(status), refusing(status), good())
    assert client.rerank(MATRIX).attempts == 3
    assert server.pauses == [0.5 * 0.05, 0.5 * 0.1]
    assert server.bodies() == [{"features": MATRIX.tolist()}] * 3


def test_retry_after_is_kept_and_spread(client, server):
    server.says(refusing(429, Retry_After="2"), good())
    client.rerank(MATRIX)
    assert server.pauses == [2 + 0.5 * 0.05]


def test_retry_after_may_be_a_moment(client, server):
    moment = {"Date": "Wed, 21 Oct 2026 07:28:00 GMT", "Retry_After": "Wed, 21 Oct 2026 07:28:03 GMT"}
    server.says(refusing(503, **moment), good())
    client.rerank(MATRIX)
    assert server.pauses == [3 + 0.5 * 0.05]


def test_pauses_stop_growing(make, server):
    server.says(refusing(503))
    with pytest.raises(UnavailableError) as caught:
        make(retries=40, timeout=1000.0).rerank(MATRIX)
    assert caught.value.attempts == len(server.requests) == 41
    assert max(server.pauses) == server.pauses[-1] == 0.5 * 2.0


@pytest.mark.parametrize(("retries", "attempts"), [(0, 1), (1, 2), (2, 3)])
def test_retries_end(make, server, retries, attempts):
    server.says(refusing(429, Retry_After="1"))
    with pytest.raises(OverloadedError) as caught:
        make(retries=retries).rerank(MATRIX)
    assert len(server.requests) == caught.value.attempts == attempts
    assert caught.value.retry_after == 1.0


@pytest.mark.parametrize("status", [400, 401, 404, 409, 413, 422, 500, 504, 301])
def test_other_refusals_are_final(client, server, status):
    server.says(refusing(status, Retry_After="1"))
    with pytest.raises(Exception, match=f"^{status} "):
        client.rerank(MATRIX)
    assert len(server.requests) == 1


def test_a_proxy_whose_service_died_is_asked_again(client, server):
    """The service never says 502: a proxy does, whose connection to the service broke."""
    server.says(refusing(502), good())
    assert client.rerank(MATRIX).attempts == 2
    server.says(refusing(502))
    with pytest.raises(ServerError, match=r"^502 ") as caught:
        client.rerank(MATRIX)
    assert caught.value.attempts == 3


@pytest.mark.parametrize("error", NEVER_ANSWERED)
def test_a_connection_that_breaks_before_an_answer_is_tried_again(client, server, error):
    server.says(breaking(error), good())
    assert client.rerank(MATRIX).attempts == 2
    server.says(breaking(error))
    with pytest.raises(ConnectionFailedError, match="no answer: broken") as caught:
        client.rerank(MATRIX)
    assert isinstance(caught.value.__cause__, error)
    assert (caught.value.status, caught.value.attempts) == (None, 3)


@pytest.mark.parametrize("error", [httpx.LocalProtocolError, httpx.ProxyError, httpx.UnsupportedProtocol])
def test_other_failures_are_final(client, server, error):
    server.says(breaking(error))
    with pytest.raises(ConnectionFailedError):
        client.rerank(MATRIX)
    assert len(server.requests) == 1


class Pieces(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A body that comes in pieces; what is called comes in between."""

    def __init__(self, *pieces):
        self.pieces = pieces

    def __iter__(self):
        for piece in self.pieces:
            if callable(piece):
                piece()
            else:
                yield piece

    async def __aiter__(self):
        for piece in self:
            yield piece


def cut_off():
    raise httpx.ReadError("cut off")


def test_an_answer_that_breaks_off_is_asked_for_again(client, server):
    server.says(lambda request: httpx.Response(200, stream=Pieces(b'{"id":', cut_off)))
    with pytest.raises(ConnectionFailedError, match="the answer broke off: cut off"):
        client.rerank(MATRIX)
    assert len(server.requests) == 3
    server.requests.clear()
    server.says(lambda request: httpx.Response(200, stream=Pieces(b'{"id":', cut_off)), good())
    assert client.rerank(MATRIX).attempts == 2


def test_no_wait_beyond_the_deadline(make, server):
    server.says(refusing(429, Retry_After="5"), good())
    with pytest.raises(OverloadedError) as caught:
        make(timeout=5.0).rerank(MATRIX)
    assert (server.pauses, caught.value.retry_after) == ([], 5.0)


def test_what_attempts_and_pauses_take_is_taken_off(make, server):
    server.takes = 1.0
    server.says(refusing(503, Retry_After="1"))
    with pytest.raises(UnavailableError):
        make(retries=10, timeout=5.0).rerank(MATRIX)
    assert [moment - 1000.0 for moment in server.moments] == pytest.approx([0, 2.025, 4.075])
    assert server.now < 1005.5


def test_too_late_before_anything_was_sent(client, server):
    for moment in (999.0, 1000.0, 1000.001):
        with pytest.raises(DeadlineExceededError, match=r"before anything was sent \(0 attempts"):
            client.rerank(MATRIX, deadline=moment)
    assert server.requests == []


@pytest.mark.parametrize("error", [httpx.ReadTimeout, httpx.ConnectTimeout, httpx.WriteTimeout, httpx.PoolTimeout])
def test_an_attempt_that_runs_out_of_time_is_the_last(client, server, error):
    server.says(breaking(error))
    with pytest.raises(DeadlineExceededError, match="before an answer came") as caught:
        client.rerank(MATRIX, request_id="mine-1")
    assert len(server.requests) == 1
    assert (caught.value.status, caught.value.request_id) == (None, "mine-1")


def test_each_attempt_tells_what_is_left_of_the_deadline(client, server):
    server.takes = 0.1
    server.says(refusing(503), refusing(429, Retry_After="0.3"), good())
    client.rerank(MATRIX, deadline=1001.0)
    assert [body["timeout_ms"] for body in server.bodies()] == [998, 998 - 125, 998 - 125 - 450]
    assert [body["features"] for body in server.bodies()] == [MATRIX.tolist()] * 3


def test_each_attempt_tells_what_is_left_of_timeout_ms(client, server):
    server.takes = 0.01
    server.says(refusing(503), good())
    client.rerank(MATRIX, timeout_ms=200)
    assert [body["timeout_ms"] for body in server.bodies()] == [200, 200 - 10 - 25]
    server.says(refusing(429, Retry_After="1"))
    with pytest.raises(OverloadedError):
        client.rerank(MATRIX, timeout_ms=200)
    assert len(server.requests) == 3


def test_a_timeout_alone_is_not_told(make, server):
    make(timeout=0.5).rerank(MATRIX)
    make().rerank(MATRIX, timeout=0.5)
    assert all("timeout_ms" not in body for body in server.bodies())


def test_httpx_gets_what_is_left_at_each_attempt(make, server):
    limits = []

    def slow(request):
        limits.append(request.extensions["timeout"])
        server.now += 1.0
        return (good() if len(limits) == 3 else refusing(503))(request)

    server.says(slow)
    make(timeout=3.5, jitter=lambda: 0.0).rerank(MATRIX)
    assert limits == [dict.fromkeys(("pool", "connect", "write", "read"), left) for left in (3.5, 2.5, 1.5)]


def test_a_body_that_drips_ends_with_the_call(server):
    server.says(lambda request: httpx.Response(200, stream=Pieces(*[b" ", lambda: server.wait(0.4)] * 50)))
    http = httpx.Client(transport=httpx.MockTransport(server))
    with pytest.raises(DeadlineExceededError):
        Client(URL, timeout=1.0, http=http, clock=lambda: server.now).rerank(MATRIX)
    assert server.now < 1000.0 + 1.0 + 0.4


def test_async_stops_at_the_deadline_whatever_it_waits_for():
    async def hang(request):
        await asyncio.Event().wait()

    async def ask():
        async with httpx.AsyncClient(transport=httpx.MockTransport(hang)) as http:
            await AsyncClient(URL, timeout=0.02, http=http).rerank(MATRIX)

    with pytest.raises(DeadlineExceededError):
        asyncio.run(asyncio.wait_for(ask(), 10))


def test_a_cancelled_call_stays_cancelled():
    async def hang(request):
        await asyncio.Event().wait()

    async def ask():
        async with httpx.AsyncClient(transport=httpx.MockTransport(hang)) as http:
            task = asyncio.create_task(AsyncClient(URL, http=http).rerank(MATRIX))
            await asyncio.sleep(0)
            task.cancel()
            await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(ask())


def test_a_silent_server_on_a_real_socket():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = Client(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout=0.05)
        with pytest.raises(DeadlineExceededError):
            client.rerank(MATRIX)
        assert not client.ready(timeout=0.02)
        client.close()


def test_nobody_listens():
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    pauses = []
    with Client(f"http://127.0.0.1:{port}", sleep=pauses.append) as client:
        with pytest.raises(ConnectionFailedError) as caught:
            client.info()
        assert caught.value.attempts == 3
        assert len(pauses) == 2
        assert not client.ready()


@pytest.fixture(params=[Client, AsyncClient])
def made(request, monkeypatch):
    """A client of either kind in a process that the test numbers, and every pool that is made for it."""
    pools, pid = [], [1]
    http = {Client: httpx.Client, AsyncClient: httpx.AsyncClient}[request.param]

    def pool():
        pools.append(http())
        return pools[-1]

    monkeypatch.setattr(os, "getpid", lambda: pid[0])
    monkeypatch.setattr(httpx, http.__name__, pool)
    return request.param, http, pools, pid


@pytest.fixture
def pool_of():
    """Returns a client's pool, as a call in one event loop gets it."""

    async def pool(client):
        return client._connections.pool()

    with asyncio.Runner() as runner:
        yield lambda client: runner.run(pool(client))


def test_a_forked_process_has_connections_of_its_own(made, pool_of):
    kind, _, pools, pid = made
    client = kind(URL)
    parents = pool_of(client)
    assert pool_of(client) is parents
    pid[0] = 2
    childs = pool_of(client)
    assert childs is pool_of(client) is pools[1]
    assert childs is not parents
    assert not parents.is_closed, "closing may wait for a lock that no thread of the child will give back"
    pid[0] = 3
    assert pool_of(client) not in (parents, childs)


def test_a_client_that_was_not_used_before_the_fork_keeps_its_pool(made, pool_of):
    kind, http, pools, pid = made
    given = http()
    own, client = kind(URL), kind(URL, http=given)
    pid[0] = 2
    assert pool_of(own) is pools[0]
    assert pool_of(client) is given
    pid[0] = 3
    with pytest.raises(RuntimeError, match="after the fork"):
        pool_of(client)


def test_a_closed_client_stays_closed_in_a_forked_process(made, pool_of):
    kind, http, _, pid = made
    for client in (kind(URL), kind(URL, http=http())):
        pool = pool_of(client)
        closing = pool.aclose() if kind is AsyncClient else pool.close()
        if closing is not None:
            asyncio.run(closing)
        pid[0] += 1
        assert pool_of(client) is pool
        pid[0] = 1


@pytest.mark.parametrize(("line", "is_ready"), [(good(), True), (refusing(503), False), (refusing(429), None)])
def test_ready_asks_once(client, server, line, is_ready):
    server.says(line)
    if is_ready is None:
        with pytest.raises(OverloadedError):
            client.ready()
    else:
        assert client.ready() is is_ready
    assert [request.url.path for request in server.requests] == ["/readyz"]
    assert server.requests[0].method == "GET"
