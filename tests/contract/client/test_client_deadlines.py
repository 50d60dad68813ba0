"""What the client says of its deadline arrives in the service and is kept there: both clients, real connections."""

import asyncio
import threading
from dataclasses import dataclass, field

import httpx
import pytest

from listwright.service.api import pipeline
from listwright_client import AsyncClient, Client, DeadlineExceededError
from support.service.threaded_service import LONG_MS, serving
from support.waiting import PATIENCE_S

ROWS = [[1.0, 2.0, 3.0, "A5"], [2.0, 1.0, 0.0, "B2"]]


@pytest.fixture(scope="module")
def patient(bundle_folder):
    with serving(bundle_folder, timeout_ms=LONG_MS) as served:
        yield served


@pytest.fixture(scope="module")
def strict(bundle_folder):
    with serving(bundle_folder, timeout_ms=LONG_MS, on_failure="error") as served:
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


def test_an_attempt_after_a_refusal_tells_what_is_left(patient, rankings):
    """The refusal is the service's own: it has no connection to spare."""
    now, limit = [100.0], patient.app.service.connection_limit
    most = limit._most

    def sleep(seconds):
        now[0] += seconds
        limit._most = most

    with httpx.Client() as http:
        client = Client(patient.url, http=http, clock=lambda: now[0], sleep=sleep, jitter=lambda: 0.0)
        limit._most = 0
        assert client.rerank(ROWS, deadline=160.0).meta.status == "ok"
    assert now == [101.0], "Retry-After"
    assert rankings.told == [58_998]


def test_what_is_late_is_degraded_and_says_so(patient, rankings, rerank):
    rankings.late = True
    ranking = rerank(patient, timeout_ms=200, timeout=PATIENCE_S)
    (told,) = rankings.told
    assert 0 < told <= 200
    assert ranking.degraded
    assert (ranking.meta.status, ranking.meta.stage_reached) == ("degraded", "input_order")
    assert ranking.order.tolist() == [0, 1]
    assert "deadline" in ranking.meta.reason


def test_what_is_late_is_a_504_where_the_settings_say_so(strict, rankings, rerank):
    rankings.late = True
    with pytest.raises(DeadlineExceededError) as caught:
        rerank(strict, timeout_ms=200, timeout=PATIENCE_S)
    assert (caught.value.status, caught.value.attempts) == (504, 1)
    assert caught.value.kind == "degraded"


def test_who_only_limits_its_wait_goes_when_it_is_over(patient, rankings, rerank):
    """And the service, which was not told, took its time."""
    rankings.go = threading.Event()
    with pytest.raises(DeadlineExceededError) as caught:
        rerank(patient, timeout=0.2)
    rankings.go.set()
    assert caught.value.status is None
    assert rankings.told == [None]
    assert rankings.left_s[0] > LONG_MS / 2000.0
