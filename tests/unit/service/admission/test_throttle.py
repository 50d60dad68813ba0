"""What is no ranking: at once up to a rate; then probes and the operator later, scrapes from memory, others not at all."""

import asyncio
from contextlib import suppress

import pytest

from listwright.ranking.errors import AbandonedError
from listwright.service.admission import throttle
from listwright.service.admission.throttle import (
    BURST,
    HOLD_S,
    PROBE_S,
    RATE,
    SCRAPE_BURST,
    SCRAPES,
    CachedMetrics,
    RequestThrottle,
)
from listwright.service.auth.keys import Key, digest_of
from listwright.service.auth.middleware import Keyring
from listwright.service.errors import OverloadedError
from listwright.service.settings import Settings
from support.stand_ins import Clock
from support.waiting import PATIENCE_S

WEB, OPERATOR = "w" * 20, "o" * 20
PART = {"type": "http.request", "body": b"x" * 1000, "more_body": True}


@pytest.fixture
def slept(monkeypatch):
    """How long each was held."""
    found = []

    async def hold(_receive, seconds):
        found.append(seconds)

    monkeypatch.setattr(throttle, "_hold", hold)
    return found


def throttle_with(clock=None, *, keys=f"web:{WEB}"):
    keyring = Keyring(Settings(bundle="shop/1", keys=keys))
    return RequestThrottle(keyring, Key("admin", digest_of(OPERATOR.encode())), clock or Clock())


def scope(path, method="GET", key=None):
    headers = [] if key is None else [(b"authorization", b"Bearer " + key.encode())]
    return {"type": "http", "method": method, "path": path, "headers": headers}


def ask(throttled, path, method="GET", times=1, key=None):
    """How many were let on."""

    async def run():
        passed = 0
        for _ in range(times):
            with suppress(OverloadedError):
                await throttled.wait(scope(path, method, key), None)
                passed += 1
        return passed

    return asyncio.run(run())


def caller(*messages):
    """What a caller sends, and then nothing more."""
    parts = iter(messages)

    async def receive():
        message = next(parts, None)
        return message or await asyncio.Event().wait()

    return receive


@pytest.mark.parametrize("key", [None, WEB])
@pytest.mark.parametrize(
    "path", ["/info", "/openapi.json", "/v2", "/v2/models/shop", "/v2/models/a/b/ready", "/nothing", "/rerank"]
)
def test_beyond_the_rate_others_are_refused_and_not_at_once(slept, path, key):
    clock = Clock()
    throttled = throttle_with(clock)
    assert ask(throttled, path, times=int(BURST) + 7, key=key) == BURST
    assert slept == [HOLD_S] * 7
    clock.now += 1.0
    assert ask(throttled, path, times=1000, key=key) == RATE


@pytest.mark.parametrize(
    ("path", "held_s", "key"),
    [
        ("/livez", PROBE_S, None),
        ("/v2/health/ready", PROBE_S, None),
        ("/metrics", PROBE_S, WEB),
        ("/v2/models/shop/ready", PROBE_S, WEB),
        ("/v2/models/a shop/versions/7/ready", PROBE_S, None),
        ("/admin/reload", HOLD_S, OPERATOR),
    ],
)
def test_probes_and_the_operator_are_answered_later(slept, path, held_s, key):
    throttled = throttle_with()
    assert ask(throttled, path, times=int(BURST) + 7, key=key) == BURST + 7
    assert slept == [held_s] * 7


@pytest.mark.parametrize("key", [None, WEB, "x" * 20])
def test_who_has_not_the_operators_key_is_no_operator(slept, key):
    throttled = throttle_with()
    assert ask(throttled, "/admin/reload", times=int(BURST) + 7, key=key) == BURST
    assert ask(throttled, "/admin/reload", key=OPERATOR) == 1
    assert slept == [HOLD_S] * 7


@pytest.mark.parametrize(
    ("asked", "path"), [("/nothing", "/info"), ("/livez", "/metrics"), ("/metrics", "/v2/models/shop/ready")]
)
@pytest.mark.parametrize("wrong", [None, "x" * 20, OPERATOR])
def test_strangers_take_nothing_from_who_has_a_key(slept, asked, path, wrong):
    throttled = throttle_with()
    ask(throttled, asked, times=2 * int(BURST), key=wrong)
    slept.clear()
    assert ask(throttled, path, times=int(BURST), key=WEB) == BURST
    assert slept == []


def test_where_there_are_no_keys_none_gets_more(slept):
    throttled = throttle_with(keys=None)
    ask(throttled, "/nothing", times=int(BURST))
    assert ask(throttled, "/nothing", times=7, key=WEB) == 0
    assert slept == [HOLD_S] * 7


def test_neither_takes_the_others_share(slept):
    throttled = throttle_with()
    ask(throttled, "/nothing", times=2 * int(BURST))
    slept.clear()
    ask(throttled, "/livez", times=int(BURST))
    assert slept == []


@pytest.fixture
def spent(monkeypatch):
    """A throttle in which every request from now on is held, for longer than a test takes."""
    throttled = throttle_with()
    for path in ("/nothing", "/livez"):
        assert ask(throttled, path, times=int(BURST)) == BURST
    for name in ("HOLD_S", "PROBE_S"):
        monkeypatch.setattr(throttle, name, 3600.0)
    return throttled


def test_no_more_than_a_number_are_held(spent, monkeypatch):
    monkeypatch.setattr(throttle, "MOST_HELD", 3)

    async def held(path):
        task = asyncio.ensure_future(spent.wait(scope(path), caller()))
        await asyncio.sleep(0)
        return task

    async def run():
        tasks = [await held(path) for path in ("/nothing", "/livez") for _ in range(3)]
        assert not any(task.done() for task in tasks)
        with pytest.raises(OverloadedError):
            await asyncio.wait_for(spent.wait(scope("/nothing"), caller()), PATIENCE_S)
        await asyncio.wait_for(spent.wait(scope("/livez"), caller()), PATIENCE_S)  # a probe is never refused
        tasks[0].cancel()
        await asyncio.gather(tasks[0], return_exceptions=True)
        assert not (await held("/nothing")).done(), "there is a place again"

    asyncio.run(run())


@pytest.mark.parametrize("path", ["/nothing", "/livez"])
@pytest.mark.parametrize("sent", [[], [PART], [PART, PART, {**PART, "more_body": False}]])
def test_who_has_gone_is_held_no_longer(spent, path, sent):
    async def run():
        with pytest.raises(AbandonedError):
            await asyncio.wait_for(spent.wait(scope(path), caller(*sent, {"type": "http.disconnect"})), PATIENCE_S)

    asyncio.run(run())


def test_a_body_is_dropped_meanwhile(spent, monkeypatch):
    monkeypatch.setattr(throttle, "HOLD_S", 0.05)
    received = 0

    async def receive():
        nonlocal received
        received += 1
        await asyncio.sleep(0.001)
        return PART

    async def run():
        with pytest.raises(OverloadedError):
            await asyncio.wait_for(spent.wait(scope("/nothing"), receive), PATIENCE_S)

    asyncio.run(run())
    assert received > 0


def test_scrapes_are_counted_anew_as_long_as_that_is_cheap():
    clock, counted = Clock(), []

    async def scrape():
        counted.append(True)
        return b"%d" % len(counted)

    async def ask(times):
        return [await metrics.text() for _ in range(times)]

    metrics = CachedMetrics(scrape, clock)
    found = asyncio.run(ask(int(SCRAPE_BURST) + 5))
    assert found == [b"%d" % n for n in range(1, int(SCRAPE_BURST) + 2)] + [b"%d" % (SCRAPE_BURST + 1)] * 4
    clock.now += 1.0
    asyncio.run(ask(100))
    assert len(counted) == SCRAPE_BURST + 1 + SCRAPES
