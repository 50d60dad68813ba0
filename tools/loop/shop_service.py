"""The service that the shop asks, and the traffic of its visitors."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
from visitors import PLACES, Shop

from listwright_client import Client

READY_WITHIN_S = 60.0
CALLERS = 1
"""In turn, so that the same visits make the same log, and the same bundle."""

EVENTS_AT_ONCE = 200
SALT = "a salt of the demonstration"
LOOK_S = 0.5
"""Seconds until a person looks at the next place."""


@contextmanager
def service(folder: Path) -> Iterator[str]:
    """Start a service with all that the loop needs, below ``folder``, and yield its address.

    It has bundles, logs and experiments.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    settings = {
        "MODELS": folder / "models",
        "POLL_S": 0.2,
        "PORT": port,
        "EXPERIMENTS": folder / "experiments.toml",
        "SERVED_LOG": folder / "served",
        "EVENTS_LOG": folder / "events",
        "UNIT_SALT": SALT,
        "QUEUE_MS": 10_000,
    }
    environment = os.environ | {f"LISTWRIGHT_{name}": str(value) for name, value in settings.items()}
    with (folder / "service.log").open("w") as log:
        process = subprocess.Popen([sys.executable, "-m", "service"], env=environment, stderr=log, stdout=log)
        try:
            address = f"http://127.0.0.1:{port}"
            _until_ready(address, process, folder / "service.log")
            yield address
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=60)


def _until_ready(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + READY_WITHIN_S
    with Client(address) as client:
        while not client.ready():
            if process.poll() is not None or time.monotonic() > end:
                raise SystemExit(f"the service is not ready: {log} says why")
            time.sleep(0.05)


def visit(address: str, shop: Shop, first: int, last: int, after_visit: Callable[[], None]) -> int:
    """Send the visits from ``first`` to before ``last`` and an event for each click; return the number of clicks."""
    borders = [first + (last - first) * part // CALLERS for part in range(CALLERS + 1)]
    with ThreadPoolExecutor(CALLERS) as threads:
        parts = [threads.submit(_visit, address, shop, range(*borders[n : n + 2]), after_visit) for n in range(CALLERS)]
        return sum(part.result() for part in parts)


def _visit(address: str, shop: Shop, visits: range, after_visit: Callable[[], None]) -> int:
    clicks, waiting = 0, list[dict[str, Any]]()
    with Client(address, timeout=30.0) as client, httpx.Client(base_url=address, timeout=30.0) as events:
        for number in visits:
            rows = shop.rows(number)
            ranking = client.rerank(
                rows,
                model="shop",
                feature_names=shop.names,
                ids=[f"offer-{number}-{index}" for index in range(len(rows))],
                query_id=f"visit-{number}",
                unit=shop.person(number),
                top_n=PLACES,
            )
            order = [result.index for result in ranking.results]
            for place in shop.clicks(number, order):
                waiting.append(_event(shop, number, order[place], place))
                clicks += 1
            if len(waiting) >= EVENTS_AT_ONCE or number == visits[-1]:
                _send(events, waiting)
                waiting.clear()
            after_visit()
    return clicks


def _event(shop: Shop, number: int, index: int, place: int) -> dict[str, Any]:
    return {
        "event_id": f"{number}-{index}",
        "query_id": f"visit-{number}",
        "action_name": "click",
        "client_id": shop.person(number),
        "timestamp": (datetime.now(UTC) + timedelta(seconds=LOOK_S * (place + 1))).isoformat(),
        "event_attributes": {
            "object": {"object_id": f"offer-{number}-{index}"},
            "position": {"ordinal": place + 1},
        },
    }


def _send(events: httpx.Client, waiting: list[dict[str, Any]]) -> None:
    """Send events until the service has taken them: an event that is sent twice counts once."""
    while waiting:
        answer = events.post("/ubi/events", json=waiting)
        if answer.status_code == httpx.codes.ACCEPTED:
            return
        if answer.status_code not in (httpx.codes.TOO_MANY_REQUESTS, httpx.codes.SERVICE_UNAVAILABLE):
            raise SystemExit(f"POST /ubi/events answered {answer.status_code}: {answer.text}")
        time.sleep(float(answer.headers.get("Retry-After", 1)))


def info(address: str, name: str) -> dict[str, Any]:
    """Return what ``GET /info`` answers about a bundle."""
    facts: dict[str, Any] = httpx.get(f"{address}/info", params={"model": name}).raise_for_status().json()
    return facts


def until(holds: Callable[[], bool], what: str, seconds: float = 20.0) -> None:
    """Wait for something that the service does by itself.

    Raises:
        SystemExit: if it does not happen in time.
    """
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            raise SystemExit(f"{what}: not within {seconds:.0f} s")
        time.sleep(0.1)
