"""What lists cost a simulated worker."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

Slowness = Callable[[float], float]
"""What a replica's times are multiplied by at a time, in seconds."""


def steady(_: float) -> float:
    """The slowness of a replica that is always as fast."""
    return 1.0


@dataclass(frozen=True, slots=True)
class Stretches:
    """The :data:`Slowness` of a replica that changes from one stretch of time to the next.

    Args:
        begins_s: ``(S,)`` of each stretch, ascending; the first counts from 0.
        ratios: ``(S,)`` how long lists take in each stretch over a typical list.
        span_s: of all stretches; after it they begin anew.
        ahead_s: how much later than the first stretch time 0 is.
    """

    begins_s: tuple[float, ...]
    ratios: tuple[float, ...]
    span_s: float = math.inf
    ahead_s: float = 0.0

    def __call__(self, now: float) -> float:
        """At this time."""
        return self.ratios[max(0, bisect_right(self.begins_s, (now + self.ahead_s) % self.span_s) - 1)]


def joined(each: Sequence[Stretches]) -> Stretches:
    """One after the other; each needs an end."""
    ends = list(accumulate(one.span_s for one in each))
    return Stretches(
        tuple(end - one.span_s + begin for one, end in zip(each, ends, strict=True) for begin in one.begins_s),
        tuple(ratio for one in each for ratio in one.ratios),
        ends[-1],
    )


@dataclass(frozen=True, slots=True)
class Waking:
    """What a list takes longer that finds the event loop asleep.

    Args:
        slept_s: ``(P,)`` ascending, above 0; without any, waking takes no time.
        more_s: ``(P,)`` what the list takes longer after such a sleep. Linear between the points and from 0; constant
            after the last.
    """

    slept_s: tuple[float, ...] = ()
    more_s: tuple[float, ...] = ()

    def after(self, slept_s: float) -> float:
        """Seconds more after a sleep of so many seconds."""
        place = bisect_left(self.slept_s, slept_s)
        if place == len(self.slept_s):
            return self.more_s[-1] if self.more_s else 0.0
        left, low = (self.slept_s[place - 1], self.more_s[place - 1]) if place else (0.0, 0.0)
        share = (slept_s - left) / (self.slept_s[place] - left)
        return low + share * (self.more_s[place] - low)

    def scaled(self, factor: float) -> Waking:
        """After the same sleeps, so many times as long."""
        return Waking(self.slept_s, tuple(more_s * factor for more_s in self.more_s))


@dataclass(frozen=True, slots=True)
class Worker:
    """Costs and limits of one worker; seconds.

    Args:
        intake_s: the event loop's, to read and admit one list before it is ranked.
        refusal_s: the event loop's, to refuse one.
        waking: the event loop's, beyond all else, for a list that finds it asleep.
        threads: that rank; 0: the event loop ranks.
        places: lists that may wait, as ``LISTWRIGHT_QUEUE``.
        patience_s: until their turns must have ended, as ``LISTWRIGHT_QUEUE_MS``.
    """

    intake_s: float = 0.0
    refusal_s: float = 0.0
    waking: Waking = Waking()
    threads: int = 0
    places: float = math.inf
    patience_s: float = math.inf
