"""The simulation beside the machine: the same arrivals at real replicas and at simulated ones.

Each load is simulated twice. The prediction has the times of a list that were measured before the load. The
trace-driven simulation has those of the load itself, see :mod:`benchmarks.capacity.measured.traces`. So the prediction
is wrong where the machine changes, and the trace-driven simulation where the model is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np
from jaxtyping import Float

from benchmarks.capacity.measured.rounds import DEFAULT, SATURATED, Beside, Comparison, Rounds, Run
from benchmarks.capacity.service_times import ServiceTimes, stretched
from benchmarks.capacity.simulated.simulation import Outcome, simulate
from benchmarks.capacity.simulated.worker import Waking

WITHIN = 0.15
"""Of the measurement: where a prediction counts as right."""

_DRAWS = 5
"""Simulations of each run, with other draws; their answers are pooled."""

FIGURES = ("answered_rps", "refused", "p50_ms", "p99_ms")
WAYS = ("predicted", "trace_driven")


def compared(step: Comparison, times: Sequence[ServiceTimes], beside: Sequence[Beside] | None) -> dict[str, Any]:
    """A load as it was measured and as it is simulated; medians of the rounds.

    Args:
        step: the load.
        times: of the replica, in each round.
        beside: of what shares its core, and of haproxy's way, in each round; None where there is no haproxy.
    """
    seen = [run.seen for run in step.runs]
    real = [_figures(one.seconds, one.refused / one.asked, len(one.seconds) / one.took_s) for one in seen]
    rounds = [
        (step, run, times[number], None if beside is None else beside[number]) for number, run in enumerate(step.runs)
    ]
    simulated = {
        "predicted": [_predicted(*each) for each in rounds],
        "trace_driven": [_trace_driven(*each) for each in rounds],
    }
    return {
        "replicas": step.replicas,
        "balancer": step.balancer,
        "arrivals": step.arrivals,
        "load": step.load,
        "lists": sum(one.asked for one in seen),
        "failed": sum(one.other for one in seen),
        "measured": {name: round(median(one[name] for one in real), 4) for name in FIGURES},
        **{way: _beside_real(found, real) for way, found in simulated.items()},
    }


def _beside_real(simulated: Sequence[dict[str, float]], real: Sequence[dict[str, float]]) -> dict[str, object]:
    """Medians of the rounds; errors of each round, and the one of median size."""
    errors = {
        name: [round(told[name] / was[name] - 1.0, 3) for told, was in zip(simulated, real, strict=True)]
        for name in FIGURES
        if name != "refused"
    }
    return {
        **{name: round(median(one[name] for one in simulated), 4) for name in FIGURES},
        **{f"{name}_error": sorted(found, key=abs)[len(found) // 2] for name, found in errors.items()},
        **{f"{name}_errors": found for name, found in errors.items()},
    }


def _predicted(step: Comparison, run: Run, times: ServiceTimes, beside: Beside | None) -> dict[str, float]:
    """One round, by the times that were measured before: lists take as long as just before the run."""
    now = times.scaled(run.before_s / times.cpu_s)
    if beside is not None:
        others_s = beside.others_s * run.before_s / beside.replica_s
        now = now.scaled(stretched(len(run.due) / float(run.due[-1]) / step.replicas * others_s))

    def outcome(draw: int) -> Outcome:
        ranking_s = now.draw(len(run.due), np.random.default_rng((17, draw)))
        return simulate(
            run.due,
            ranking_s,
            now.worker(),
            replicas=step.replicas,
            balancer=step.balancer or DEFAULT,
            seed=draw,
        )

    return _pooled(run, outcome, _around_s(run, times, beside))


def _trace_driven(step: Comparison, run: Run, times: ServiceTimes, beside: Beside | None) -> dict[str, float]:
    """One round, by its own times: simulated lists take as long as those that the real replica answered then, on
    average, and spread as these around it.
    """
    refusal = times.refusal_s / times.cpu_s
    spread = np.concatenate([trace.spread() for trace in run.traces])
    typical_s = float(np.concatenate([trace.took_s(refusal) for trace in run.traces]).mean())
    now = replace(times.scaled(typical_s / times.cpu_s * stretched(run.shared)), waking=Waking())

    def outcome(draw: int) -> Outcome:
        return simulate(
            run.due,
            (now.cpu_s - now.intake_s) * np.random.default_rng((19, draw)).choice(spread, len(run.due)),
            now.worker(),
            replicas=step.replicas,
            balancer=step.balancer or DEFAULT,
            slowness=[trace.slowness(refusal, typical_s) for trace in run.traces],
            seed=draw,
        )

    return _pooled(run, outcome, _around_s(run, times, beside))


def _around_s(run: Run, times: ServiceTimes, beside: Beside | None) -> float:
    """What callers wait beyond what replicas take, on the machine as it was just before."""
    lists = times.around_s / times.cpu_s if beside is None else beside.around_s / beside.replica_s
    return lists * run.before_s


def _pooled(run: Run, outcome: Callable[[int], Outcome], around_s: float) -> dict[str, float]:
    """Of several simulations, by the number of their draws."""
    outcomes = [outcome(draw) for draw in range(_DRAWS)]
    answers = np.concatenate([one.seconds[one.answered] for one in outcomes]) + around_s
    refused = float(np.mean([one.refused for one in outcomes]))
    return _figures(answers, refused, len(answers) / _DRAWS / float(run.due[-1]))


def _figures(took_s: Float[np.ndarray, " N"], refused: float, answered_rps: float) -> dict[str, float]:
    p50, p99 = np.percentile(took_s, (50, 99)) * 1e3
    return {
        "answered_rps": answered_rps,
        "refused": refused,
        "p50_ms": float(p50),
        "p99_ms": float(p99),
    }


def report(found: Rounds) -> dict[str, object]:
    """For the results, with what is right and what is not.

    A trace has the CPU time of each answer, and at saturation that is nearly the throughput.
    """
    beside = found.beside
    if not found.shared:
        beside = [replace(one, haproxy_s=0.0, generator_s=0.0) for one in beside]
    rows = [compared(step, found.times, None if step.balancer is None else beside) for step in found.comparisons]
    saturated = [row for row in rows if row["load"] == SATURATED]
    told = [
        ("throughput at saturation", "answered_rps", saturated),
        ("p50", "p50_ms", rows),
        ("p99", "p99_ms", rows),
    ]
    return {
        "within": WITHIN,
        "cpu_ms_before_loads": {str(count): _before_ms(found, count) for count in (1, 2)},
        "verdicts": [_verdict(figure, way, name, of) for figure, name, of in told for way in WAYS],
        "rows": rows,
    }


def _before_ms(found: Rounds, replicas: int) -> list[float]:
    """CPU time of a list just before each load: the least, the median and the most."""
    runs = [run for step in found.comparisons if step.replicas == replicas for run in step.runs]
    return [round(float(value) * 1e3, 3) for value in np.percentile([run.before_s for run in runs], (0, 50, 100))]


def _verdict(figure: str, way: str, name: str, rows: Sequence[dict[str, Any]]) -> dict[str, object]:
    """How many loads and single rounds are right, and the worst load."""
    loads = [row[way][f"{name}_error"] for row in rows]
    rounds = [error for row in rows for error in row[way][f"{name}_errors"]]
    return {
        "figure": figure,
        "way": way,
        "worst": max(loads, key=abs),
        "loads": len(loads),
        "loads_within": sum(abs(error) <= WITHIN for error in loads),
        "rounds": len(rounds),
        "rounds_within": sum(abs(error) <= WITHIN for error in rounds),
    }
