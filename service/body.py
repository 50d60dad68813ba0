"""Reading a request body: bounded while it arrives, decoded strictly."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pydantic_core
from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import ValidationError
from starlette.datastructures import QueryParams
from starlette.requests import ClientDisconnect

from service.problems import NotReadyError, TooLargeError, UndecodableBodyError, UnsupportedMediaTypeError
from service.schemas import Strict

MAX_DIGITS = 18
"""Longer numbers are too large whatever they say; Python refuses to read those of thousands of digits."""

Sent = TypeVar("Sent", bound=Strict)

_JSON = re.compile(r"application/([^/]+\+)?json")


class BoundedRequest(Request):
    """A request whose body is refused as soon as it is known to be too large."""

    async def body(self) -> bytes:
        """The whole body.

        Raises:
            TooLargeError: if ``Content-Length`` or what has arrived exceeds the limit; the rest is not read.
            UndecodableBodyError: if the caller goes away in the middle.
            NotReadyError: if the service stops before all has arrived.
        """
        if not hasattr(self, "_body"):
            limit: int = self.app.state.settings.max_payload_bytes
            announced = self.headers.get("content-length", "0").lstrip("0")
            if announced.isdecimal() and (len(announced) > MAX_DIGITS or int(announced) > limit):
                raise _too_large(f"{announced} bytes", limit)
            chunks, size = [], 0
            try:
                async for chunk in self.stream():
                    size += len(chunk)
                    if size > limit:
                        raise _too_large("more", limit)
                    chunks.append(chunk)
            except ClientDisconnect as error:
                raise UndecodableBodyError("the body ended before it was complete") from error
            except asyncio.CancelledError as error:  # the last moment of a stop: an answer, not a broken connection
                raise NotReadyError("the service stopped before the body was complete") from error
            self._body = b"".join(chunks)
        return self._body

    async def decode(self) -> None:
        """Check headers and size and decode, before FastAPI decides how to parse.

        Raises:
            UnsupportedMediaTypeError: if the body is announced as anything but JSON, or is compressed.
            TooLargeError: if there are too many bytes or candidates.
            UndecodableBodyError: if it is empty or no JSON; NaN and Infinity are none.

        Convention: of a field that stands twice in one object, the last one counts.
        """
        if not _JSON.fullmatch(media_type_of(self)):  # what FastAPI takes for JSON, too
            raise UnsupportedMediaTypeError(
                f"the body is announced as {media_type_of(self)!r}: send application/json, or application/x-npy"
            )
        self._json = from_json(await self.plain())  # where Starlette's json() looks first
        _check_lengths(self._json, self.app.state.settings.max_candidates)

    async def plain(self) -> bytes:
        """The whole body, which must be there, and not compressed; the clock starts when it has arrived.

        Raises:
            UnsupportedMediaTypeError: if it is compressed.
            TooLargeError: if there are too many bytes.
            UndecodableBodyError: if it is empty.
        """
        encoding = self.headers.get("content-encoding", "identity").strip().lower()
        if encoding != "identity":
            raise UnsupportedMediaTypeError(f"the body is encoded as {encoding!r}: send it as it is")
        body = await self.body()
        if not body:
            raise UndecodableBodyError("the body is empty: see /openapi.json for what to send")
        self.state.arrived = time.perf_counter()
        return body


class BoundedRoute(APIRoute):
    """A route whose handler gets a :class:`BoundedRequest`."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """FastAPI's hook for a request class of one's own."""
        handle = super().get_route_handler()

        async def handle_bounded(request: Request) -> Response:
            bounded = BoundedRequest(request.scope, request.receive)
            if request.method == "POST":
                await bounded.decode()
            return await handle(bounded)

        return handle_bounded


class PlainRoute(APIRoute):
    """A documented route whose endpoint gets the request and its path's names as they are, past FastAPI's machinery."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """FastAPI's hook: what answers a request."""
        endpoint = self.endpoint

        async def handle_plain(request: Request) -> Response:
            bounded = BoundedRequest(request.scope, request.receive)
            response: Response = await endpoint(request=bounded, **request.path_params)
            return response

        return handle_plain


def media_type_of(request: Request) -> str:
    """What the body is announced as, without parameters; ``none`` if it is not."""
    return request.headers.get("content-type", "none").partition(";")[0].strip().lower()


def from_json(text: bytes) -> Any:
    """Strictly decoded JSON.

    Raises:
        UndecodableBodyError: if it is none; NaN and Infinity are none.
    """
    try:
        return pydantic_core.from_json(text, allow_inf_nan=False)
    except ValueError as error:
        raise UndecodableBodyError(f"the body is no JSON: {error}") from error


def validated(model: type[Sent], value: object) -> Sent:
    """What was sent, as the contract has it: an object, or a query's parameters by name.

    Raises:
        RequestValidationError: if it is not; with every fault and its path.
    """
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise _invalid(error) from None


def validated_query(model: type[Sent], query: QueryParams) -> Sent:
    """The same from text: numbers and booleans are spelled. Of a parameter that stands twice the last one counts."""
    try:
        return model.model_validate_strings(dict(query), strict=False)
    except ValidationError as error:
        raise _invalid(error) from None


def _invalid(error: ValidationError) -> RequestValidationError:
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    return RequestValidationError([{**fault, "loc": ("body", *fault["loc"])} for fault in faults])


def _check_lengths(body: object, limit: int) -> None:
    """Raise TooLargeError for a list above the limit: before validation, which would look at every candidate."""
    for name in ("candidates", "features"):
        rows = body.get(name) if isinstance(body, dict) else None
        if isinstance(rows, list):
            check_length(len(rows), limit)


def check_length(length: int, limit: int) -> None:
    """Raise TooLargeError for a list above the limit."""
    if length > limit:
        raise TooLargeError(
            f"the list has {length} candidates, the limit is {limit} (LISTWRIGHT_MAX_CANDIDATES): send the best "
            "ones; a list must not be split over requests"
        )


def _too_large(sent: str, limit: int) -> TooLargeError:
    return TooLargeError(f"the body has {sent}, the limit is {limit} bytes (LISTWRIGHT_MAX_PAYLOAD_BYTES)")
