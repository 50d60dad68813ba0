"""Load on one address by k6: a constant arrival rate, or clients that each wait for their answer.

At a constant arrival rate a request is sent when it is due, however long the earlier ones take; one that finds every
client of k6 still waiting is dropped and counted. Clients that wait find the peak, but hide a slow server's latency.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

SCRIPT = Path(__file__).with_suffix(".js")

MOST_WAITING = 128
"""Requests that may wait for their answer at a constant arrival rate; one more is dropped."""

FINISH_WITHIN_S = 4
"""Seconds for which answers are awaited after the last request; k6.js gives every request less."""


@dataclass(frozen=True, slots=True)
class Target:
    """Destination of the requests: an address, and files whose bytes are the bodies, sent in turn."""

    url: str
    content_type: str
    bodies: tuple[Path, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """Measured stretch of load. Milliseconds are of answered requests; None where none was answered.

    ``offered_rps`` is None where clients wait for their answers. ``failed`` had another answer than 200, or none in
    time; ``dropped`` were due and never sent.
    """

    offered_rps: float | None
    seconds: float
    answered: int
    failed: int
    dropped: int
    p50_ms: float | None
    p99_ms: float | None
    p999_ms: float | None
    generator_cpu_s: float

    @property
    def answered_rps(self) -> float:
        """Answers a second."""
        return self.answered / self.seconds

    @property
    def lost(self) -> float:
        """Share of the requests that got no good answer."""
        requests = self.answered + self.failed + self.dropped
        return (self.failed + self.dropped) / requests if requests else 1.0


def at_rate(k6: Path, target: Target, rate: float, seconds: int) -> Step:
    """Send ``rate`` requests a second, to the nearest tenth, whatever becomes of them."""
    tenths = max(1, round(rate * 10))
    scenario = {
        "executor": "constant-arrival-rate",
        "rate": tenths,
        "timeUnit": "10s",
        "duration": f"{seconds}s",
        "preAllocatedVUs": MOST_WAITING,
        "maxVUs": MOST_WAITING,
        "gracefulStop": f"{FINISH_WITHIN_S}s",
    }
    return _run(k6, target, scenario, seconds, tenths / 10)


def by_clients(k6: Path, target: Target, clients: int, seconds: int) -> Step:
    """Send as many requests as this many clients get answered, one after the other."""
    scenario = {
        "executor": "constant-vus",
        "vus": clients,
        "duration": f"{seconds}s",
        "gracefulStop": f"{FINISH_WITHIN_S}s",
    }
    return _run(k6, target, scenario, seconds, None)


def parse(summary: dict[str, Any], *, offered_rps: float | None, seconds: float, generator_cpu_s: float) -> Step:
    """Read a step from what k6 gives to ``handleSummary``, which leaves out whatever did not happen."""
    metrics = summary["metrics"]
    answered = metrics.get("answered", {}).get("values", {})
    return Step(
        offered_rps=offered_rps,
        seconds=seconds,
        answered=int(answered.get("count", 0)),
        failed=_count(metrics, "failed"),
        dropped=_count(metrics, "dropped_iterations"),
        p50_ms=_milliseconds(answered, "p(50)"),
        p99_ms=_milliseconds(answered, "p(99)"),
        p999_ms=_milliseconds(answered, "p(99.9)"),
        generator_cpu_s=round(generator_cpu_s, 2),
    )


def _count(metrics: dict[str, Any], name: str) -> int:
    return int(metrics[name]["values"]["count"]) if name in metrics else 0


def _milliseconds(values: dict[str, float], name: str) -> float | None:
    return round(values[name], 3) if values.get("count") else None


def _run(k6: Path, target: Target, scenario: dict[str, object], seconds: int, rate: float | None) -> Step:
    with TemporaryDirectory() as folder:
        summary = Path(folder) / "summary.json"
        variables = {
            "URL": target.url,
            "CONTENT_TYPE": target.content_type,
            "BODIES": ",".join(str(path.absolute()) for path in target.bodies),
            "SCENARIO": json.dumps(scenario),
            "SUMMARY": str(summary),
        }
        # an address of its own would be a server that takes a port
        command = [str(k6), "run", "--quiet", "--no-usage-report", "--log-output=none", "--address=", str(SCRIPT)]
        before = _cpu_of_children()
        ran = subprocess.run(
            command, env={**os.environ, **variables}, capture_output=True, text=True, check=False, timeout=seconds + 60
        )
        if ran.returncode != 0 or not summary.exists():
            raise SystemExit(f"k6 ended with {ran.returncode}: {(ran.stderr or ran.stdout).strip()[-500:]}")
        return parse(
            json.loads(summary.read_text(encoding="utf-8")),
            offered_rps=rate,
            seconds=seconds,
            generator_cpu_s=_cpu_of_children() - before,
        )


def _cpu_of_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
