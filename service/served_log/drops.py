"""Counts and log lines of records that are dropped."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from threading import Lock

from prometheus_client import Counter

WARN_S = 30.0
"""Seconds between two log lines about one reason."""

_log = logging.getLogger("listwright.served")


class Drops:
    """What is dropped, by reason. For several threads; the lock is never held while anything is written.

    Args:
        counter: of dropped records, with a label for the reason.
        clock: seconds.
    """

    def __init__(self, counter: Counter, clock: Callable[[], float] = time.monotonic) -> None:
        self._counter, self._clock, self._lock = counter, clock, Lock()
        self._said: dict[str, float] = {}
        self._since: dict[str, int] = {}

    def note(self, reason: str, count: int, why: str) -> None:
        """Count dropped records; a log line tells of them and of those since the last line.

        Args:
            reason: stable and short, to count by.
            count: of records; 0 counts nothing.
            why: for people, with the remedy.
        """
        if not count:
            return
        self._counter.labels(reason).inc(count)
        with self._lock:
            self._since[reason] = self._since.get(reason, 0) + count
            now = self._clock()
            if now - self._said.get(reason, -math.inf) < WARN_S:
                return
            self._said[reason] = now
            total = self._since.pop(reason)
        facts = {"reason": reason, "records": total}
        _log.warning("served records were dropped: %s", why, extra={"facts": facts})
