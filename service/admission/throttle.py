"""Rate limits of requests that rank nothing: enough for people, probes and scrapes, without starving ranking."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from starlette.types import Receive, Scope

from listwright.ranking.errors import AbandonedError
from listwright.service.auth import keys
from listwright.service.auth.keys import Key
from listwright.service.auth.middleware import Bucket, Keyring
from listwright.service.errors import OverloadedError
from listwright.service.paths import ADMIN, is_probe

RATE, BURST = 100.0, 200.0
"""Requests a second, and at once, of each kind."""

HOLD_S = 1.0
"""Seconds that a request beyond the rate is held: callers that ask again at once keep their connections busy."""

MOST_HELD = 1000
"""Requests of each kind that are held at a time: one for each connection that a worker has where nothing is set. Fewer,
and a flood from so many connections would be refused as fast as it comes.
"""

PROBE_S = 0.25
"""Probes are held less long: their senders give up after a second or more."""

SCRAPES, SCRAPE_BURST = 10.0, 50.0
"""Scrapes a second, and at once, that are computed anew; others get the last text."""


class ThrottleClass:
    """Requests that are throttled together.

    Args:
        now: Time in seconds.
    """

    def __init__(self, now: float) -> None:
        self.bucket, self.held = Bucket(RATE, BURST, now), 0


class RequestThrottle:
    """Throttle that delays requests that rank nothing, beyond a rate. For one thread: the event loop's.

    Requests with a key and requests without one have rates of their own: those without a key take nothing from those
    with one.

    Args:
        keyring: Keys of known callers; where there are none, every caller is unknown.
        admin_key: Key of the operator.
        clock: Clock in seconds.
    """

    def __init__(self, keyring: Keyring, admin_key: Key | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._keyring, self._operator, self._clock = keyring, () if admin_key is None else (admin_key,), clock
        self.classes = {(known, must): ThrottleClass(clock()) for known in (False, True) for must in (False, True)}

    async def wait(self, scope: Scope, receive: Receive) -> None:
        """Return at once within the rate, else after a delay.

        Args:
            scope: ASGI scope of a request that ranks nothing.
            receive: ASGI channel of the request; while it is held, its body is read and dropped.

        Raises:
            OverloadedError: if it is neither a probe nor what the operator asks for: these are answered, later.
            AbandonedError: if the caller went meanwhile.
        """
        probe, known = is_probe(scope["path"]), self._knows(scope)
        must = probe or (known and scope["path"].startswith(ADMIN))
        own = self.classes[known, must]
        if own.bucket.take(self._clock()) == 0.0:
            return
        if own.held < MOST_HELD:
            own.held += 1
            try:
                await _hold(receive, PROBE_S if probe else HOLD_S)
            finally:
                own.held -= 1
        if not must:
            raise OverloadedError(f"more than {RATE:g} requests a second that are no rankings", 1)

    def _knows(self, scope: Scope) -> bool:
        """Return whether the key was sent that opens the path."""
        sent = keys.bearer(scope["headers"])
        if scope["path"].startswith(ADMIN):
            return sent is not None and keys.holder(self._operator, sent) is not None
        return self._keyring.knows(sent)


async def _hold(receive: Receive, seconds: float) -> None:
    """Wait; raise AbandonedError once the caller has gone."""
    try:
        async with asyncio.timeout(seconds):
            while (await receive())["type"] != "http.disconnect":
                pass  # no throttled request needs its body
    except TimeoutError:
        return
    raise AbandonedError("the caller has gone: it is not answered")


class CachedMetrics:
    """The metrics' text, renewed at a limited rate.

    Args:
        scrape: Function that collects the metrics; a service of several processes replaces it.
        clock: Clock in seconds.
    """

    def __init__(self, scrape: Callable[[], Awaitable[bytes]], clock: Callable[[], float] = time.monotonic) -> None:
        self.scrape, self._clock, self._last = scrape, clock, b""
        self._bucket = Bucket(SCRAPES, SCRAPE_BURST, clock())

    async def text(self) -> bytes:
        """Return the text of ``scrape``, or its last one beyond the rate."""
        if not self._last or self._bucket.take(self._clock()) == 0.0:
            self._last = await self.scrape()
        return self._last
