"""How long the stages took lately, by list length: whether one more fits before a deadline."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

from ranking.errors import AbandonedError

REMEMBERED = 8
"""Times kept of a stage and size class."""


def _somebody_waits() -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Deadline:
    """When an answer must be there, and whether anybody still waits for it.

    Args:
        at: on the clock of ``time.perf_counter``.
        abandoned: True once nobody waits; asked from any thread.
    """

    at: float = math.inf
    abandoned: Callable[[], bool] = _somebody_waits

    @property
    def left_s(self) -> float:
        """Seconds until then; negative if it has passed."""
        return self.at - perf_counter()

    def check_awaited(self) -> None:
        """Raise AbandonedError if nobody waits for the answer."""
        if self.abandoned():
            raise AbandonedError("the caller has gone: nothing more is computed for it")


NO_DEADLINE = Deadline()


class Pace:
    """The last :data:`REMEMBERED` times of each stage, apart by list length in powers of two. Threads may share it.

    What is expected of a stage is the second slowest of them (of two, the faster): one outlier, such as the first call
    ever, means nothing, two do. A stage that is never started is never measured again, so each time that it is found
    too slow the oldest of its times is forgotten: after eight refusals at most it is tried anew.
    """

    def __init__(self) -> None:
        self._times: dict[tuple[str, int], tuple[float, ...]] = {}  # tuples are replaced, never changed: no lock

    def note(self, stage: str, length: int, seconds: float) -> None:
        """Remember what a stage took."""
        key = stage, length.bit_length()
        self._times[key] = (*self._times.get(key, ())[1 - REMEMBERED :], seconds)

    def expected(self, stage: str, length: int) -> float:
        """Seconds that a stage may take; 0.0 where nothing is known, so that it is tried."""
        times = sorted(self._times.get((stage, length.bit_length()), ()))
        return times[max(0, len(times) - 2)] if times else 0.0

    def fits(self, deadline: Deadline, length: int, *stages: str) -> bool:
        """Whether these stages, one after another, end before the deadline.

        Raises:
            AbandonedError: if nobody waits for the answer any more.
        """
        deadline.check_awaited()
        if deadline.at == math.inf:
            return True
        fits = sum(self.expected(stage, length) for stage in stages) <= deadline.left_s
        if not fits:
            for stage in stages:
                key = stage, length.bit_length()
                self._times[key] = self._times.get(key, ())[1:]
        return fits
