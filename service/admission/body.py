"""Reading a request body: bounded while it arrives, in bytes and in time."""

from __future__ import annotations

import asyncio
import re
from typing import NamedTuple

from fastapi import Request
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope

from listwright.ranking.deadline import Deadline
from listwright.service.admission.body_budget import BodyBudget
from listwright.service.admission.gate import Gate
from listwright.service.errors import (
    NotReadyError,
    OverloadedError,
    SlowBodyError,
    TooLargeError,
    UndecodableBodyError,
    UnsupportedMediaTypeError,
)
from listwright.service.settings import Settings

MAX_DIGITS = 18
"""Longer numbers are too large whatever they say; Python refuses to read those of thousands of digits."""

_JSON = re.compile(r"application/([^/]+\+)?json")


class Limit(NamedTuple):
    """The largest body that a codec reads.

    Args:
        size: bytes.
        why: words behind that number: what takes so many, and which setting changes it.
    """

    size: int
    why: str


class BoundedRequest(Request):
    """A request whose body is refused as soon as it is known to be too large, too slow, or one too many.

    Args:
        scope, receive: of ASGI.
        gate: that the request will wait at.
        budget: for bytes of bodies.
        settings: limits of size and time.
    """

    held = 0
    """Bytes of the body that the budget counts."""

    _lost: OverloadedError | None = None

    def __init__(self, scope: Scope, receive: Receive, gate: Gate, budget: BodyBudget, settings: Settings) -> None:
        super().__init__(scope, receive)
        self._gate, self._budget, self._settings = gate, budget, settings

    @property
    def deadline(self) -> Deadline:
        """When the settings want the answer to be there: counted from the request's first byte."""
        return Deadline(self.state.arrived + self._settings.timeout_ms / 1000.0)

    async def bounded_body(self, limit: Limit) -> bytes:
        """The whole body.

        Args:
            limit: of the codec; where that of the settings is smaller, it counts.

        Raises:
            OverloadedError: if it would only be refused later, or there is no room for it.
            TooLargeError: if ``Content-Length`` or what has arrived exceeds the limit; the rest is not read.
            SlowBodyError: if it has not arrived by the deadline.
            UndecodableBodyError: if the caller goes away in the middle.
            NotReadyError: if the service stops before all has arrived.
        """
        budget, settings = self._budget, self._settings
        self._gate.check()
        if settings.max_payload_bytes < limit.size:
            limit = Limit(settings.max_payload_bytes, "(LISTWRIGHT_MAX_PAYLOAD_BYTES)")
        announced = self.headers.get("content-length", "0").lstrip("0")
        if announced.isdecimal() and (len(announced) > MAX_DIGITS or int(announced) > limit.size):
            raise _too_large(f"{announced} bytes", limit)
        reader = asyncio.current_task()
        assert reader is not None
        self._reader, self._chunks = reader, list[bytes]()
        try:
            async with asyncio.timeout(max(0.0, self.deadline.left_s)):
                async for chunk in self.stream():
                    if self.held + len(chunk) > limit.size:
                        raise _too_large("more", limit)
                    budget.hold(self, len(chunk))
                    self._chunks.append(chunk)
            return b"".join(self._chunks)
        except TimeoutError as error:
            within = f"{settings.timeout_ms:g} ms (LISTWRIGHT_TIMEOUT_MS)"
            raise SlowBodyError(f"only {self.held} bytes of the body arrived within {within}") from error
        except ClientDisconnect as error:
            raise UndecodableBodyError("the body ended before it was complete") from error
        except asyncio.CancelledError as error:
            if self._lost is not None:
                self._reader.uncancel()
                raise self._lost from error
            # the last moment of a stop: an answer, not a broken connection
            raise NotReadyError("the service stopped before the body was complete") from error
        finally:
            budget.keep(self)
            self._chunks.clear()  # an error's traceback would keep them until it is told

    def lose(self, error: OverloadedError) -> None:
        """Called by the budget while the body arrives: others need its room."""
        self._lost = error
        self._chunks.clear()
        self._reader.cancel()

    async def json_body(self, limit: Limit) -> bytes:
        """The whole body, which is announced as JSON.

        Raises:
            UnsupportedMediaTypeError: if the body is announced as anything else, or is compressed.
        """
        if not _JSON.fullmatch(media_type_of(self)):
            raise UnsupportedMediaTypeError(
                f"the body is announced as {media_type_of(self)!r}: send application/json, or application/x-npy"
            )
        return await self.plain(limit)

    async def plain(self, limit: Limit) -> bytes:
        """The whole body, which must not be compressed.

        Raises:
            UnsupportedMediaTypeError: if it is.
        """
        encoding = self.headers.get("content-encoding", "identity").strip().lower()
        if encoding != "identity":
            raise UnsupportedMediaTypeError(f"the body is encoded as {encoding!r}: send it as it is")
        return await self.bounded_body(limit)


def media_type_of(request: Request) -> str:
    """What the body is announced as, without parameters; ``none`` if it is not."""
    return request.headers.get("content-type", "none").partition(";")[0].strip().lower()


def _too_large(sent: str, limit: Limit) -> TooLargeError:
    return TooLargeError(f"the body has {sent}, the limit is {limit.size} bytes {limit.why}")
