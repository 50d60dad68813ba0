"""What is counted of explanations."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from fastapi.exceptions import RequestValidationError
from prometheus_client import CollectorRegistry, Counter, Histogram

from listwright.ranking.errors import AbandonedError, ListwrightError
from listwright.service.errors import ExplanationFailedError, NotReadyError, OverloadedError, UnexplainedError

SECONDS = (0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 30.0)

_OUTCOMES: dict[type[Exception], str] = {
    OverloadedError: "refused",
    UnexplainedError: "unexplained",
    AbandonedError: "abandoned",
    ExplanationFailedError: "failed",
    NotReadyError: "failed",
    ListwrightError: "invalid",
    RequestValidationError: "invalid",
}
"""Subclasses stand before their base; any other error is a failure."""


class Outcome:
    """What comes of a request, told before it ends."""

    name = "failed"


class ExplanationMetrics:
    """Counts and times; made only where explanations are on.

    Args:
        registry: of the process.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.requests = Counter(
            "listwright_explanations", "Requests to explain, by what came of them", ["outcome"], registry=registry
        )
        self.seconds = Histogram(
            "listwright_explanation_seconds",
            "Time from a request's first byte to its explanations",
            buckets=SECONDS,
            registry=registry,
        )

    @contextmanager
    def counting(self, arrived: float) -> Iterator[Outcome]:
        """Count what comes of a request, and time it if it is explained.

        Args:
            arrived: when its first byte came, on the clock of ``time.perf_counter``.
        """
        outcome = Outcome()
        try:
            yield outcome
            self.seconds.observe(time.perf_counter() - arrived)
        except Exception as error:
            outcome.name = next((name for kind, name in _OUTCOMES.items() if isinstance(error, kind)), "failed")
            raise
        finally:
            self.requests.labels(outcome.name).inc()
