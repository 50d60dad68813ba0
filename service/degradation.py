"""When answers are degraded one after another, the service says that it is not ready."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

RUN = 20
"""Degraded answers one after another that make a run."""

REST_S = 10.0
"""A run is over this long after its last answer: without traffic nothing else could end it."""

_log = logging.getLogger("listwright.service")


class DegradedRun:
    """Counts degraded answers since the last whole one. For one thread, the event loop's.

    Args:
        clock: seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._length, self._last = 0, 0.0

    def note(self, *, degraded: bool) -> None:
        """One more answer."""
        if not degraded:
            self._length = 0
            return
        now = self._clock()
        self._length = self._length + 1 if now - self._last < REST_S else 1
        self._last = now
        if self._length == RUN:
            _log.warning("the last %d answers were degraded: /readyz says 503", RUN)

    @property
    def lasts(self) -> bool:
        """Whether enough answers in a row were degraded, and the last not long ago."""
        return self._length >= RUN and self._clock() - self._last < REST_S
