"""How many replicas a load needs for a 99th percentile, and what they cost."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from benchmarks.capacity.service_times import ServiceTimes
from benchmarks.capacity.simulated import arrivals
from benchmarks.capacity.simulated.arrivals import Arrivals
from benchmarks.capacity.simulated.balancers import Balancer
from benchmarks.capacity.simulated.simulation import simulate

RATES = (1_000, 10_000, 100_000, 1_000_000)
"""Lists a second."""

SPARE = 1
"""Replicas beyond those that the load needs: one may end."""

MARGIN = 0.15
"""How much more than the load the replicas must carry: an assumption, of how much slower a machine may become."""

REFUSED = 0.001
"""Share of the lists that may be refused where a load counts as carried."""

CELL = 32
"""Most replicas that are simulated together. A larger load is shared by such cells, each with a balancer of its own."""

LISTS = {"poisson": 200_000, "bursty": 800_000}
"""That are simulated: enough for several bursts."""

FINE = 0.01
"""How closely the load of a cell is found."""


class UnreachableError(Exception):
    """No number of replicas keeps to the target: says how much one list alone takes."""


@dataclass(frozen=True, slots=True)
class Target:
    """What a load is carried within.

    Args:
        times: of one replica.
        p99_s: 99th percentile of the answers, as callers see it.
        around_s: that callers wait beyond what replicas take.
        balancer: the rule.
    """

    times: ServiceTimes
    p99_s: float
    around_s: float
    balancer: Balancer

    def carried(self, rate: float, replicas: int, kind: Arrivals, *, seed: int = 0) -> bool:
        """Whether so many replicas carry so many lists a second."""
        figures = against_load(self, rate, replicas, kind, count=LISTS[kind], seed=seed)
        return figures["p99_ms"] <= self.p99_s * 1e3 and figures["refused"] <= REFUSED


def against_load(
    target: Target, rate: float, replicas: int, kind: Arrivals, *, count: int, seed: int = 0
) -> dict[str, float]:
    """Simulated: percentiles of the answers in milliseconds, and the share that is refused."""
    rng = np.random.default_rng((seed, replicas))
    due, ranking_s = arrivals.draw(kind, rate, count, rng), target.times.draw(count, rng)
    outcome = simulate(
        due,
        ranking_s,
        target.times.worker(),
        replicas=replicas,
        balancer=target.balancer,
        slowness=target.times.replicas(replicas, rng),
        seed=seed,
    )
    return {
        "p50_ms": round((outcome.percentile_s(50) + target.around_s) * 1e3, 3),
        "p99_ms": round((outcome.percentile_s(99) + target.around_s) * 1e3, 3),
        "refused": round(outcome.refused, 5),
    }


def cell_rate(target: Target, kind: Arrivals) -> float:
    """Most lists a second for a cell of :data:`CELL` replicas.

    Raises:
        UnreachableError: if it does not even carry a little.
    """
    whole = CELL / target.times.cpu_s
    low, high = FINE, 1.0
    if not target.carried(low * whole, CELL, kind):
        light_ms = against_load(target, low * whole, CELL, kind, count=LISTS[kind])["p99_ms"]
        raise UnreachableError(
            f"--p99-ms {target.p99_s * 1e3:g}: a light load has a 99th percentile of {light_ms:.1f} ms; give more"
            f" (or it has more refusals than 1 in {1 / REFUSED:,.0f}: use a quieter machine)"
        )
    while high - low > FINE:
        middle = (low + high) / 2
        low, high = (middle, high) if target.carried(middle * whole, CELL, kind) else (low, middle)
    return low * whole


def needed(target: Target, rate: float, kind: Arrivals, most_of_a_cell: float) -> int:
    """Fewest replicas that carry ``rate``, without the spare.

    Args:
        target: what counts as carried.
        rate: lists a second.
        kind: of the arrivals.
        most_of_a_cell: what :func:`cell_rate` returned.
    """
    if rate > most_of_a_cell:
        return math.ceil(rate / most_of_a_cell * CELL)
    low, high = math.ceil(rate * target.times.cpu_s), CELL
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if target.carried(rate, middle, kind) else (middle + 1, high)
    return low


def plan(target: Target, price: float) -> list[dict[str, object]]:
    """A row for each kind of arrivals and each rate.

    Args:
        target: what counts as carried.
        price: of one core for one hour. A replica has one core.

    Raises:
        UnreachableError: if the target is out of reach.
    """
    rows: list[dict[str, object]] = []
    for kind in arrivals.ARRIVALS:
        most = cell_rate(target, kind)
        for rate in RATES:
            fewest = needed(target, rate * (1.0 + MARGIN), kind, most)
            replicas = fewest + SPARE
            rows.append(
                {
                    "arrivals": kind,
                    "lists_per_second": rate,
                    "replicas_needed": fewest,
                    "replicas": replicas,
                    "utilisation": round(rate * target.times.cpu_s / replicas, 3),
                    "cost_per_hour": round(replicas * price, 2),
                    "cost_per_million_lists": round(replicas * price / (rate * 3600) * 1e6, 5),
                }
            )
    return rows
