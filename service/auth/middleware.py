"""Keys and their rates, checked before the body is read."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from listwright.service import paths, problems
from listwright.service.auth import keys
from listwright.service.auth.keys import Key, KeysError
from listwright.service.disk import Disk
from listwright.service.errors import ForbiddenError, RateLimitedError, UnauthorizedError
from listwright.service.problems import DOCUMENTED
from listwright.service.settings import Settings
from listwright.service.telemetry.metrics import Telemetry

SCHEME = {
    "apiKey": {
        "type": "http",
        "scheme": "bearer",
        "description": "one of the keys that LISTWRIGHT_KEYS_FILE or LISTWRIGHT_KEYS names, if any is set",
    }
}
"""Security scheme of the OpenAPI document."""

LOOK_S = 1.0
"""Seconds between two looks at the file of keys."""

LOOK_WITHIN_S = 10.0

_log = logging.getLogger("listwright.keys")


class Bucket:
    """A token bucket: full at first, one token per request, refilled at a rate.

    Args:
        rate: Number of tokens per second.
        burst: Number of tokens that the bucket holds, at least 1.
        now: Time in seconds, of any clock that only goes forward.
    """

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self.rate, self.burst = rate, burst
        self._tokens, self._at = burst, now

    def take(self, now: float) -> float:
        """Take a token; return the seconds until there is one, 0 if it was taken."""
        self._tokens = min(self.burst, self._tokens + (now - self._at) * self.rate)
        self._at = now
        if self._tokens >= 1.0 - 1e-9:  # a caller that waited for Retry-After is not refused for a rounding error
            self._tokens = max(0.0, self._tokens - 1.0)
            return 0.0
        return (1.0 - self._tokens) / self.rate


class Keyring:
    """The keys of this moment, and a bucket for each name that has a limit. For one thread: the event loop's.

    Args:
        settings: Settings that name the keys.
        clock: Clock in seconds.

    Raises:
        KeysError: if the keys cannot be read. Later on they stay as they were.
    """

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings, self._clock = settings, clock
        self._buckets: dict[str, Bucket] = {}
        self._fault, self._disk = "", Disk("the file system of the keys")
        self._keys: tuple[Key, ...] = ()
        self._replace_keys(keys.read(settings))

    def __bool__(self) -> bool:
        return bool(self._keys)

    def admit(self, sent: bytes | None) -> Key:
        """Return the key that was sent.

        Raises:
            UnauthorizedError: if no key was sent, or an unknown one.
        """
        key = None if sent is None else keys.holder(self._keys, sent)
        if key is None:
            raise UnauthorizedError("send a key: Authorization: Bearer KEY")
        return key

    def knows(self, sent: bytes | None) -> bool:
        """Return whether a known key was sent."""
        return sent is not None and keys.holder(self._keys, sent) is not None

    def take(self, key: Key) -> None:
        """Count a request.

        Raises:
            RateLimitedError: if there were too many; it says when there is room for one more.
        """
        bucket = self._buckets.get(key.name)
        if bucket is not None and (wait_s := bucket.take(self._clock())):
            raise RateLimitedError(f"{key.name} may send {bucket.rate:g} requests per second", math.ceil(wait_s))

    async def watch(self) -> None:
        """Read the file again and again, until the task is cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            await self.look()

    async def look(self) -> None:
        """Read the file once; if it cannot be read, or is half written, the keys stay and the fault is logged."""
        try:
            new_keys = await self._disk.run(partial(keys.read, self._settings), LOOK_WITHIN_S)
        except (KeysError, OSError) as error:
            if str(error) != self._fault:
                _log.error("the keys stay as they are: %s", error)
            self._fault = str(error)
            return
        self._fault = ""
        if new_keys != self._keys:
            self._replace_keys(new_keys)
            _log.info("keys of %s", ", ".join(sorted({key.name for key in new_keys})))

    def _replace_keys(self, new_keys: tuple[Key, ...]) -> None:
        """Replace the keys. A name keeps its bucket: a new key is no new allowance; buckets of removed names go."""
        before, self._keys, self._buckets = self._buckets, new_keys, {}
        for key in new_keys:
            if key.rate is not None:
                bucket = before.get(key.name)
                same = bucket is not None and (bucket.rate, bucket.burst) == (key.rate, key.burst)
                self._buckets[key.name] = bucket if bucket and same else Bucket(key.rate, key.burst, self._clock())


class KeyMiddleware:
    """ASGI middleware that refuses requests without a key or beyond its rate, before their body is read.

    The key's name goes into the log line of the request and into a metric.

    Args:
        app: Application that the middleware wraps.
        keyring: Keys that are accepted.
        open_paths: Paths that need no key.
        telemetry: Metrics that count the requests.
    """

    def __init__(self, app: ASGIApp, keyring: Keyring, open_paths: frozenset[str], telemetry: Telemetry) -> None:
        self.app, self._keyring, self._open, self._telemetry = app, keyring, open_paths, telemetry

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on (ASGI)."""
        path = scope.get("path", "")
        if scope["type"] != "http" or path in self._open or path.startswith(paths.ADMIN):
            await self.app(scope, receive, send)
            return
        name = ""
        try:
            key = self._keyring.admit(keys.bearer(scope["headers"]))
            name = scope["state"]["facts"]["key"] = key.name
            role = keys.EVENTS if path == paths.EVENTS else keys.RANK
            if role not in key.scopes:
                raise ForbiddenError(f"the key of {name} has no scope {role}: give it scope={role} in the list of keys")
            self._keyring.take(key)
        except (UnauthorizedError, ForbiddenError, RateLimitedError) as error:
            outcome = _OUTCOMES[type(error)]
            self._telemetry.keys.labels(name, outcome).inc()
            answer = await problems.deliberate(Request(scope), error)
            await answer(scope, receive, send)
            return
        self._telemetry.keys.labels(name, "admitted").inc()
        await self.app(scope, receive, send)


_OUTCOMES = {UnauthorizedError: "unauthorized", ForbiddenError: "forbidden", RateLimitedError: "rate_limited"}


def document(path: str, operation: dict[str, Any]) -> None:
    """Add the answers of the middleware to an operation of the document."""
    if path in paths.HEALTH or path.startswith(paths.ADMIN):
        return
    operation["security"] = [{}, {"apiKey": []}]
    schema = {"application/json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    for status in (401, 403, 429):
        response = {name: value for name, value in DOCUMENTED[status].items() if name != "model"}
        operation["responses"][str(status)] = {**response, "content": schema}
