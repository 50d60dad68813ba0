"""Readiness: a run of answers that are degraded by the service's own fault makes it not ready."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import numpy as np

from listwright.ranking.candidates import CandidateList, Route
from listwright.ranking.reranker import Reranker

RUN = 20
"""Degraded answers one after another that make a run."""

REST_S = 10.0
"""A run is over this long after its last answer: without traffic nothing else could end it."""

OWN_LENGTH = 10
"""Candidates of a list of zeros, which every bundle ranked when it was loaded."""

_log = logging.getLogger("listwright.service")


class DegradedRun:
    """Counts degraded answers since the last whole one. For one thread, the event loop's.

    Args:
        clock: seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.length = 0
        """Degraded answers of the run so far."""
        self._last = 0.0

    def note(self, *, degraded: bool, is_own_fault: Callable[[], bool] = lambda: True) -> None:
        """Count one more answer.

        Args:
            degraded: whether it is degraded.
            is_own_fault: returns whether the service is at fault, not the request; called at the end of a run only.
        """
        if not degraded:
            self.length = 0
            return
        now = self._clock()
        self.length = self.length + 1 if now - self._last < REST_S else 1
        self._last = now
        if self.length == RUN and not is_own_fault():
            self.length = 0
            _log.warning("the last %d answers were degraded by what was asked: a list of our own is not", RUN)
        elif self.length == RUN:
            _log.warning("the last %d answers were degraded: /readyz says 503", RUN)

    @property
    def lasts(self) -> bool:
        """Whether enough answers in a row were degraded, and the last not long ago."""
        return self.length >= RUN and self._clock() - self._last < REST_S


def fails_on_zeros(reranker: Reranker, route: Route) -> bool:
    """Return whether the ranker that a route names degrades a list of zeros, too."""
    candidates = CandidateList(np.zeros((OWN_LENGTH, len(reranker.schema)), dtype=np.float32))
    return reranker.rerank(candidates, strategy=route.strategy, specialist=route.specialist, routing=False).degraded
