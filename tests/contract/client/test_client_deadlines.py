"""What the client says of its deadline arrives in the service and is kept there: both clients, real connections."""

import asyncio
import threading
from dataclasses import dataclass, field

import pytest

from listwright.service.api import pipeline
from listwright_client import AsyncClient, Client
from support.service.threaded_service import LONG_MS, serving
from support.waiting import PATIENCE_S

ROWS = [[1.0, 2.0, 3.0, "A5"], [2.0, 1.0, 0.0, "B2"]]


@pytest.fixture(scope="module")
def patient(bundle_folder):
    with serving(bundle_folder, timeout_ms=LONG_MS) as served:
        yield served


@dataclass
class Rankings:
    """What they were asked for; ``late`` makes each begin when its deadline has passed, ``go`` holds each up."""

    told: list = field(default_factory=list)
    left_s: list = field(default_factory=list)
    late: bool = False
    go: threading.Event | None = None


@pytest.fixture
def rankings(monkeypatch):
    seen, rank = Rankings(), pipeline.rank

    def watched(asked, deciders, deadline):
        seen.told.append(asked.options.timeout_ms)
        seen.left_s.append(deadline.left_s)
        assert not seen.late or deadline.left_s < 10, "the service was told"
        while seen.late and deadline.left_s > 0:
            threading.Event().wait(deadline.left_s)
        if seen.go is not None:
            assert seen.go.wait(PATIENCE_S)
        return rank(asked, deciders, deadline)

    monkeypatch.setattr(pipeline, "rank", watched)
    return seen


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
    ("words", "told"),
    [
        ({"deadline": 160.0}, 59_998),
        ({"timeout": 90.0, "timeout_ms": 20_000}, 20_000),
        ({"deadline": 160.0, "timeout_ms": 20_000}, 20_000),
        ({"timeout": 30.0, "timeout_ms": 50_000}, 29_998),
        ({"timeout": 30.0}, None),
        ({}, None),
    ],
)
def test_the_service_hears_of_a_deadline_and_of_nothing_else(patient, rankings, rerank, words, told):
    """And reckons with it from the first byte of the request."""
    assert rerank(patient, made={"clock": lambda: 100.0}, **words).meta.status == "ok"
    assert rankings.told == [told]
    (left_s,) = rankings.left_s
    most_s = (LONG_MS if told is None else told) / 1000.0
    assert most_s / 2 < left_s < most_s
