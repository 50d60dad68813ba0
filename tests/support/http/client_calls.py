"""What both clients are asked in ``tests/contract``."""

import asyncio

import httpx
import numpy as np

from listwright_client import AsyncClient

NAMES = ["price", "stars", "bm25", "carrier"]
ROWS = [
    {"price": 1.0, "stars": 0.5, "bm25": 3.0, "carrier": "A5"},
    {"price": -1.0, "stars": 2.5, "bm25": float("nan"), "carrier": "B2"},
    {"price": 0.25, "stars": -1.5, "bm25": 0.5, "carrier": None},
]
MATRIX = np.array([[row[name] for name in NAMES] for row in ROWS], dtype=object)
CODES = {"A5": 1, "B2": 2, None: 0}


def in_process(app, ask):
    """What ``ask`` awaits of an AsyncClient of the application, without a port."""

    async def run():
        transport = httpx.ASGITransport(app)
        async with app.router.lifespan_context(app), httpx.AsyncClient(transport=transport) as http:
            return await ask(AsyncClient("http://service", http=http))

    return asyncio.run(run())
