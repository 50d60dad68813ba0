"""How much load a server sustains: ever more until it no longer does, then loads halfway in between."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass

from benchmarks.load.k6 import Step

LOST = 0.001
"""Largest share of requests without a good answer at a load that counts as sustained."""

BEYOND, MOST_BEYOND = 1.2, 4
"""Factor of each further load where even the last share was sustained, and largest number of such loads."""


@dataclass(frozen=True, slots=True)
class Observation:
    """Observation of a step of load, and of the machine during it.

    Args:
        step: Figures of k6.
        server_cpu_s: CPU seconds of the server.
        others_cores: Number of cores used by all processes except server and generator.
        speed: Speed of the machine just before, see :func:`listwright_lab.machine.speed`.
    """

    step: Step
    server_cpu_s: float
    others_cores: float
    speed: float

    @property
    def offered(self) -> float:
        """Requests a second that were due; where clients wait for their answers, those that were answered."""
        return self.step.answered_rps if self.step.offered_rps is None else self.step.offered_rps

    def sustained(self, limit_ms: float) -> bool:
        """Return whether the 99th percentile was within the limit and next to nothing was lost."""
        p99 = self.step.p99_ms
        return p99 is not None and p99 <= limit_ms and self.step.lost <= LOST

    def report(self) -> dict[str, object]:
        """Return the row for the results."""
        answered = self.step.answered
        return {
            **asdict(self.step),
            "answered_rps": round(self.step.answered_rps, 1),
            "server_cpu_ms_per_answer": round(self.server_cpu_s / answered * 1e3, 2) if answered else None,
            "others_cores": round(self.others_cores, 2),
            "machine_speed": round(self.speed),
        }


def rising_steps(
    measure: Callable[[float], Observation], peak: float, limit_ms: float, *, shares: Sequence[float], halvings: int
) -> list[Observation]:
    """Measure at these shares of the peak, upwards, until one is not sustained; then ``halvings`` in between."""
    steps: list[Observation] = []
    for share in (*shares, *(shares[-1] * BEYOND**n for n in range(1, MOST_BEYOND + 1))):
        step = tried(measure, peak * share, limit_ms)
        steps.append(step)
        if not step.sustained(limit_ms):
            break
    return bisected(measure, steps, limit_ms, halvings=halvings)


def tried(measure: Callable[[float], Observation], rate: float, limit_ms: float) -> Observation:
    """Measure a step; if it is not sustained, measure it again, and the second counts: machines pause."""
    step = measure(rate)
    return step if step.sustained(limit_ms) else measure(rate)


def bisected(
    measure: Callable[[float], Observation], steps: Iterable[Observation], limit_ms: float, *, halvings: int
) -> list[Observation]:
    """Return the steps, sorted by load, and ``halvings`` more.

    Each of these is halfway from the most sustained to the next above it.
    """
    observed = sorted(steps, key=lambda step: step.offered)
    for _ in range(halvings):
        reached = knee(observed, limit_ms)
        low = 0.0 if reached is None else reached.offered
        above = [step.offered for step in observed if step.offered > low]
        if not above:
            break
        observed = sorted([*observed, tried(measure, (low + min(above)) / 2, limit_ms)], key=lambda step: step.offered)
    return observed


def knee(steps: Iterable[Observation], limit_ms: float) -> Observation | None:
    """Return the highest load that was sustained, with every lower one; None if not even the lowest was."""
    last = None
    for step in sorted(steps, key=lambda step: step.offered):
        if not step.sustained(limit_ms):
            return last
        last = step
    return last
