"""What is known of a request once it is answered, and what makes spans of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class Traced:
    """A request that was answered; times are :func:`time.perf_counter`'s.

    Args:
        name: method and path of the route.
        started: when its first byte came.
        began: when its work did, after the queue; None if it never did.
        ended: when its answer was sent.
        status: of the answer.
        facts: what its log line says.
        headers: its ``traceparent`` and ``tracestate``.
    """

    name: str
    started: float
    began: float | None
    ended: float
    status: int
    facts: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)


@runtime_checkable
class Tracer(Protocol):
    """Makes spans of requests and sends them."""

    def record(self, request: Traced) -> str:
        """Make the spans of an answered request; returns the trace's id."""
        ...

    def close(self) -> None:
        """Send what is left. Takes a few seconds at most."""
        ...
