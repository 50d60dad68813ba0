"""What one list takes on one core: measured on real replicas, and simulated on many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from benchmarks.capacity.simulated.worker import Stretches, Waking, Worker, joined
from listwright.service.settings import Settings

MOST_SHARED = 0.9
"""Of a core, that others are taken to need at most."""


def stretched(share: float) -> float:
    """Times as long all takes where others have this share of the core."""
    return 1.0 / (1.0 - min(share, MOST_SHARED))


@dataclass(frozen=True, slots=True)
class ServiceTimes:
    """Of one list on one core that does nothing else; seconds.

    Args:
        cpu_s: the process takes for one list while it never sleeps: all of it, also what follows the answer.
        spread: ``(N,)`` of single lists, over the mean of lists at the same time.
        slowness: of a replica while it never sleeps, over ``cpu_s``; its span is finite.
        waking: what the process takes beyond that for a list that finds it asleep.
        around_s: a caller waits beyond what the process takes. Below 0 where the process works on after its answer.
        intake_s: from a request's first byte until its turn begins, where nothing else waits.
        refusal_s: the process takes for one refusal.
    """

    cpu_s: float
    spread: Float[np.ndarray, " N"]
    slowness: Stretches
    waking: Waking
    around_s: float
    intake_s: float
    refusal_s: float

    def scaled(self, factor: float) -> ServiceTimes:
        """These on a machine on which all takes so many times as long."""
        return replace(
            self,
            cpu_s=self.cpu_s * factor,
            waking=self.waking.scaled(factor),
            around_s=self.around_s * factor,
            intake_s=self.intake_s * factor,
            refusal_s=self.refusal_s * factor,
        )

    def worker(self) -> Worker:
        """A replica with the settings that it has by default."""
        settings = {name: field.default for name, field in Settings.model_fields.items()}
        return Worker(
            intake_s=self.intake_s,
            refusal_s=self.refusal_s,
            waking=self.waking,
            threads=settings["threads"],
            places=settings["queue"],
            patience_s=settings["queue_ms"] / 1e3,
        )

    def draw(self, count: int, rng: np.random.Generator) -> Float[np.ndarray, " M"]:
        """``(count,)`` times of the event loop for one list, intake excluded: of the mean that was measured, and spread
        as single lists were. :attr:`slowness` is not in them.
        """
        drawn: Float[np.ndarray, " M"] = (self.cpu_s - self.intake_s) * rng.choice(self.spread, count)
        return drawn

    def replicas(self, count: int, rng: np.random.Generator) -> list[Stretches]:
        """The slowness of so many replicas, each of which begins at another time of what was measured."""
        return [replace(self.slowness, ahead_s=ahead) for ahead in rng.uniform(0.0, self.slowness.span_s, count)]


def pooled(times: Sequence[ServiceTimes]) -> ServiceTimes:
    """Means of several measurements, their spreads together, and their slownesses one after the other."""

    def mean(name: str) -> float:
        return float(np.mean([getattr(one, name) for one in times]))

    slept_s, more_s = (
        tuple(np.mean([getattr(one.waking, name) for one in times], axis=0).tolist()) for name in ("slept_s", "more_s")
    )
    cpu_s = mean("cpu_s")
    return ServiceTimes(
        cpu_s=cpu_s,
        spread=np.concatenate([one.spread for one in times]),
        slowness=joined(
            [
                replace(one.slowness, ratios=tuple(ratio * one.cpu_s / cpu_s for ratio in one.slowness.ratios))
                for one in times
            ]
        ),
        waking=Waking(slept_s, more_s),
        around_s=mean("around_s"),
        intake_s=mean("intake_s"),
        refusal_s=mean("refusal_s"),
    )
