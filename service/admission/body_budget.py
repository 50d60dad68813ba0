"""How many bytes of bodies a process holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from listwright.service.errors import OverloadedError


@runtime_checkable
class Body(Protocol):
    """A body that is held: equal to itself only."""

    held: int
    """Its bytes that the budget counts; the budget's to change."""

    def lose(self, error: OverloadedError) -> None:
        """Its bytes are counted no more: let go of them, and have ``error`` told to its caller."""
        ...


class BodyBudget:
    """So many bytes of bodies, arriving, waiting or in work. For one thread, the event loop's.

    Args:
        most: bytes that may be held.
        retry_after_s: seconds after which there may be room.
    """

    def __init__(self, most: int, retry_after_s: Callable[[], int]) -> None:
        self._most, self._retry_after_s = most, retry_after_s
        self._held = 0
        self._arriving: dict[Body, None] = {}  # the first to begin is the first

    @property
    def held(self) -> int:
        """Bytes of bodies."""
        return self._held

    def hold(self, body: Body, size: int) -> None:
        """Count ``size`` more bytes of a body that arrives.

        Where there is no room for them, the body that has been arriving longest loses what it holds, and then the next:
        slow bodies do not keep out quick ones. A body that has arrived loses nothing.

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
        """The body has arrived, or arrives no more: it is held until it is released."""
        self._arriving.pop(body, None)

    def release(self, body: Body) -> None:
        """The body is held no more."""
        self.keep(body)
        self._held -= body.held
        body.held = 0

    def _overloaded(self, message: str, *, closes: bool = False) -> OverloadedError:
        return OverloadedError(message, self._retry_after_s(), closes=closes)
