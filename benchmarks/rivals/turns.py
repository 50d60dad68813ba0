"""Ours and the best rival in turns: a machine whose speed changes by the minute is the same for both.

Both servers run all the time, and only one is asked at a time: the rival what it sustained under rising load, then
ours, in each format, a multiple of that. A step asks for more or for less as the machine is faster or slower just
before than it was when the rival sustained that, and is tried once more where the limit is not kept. What counts is the
median over the rounds: a multiple is carried where our 99th percentile stays within the rival's, and next to nothing is
lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median

from benchmarks.load.k6 import Step
from benchmarks.rivals.contenders import OURS, Contender
from benchmarks.rivals.measure import Bench, observed_at, ready, started
from benchmarks.rivals.rising_load import LOST, Observation, tried

MULTIPLES = (2.0, 2.5, 3.0, 3.5)


@dataclass(frozen=True, slots=True)
class Turns:
    """Steps of one server at one load, in all rounds."""

    steps: tuple[Step, ...]

    @property
    def p99_ms(self) -> float:
        """Median over the rounds; infinite where nothing was answered."""
        return median(float("inf") if step.p99_ms is None else step.p99_ms for step in self.steps)

    @property
    def lost(self) -> float:
        """Median over the rounds of the share without a good answer."""
        return median(step.lost for step in self.steps)

    def report(self) -> dict[str, object]:
        """Return the row for the results."""
        return {
            "offered_rps_by_round": [step.offered_rps for step in self.steps],
            "p99_ms": self.p99_ms,
            "lost": round(self.lost, 5),
            "p99_ms_by_round": [step.p99_ms for step in self.steps],
            "lost_by_round": [round(step.lost, 5) for step in self.steps],
        }


def in_turns(bench: Bench, rival: Contender, sustained: Observation) -> dict[str, object]:
    """Measure all rounds.

    Args:
        bench: Settings that all servers are measured with.
        rival: Rival to measure, in its first format.
        sustained: Highest load that the rival sustained under rising load.
    """
    rate, speed, limit_ms = sustained.offered, sustained.speed, bench.limit_ms
    print(f"{rival.title} and {OURS.title} in turns", end=" ", flush=True)
    theirs = list[Step]()
    ours: dict[tuple[str, float], list[Step]] = {}
    with started(bench, rival) as (their_server, their_place), started(bench, OURS) as (server, place):
        their_target = ready(bench, their_server, their_place, rival.formats[0])
        they = partial(observed_at, bench, their_server, their_target, as_at_speed=speed)
        targets = {request_format.name: ready(bench, server, place, request_format) for request_format in OURS.formats}
        formats = {
            name: partial(observed_at, bench, server, target, as_at_speed=speed) for name, target in targets.items()
        }
        for _ in range(bench.plan.rounds):
            for multiple in MULTIPLES:
                theirs.append(tried(they, rate, limit_ms).step)
                for name, we in formats.items():
                    step = tried(we, multiple * rate, limit_ms).step
                    ours.setdefault((name, multiple), []).append(step)
    print(flush=True)
    return summary(rival.title, bench.plan.rounds, theirs, ours, bench.limit_ms)


def summary(
    title: str, rounds: int, theirs: Sequence[Step], ours: Mapping[tuple[str, float], Sequence[Step]], limit_ms: float
) -> dict[str, object]:
    """Return the rounds as the results have them, and the most that each format carried."""
    rival = Turns(tuple(theirs))
    within_ms = min(limit_ms, rival.p99_ms)
    formats: dict[str, dict[str, object]] = {}
    for (name, multiple), steps in ours.items():
        turns = Turns(tuple(steps))
        of_format = formats.setdefault(name, {"carried": None, "multiples": {}})
        multiples = of_format["multiples"]
        assert isinstance(multiples, dict)
        below = multiple == MULTIPLES[0] or of_format["carried"] == MULTIPLES[MULTIPLES.index(multiple) - 1]
        if below and turns.p99_ms <= within_ms and turns.lost <= LOST:
            of_format["carried"] = multiple
        multiples[f"{multiple:g}"] = turns.report()
    return {"rival": title, "rounds": rounds, "rivals": rival.report(), "within_ms": within_ms, "ours": formats}


def sentences(result: Mapping[str, object]) -> list[str]:
    """Return in words what each format carried."""
    formats, lines = result["ours"], list[str]()
    assert isinstance(formats, dict)
    for name, of_format in formats.items():
        most = f"{of_format['carried']:g} times" if of_format["carried"] else f"less than {MULTIPLES[0]:g} times"
        lines.append(f"in turns with {result['rival']}, {name}: {most} its load within its p99")
    return lines
