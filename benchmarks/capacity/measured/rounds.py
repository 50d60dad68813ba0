"""Rounds of loads on real replicas: what a list takes there, and what becomes of lists that arrive at given times.

One replica has a core to itself, and the generator another. Two replicas have a core each. Where there are no more
cores, they share both with the generator and haproxy. What these take for each list is measured, and the simulation
leaves the replicas the rest of the core.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import cycle
from pathlib import Path

import numpy as np
from jaxtyping import Float

from benchmarks import machine
from benchmarks.capacity.measured import costs
from benchmarks.capacity.measured.calibration import SPACED
from benchmarks.capacity.measured.costs import CALLERS, Footprint
from benchmarks.capacity.measured.replicas import Generator, Replica, haproxy, replicas
from benchmarks.capacity.measured.shape import Shape
from benchmarks.capacity.measured.stand import Others, Part, Run, Stand
from benchmarks.capacity.service_times import ServiceTimes
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

PART_S = 4.0
"""About as long is a load before it is the next one's turn: a shared machine is not always as fast."""


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
    """All that was measured.

    Args:
        alone, behind: times of one replica, and of two behind haproxy, in each round. Without comparisons none of two.
        others: what haproxy and the generator take, in each round.
        speeds: of the machine, before each round.
        shared: whether others take their time from the replicas' cores.
        took_s: of the lists of one caller, in each round.
        comparisons: loads that are compared with their simulation, with their runs.
        footprint: of a replica.
    """

    alone: list[ServiceTimes] = field(default_factory=list)
    behind: list[ServiceTimes] = field(default_factory=list)
    others: list[Others] = field(default_factory=list)
    speeds: list[float] = field(default_factory=list)
    shared: bool = True
    took_s: list[Float[np.ndarray, " N"]] = field(default_factory=list)
    comparisons: list[Comparison] = field(default_factory=list)
    footprint: Footprint | None = None

    def pooled_others(self) -> Others:
        """Means of all rounds."""
        rows = [(one.haproxy_s, one.generator_s, one.replica_s) for one in self.others]
        return Others(*(float(value) for value in np.mean(rows, axis=0)))


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
        seconds: of each load, in turns with the others.
    """
    found = Rounds(comparisons=list(comparisons), shared=cores.shared)
    for number in range(count):
        found.speeds.append(round(machine.speed(), 1))
        print(f"round {number + 1} of {count}: one replica", end=" ", flush=True)
        with _started(shape, cores.replicas[:1], frozenset(cores.replicas[1:])) as (generator, started):
            _one(generator, started[0], found, number, seconds, shape)
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
        generator = Generator(shape, generates, Path(name))
        for replica in started:
            generator.callers(replica.port, CALLERS, seconds=1.0, watched=[])
        yield generator, started


def _one(generator: Generator, replica: Replica, found: Rounds, number: int, seconds: float, shape: Shape) -> None:
    """All loads of one replica, and what it costs."""
    intake_s, answer_bytes = costs.probe(replica.port, shape)
    found.took_s.append(costs.callers(generator, replica.port, 1, seconds / 4, [replica.process]).seconds)
    parts, part_s = _parts(seconds)
    stand = Stand(generator, replica.port, [replica], part_s)
    stand.busy()
    intake = intake_s / stand.calibration.cpu_s()
    steps = [step for step in found.comparisons if step.replicas == 1]
    _alternate(stand, lambda _: nullcontext(stand), steps or [None] * len(SPACED), number, parts)
    refusal = costs.refusal(generator, replica, seconds / 4, stand.calibration.busy[-1].traces)
    found.alone.append(stand.calibration.times(intake, refusal))
    found.footprint = costs.footprint(replica, shape, answer_bytes)


def _two(
    generator: Generator, started: Sequence[Replica], cores: frozenset[int], found: Rounds, number: int, seconds: float
) -> None:
    """All loads of two replicas."""
    parts, part_s = _parts(seconds)
    ports = [replica.port for replica in started]
    with haproxy(ports, DEFAULT, cores) as (port, proxy):
        stand = Stand(generator, port, started, part_s)
        stand.busy()
        found.others.append(stand.beside(proxy, seconds / 4))
    if found.shared:
        stand = replace(stand, others_s=found.others[-1].both_s)

    @contextmanager
    def behind(balancer: Balancer | None) -> Iterator[Stand]:
        with haproxy(ports, balancer or DEFAULT, cores) as (port, proxy):
            yield replace(stand, port=port, sharing=proxy if found.shared else None)

    if steps := [step for step in found.comparisons if step.replicas > 1]:
        _alternate(stand, behind, steps, number, parts)
        alone = found.alone[-1]
        found.behind.append(stand.calibration.times(alone.intake_s / alone.cpu_s, alone.refusal_s / alone.cpu_s))


def _parts(seconds: float) -> tuple[int, float]:
    """Parts of a load, and seconds of each."""
    parts = max(1, round(seconds / PART_S))
    return parts, seconds / parts


def _alternate(
    stand: Stand,
    through: Callable[[Balancer | None], AbstractContextManager[Stand]],
    steps: Sequence[Comparison | None],
    number: int,
    parts: int,
) -> None:
    """A part of each load in turn, and the calibration in between.

    Two parts of a load in a row have the same arrivals: so the measurement is compared with itself. Evenly spaced lists
    go through the usual balancer only, as others send several to one replica.

    Args:
        stand: whose calibration it is.
        through: the stand behind a balancer.
        steps: the loads, with at least as many of the usual balancer as :data:`SPACED` has; None for the calibration
            alone.
        number: of the round.
        parts: of each load.
    """
    seen = list[tuple[Comparison, Part, int]]()
    for part in range(parts):
        print(".", end="", flush=True)
        levels = cycle(range(part, part + len(SPACED)))
        for step in steps:
            balancer = None if step is None else step.balancer
            with through(balancer) as here:
                here.busy()
                if step:
                    one = here.part(step.arrivals, step.load, (number * parts + part) // 2)
                    seen.append((step, one, len(stand.calibration.busy) - 1))
                if balancer in (None, DEFAULT):
                    here.spaced(SPACED[next(levels) % len(SPACED)])
    with through(DEFAULT) as here:
        here.busy()
    for step, one, before in seen:
        step.runs.append(Run(number, one, stand.calibration.near(before)))
