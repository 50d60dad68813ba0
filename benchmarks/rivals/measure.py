"""Measurement of one server in one format: started, compared with ours, warmed up, and loaded more and more."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import psutil

from benchmarks import wide_bundle
from benchmarks.load import k6
from benchmarks.load.k6 import Step, Target
from benchmarks.rivals.contenders import OURS, Contender, Format, Place
from benchmarks.rivals.cores import Cores, on
from benchmarks.rivals.environments import BUILD, prepare, versions
from benchmarks.rivals.processes import NotServingError, Server, first_answer, free_port, running
from benchmarks.rivals.report import Result
from benchmarks.rivals.rising_load import Observation, bisected, rising_steps
from listwright.ranking import bundle
from listwright.ranking.candidates import CandidateList
from listwright_lab import machine

CANDIDATES, PROBE = 100, 150
"""Length of the lists under load, and of the one that all must rank alike: some of it is below the cutoff."""

LISTS, CLIENTS = 4, 4


@dataclass(frozen=True, slots=True)
class Plan:
    """Duration and resolution of the measurements."""

    warm_up_s: int
    peak_s: int
    step_s: int
    shares: tuple[float, ...]
    halvings: int
    rounds: int


WHOLE = Plan(warm_up_s=3, peak_s=8, step_s=8, shares=(0.4, 0.7, 0.85, 1.0), halvings=2, rounds=3)
QUICK = Plan(warm_up_s=1, peak_s=2, step_s=2, shares=(0.5,), halvings=0, rounds=1)


class DisagreementError(Exception):
    """A server ranks the probe list in another order."""


@dataclass(frozen=True, slots=True)
class Bench:
    """Settings that all servers are measured with."""

    k6: Path
    bundle: Path
    cores: Cores
    plan: Plan
    limit_ms: float


def measure(bench: Bench, contender: Contender, request_format: Format, limits: Sequence[float]) -> Result:
    """Measure the load that a contender carries within each of the limits.

    Raises:
        NotInstallableError: if its environment cannot be made.
        NotServingError: if it does not start, stops, or refuses a few clients.
        DisagreementError: if it ranks otherwise than we do.
    """
    began = time.perf_counter()
    with started(bench, contender) as (server, place):
        target = ready(bench, server, place, request_format)
        ready_s = time.perf_counter() - began
        body_bytes = target.bodies[0].stat().st_size
        peak, steps = _under_load(bench, server, target, limits)
    return Result(
        title=contender.title,
        request_format=request_format.name,
        ours=contender is OURS,
        versions={} if contender.environment is None else versions(contender.environment, contender.name),
        body_bytes=body_bytes,
        ready_s=ready_s,
        peak=peak,
        steps=tuple(steps),
    )


@contextmanager
def started(bench: Bench, contender: Contender) -> Iterator[tuple[Server, Place]]:
    """Start a server in its environment, with its output in a log."""
    programs = Path(sys.executable).parent if contender.environment is None else prepare(contender.environment)
    with TemporaryDirectory(prefix="rivals-") as scratch:  # a short path: Ray Serve puts sockets there
        place = Place(programs, free_port(), bench.cores.workers, bench.bundle, Path(scratch))
        command, environment = contender.start(place)
        log = BUILD / f"{contender.name}.log"
        environment |= {"RIVALS_BUNDLE": str(bench.bundle), "RIVALS_WORKERS": str(bench.cores.workers)}
        with running(command, environment, log, bench.cores.servers) as server:
            yield server, place


def ready(bench: Bench, server: Server, place: Place, request_format: Format) -> Target:
    """Return what to send, once the server ranks a list in this format as we do.

    Bodies are written once, so that sending them costs little.
    """
    reranker = bundle.load(bench.bundle).reranker
    names, rng = reranker.schema.names, np.random.default_rng(3)
    bodies = []
    for number in range(LISTS):
        bodies.append(place.scratch / f"{request_format.name}-{number}")
        bodies[-1].write_bytes(request_format.write(wide_bundle.rows(rng, CANDIDATES), names))
    probe = wide_bundle.rows(rng, PROBE)
    answer = first_answer(
        server, place.port, request_format.path, request_format.content_type, request_format.write(probe, names)
    )
    ranks = wide_bundle.check_route(reranker.rerank(CandidateList(probe))).ranks
    if not np.array_equal(request_format.read(answer), ranks):
        raise DisagreementError(f"it ranks the {PROBE} candidates of the probe in another order than we do")
    return Target(f"http://127.0.0.1:{place.port}{request_format.path}", request_format.content_type, tuple(bodies))


def _under_load(
    bench: Bench, server: Server, target: Target, limits: Sequence[float]
) -> tuple[Observation, list[Observation]]:
    plan = bench.plan

    def at_rate(rate: float) -> Observation:
        return observed_at(bench, server, target, rate)

    def by_clients(seconds: int) -> Observation:
        return _observe(bench, server, machine.speed(), lambda: k6.by_clients(bench.k6, target, CLIENTS, seconds))

    by_clients(plan.warm_up_s)
    server.settle()
    peak = by_clients(plan.peak_s)
    if peak.step.lost > 0:
        raise NotServingError(f"of {CLIENTS} clients, {peak.step.lost:.0%} of the requests got no good answer")
    steps = rising_steps(at_rate, peak.offered, limits[0], shares=plan.shares, halvings=plan.halvings)
    for limit in limits[1:]:
        steps = bisected(at_rate, steps, limit, halvings=plan.halvings)
    print(f" peak {peak.offered:.0f} req/s", flush=True)
    return peak, steps


def observed_at(
    bench: Bench, server: Server, target: Target, rate: float, *, as_at_speed: float | None = None
) -> Observation:
    """Measure one step at a constant arrival rate.

    Args:
        bench: Settings of the measurement.
        server: Server under load.
        target: Address and bodies of the requests.
        rate: Requests a second.
        as_at_speed: Speed of the machine for which the rate is meant, so that more are sent on a faster one; None to
            send the rate as it is.
    """
    server.settle()
    speed = machine.speed()
    if as_at_speed is not None:
        rate *= speed / as_at_speed
    observed = _observe(bench, server, speed, lambda: k6.at_rate(bench.k6, target, rate, bench.plan.step_s))
    print(".", end="", flush=True)
    return observed


def _observe(bench: Bench, server: Server, speed: float, run: Callable[[], Step]) -> Observation:
    """Measure a step, the machine's speed before it, and the CPU time of others than its generator meanwhile."""
    began, busy_s, server_s = time.monotonic(), _busy_s(), server.cpu_s()
    with on(bench.cores.generator):
        step = run()
    elapsed, server_s = time.monotonic() - began, server.cpu_s() - server_s
    others = (_busy_s() - busy_s - server_s - step.generator_cpu_s) / elapsed
    return Observation(step, server_s, max(0.0, others), speed)


def _busy_s() -> float:
    """Return the CPU seconds that this machine has worked."""
    times = psutil.cpu_times()
    return float(times.user + times.system + times.nice + times.irq + times.softirq + times.steal)
