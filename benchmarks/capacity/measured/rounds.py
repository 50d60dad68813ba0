"""Rounds of loads on real replicas: what a list takes there, and what becomes of lists that arrive at given times.

One replica has a core to itself, and the generator another. Two replicas have a core each. Where there are no more
cores, they share both with the generator and haproxy. What these take for each list is measured, and the simulation
leaves the replicas the rest of the core.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
import psutil
from jaxtyping import Float

from benchmarks import machine
from benchmarks.capacity.measured import costs
from benchmarks.capacity.measured.costs import CALLERS, LIGHT, Footprint
from benchmarks.capacity.measured.replicas import Generator, Replica, Seen, haproxy, replicas
from benchmarks.capacity.measured.shape import Shape
from benchmarks.capacity.measured.traces import Trace, traced
from benchmarks.capacity.service_times import ServiceTimes, pooled
from benchmarks.capacity.simulated import arrivals
from benchmarks.capacity.simulated.arrivals import Arrivals
from benchmarks.capacity.simulated.balancers import BALANCERS, Balancer
from benchmarks.rivals.cores import divided

SATURATED = 1.3
STEPS: tuple[tuple[Arrivals, float], ...] = (
    ("poisson", 0.5),
    ("poisson", 0.7),
    ("poisson", 0.85),
    ("bursty", 0.6),
    ("poisson", SATURATED),
)
"""Arrivals and loads, over what the replicas can answer."""

DEFAULT: Balancer = "least connections"
OTHERS_AT = 0.7
"""The load at which the other balancers are looked at."""


@dataclass(frozen=True, slots=True)
class Beside:
    """Two replicas behind haproxy, in seconds for each list.

    Args:
        replica_s: CPU time of the replica; more than alone, as others use its caches.
        haproxy_s, generator_s: CPU time of these; on the replicas' cores where there are no others.
        around_s: a caller waits beyond what the replica and others on its core take.
    """

    replica_s: float
    haproxy_s: float
    generator_s: float
    around_s: float

    @property
    def others_s(self) -> float:
        """CPU time of haproxy and the generator."""
        return self.haproxy_s + self.generator_s


@dataclass(frozen=True, slots=True)
class Cores:
    """Of the two replicas, in their order, and of all else while both run."""

    replicas: tuple[int, int]
    others: frozenset[int]

    @property
    def shared(self) -> bool:
        """Whether all else takes its time from the replicas."""
        return bool(self.others & set(self.replicas))


def cores() -> Cores:
    """Those of this machine.

    Raises:
        IndivisibleError: if there is only one, or the system does not say which processes run where.
    """
    own = divided()
    first, second, *rest = sorted(own.servers | own.generator)
    return Cores((first, second), frozenset(rest or (first, second)))


@dataclass(frozen=True, slots=True)
class Run:
    """One load on real replicas.

    Args:
        due: ``(N,)`` when its lists arrived.
        seen: what became of them.
        traces: of each replica.
        before_s: CPU time that the replicas took for a list just before: a shared machine is not always as fast.
        shared: share of each replica's core that others had meanwhile.
    """

    due: Float[np.ndarray, " N"]
    seen: Seen
    traces: Sequence[Trace]
    before_s: float
    shared: float


@dataclass(slots=True)
class Comparison:
    """One load in all rounds."""

    replicas: int
    balancer: Balancer | None
    arrivals: Arrivals
    load: float
    runs: list[Run] = field(default_factory=list)


@dataclass(slots=True)
class Rounds:
    """All that was measured."""

    times: list[ServiceTimes] = field(default_factory=list)
    beside: list[Beside] = field(default_factory=list)
    speeds: list[float] = field(default_factory=list)
    shared: bool = True
    comparisons: list[Comparison] = field(default_factory=list)
    footprint: Footprint | None = None

    def pooled(self) -> ServiceTimes:
        """Of all rounds."""
        return pooled(self.times)

    def pooled_beside(self) -> Beside:
        """Of all rounds."""
        rows = [(one.replica_s, one.haproxy_s, one.generator_s, one.around_s) for one in self.beside]
        return Beside(*(float(value) for value in np.mean(rows, axis=0)))


def planned() -> list[Comparison]:
    """One replica without a balancer; two behind the usual one, and at one load behind each of the others."""
    one = [Comparison(1, None, kind, load) for kind, load in STEPS]
    two = [Comparison(2, DEFAULT, kind, load) for kind, load in STEPS]
    others = [Comparison(2, balancer, "poisson", OTHERS_AT) for balancer in BALANCERS if balancer != DEFAULT]
    return [*one, *two, *others]


def measured(shape: Shape, cores: Cores, comparisons: Sequence[Comparison], *, count: int, seconds: float) -> Rounds:
    """So many rounds, each of every load for so long.

    Args:
        shape: of the lists.
        cores: the generator has the second replica's while there is only one.
        comparisons: loads that are compared with their simulation; they get the runs. There may be none.
        count: of rounds, at least 1.
        seconds: of each load.
    """
    found = Rounds(comparisons=list(comparisons), shared=cores.shared)
    for number in range(count):
        found.speeds.append(round(machine.speed(), 1))
        print(f"round {number + 1} of {count}: one replica", end=" ", flush=True)
        with _started(shape, cores.replicas[:1], frozenset(cores.replicas[1:])) as (generator, started):
            (replica,) = started
            found.times.append(costs.service_times(generator, replica, shape, seconds))
            stand = _Stand(generator, replica.port, started)
            for step in found.comparisons:
                if step.replicas == 1:
                    step.runs.append(stand.run(step, number, seconds))
            found.footprint = costs.footprint(replica, shape, costs.probe(replica.port, shape)[1])
        print(" two replicas", end=" ", flush=True)
        with _started(shape, cores.replicas, cores.others) as (generator, started):
            _two(generator, started, cores.others, found, number, seconds)
        print(flush=True)
    return found


@contextmanager
def _started(
    shape: Shape, cores: Sequence[int], generates: frozenset[int]
) -> Iterator[tuple[Generator, list[Replica]]]:
    with tempfile.TemporaryDirectory(prefix="capacity-") as name, replicas(shape, cores, Path(name)) as started:
        yield Generator(shape, generates, Path(name)), started


@dataclass(frozen=True, slots=True)
class _Stand:
    """What a load goes through.

    Args:
        generator: of the load.
        port: of the replica, or of haproxy.
        replicas: that answer.
        sharing: haproxy, where it and the generator share the cores of the replicas.
        others_s: CPU time of these for a list, as long as they share.
    """

    generator: Generator
    port: int
    replicas: Sequence[Replica]
    sharing: psutil.Process | None = None
    others_s: float = 0.0

    def busy(self, seconds: float) -> tuple[float, float]:
        """CPU seconds that replicas take for a list where lists always wait, and lists a second."""
        processes = [replica.process for replica in self.replicas]
        seen = costs.callers(self.generator, self.port, len(self.replicas) * CALLERS, seconds, processes)
        return sum(seen.cpu_s) / len(seen.seconds), len(seen.seconds) / seen.took_s

    def run(self, step: Comparison, number: int, seconds: float) -> Run:
        """A load, over what the replicas can answer just before.

        Raises:
            NotAnsweredError: if no list is answered.
            TraceError: if a replica answers too few.
        """
        print(".", end="", flush=True)
        before_s, _ = self.busy(seconds / 4)
        rate = step.load * len(self.replicas) / (before_s + self.others_s)
        due = arrivals.draw(step.arrivals, rate, max(1, int(rate * seconds)), np.random.default_rng((13, number)))
        seen, traces, shared = self.at(due)
        for trace in traces:
            trace.took_s()
        return Run(due, seen, traces, before_s, shared)

    def at(self, due: Float[np.ndarray, " N"]) -> tuple[Seen, list[Trace], float]:
        """Lists at these times, what each replica did, and the share of each core that others had."""
        others = [self.sharing] if self.sharing else []
        seen, traces = traced(partial(self.generator.at, self.port, due, others), self.replicas)
        if not len(seen.seconds):
            raise costs.NotAnsweredError(f"of {seen.asked} lists, none was answered")
        others_s = seen.cpu_s[0] + seen.generator_cpu_s if self.sharing else 0.0
        return seen, traces, others_s / seen.took_s / len(self.replicas)


def _two(
    generator: Generator, started: Sequence[Replica], cores: frozenset[int], found: Rounds, number: int, seconds: float
) -> None:
    """All loads of two replicas, the usual balancer first: it says what haproxy takes."""
    for balancer in (DEFAULT, *(one for one in BALANCERS if one != DEFAULT)):
        steps = [step for step in found.comparisons if step.balancer == balancer]
        if not steps and balancer != DEFAULT:
            continue
        with haproxy([replica.port for replica in started], balancer, cores) as (port, proxy):
            stand = _Stand(generator, port, started, proxy if found.shared else None)
            if balancer == DEFAULT:
                found.beside.append(_beside(stand, proxy, seconds))
            if found.shared:
                stand = replace(stand, others_s=found.beside[-1].others_s)
            for step in steps:
                step.runs.append(stand.run(step, number, seconds))


def _beside(stand: _Stand, proxy: psutil.Process, seconds: float) -> Beside:
    replica_s, most = stand.busy(seconds)
    spaced = stand.generator.at(stand.port, costs.evenly(costs.SPACED[0] * most, seconds), [proxy])
    light = costs.evenly(len(stand.replicas) * LIGHT / replica_s, seconds)
    seen, traces, shared = stand.at(light)
    return Beside(
        replica_s,
        spaced.cpu_s[0] / spaced.asked,
        spaced.generator_cpu_s / spaced.asked,
        costs.waited_beyond_s(seen, traces, shared=shared),
    )
