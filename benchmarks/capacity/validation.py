"""The simulation beside the machine: the same arrivals at real replicas and at simulated ones.

Each load is simulated twice. The prediction has times of lists from just before and just after each part of the load.
The trace-driven simulation has those of the load itself, see :mod:`benchmarks.capacity.measured.traces`. So the
prediction is wrong where the machine changes, and the trace-driven simulation where the model is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from benchmarks.capacity.measured.rounds import DEFAULT, SATURATED, Comparison, Rounds
from benchmarks.capacity.measured.stand import Others, Run
from benchmarks.capacity.measured.traces import Trace, mean_s
from benchmarks.capacity.service_times import ServiceTimes, stretched
from benchmarks.capacity.simulated.simulation import simulate
from benchmarks.capacity.simulated.worker import Stretches, Waking

WITHIN = 0.15
"""Of the measurement: where a prediction counts as right."""

_DRAWS = 4
"""Simulations of each part, with other draws; their answers are pooled."""

FIGURES = ("answered_rps", "p50_ms", "p99_ms")
WAYS = ("predicted", "trace_driven")


@dataclass(frozen=True, slots=True)
class Answers:
    """Of real or simulated replicas.

    Args:
        seconds: ``(N,)`` of the answers.
        refused: lists.
        took_s: of the loads, one after the other.
    """

    seconds: Float[np.ndarray, " N"]
    refused: int
    took_s: float

    def figures(self) -> dict[str, float]:
        """As they are reported."""
        p50, p99 = np.percentile(self.seconds, (50, 99)) * 1e3
        return {
            "answered_rps": round(len(self.seconds) / self.took_s, 4),
            "refused": round(self.refused / (self.refused + len(self.seconds)), 4),
            "p50_ms": round(float(p50), 4),
            "p99_ms": round(float(p99), 4),
        }


def pooled(each: Sequence[Answers]) -> Answers:
    """All of them together."""
    return Answers(
        np.concatenate([one.seconds for one in each]), sum(one.refused for one in each), sum(one.took_s for one in each)
    )


def compared(step: Comparison, times: Sequence[ServiceTimes], others: Sequence[Others]) -> dict[str, Any]:
    """A load as it was measured and as it is simulated; all of its parts together, and those of each round.

    Args:
        step: the load.
        times: of the replicas, in each round.
        others: what shares their cores, in each round.
    """
    real = [Answers(run.part.seen.seconds, run.part.seen.refused, run.part.seen.took_s) for run in step.runs]
    simulated = {
        "predicted": [
            _predicted(step, run, times[run.number], others[run.number], place) for place, run in enumerate(step.runs)
        ],
        "trace_driven": [_trace_driven(step, run, times[run.number], place) for place, run in enumerate(step.runs)],
    }
    rounds = [[run.number == number for run in step.runs] for number in sorted({run.number for run in step.runs})]
    odd = [place % 2 == 1 for place in range(len(real))]
    return {
        "replicas": step.replicas,
        "balancer": step.balancer,
        "arrivals": step.arrivals,
        "load": step.load,
        "lists": sum(run.part.seen.asked for run in step.runs),
        "failed": sum(run.part.seen.other for run in step.runs),
        "measured": pooled(real).figures(),
        "p99_ms_of_rounds": [pooled(_only(real, one)).figures()["p99_ms"] for one in rounds],
        "repeated": _errors(_only(real, odd), _only(real, [not one for one in odd])) if any(odd) else {},
        **{way: {**pooled(found).figures(), **_errors(found, real)} for way, found in simulated.items()},
        **{
            f"{way}_rounds": [_errors(_only(found, one), _only(real, one)) for one in rounds]
            for way, found in simulated.items()
        },
    }


def _only(each: Sequence[Answers], where: Sequence[bool]) -> list[Answers]:
    return [one for one, wanted in zip(each, where, strict=True) if wanted]


def _errors(told: Sequence[Answers], real: Sequence[Answers]) -> dict[str, float]:
    """Of each figure, over the real one."""
    told_figures, real_figures = pooled(told).figures(), pooled(real).figures()
    return {f"{name}_error": round(told_figures[name] / real_figures[name] - 1.0, 3) for name in FIGURES}


def _predicted(step: Comparison, run: Run, times: ServiceTimes, others: Others, place: int) -> Answers:
    """Simulate with the times of busy replicas just before and just after, slow moments included."""
    each, rng = [], np.random.default_rng((23, place))
    rate = len(run.part.due) / float(run.part.due[-1]) / step.replicas
    for draw in range(_DRAWS):
        traces = run.near[draw % len(run.near)]
        typical_s = mean_s(traces)
        now = times.scaled(typical_s / times.cpu_s)
        shared = now.scaled(stretched(rate * others.both_s * typical_s / others.replica_s))
        ahead = rng.uniform()  # of all replicas: a slow moment may meet them together
        looped = [trace.looped(typical_s) for trace in traces]
        slowness = [replace(one, ahead_s=ahead * one.span_s) for one in looped]
        each.append(
            _simulated(step, run, replace(shared, spread=_spread(traces)), slowness, now.around_s, (place, draw))
        )
    return pooled(each)


def _trace_driven(step: Comparison, run: Run, times: ServiceTimes, place: int) -> Answers:
    """Simulate with the times of the load itself: simulated lists take as long as those that the real replica answered
    then, on average, and spread as these around it.
    """
    refusal = times.refusal_s / times.cpu_s
    typical_s = mean_s(run.part.traces, refusal)
    now = times.scaled(typical_s / times.cpu_s)
    shared = replace(now.scaled(stretched(run.part.shared)), spread=_spread(run.part.traces), waking=Waking())
    slowness = [trace.slowness(refusal, typical_s) for trace in run.part.traces]
    return pooled([_simulated(step, run, shared, slowness, now.around_s, (place, draw)) for draw in range(_DRAWS)])


def _spread(traces: Sequence[Trace]) -> Float[np.ndarray, " N"]:
    return np.concatenate([trace.spread() for trace in traces])


def _simulated(
    step: Comparison,
    run: Run,
    times: ServiceTimes,
    slowness: Sequence[Stretches],
    around_s: float,
    seed: tuple[int, int],
) -> Answers:
    due = run.part.due
    outcome = simulate(
        due,
        times.draw(len(due), np.random.default_rng((17, *seed))),
        times.worker(),
        replicas=step.replicas,
        balancer=step.balancer or DEFAULT,
        slowness=slowness,
        seed=seed[0] * _DRAWS + seed[1],
    )
    return Answers(outcome.seconds[outcome.answered] + around_s, int((~outcome.answered).sum()), run.part.seen.took_s)


def report(found: Rounds) -> dict[str, object]:
    """For the results, with what is right and what is not.

    A trace has the CPU time of each answer, and at saturation that is nearly the throughput.
    """
    nothing = [Others(0.0, 0.0, 1.0)] * len(found.alone)
    rows = [
        compared(step, found.alone, nothing)
        if step.replicas == 1
        else compared(step, found.behind, found.others if found.shared else nothing)
        for step in found.comparisons
    ]
    saturated = [row for row in rows if row["load"] == SATURATED]
    told = [
        ("throughput at saturation", "answered_rps", saturated),
        ("p50", "p50_ms", rows),
        ("p99", "p99_ms", rows),
    ]
    return {
        "within": WITHIN,
        "cpu_ms_of_busy": {"1": _busy_ms(found, 1), "2": _busy_ms(found, 2)},
        "verdicts": [
            _verdict(figure, way, name, of) for figure, name, of in told for way in ("repeated", *WAYS) if of[0][way]
        ],
        "rows": rows,
    }


def _busy_ms(found: Rounds, replicas: int) -> list[float]:
    """CPU time of a list that always waits, just before and after each part: the least, the median and the most."""
    runs = [run for step in found.comparisons if step.replicas == replicas for run in step.runs]
    each = [mean_s(traces) for run in runs for traces in run.near]
    return [round(float(value) * 1e3, 3) for value in np.percentile(each, (0, 50, 100))]


def _verdict(figure: str, way: str, name: str, rows: Sequence[dict[str, Any]]) -> dict[str, object]:
    """How many loads and single rounds are right, and the worst load."""
    loads = [row[way][f"{name}_error"] for row in rows]
    rounds = [one[f"{name}_error"] for row in rows for one in row.get(f"{way}_rounds", [])]
    return {
        "figure": figure,
        "way": way,
        "worst": max(loads, key=abs),
        "loads": len(loads),
        "loads_within": sum(abs(error) <= WITHIN for error in loads),
        "rounds": len(rounds),
        "rounds_within": sum(abs(error) <= WITHIN for error in rounds),
    }
