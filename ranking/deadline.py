"""Recent times of each stage by list length: whether one more fits before a deadline."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

from listwright.ranking.errors import AbandonedError

REMEMBERED = 8
"""Times stored for each stage and size class."""

FRESH_S = 1.0
"""Seconds after a run in which a stage that is too slow is not tried anew."""

Key = tuple[str, int]
"""A stage and a size class."""


@dataclass(frozen=True, slots=True)
class Deadline:
    """The time by which an answer must be there, and whether the caller still waits for it.

    Args:
        at: Time of the deadline in seconds, on the clock of ``time.perf_counter``.
        abandoned: Function that returns True once the caller has gone; called from any thread.
    """

    at: float = math.inf
    abandoned: Callable[[], bool] = bool

    @property
    def left_s(self) -> float:
        """Seconds until the deadline; negative if it has passed."""
        return self.at - perf_counter()

    def check_awaited(self) -> None:
        """Raise AbandonedError if nobody waits for the answer."""
        if self.abandoned():
            raise AbandonedError("the caller has gone: nothing more is computed for it")


NO_DEADLINE = Deadline()


class LatencyEstimator:
    """The last :data:`REMEMBERED` times of each stage, apart by list length in powers of two. Threads may share it.

    What is expected of a stage is the second slowest of them (of two, the faster): one outlier, such as the first call
    ever, means nothing, two do. A stage that is never started is never measured again. So it is tried anew after
    :data:`REMEMBERED` refusals in a row, :data:`FRESH_S` after its last run; but only for a deadline that its quickest
    run ever would have met. A deadline that no run has met changes nothing for others.

    Args:
        clock: Function that returns the time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        self._clock = clock
        self._times: dict[Key, tuple[float, ...]] = {}  # tuples are replaced, never changed: no lock
        self._quickest: dict[Key, float] = {}
        self._noted: dict[Key, float] = {}
        self._refused: dict[Key, int] = {}

    def note(self, stage: str, length: int, seconds: float) -> None:
        """Record the time of a run of a stage."""
        key = _key(stage, length)
        self._times[key] = (*self._times.get(key, ())[1 - REMEMBERED :], seconds)
        self._quickest[key] = min(seconds, self._quickest.get(key, math.inf))
        self._noted[key], self._refused[key] = self._clock(), 0

    def expected(self, stage: str, length: int) -> float:
        """Return the seconds that a stage may take; 0.0 where nothing is known, so that it is tried."""
        times = sorted(self._times.get(_key(stage, length), ()))
        return times[max(0, len(times) - 2)] if times else 0.0

    def fits(self, deadline: Deadline, length: int, *stages: str) -> bool:
        """Return whether these stages, one after another, end before the deadline or are due for another trial.

        Raises:
            AbandonedError: if nobody waits for the answer any more.
        """
        deadline.check_awaited()
        if deadline.at == math.inf:
            return True
        left_s = deadline.left_s
        if sum(self.expected(stage, length) for stage in stages) <= left_s:
            return True
        keys = [_key(stage, length) for stage in stages]
        if sum(self._quickest.get(key, 0.0) for key in keys) > left_s:
            return False
        for key in keys:
            self._refused[key] = self._refused.get(key, 0) + 1
        stale = self._clock() - FRESH_S
        return all(self._refused[key] > REMEMBERED and self._noted.get(key, stale) <= stale for key in keys)


def _key(stage: str, length: int) -> Key:
    return stage, length.bit_length()
