"""Request bodies: bounded while they arrive, in bytes and in time, and counted until their answers are ready."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple

from starlette.requests import ClientDisconnect, Request

from listwright.ranking.deadline import Deadline
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
"""Digits of a ``Content-Length``; longer numbers are too large, and Python refuses thousands of digits."""


class Limit(NamedTuple):
    """The largest body that a codec reads.

    Args:
        size: Size in bytes.
        why: Reason for that size: what takes these bytes, and which setting changes it.
    """

    size: int
    why: str


class Body:
    """A body that arrives, compared by identity.

    Args:
        reader: Task that reads the body.
    """

    def __init__(self, reader: asyncio.Task[object]) -> None:
        self.held = 0
        """Bytes that the budget counts; only the budget changes it."""
        self.chunks: list[bytes] = []
        self.lost: OverloadedError | None = None
        self._reader = reader

    def lose(self, error: OverloadedError) -> None:
        """Drop the chunks and cancel the reader, which raises ``error``; called by the budget for its room."""
        self.lost = error
        self.chunks.clear()
        self._reader.cancel()

    def uncancel(self) -> None:
        """Undo the cancellation; called by the reader before it raises the error."""
        self._reader.uncancel()


class BodyBudget:
    """A limit on the bytes of bodies that arrive, wait or are in work. For one thread, the event loop's.

    Args:
        most: Number of bytes that may be held.
        retry_after_s: Function that returns the seconds after which there may be room.
    """

    def __init__(self, most: int, retry_after_s: Callable[[], int]) -> None:
        self._most, self._retry_after_s = most, retry_after_s
        self._held = 0
        self._arriving: dict[Body, None] = {}  # in order of arrival

    @property
    def held(self) -> int:
        """Bytes of bodies."""
        return self._held

    def hold(self, body: Body, size: int) -> None:
        """Count ``size`` more bytes of a body that arrives.

        Where there is no room, the bodies that have been arriving longest are dropped: slow bodies do not keep out
        quick ones. A body that has arrived is never dropped.

        Raises:
            OverloadedError: if no other body has been arriving longer, and there is still no room.
        """
        self._arriving.setdefault(body)
        while self._held + size > self._most:
            longest = next(iter(self._arriving))
            if longest is body:
                self.release(body)
                raise self._overloaded(f"{self._held} bytes of other bodies are held already")
            self.release(longest)
            message = "newer bodies took the room of this one, which was slow to arrive"
            longest.lose(self._overloaded(message, closes=True))
        body.held += size
        self._held += size

    def keep(self, body: Body) -> None:
        """Stop counting the body as arriving: newer ones cannot take its room any more. It is held until released."""
        self._arriving.pop(body, None)

    def release(self, body: Body) -> None:
        """Give back the bytes of a body."""
        self.keep(body)
        self._held -= body.held
        body.held = 0

    def _overloaded(self, message: str, *, closes: bool = False) -> OverloadedError:
        return OverloadedError(message, self._retry_after_s(), closes=closes)


@asynccontextmanager
async def hold_body(
    request: Request, limit: Limit, budget: BodyBudget, settings: Settings, deadline: Deadline
) -> AsyncIterator[bytes]:
    """Read the whole body of a request, and yield it; the budget counts it until the block ends.

    Args:
        request: Request whose body has yet to be read.
        limit: Limit of the codec; the smaller one of this and that of the settings holds.
        budget: Budget of the bytes of all bodies that are held.
        settings: Settings of the service, with the limit of a body's size.
        deadline: Time by which the body must have arrived.

    Raises:
        UnsupportedMediaTypeError: if the body is compressed.
        TooLargeError: if ``Content-Length`` or what has arrived exceeds the limit; the rest is not read.
        OverloadedError: if there is no room for it.
        SlowBodyError: if it has not arrived by the deadline.
        UndecodableBodyError: if the caller goes away in the middle.
        NotReadyError: if the service stops before all has arrived.
    """
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding != "identity":
        raise UnsupportedMediaTypeError(f"the body is encoded as {encoding!r}: send it as it is")
    if settings.max_payload_bytes < limit.size:
        limit = Limit(settings.max_payload_bytes, "(LISTWRIGHT_MAX_PAYLOAD_BYTES)")
    announced = request.headers.get("content-length", "0").lstrip("0")
    if announced.isdecimal() and (len(announced) > MAX_DIGITS or int(announced) > limit.size):
        raise _too_large(f"{announced} bytes", limit)
    reader = asyncio.current_task()
    assert reader is not None
    body = Body(reader)
    try:
        yield await _read_body(request, body, limit, budget, settings, deadline)
    finally:
        budget.release(body)


async def _read_body(
    request: Request, body: Body, limit: Limit, budget: BodyBudget, settings: Settings, deadline: Deadline
) -> bytes:
    """Read all of a body; each chunk is counted by the budget as it arrives."""
    try:
        async with asyncio.timeout(max(0.0, deadline.left_s)):
            async for chunk in request.stream():
                if body.held + len(chunk) > limit.size:
                    raise _too_large("more", limit)
                budget.hold(body, len(chunk))
                body.chunks.append(chunk)
        return b"".join(body.chunks)
    except TimeoutError as error:
        within = f"{settings.timeout_ms:g} ms (LISTWRIGHT_TIMEOUT_MS)"
        raise SlowBodyError(f"only {body.held} bytes of the body arrived within {within}") from error
    except ClientDisconnect as error:
        raise UndecodableBodyError("the body ended before it was complete") from error
    except asyncio.CancelledError as error:
        if body.lost is not None:
            body.uncancel()
            raise body.lost from error
        # at the end of a stop, answer instead of breaking the connection
        raise NotReadyError("the service stopped before the body was complete") from error
    finally:
        budget.keep(body)
        body.chunks.clear()  # an error's traceback would keep them until it is answered


def _too_large(sent: str, limit: Limit) -> TooLargeError:
    return TooLargeError(f"the body has {sent}, the limit is {limit.size} bytes {limit.why}")
