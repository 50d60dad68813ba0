"""What a list takes, from many short loads that lie between the loads that are compared.

A shared machine is not always as fast. So lists that find the replica asleep are compared with lists that never do
within seconds, and not within minutes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

import numpy as np

from benchmarks.capacity.measured.replicas import Seen
from benchmarks.capacity.measured.traces import Trace, mean_s
from benchmarks.capacity.service_times import ServiceTimes
from benchmarks.capacity.simulated.worker import Waking, joined

SPACED = (0.8, 0.6, 0.4, 0.2, 0.1)
"""Loads over the capacity of evenly spaced lists: each finds the replica asleep, longer from load to load."""

LIGHT = 0.4
"""The one of :data:`SPACED` where the way of a list is looked at."""


@dataclass(frozen=True, slots=True)
class Busy:
    """A load in which lists always wait."""

    seen: Seen
    traces: Sequence[Trace]


@dataclass(frozen=True, slots=True)
class Spaced:
    """A load of lists at equal distances.

    Args:
        load: of :data:`SPACED`.
        distance_s: from list to list at one replica.
        seen, traces: of the load.
        after: number of the busy load before it.
    """

    load: float
    distance_s: float
    seen: Seen
    traces: Sequence[Trace]
    after: int


@dataclass(frozen=True, slots=True)
class Calibration:
    """Short loads of one or more replicas, in the order of time. The first is busy, and so is the last."""

    busy: list[Busy] = field(default_factory=list)
    spaced: list[Spaced] = field(default_factory=list)

    def cpu_s(self) -> float:
        """CPU time of the process for one list while it never sleeps."""
        return mean_s([trace for one in self.busy for trace in one.traces])

    def near(self, number: int) -> list[Sequence[Trace]]:
        """Traces of the busy load of this number and of the next: before and after what lies between them."""
        return [one.traces for one in self.busy[number : number + 2]]

    def times(self, intake: float, refusal: float) -> ServiceTimes:
        """Means and medians of all loads.

        Args:
            intake: time from a request's first byte until its turn begins, over that of a list.
            refusal: time of a refusal over that of a list.
        """
        cpu_s = self.cpu_s()
        traces = [trace for one in self.busy for trace in one.traces]
        return ServiceTimes(
            cpu_s=cpu_s,
            spread=np.concatenate([trace.spread() for trace in traces]),
            slowness=joined([trace.looped(cpu_s) for trace in traces]),
            waking=self._waking(cpu_s),
            around_s=cpu_s * median(self._around(one) for one in self.spaced if one.load == LIGHT),
            intake_s=min(intake, 0.5) * cpu_s,
            refusal_s=refusal * cpu_s,
        )

    def _waking(self, cpu_s: float) -> Waking:
        """How much longer lists take after a sleep than in the busy loads just before and after."""
        slept_s, more_s = list[float](), list[float]()
        for load in SPACED:
            levels = [one for one in self.spaced if one.load == load]
            slept = float(np.mean([one.distance_s - mean_s(one.traces) for one in levels]))
            slept_s.append(max(slept, slept_s[-1] if slept_s else 0.0) + 1e-9)
            more_s.append(cpu_s * max(0.0, median(mean_s(one.traces) / self._near_s(one) for one in levels) - 1.0))
        return Waking(tuple(slept_s), tuple(more_s))

    def _near_s(self, spaced: Spaced) -> float:
        return mean_s([trace for traces in self.near(spaced.after) for trace in traces])

    def _around(self, spaced: Spaced) -> float:
        return waited_beyond_s(spaced.seen, spaced.traces) / self._near_s(spaced)


def waited_beyond_s(seen: Seen, traces: Sequence[Trace]) -> float:
    """The median of what callers see, less that of what their lists take.

    Where lists are so far apart that none waits for another, others on the core do not delay it either: they have sent
    it before, and read the answer after.
    """
    took_s = np.concatenate([trace.took_s() for trace in traces])
    return float(np.median(seen.seconds) - np.median(took_s))
