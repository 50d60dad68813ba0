"""What is no ranking: at once up to a rate; then probes and the operator later, scrapes from memory, others not at all."""

import asyncio
from contextlib import suppress

import pytest

from service import pacing
from service.pacing import BURST, HOLD_S, PROBE_S, RATE, SCRAPE_BURST, SCRAPES, Pacing, Scraped
from service.problems import OverloadedError


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def slept(monkeypatch):
    """How long each was held."""
    found = []

    async def sleep(seconds):
        found.append(seconds)

    monkeypatch.setattr(pacing.asyncio, "sleep", sleep)
    return found


def ask(paced, path, method="GET", times=1):
    """How many were let on."""

    async def run():
        passed = 0
        for _ in range(times):
            with suppress(OverloadedError):
                await paced.wait({"type": "http", "method": method, "path": path})
                passed += 1
        return passed

    return asyncio.run(run())


@pytest.mark.parametrize("path", ["/info", "/openapi.json", "/v2", "/v2/models/shop", "/nothing", "/rerank"])
def test_beyond_the_rate_others_are_refused_and_not_at_once(slept, path):
    clock = Clock()
    paced = Pacing(clock)
    assert ask(paced, path, times=int(BURST) + 7) == BURST
    assert slept == [HOLD_S] * 7
    clock.now += 1.0
    assert ask(paced, path, times=1000) == RATE


@pytest.mark.parametrize(
    ("path", "held_s"),
    [("/livez", PROBE_S), ("/v2/health/ready", PROBE_S), ("/metrics", PROBE_S), ("/admin/reload", HOLD_S)],
)
def test_probes_and_the_operator_are_answered_later(slept, path, held_s):
    paced = Pacing(Clock())
    assert ask(paced, path, times=int(BURST) + 7) == BURST + 7
    assert slept == [held_s] * 7


def test_neither_takes_the_others_share(slept):
    paced = Pacing(Clock())
    ask(paced, "/nothing", times=2 * int(BURST))
    slept.clear()
    ask(paced, "/livez", times=int(BURST))
    assert slept == []


@pytest.mark.parametrize("path", ["/rerank", "/v1/rerank", "/v2/models/a b/infer", "/v2/models/a/versions/1/infer"])
def test_rankings_are_the_gates_matter(slept, path):
    assert ask(Pacing(Clock()), path, "POST", times=1000) == 1000
    assert slept == []


def test_scrapes_are_counted_anew_as_long_as_that_is_cheap():
    clock, counted = Clock(), []

    async def scrape():
        counted.append(True)
        return b"%d" % len(counted)

    async def ask(times):
        return [await scraped.text(scrape) for _ in range(times)]

    scraped = Scraped(clock)
    found = asyncio.run(ask(int(SCRAPE_BURST) + 5))
    assert found == [b"%d" % n for n in range(1, int(SCRAPE_BURST) + 2)] + [b"%d" % (SCRAPE_BURST + 1)] * 4
    clock.now += 1.0
    asyncio.run(ask(100))
    assert len(counted) == SCRAPE_BURST + 1 + SCRAPES
