"""What breaks first: what a load asks of everything around the replicas, over what one of each is taken to bear."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.capacity.measured.costs import Footprint
from listwright.service.transport.server import LINGER_S


@dataclass(frozen=True, slots=True)
class Limit:
    """One thing around the replicas.

    Args:
        name: of what is asked for.
        unit: of both numbers.
        bears: what one of them is taken to bear. An assumption: put your own.
        of: the one that bears it.
    """

    name: str
    unit: str
    bears: float
    of: str


LIMITS = (
    Limit("balancer", "cores", 16.0, "one balancer of 16 cores"),
    Limit("network", "Gbit/s", 25.0, "one link of 25 Gbit/s"),
    Limit("log", "MB/s", 50.0, "one log collector"),
    Limit("metrics", "series", 2_000_000.0, "one Prometheus"),
    Limit("bundle copies", "GB", 375.0, "one registry, 10 Gbit/s for five minutes"),
    Limit("roll-out", "s", 3_600.0, "one hour, one replica at a time"),
)


def demands(rate: float, replicas: int, found: Footprint, haproxy_s: float) -> dict[str, float]:
    """What is asked for, by the names of :data:`LIMITS`.

    Args:
        rate: lists a second.
        replicas: that run.
        found: measured sizes.
        haproxy_s: CPU time of the balancer for one list.
    """
    return {
        "balancer": rate * haproxy_s,
        "network": rate * (found.body_bytes + found.answer_bytes) * 8 / 1e9,
        "log": rate * found.log_bytes / 1e6,
        "metrics": float(replicas * found.series),
        "bundle copies": replicas * found.bundle_bytes / 1e9,
        "roll-out": replicas * (found.ready_s + LINGER_S),
    }


def breaks_first(asked: dict[str, float]) -> dict[str, object]:
    """Each demand over its limit, and which is the highest."""
    over = {limit.name: asked[limit.name] / limit.bears for limit in LIMITS}
    first = max(over, key=lambda name: over[name])
    return {
        "asked": {name: round(value, 3) for name, value in asked.items()},
        "over_limit": {name: round(value, 3) for name, value in over.items()},
        "first": first,
        "broken": [name for name, value in over.items() if value > 1.0],
    }
