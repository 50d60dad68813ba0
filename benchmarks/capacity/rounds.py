"""Rounds of loads on real replicas: what a list takes there, and what becomes of lists that arrive at given times.

One replica has a core to itself, and the generator another. Two replicas have a core each. Where there are no more
cores, they share both with the generator and haproxy. What these take for each request is measured with a few callers.
The simulation counts it as work on the replica's core.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import psutil
from jaxtyping import Float

from benchmarks import machine
from benchmarks.capacity import arrivals, measure
from benchmarks.capacity.arrivals import Arrivals
from benchmarks.capacity.balancers import BALANCERS, Balancer
from benchmarks.capacity.measure import CALLERS, LIGHT, Footprint, ServiceTimes
from benchmarks.capacity.replicas import Generator, Replica, Seen, haproxy, replicas
from benchmarks.capacity.shape import Shape
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
        took_s: median time of evenly spaced lists at a load of :data:`LIGHT`.
    """

    replica_s: float
    haproxy_s: float
    generator_s: float
    took_s: float

    @property
    def cpu_s(self) -> float:
        """Of haproxy and the generator."""
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
        cpu_s: that the replicas took for a list just before: a shared machine is not always as fast.
    """

    due: Float[np.ndarray, " N"]
    seen: Seen
    cpu_s: float


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
        return measure.pooled(self.times)

    def pooled_beside(self) -> Beside:
        """Of all rounds."""
        rows = [(one.replica_s, one.haproxy_s, one.generator_s, one.took_s) for one in self.beside]
        return Beside(*(float(value) for value in np.mean(rows, axis=0)))


def planned() -> list[Comparison]:
    """One replica without a balancer; two behind the usual one, and at one load behind each of the others."""
    one = [Comparison(1, None, kind, load) for kind, load in STEPS]
    two = [Comparison(2, DEFAULT, kind, load) for kind, load in STEPS]
    others = [Comparison(2, balancer, "poisson", OTHERS_AT) for balancer in BALANCERS if balancer != DEFAULT]
    return [*one, *two, *others]


def measured(shape: Shape, cores: Cores, *, count: int, seconds: float) -> Rounds:
    """So many rounds, each of every load for so long.

    Args:
        shape: of the lists.
        cores: the generator has the second replica's while there is only one.
        count: of rounds, at least 1.
        seconds: of each load.
    """
    found = Rounds(comparisons=planned(), shared=cores.shared)
    for number in range(count):
        found.speeds.append(round(machine.speed(), 1))
        print(f"round {number + 1} of {count}: one replica", end=" ", flush=True)
        with _stand(shape, cores.replicas[:1], frozenset(cores.replicas[1:])) as (generator, started):
            (replica,) = started
            found.times.append(measure.service_times(generator, replica, shape, seconds))
            capacity = 1.0 / found.times[-1].cpu_s
            for step in found.comparisons:
                if step.replicas == 1:
                    step.runs.append(_run(generator, replica.port, started, step, capacity, number, seconds))
            found.footprint = measure.footprint(replica, shape, measure.probe(replica.port, shape)[1])
        print(" two replicas", end=" ", flush=True)
        with _stand(shape, cores.replicas, cores.others) as (generator, started):
            _two(generator, started, cores.others, found, number, seconds)
        print(flush=True)
    return found


@contextmanager
def _stand(shape: Shape, cores: Sequence[int], generates: frozenset[int]) -> Iterator[tuple[Generator, list[Replica]]]:
    with tempfile.TemporaryDirectory(prefix="capacity-") as name, replicas(shape, cores, Path(name)) as started:
        yield Generator(shape, generates, Path(name)), started


def _two(
    generator: Generator, started: Sequence[Replica], cores: frozenset[int], found: Rounds, number: int, seconds: float
) -> None:
    ports = [replica.port for replica in started]
    with haproxy(ports, DEFAULT, cores) as (port, proxy):
        beside = _beside(generator, port, proxy, started, seconds)
        found.beside.append(beside)
        capacity = len(ports) / (beside.replica_s + (beside.cpu_s if found.shared else 0.0))
        for step in found.comparisons:
            if step.balancer == DEFAULT:
                step.runs.append(_run(generator, port, started, step, capacity, number, seconds))
    for step in found.comparisons:
        if step.balancer not in (None, DEFAULT):
            with haproxy(ports, step.balancer, cores) as (port, _):
                step.runs.append(_run(generator, port, started, step, capacity, number, seconds))


def _beside(
    generator: Generator, port: int, proxy: psutil.Process, started: Sequence[Replica], seconds: float
) -> Beside:
    count = len(started)
    replica_s, most = _busy(generator, port, started, seconds)
    light = generator.at(port, measure.evenly(count * LIGHT / replica_s, seconds), [])
    if not len(light.seconds):
        raise measure.NotAnsweredError(f"behind haproxy, of {light.asked} lists none was answered")
    spaced = generator.at(port, measure.evenly(measure.SPACED[0] * most, seconds), [proxy])
    return Beside(
        replica_s,
        spaced.cpu_s[0] / spaced.asked,
        spaced.generator_cpu_s / spaced.asked,
        float(np.median(light.seconds)),
    )


def _busy(generator: Generator, port: int, started: Sequence[Replica], seconds: float) -> tuple[float, float]:
    """CPU seconds that replicas take for a list where lists always wait, and lists a second."""
    watched = [replica.process for replica in started]
    busy = measure.callers(generator, port, len(started) * CALLERS, seconds, watched)
    return sum(busy.cpu_s) / len(busy.seconds), len(busy.seconds) / busy.took_s


def _run(
    generator: Generator,
    port: int,
    started: Sequence[Replica],
    step: Comparison,
    capacity: float,
    number: int,
    seconds: float,
) -> Run:
    rate = step.load * capacity
    due = arrivals.draw(step.arrivals, rate, max(1, int(rate * seconds)), np.random.default_rng((13, number)))
    print(".", end="", flush=True)
    cpu_s, _ = _busy(generator, port, started, seconds / 4)
    return Run(due, generator.at(port, due, []), cpu_s)
