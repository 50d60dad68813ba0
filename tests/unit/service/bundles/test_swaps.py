"""Swapping under load: nothing stops, nothing is lost, nothing is mixed, nothing stays."""

import asyncio
import gc
import threading
import weakref

import pytest

from listwright.service.bundles import folder, reload
from support.service.swapping import BODY, run, serving, tell, version
from support.waiting import PATIENCE_S


def test_serving_goes_on_while_a_bundle_is_loaded(models, monkeypatch):
    """Loading hangs until requests have been answered."""
    answered = threading.Event()
    load = reload.load_named

    def slow(*arguments):
        assert answered.wait(PATIENCE_S)
        return load(*arguments)

    async def scenario():
        monkeypatch.setattr(reload, "load_named", slow)
        async with serving(models) as (_, client):
            folder.point(models, "shop", "2")
            reloading = asyncio.create_task(tell(client))
            for _ in range(5):
                assert await version(client) == "1"
            answered.set()
            assert (await reloading).status_code == 200
            assert await version(client) == "2"

    run(scenario)


def test_the_bundle_before_the_last_is_freed(models):
    """By its last reference: nobody collects garbage in the middle of the traffic."""

    async def scenario():
        async with serving(models) as (app, client):
            first = weakref.ref(app.service.current.models.current["shop"].reranker)
            gc.disable()
            try:
                for name in ("2", "3"):
                    assert first() is not None
                    folder.point(models, "shop", name)
                    await tell(client)
                    assert await version(client) == name
                assert first() is None
            finally:
                gc.enable()

    run(scenario)


@pytest.mark.nightly
def test_a_hundred_swaps_under_load_lose_nothing_and_mix_nothing(models):
    """Three versions in turn, so that every swap is a load; each answer's scores are those of the version it names."""
    expected = {}

    async def scenario():
        async with serving(models) as (_, client):
            for name in "123":
                folder.point(models, "shop", name)
                await tell(client)
                expected[name] = (await client.post("/rerank", json=BODY | {"raw_scores": True})).json()["scores"]
            assert len({tuple(scores) for scores in expected.values()}) == 3
            seen, done = [], asyncio.Event()

            async def caller():
                while not done.is_set():
                    answer = await client.post("/rerank", json=BODY | {"raw_scores": True})
                    assert answer.status_code == 200, answer.text
                    body = answer.json()
                    assert body["scores"] == expected[body["version"]]
                    assert body["meta"]["status"] == "ok"
                    seen.append(body["version"])

            callers = [asyncio.create_task(caller()) for _ in range(8)]
            for swap in range(100):
                folder.point(models, "shop", "123"[swap % 3])
                assert (await tell(client)).status_code == 200
            done.set()
            await asyncio.gather(*callers)
            assert set(seen) == set("123")
            assert len(seen) > 100
            swapped = 'listwright_reloads_total{model="shop",outcome="swapped"} 102.0'
            assert swapped in (await client.get("/metrics")).text

    run(scenario)
