"""What the client says of its deadline arrives in the service: both clients, real connections."""

import asyncio

import pytest

from listwright.service import pipeline
from listwright_client import AsyncClient, Client
from support.service.threaded_service import LONG_MS, serving

ROWS = [[1.0, 2.0, 3.0, "A5"], [2.0, 1.0, 0.0, "B2"]]


@pytest.fixture(scope="module")
def patient(bundle_folder):
    with serving(bundle_folder, timeout_ms=LONG_MS) as served:
        yield served


@pytest.fixture
def ranked_requests(monkeypatch):
    """``timeout_ms`` of each request that is ranked, and the seconds that it has left."""
    requests, rank = [], pipeline.rank

    def watched(asked, deadline, **options):
        requests.append((asked.options.timeout_ms, deadline.left_s))
        return rank(asked, deadline, **options)

    monkeypatch.setattr(pipeline, "rank", watched)
    return requests


@pytest.fixture(params=["sync", "async"])
def rerank(request):
    """Asks by a client of either kind."""

    def ask(served, *, made=None, **words):
        if request.param == "sync":
            with Client(served.url, **made or {}) as client:
                return client.rerank(ROWS, **words)

        async def asking():
            async with AsyncClient(served.url, **made or {}) as client:
                return await client.rerank(ROWS, **words)

        return asyncio.run(asking())

    return ask


@pytest.mark.parametrize(
    ("words", "timeout_ms"),
    [
        ({"deadline": 160.0}, 59_998),
        ({"timeout": 90.0, "timeout_ms": 20_000}, 20_000),
        ({"deadline": 160.0, "timeout_ms": 20_000}, 20_000),
        ({"timeout": 30.0, "timeout_ms": 50_000}, 29_998),
        ({"timeout": 30.0}, None),
        ({}, None),
    ],
)
def test_the_service_hears_of_a_deadline_and_of_nothing_else(patient, ranked_requests, rerank, words, timeout_ms):
    """And reckons with it from the first byte of the request."""
    assert rerank(patient, made={"clock": lambda: 100.0}, **words).meta.status == "ok"
    ((sent_ms, left_s),) = ranked_requests
    assert sent_ms == timeout_ms
    most_s = (LONG_MS if timeout_ms is None else timeout_ms) / 1000.0
    assert most_s / 2 < left_s < most_s
