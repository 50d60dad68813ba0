"""Reading a request body: bounded while it arrives, in bytes and in time."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect

from ranking.pace import Deadline
from service.problems import (
    NotReadyError,
    SlowBodyError,
    TooLargeError,
    UndecodableBodyError,
    UnsupportedMediaTypeError,
)

MAX_DIGITS = 18
"""Longer numbers are too large whatever they say; Python refuses to read those of thousands of digits."""

_JSON = re.compile(r"application/([^/]+\+)?json")


class BoundedRequest(Request):
    """A request whose body is refused as soon as it is known to be too large, too slow, or one too many."""

    held = 0
    """Bytes of the body that the gate counts."""

    @property
    def deadline(self) -> Deadline:
        """When the settings want the answer to be there: counted from the request's first byte."""
        return Deadline(self.state.arrived + self.app.state.settings.timeout_ms / 1000.0)

    async def body(self) -> bytes:
        """The whole body.

        Raises:
            OverloadedError: if it would only be refused later, or there is no room for it.
            TooLargeError: if ``Content-Length`` or what has arrived exceeds the limit; the rest is not read.
            SlowBodyError: if it has not arrived by the deadline.
            UndecodableBodyError: if the caller goes away in the middle.
            NotReadyError: if the service stops before all has arrived.
        """
        if not hasattr(self, "_body"):
            self.app.state.gate.check()
            limit: int = self.app.state.settings.max_payload_bytes
            announced = self.headers.get("content-length", "0").lstrip("0")
            if announced.isdecimal() and (len(announced) > MAX_DIGITS or int(announced) > limit):
                raise _too_large(f"{announced} bytes", limit)
            try:
                async with asyncio.timeout(max(0.0, self.deadline.left_s)):
                    self._body = await self._read(limit)
            except TimeoutError as error:
                within = f"{self.app.state.settings.timeout_ms:g} ms (LISTWRIGHT_TIMEOUT_MS)"
                raise SlowBodyError(f"only {self.held} bytes of the body arrived within {within}") from error
            except ClientDisconnect as error:
                raise UndecodableBodyError("the body ended before it was complete") from error
            except asyncio.CancelledError as error:  # the last moment of a stop: an answer, not a broken connection
                raise NotReadyError("the service stopped before the body was complete") from error
        return self._body

    async def _read(self, limit: int) -> bytes:
        chunks = []
        async for chunk in self.stream():
            if self.held + len(chunk) > limit:
                raise _too_large("more", limit)
            self.app.state.gate.hold(len(chunk))
            self.held += len(chunk)
            chunks.append(chunk)
        return b"".join(chunks)

    async def json_body(self) -> bytes:
        """The whole body, which is announced as JSON.

        Raises:
            UnsupportedMediaTypeError: if the body is announced as anything else, or is compressed.
        """
        if not _JSON.fullmatch(media_type_of(self)):
            raise UnsupportedMediaTypeError(
                f"the body is announced as {media_type_of(self)!r}: send application/json, or application/x-npy"
            )
        return await self.plain()

    async def plain(self) -> bytes:
        """The whole body, which must not be compressed.

        Raises:
            UnsupportedMediaTypeError: if it is.
        """
        encoding = self.headers.get("content-encoding", "identity").strip().lower()
        if encoding != "identity":
            raise UnsupportedMediaTypeError(f"the body is encoded as {encoding!r}: send it as it is")
        return await self.body()


class PlainRoute(APIRoute):
    """A documented route past FastAPI's machinery: its endpoint gets the request, and its path's names as they are.

    The request is a :class:`BoundedRequest`, whose body is held no longer than its answer takes.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """FastAPI's hook: what answers a request."""
        endpoint = self.endpoint

        async def handle_plain(request: Request) -> Response:
            bounded = BoundedRequest(request.scope, request.receive)
            try:
                response: Response = await endpoint(request=bounded, **request.path_params)
                return response
            finally:
                if bounded.held:
                    request.app.state.gate.release(bounded.held)

        return handle_plain


def media_type_of(request: Request) -> str:
    """What the body is announced as, without parameters; ``none`` if it is not."""
    return request.headers.get("content-type", "none").partition(";")[0].strip().lower()


def _too_large(sent: str, limit: int) -> TooLargeError:
    return TooLargeError(f"the body has {sent}, the limit is {limit} bytes (LISTWRIGHT_MAX_PAYLOAD_BYTES)")
