"""Deadline of a call, and the part of it that is sent to the server."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeGuard

WAY_BACK_S = 0.002
"""Subtracted from the time that is sent to the server: an answer at the last moment has to travel, too."""

LONGEST_S = 1e8
"""Three years: Python's own limits of a wait lie not far beyond."""


@dataclass(frozen=True)
class Deadline:
    """Two moments of one clock, in seconds."""

    ends_at: float
    """When the call ends, with or without an answer."""
    answer_by: float | None
    """When the server should have answered; None: no limit is sent."""

    @classmethod
    def starting(cls, now: float, timeout: float, deadline: float | None, timeout_ms: float | None) -> Deadline:
        """Return the deadline of a call that starts now.

        Only a ``deadline`` or a ``timeout_ms`` is sent to the server. It meets a short limit by answering from an
        earlier stage, which a ``timeout``, a limit on waiting, does not ask for.

        Raises:
            ValueError: if a number is not positive and finite.
        """
        for name, value in (("timeout", timeout), ("timeout_ms", timeout_ms)):
            if (value is not None or name == "timeout") and not (_is_finite(value) and value > 0):
                raise ValueError(f"{name} is {value}: give a positive number")
        if deadline is not None and not _is_finite(deadline):
            raise ValueError(f"deadline is {deadline}: give a moment of the client's clock, time.monotonic()")
        ends_at = min(float(now + timeout if deadline is None else deadline), now + LONGEST_S)
        if deadline is None and timeout_ms is None:
            return cls(ends_at, None)
        requested = math.inf if timeout_ms is None else now + timeout_ms / 1000.0
        return cls(ends_at, min(requested, ends_at - WAY_BACK_S))

    def allows(self, moment: float) -> bool:
        """Return whether an attempt that starts at a moment could still be answered in time."""
        return moment < (self.ends_at if self.answer_by is None else self.answer_by)

    def remaining(self, now: float) -> float:
        """Return the seconds until the call ends; TimeoutError if it is over."""
        if now >= self.ends_at:
            raise TimeoutError
        return self.ends_at - now

    def timeout_ms(self, now: float) -> int | None:
        """Return the whole milliseconds to send to the server, at least 1; None: none are sent."""
        if self.answer_by is None:
            return None
        return max(1, math.ceil((self.answer_by - now) * 1000.0 - 1e-6))  # what arithmetic adds is no millisecond


def _is_finite(value: object) -> TypeGuard[float]:
    try:
        return math.isfinite(value)  # type: ignore[arg-type]
    except (TypeError, OverflowError):
        return False
