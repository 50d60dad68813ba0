"""Replicas under load, and their calibration in between."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import psutil
from jaxtyping import Float

from benchmarks.capacity.measured import costs
from benchmarks.capacity.measured.calibration import Busy, Calibration, Spaced
from benchmarks.capacity.measured.costs import CALLERS, NotAnsweredError
from benchmarks.capacity.measured.replicas import Generator, Replica, Seen
from benchmarks.capacity.measured.traces import Trace, traced
from benchmarks.capacity.simulated import arrivals
from benchmarks.capacity.simulated.arrivals import Arrivals

CALIBRATED_S, CALIBRATED_LISTS = 1.0, 100
"""Seconds of each load of a calibration; more where lists are so long that fewer could be answered."""

SEED = 13
"""Of the arrivals."""

BESIDE_AT = 0.6
"""Load over the capacity of the replicas alone, at which haproxy and the generator are looked at."""


@dataclass(frozen=True, slots=True)
class Others:
    """CPU time that others take for each list of two replicas.

    Args:
        haproxy_s, generator_s: of these.
        replica_s: of the replica just before.
    """

    haproxy_s: float
    generator_s: float
    replica_s: float

    @property
    def both_s(self) -> float:
        """Of haproxy and the generator together."""
        return self.haproxy_s + self.generator_s


@dataclass(frozen=True, slots=True)
class Part:
    """Some seconds of a load on real replicas.

    Args:
        due: ``(N,)`` when its lists arrived.
        seen: what became of them.
        traces: of each replica.
        shared: share of each replica's core that others had meanwhile.
    """

    due: Float[np.ndarray, " N"]
    seen: Seen
    traces: Sequence[Trace]
    shared: float


@dataclass(frozen=True, slots=True)
class Run:
    """A part of a load, and the calibration around it.

    Args:
        number: of its round.
        part: of the load.
        near: traces of each replica, from busy loads just before and just after.
    """

    number: int
    part: Part
    near: Sequence[Sequence[Trace]]


@dataclass(frozen=True, slots=True)
class Stand:
    """What a load goes through.

    Args:
        generator: of the load.
        port: of the replica, or of haproxy.
        replicas: that answer.
        seconds: of a part of a load.
        calibration: of these replicas so far.
        sharing: haproxy, where it and the generator share the cores of the replicas.
        others_s: CPU time of these for a list, as long as they share.
    """

    generator: Generator
    port: int
    replicas: Sequence[Replica]
    seconds: float
    calibration: Calibration = field(default_factory=Calibration)
    sharing: psutil.Process | None = None
    others_s: float = 0.0

    def busy(self) -> None:
        """Measure lists that always wait."""
        if not self.calibration.busy:  # how long lists are
            self.calibration.busy.append(self._waiting(CALIBRATED_S))
            self.calibration.busy[:] = [self._waiting(self._calibrated_s())]
        else:
            self.calibration.busy.append(self._waiting(self._calibrated_s()))

    def _waiting(self, seconds: float) -> Busy:
        processes = [replica.process for replica in self.replicas]
        callers = len(self.replicas) * CALLERS
        asked = partial(costs.callers, self.generator, self.port, callers, seconds, processes)
        return Busy(*traced(asked, self.replicas))

    def spaced(self, load: float) -> None:
        """Measure lists at equal distances, after a busy load.

        Raises:
            NotAnsweredError: if no list is answered.
        """
        rate = self._rate(load)
        one = self.at(costs.evenly(rate, self._calibrated_s()))
        distance_s, after = len(self.replicas) / rate, len(self.calibration.busy) - 1
        self.calibration.spaced.append(Spaced(load, distance_s, one.seen, one.traces, after))

    def beside(self, proxy: psutil.Process, seconds: float) -> Others:
        """Measure what haproxy and the generator take for lists at equal distances."""
        seen = self.generator.at(self.port, costs.evenly(self._rate(BESIDE_AT), seconds), [proxy])
        return Others(seen.cpu_s[0] / seen.asked, seen.generator_cpu_s / seen.asked, self.calibration.cpu_s())

    def part(self, kind: Arrivals, load: float, number: int) -> Part:
        """Measure a part of a long load, for :attr:`seconds`.

        Args:
            kind: of the arrivals.
            load: over what the replicas can answer, as the calibration has it so far.
            number: of the part.

        Raises:
            NotAnsweredError: if no list is answered.
            TraceError: if a replica answers too few.
        """
        one = self.at(arrivals.part(kind, self._rate(load), number * self.seconds, self.seconds, SEED))
        for trace in one.traces:
            trace.took_s()
        return one

    def at(self, due: Float[np.ndarray, " N"]) -> Part:
        """Send lists at these times, and trace the replicas."""
        others = [self.sharing] if self.sharing else []
        seen, traces = traced(partial(self.generator.at, self.port, due, others), self.replicas)
        if not len(seen.seconds):
            raise NotAnsweredError(f"of {seen.asked} lists, none was answered")
        others_s = seen.cpu_s[0] + seen.generator_cpu_s if self.sharing else 0.0
        return Part(due, seen, traces, others_s / seen.took_s / len(self.replicas))

    def _rate(self, load: float) -> float:
        return load * len(self.replicas) / (self.calibration.cpu_s() + self.others_s)

    def _calibrated_s(self) -> float:
        return max(CALIBRATED_S, CALIBRATED_LISTS * self.calibration.cpu_s())
