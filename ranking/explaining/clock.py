"""How long an explanation may still go on."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter

from listwright.ranking.deadline import NO_DEADLINE, Deadline


@dataclass(frozen=True, slots=True)
class Clock:
    """A deadline that is asked between pieces of work, and whether anybody still waits.

    Args:
        deadline: of the explanation.
        at: when this part of it must end, on the clock of ``time.perf_counter``.
    """

    deadline: Deadline
    at: float

    def over(self) -> bool:
        """Whether the time is up.

        Raises:
            AbandonedError: if nobody waits for the answer any more.
        """
        self.deadline.check_awaited()
        return perf_counter() >= self.at

    def share(self, part: float) -> Clock:
        """A clock for a part of what is left."""
        now = perf_counter()
        return Clock(self.deadline, now + part * (self.at - now))


def clock(deadline: Deadline = NO_DEADLINE) -> Clock:
    """One that ends with the deadline."""
    return Clock(deadline, deadline.at)
