"""How often the service answers what is no ranking: enough for people, probes and scrapes, not to starve ranking."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from starlette.types import Scope

from service.guard import ADMIN, Bucket
from service.problems import OverloadedError
from service.shedding import ranks
from service.telemetry import PROBES

RATE, BURST = 100.0, 200.0
"""Requests a second, and at once, of each of the two kinds."""

HOLD_S = 1.0
"""What comes beyond the rate is held so long: callers that ask again at once keep their connections busy."""

PROBE_S = 0.25
"""Probes are held less long: whoever sends them gives up after a second or more."""

SCRAPES, SCRAPE_BURST = 10.0, 50.0
"""Scrapes a second, and at once, that are counted anew; others get what the last one got."""


class Pacing:
    """For one thread: the event loop's.

    Args:
        clock: seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        now, self._clock = clock(), clock
        self._must, self._may = Bucket(RATE, BURST, now), Bucket(RATE, BURST, now)

    async def wait(self, scope: Scope) -> None:
        """Return at once, or later if there are too many requests like this one.

        Raises:
            OverloadedError: if it is neither a probe nor what the operator asks for: these are answered, later.
        """
        if scope["type"] != "http" or ranks(scope):
            return
        probe, operator = scope["path"] in PROBES, scope["path"].startswith(ADMIN)
        if (self._must if probe or operator else self._may).take(self._clock()) == 0.0:
            return
        await asyncio.sleep(PROBE_S if probe else HOLD_S)
        if not probe and not operator:
            raise OverloadedError(f"more than {RATE:g} requests a second that are no rankings", 1)


class Scraped:
    """The metrics, counted anew as often as that is cheap.

    Args:
        clock: seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._last = clock, b""
        self._bucket = Bucket(SCRAPES, SCRAPE_BURST, clock())

    async def text(self, scrape: Callable[[], Awaitable[bytes]]) -> bytes:
        """What ``scrape`` returns, or returned last."""
        if not self._last or self._bucket.take(self._clock()) == 0.0:
            self._last = await scrape()
        return self._last
