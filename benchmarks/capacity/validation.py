"""The simulation beside the machine: the same arrivals at real replicas and at simulated ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import median

import numpy as np
from jaxtyping import Float

from benchmarks.capacity.measure import ServiceTimes
from benchmarks.capacity.rounds import DEFAULT, SATURATED, Beside, Comparison, Rounds, Run
from benchmarks.capacity.simulation import simulate

WITHIN = 0.15
"""Of the measurement: where a prediction counts as right."""

_DRAWS = 5
"""Simulations of each run, with other service times; their answers are pooled."""


FIGURES = ("answered_rps", "refused", "p50_ms", "p99_ms")


def compared(step: Comparison, times: Sequence[ServiceTimes], beside: Sequence[Beside] | None) -> dict[str, object]:
    """A load as it was measured and as it is simulated, each round with its own times; medians of the rounds.

    Args:
        step: the load.
        times: of the replica, in each round; the CPU time of a list is that of just before each run.
        beside: of what shares its core, and of haproxy's way, in each round; None where there is no haproxy.
    """
    seen = [run.seen for run in step.runs]
    real = [_figures(one.seconds, one.refused / one.asked, len(one.seconds) / one.took_s) for one in seen]
    simulated = [
        _simulated(step, run, times[number], None if beside is None else beside[number])
        for number, run in enumerate(step.runs)
    ]
    errors = {
        name: [told[name] / was[name] - 1.0 for told, was in zip(simulated, real, strict=True)]
        for name in FIGURES
        if name != "refused"
    }
    return {
        "replicas": step.replicas,
        "balancer": step.balancer,
        "arrivals": step.arrivals,
        "load": step.load,
        "lists": sum(one.asked for one in seen),
        "failed": sum(one.other for one in seen),
        "measured": {name: round(median(one[name] for one in real), 4) for name in FIGURES},
        "simulated": {name: round(median(one[name] for one in simulated), 4) for name in FIGURES},
        **{f"{name}_error": round(median(found), 3) for name, found in errors.items()},
        "p99_ms_errors": [round(error, 3) for error in errors["p99_ms"]],
    }


def _simulated(step: Comparison, run: Run, times: ServiceTimes, beside: Beside | None) -> dict[str, float]:
    """One round: answers of several simulations, pooled."""
    times = times.taking(run.cpu_s)
    beside_s = 0.0 if beside is None else beside.cpu_s
    around_s = times.around_s if beside is None else beside.took_s - times.typical_s - beside_s
    took, refused = [], []
    for draw in range(_DRAWS):
        outcome = simulate(
            run.due,
            times.draw(len(run.due), np.random.default_rng((17, draw))),
            times.worker(beside_s=beside_s),
            replicas=step.replicas,
            balancer=step.balancer or DEFAULT,
            seed=draw,
        )
        took.append(outcome.seconds[outcome.answered] + around_s)
        refused.append(outcome.refused)
    answers = np.concatenate(took)
    return _figures(answers, float(np.mean(refused)), len(answers) / _DRAWS / float(run.due[-1]))


def _figures(took_s: Float[np.ndarray, " N"], refused: float, answered_rps: float) -> dict[str, float]:
    p50, p99 = np.percentile(took_s, (50, 99)) * 1e3
    return {
        "answered_rps": answered_rps,
        "refused": refused,
        "p50_ms": float(p50),
        "p99_ms": float(p99),
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
