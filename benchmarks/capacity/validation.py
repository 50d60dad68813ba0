"""The simulation beside the machine: the same arrivals at real replicas and at simulated ones.

One replica has a core to itself, and the generator another. Two replicas have a core each. Where there are no more
cores, they share both with the generator and haproxy. What these take for each request is measured under a light load.
The simulation counts it as work on the replica's core.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import psutil
from jaxtyping import Float

from benchmarks import machine
from benchmarks.capacity import arrivals, measure
from benchmarks.capacity.arrivals import Arrivals
from benchmarks.capacity.balancers import BALANCERS, Balancer
from benchmarks.capacity.measure import LIGHT, Footprint, ServiceTimes
from benchmarks.capacity.replicas import Generator, Replica, Seen, haproxy, replicas
from benchmarks.capacity.shape import Shape
from benchmarks.capacity.simulation import simulate
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

WITHIN = 0.15
"""Of the measurement: where a prediction counts as right."""

_DRAWS = 5
"""Simulations of each step, with other service times; their answers are pooled."""


@dataclass(frozen=True, slots=True)
class Beside:
    """What haproxy and the generator take on the replicas' cores, in seconds for each request.

    Args:
        haproxy_s, generator_s: their CPU time.
        took_s: median time of evenly spaced lists behind haproxy.
    """

    haproxy_s: float
    generator_s: float
    took_s: float

    @property
    def cpu_s(self) -> float:
        """Of both."""
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
    """One load on real replicas, and when its lists arrived."""

    due: Float[np.ndarray, " N"]
    seen: Seen


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
        return ServiceTimes(
            cpu_s=float(np.mean([times.cpu_s for times in self.times])),
            took_s=np.concatenate([times.took_s for times in self.times]),
            wake_s=float(np.mean([times.wake_s for times in self.times])),
            woken_s=float(np.mean([times.woken_s for times in self.times])),
            intake_s=float(np.mean([times.intake_s for times in self.times])),
            refusal_s=float(np.mean([times.refusal_s for times in self.times])),
        )

    def pooled_beside(self) -> Beside:
        """Of all rounds."""
        rows = [(one.haproxy_s, one.generator_s, one.took_s) for one in self.beside]
        return Beside(*(float(value) for value in np.mean(rows, axis=0)))


def planned() -> list[Comparison]:
    """One replica without a balancer; two behind the usual one, and at one load behind each of the others."""
    one = [Comparison(1, None, kind, load) for kind, load in STEPS]
    two = [Comparison(2, DEFAULT, kind, load) for kind, load in STEPS]
    others = [Comparison(2, balancer, "poisson", OTHERS_AT) for balancer in BALANCERS if balancer != DEFAULT]
    return [*one, *two, *others]


def measured(shape: Shape, cores: Cores, *, rounds: int, seconds: float) -> Rounds:
    """So many rounds, each of every load for so long.

    Args:
        shape: of the lists.
        cores: the generator has the second replica's while there is only one.
        rounds: at least 1.
        seconds: of each load.
    """
    found = Rounds(comparisons=planned(), shared=cores.shared)
    for number in range(rounds):
        found.speeds.append(round(machine.speed(), 1))
        print(f"round {number + 1} of {rounds}: one replica", end=" ", flush=True)
        with _stand(shape, cores.replicas[:1], frozenset(cores.replicas[1:])) as (generator, started):
            (replica,) = started
            found.times.append(measure.service_times(generator, replica, shape, seconds))
            capacity = 1.0 / found.times[-1].cpu_s
            for step in found.comparisons:
                if step.replicas == 1:
                    step.runs.append(_run(generator, replica.port, step, capacity, number, seconds))
            found.footprint = measure.footprint(replica, shape, measure.probe(replica.port, shape)[1])
        print(" two replicas", end=" ", flush=True)
        with _stand(shape, cores.replicas, cores.others) as (generator, started):
            _two(generator, [replica.port for replica in started], cores.others, found, number, seconds)
        print(flush=True)
    return found


@contextmanager
def _stand(shape: Shape, cores: Sequence[int], generates: frozenset[int]) -> Iterator[tuple[Generator, list[Replica]]]:
    with tempfile.TemporaryDirectory(prefix="capacity-") as name, replicas(shape, cores, Path(name)) as started:
        yield Generator(shape, generates, Path(name)), started


def _two(
    generator: Generator, ports: Sequence[int], cores: frozenset[int], found: Rounds, number: int, seconds: float
) -> None:
    with haproxy(ports, DEFAULT, cores) as (port, proxy):
        beside = _beside(generator, port, proxy, found.times[-1], seconds)
        found.beside.append(beside)
        capacity = len(ports) / (found.times[-1].cpu_s + beside.cpu_s)
        for step in found.comparisons:
            if step.balancer == DEFAULT:
                step.runs.append(_run(generator, port, step, capacity, number, seconds))
    for step in found.comparisons:
        if step.balancer not in (None, DEFAULT):
            with haproxy(ports, step.balancer, cores) as (port, _):
                step.runs.append(_run(generator, port, step, capacity, number, seconds))


def _beside(generator: Generator, port: int, proxy: psutil.Process, times: ServiceTimes, seconds: float) -> Beside:
    generator.one_caller(port, seconds / 4, [])
    light = generator.at(port, measure.evenly(2.0 * LIGHT / times.cpu_s, seconds), [proxy])
    if not len(light.seconds):
        raise measure.NotAnsweredError(f"behind haproxy, of {light.asked} lists none was answered")
    return Beside(light.cpu_s[0] / light.asked, light.generator_cpu_s / light.asked, float(np.median(light.seconds)))


def _run(generator: Generator, port: int, step: Comparison, capacity: float, number: int, seconds: float) -> Run:
    rate = step.load * capacity
    due = arrivals.draw(step.arrivals, rate, max(1, int(rate * seconds)), np.random.default_rng((13, number)))
    print(".", end="", flush=True)
    return Run(due, generator.at(port, due, []))


def compared(step: Comparison, times: Sequence[ServiceTimes], beside: Sequence[Beside] | None) -> dict[str, object]:
    """A load as it was measured and as it is simulated: each round with its own times, all rounds pooled.

    Args:
        step: the load.
        times: of the replica, in each round.
        beside: of what shares its core, and of haproxy's way, in each round; None where there is no haproxy.
    """
    took, refused, answered_rps = [], [], []
    for number, run in enumerate(step.runs):
        of = times[number]
        beside_s = 0.0 if beside is None else beside[number].cpu_s
        around_s = of.around_s if beside is None else beside[number].took_s - of.typical_s - beside_s
        for draw in range(_DRAWS):
            outcome = simulate(
                run.due,
                of.draw(len(run.due), np.random.default_rng((17, number, draw))),
                of.worker(beside_s=beside_s),
                replicas=step.replicas,
                balancer=step.balancer or DEFAULT,
                seed=draw,
            )
            took.append(outcome.seconds[outcome.answered] + around_s)
            refused.append(outcome.refused)
            answered_rps.append(outcome.answered.sum() / run.due[-1])
    seen = [run.seen for run in step.runs]
    measured_figures = _figures(
        np.concatenate([one.seconds for one in seen]),
        sum(one.refused for one in seen) / sum(one.asked for one in seen),
        float(np.mean([len(one.seconds) / one.took_s for one in seen])),
    )
    simulated_figures = _figures(np.concatenate(took), float(np.mean(refused)), float(np.mean(answered_rps)))
    return {
        "replicas": step.replicas,
        "balancer": step.balancer,
        "arrivals": step.arrivals,
        "load": step.load,
        "lists": sum(one.asked for one in seen),
        "failed": sum(one.other for one in seen),
        "measured": measured_figures,
        "simulated": simulated_figures,
        **{
            f"{name}_error": round(simulated_figures[name] / measured_figures[name] - 1.0, 3)
            for name in ("answered_rps", "p50_ms", "p99_ms")
        },
    }


def _figures(took_s: Float[np.ndarray, " N"], refused: float, answered_rps: float) -> dict[str, float]:
    p50, p99 = np.percentile(took_s, (50, 99)) * 1e3
    return {
        "answered_rps": round(answered_rps, 1),
        "refused": round(refused, 4),
        "p50_ms": round(float(p50), 3),
        "p99_ms": round(float(p99), 3),
    }


def report(found: Rounds) -> dict[str, object]:
    """For the results, with what is right and what is not."""
    beside = found.pooled_beside()
    there = found.beside
    if not found.shared:
        there = [replace(one, haproxy_s=0.0, generator_s=0.0) for one in there]
    rows = [compared(step, found.times, None if step.balancer is None else there) for step in found.comparisons]
    asked = [row for row in rows if row["balancer"] in (None, DEFAULT)]
    errors = {
        "throughput at saturation": [row["answered_rps_error"] for row in asked if row["load"] == SATURATED],
        "p99": [row["p99_ms_error"] for row in asked],
    }
    return {
        "within": WITHIN,
        "holds": {name: all(abs(float(str(e))) <= WITHIN for e in found) for name, found in errors.items()},
        "worst": {name: max((float(str(e)) for e in found), key=abs) for name, found in errors.items()},
        "machine_speed": found.speeds,
        "haproxy_ms_per_list": round(beside.haproxy_s * 1e3, 4),
        "generator_ms_per_list": round(beside.generator_s * 1e3, 4),
        "rows": rows,
    }
