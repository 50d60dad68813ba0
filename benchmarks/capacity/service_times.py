"""What one list takes on one core: measured on real replicas, and simulated on many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from benchmarks.capacity.simulated.worker import Waking, Worker
from listwright.service.settings import Settings

BLOCK = 64
"""Lists in a row whose times are drawn together: a slow moment of the machine meets more than one list."""

LEAST_SHARE = 0.2
"""Of the mean service time: the least that one is taken for. The share of the network in a time varies, too."""

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
        took_s: ``(N,)`` as one caller sees each, in their order.
        waking: what the process takes beyond that for a list that finds it asleep.
        around_s: a caller waits beyond what the process takes. Below 0 where the process works on after its answer.
        intake_s: from a request's first byte until its turn begins, where nothing else waits.
        refusal_s: the process takes for one refusal.
    """

    cpu_s: float
    took_s: Float[np.ndarray, " N"]
    waking: Waking
    around_s: float
    intake_s: float
    refusal_s: float

    def scaled(self, factor: float) -> ServiceTimes:
        """These on a machine on which all takes so many times as long."""
        return ServiceTimes(
            self.cpu_s * factor,
            self.took_s * factor,
            self.waking.scaled(factor),
            self.around_s * factor,
            self.intake_s * factor,
            self.refusal_s * factor,
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
        as what the caller saw, in blocks of :data:`BLOCK` lists that followed each other (moving block bootstrap,
        Künsch 1989).
        """
        spread = self.took_s - self.took_s.mean()
        ranking_s = self.cpu_s - self.intake_s
        whole = np.maximum(ranking_s + spread, LEAST_SHARE * ranking_s)
        whole *= ranking_s / whole.mean()
        block = min(BLOCK, len(whole))
        starts = rng.integers(len(whole) - block + 1, size=-(-count // block))
        drawn: Float[np.ndarray, " M"] = whole[(starts[:, None] + np.arange(block)).ravel()[:count]]
        return drawn


def pooled(times: Sequence[ServiceTimes]) -> ServiceTimes:
    """Means of several measurements, and all times that callers saw."""

    def mean(name: str) -> float:
        return float(np.mean([getattr(one, name) for one in times]))

    slept_s, more_s = (
        tuple(np.mean([getattr(one.waking, name) for one in times], axis=0).tolist()) for name in ("slept_s", "more_s")
    )
    return ServiceTimes(
        cpu_s=mean("cpu_s"),
        took_s=np.concatenate([one.took_s for one in times]),
        waking=Waking(slept_s, more_s),
        around_s=mean("around_s"),
        intake_s=mean("intake_s"),
        refusal_s=mean("refusal_s"),
    )
