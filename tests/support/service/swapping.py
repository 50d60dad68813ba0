"""A service in this process whose bundles change: for tests that are coroutines."""

import asyncio
from contextlib import asynccontextmanager

import httpx

from listwright.service.app import create_app
from listwright.service.settings import Settings
from support.waiting import until_async

KEY = "0123456789abcdef"
BODY = {"features": [[1.0, 2.0, 3.0, "A5"], [2.0, 1.0, 0.0, "B2"], [-1.0, 0.5, None, "C7"]]}


@asynccontextmanager
async def serving(models, **settings):
    """The application and a client of it."""
    app = create_app(
        Settings(models=models, max_candidates=100, **({"poll_s": 0, "admin_key": KEY, "queue_ms": 600_000} | settings))
    )
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with app.router.lifespan_context(app), httpx.AsyncClient(transport=transport, base_url="http://x") as client:
        yield app, client


def run(scenario):
    """The result of a coroutine function, in an event loop of its own."""
    return asyncio.run(scenario())


async def tell(client, what="reload", **parameters):
    return await client.post(f"/admin/{what}", params=parameters, headers={"Authorization": f"Bearer {KEY}"})


async def version(client, **named):
    answer = await client.post("/rerank", json=BODY | named)
    assert answer.status_code == 200, answer.text
    return answer.json()["version"]


async def until_version(client, wanted, **named):
    async def served():
        return await version(client, **named) == wanted

    await until_async(served)
