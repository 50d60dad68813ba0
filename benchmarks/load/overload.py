"""``python -m benchmarks.load.overload``: what the service does with five times what it can do, and with ever more
callers.

In one run, over loopback, against one worker with default settings and lists of 100 candidates with 136 features: the
times of one caller alone; throughput with 4, 16 and 64 callers in turns, of whom those that are refused wait as
``Retry-After`` says, and once more with 64 that do not; then an open loop of five times the capacity, and how long
after its end until a single caller is answered as before. The queue's bound is ``LISTWRIGHT_QUEUE_MS``. The load comes
from a process of its own, which takes CPU time from the service where cores are few; its share is in the result.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from benchmarks.load.generator import Plan
from benchmarks.load.service import service
from benchmarks.speed.floor import formats
from benchmarks.wide_bundle import RANKER, build, rows
from listwright.ranking import bundle
from listwright.service.settings import Settings
from listwright_lab import machine

CANDIDATES = 100
CALLERS = (4, 16, 64)
TURNS = 4
"""Turns of each number of callers, whose throughput is their median. A turn is long enough for refused callers."""
FACTOR = 5
CONNECTIONS = 512
"""Largest number of connections of the open loop; enough for every request."""


def main() -> int:
    """Run the command line; write ``benchmarks/results/overload.json``."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.load.overload", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="of overload, and of callers in turns")
    parser.add_argument("--format", choices=("npy", "columnar JSON", "rows by name"), default="columnar JSON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        served = build(folder / "wide" / "1")
        reranker = bundle.load(served).reranker
        body, kind = formats(reranker, rows(np.random.default_rng(3), CANDIDATES))[options.format]
        (folder / "body").write_bytes(body)
        with service(served, ranker=RANKER) as (process, connection, _):
            port = connection.port
            connection.close()
            result = measure(Bench(folder, kind, port, process), options.seconds, Settings(bundle=served))
    command = f"python -m benchmarks.load.overload --seconds {options.seconds:g} --format '{options.format}'"
    facts: dict[str, object] = {"candidates": CANDIDATES, "features": len(reranker.schema), "format": options.format}
    print(json.dumps(result["held"], indent=1))
    print(machine.save("overload", command, facts | result))
    return 0


class Bench:
    """Running service, and the generator of its load."""

    def __init__(self, folder: Path, kind: str, port: int, process: psutil.Process) -> None:
        self._folder, self._kind, self._port, self._process = folder, kind, port, process

    def run(self, seconds: float, callers: int, **plan: Any) -> dict[str, Any]:
        """Run the generator; return its summary, and the service's resident memory meanwhile."""
        body = str(self._folder / "body")
        path = Plan(self._port, body, seconds, callers, media_type=self._kind, **plan).save(self._folder / "plan.json")
        resident = []
        with subprocess.Popen(
            [sys.executable, "-m", "benchmarks.load.generator", str(path)], stdout=subprocess.PIPE
        ) as generator:
            while generator.poll() is None:
                resident.append(self._process.memory_info().rss / 1e6)
                time.sleep(0.2)
            assert generator.stdout is not None
            summary: dict[str, Any] = json.loads(generator.stdout.read())
        settled = resident[len(resident) // 10 :]  # the first tenth fills the queue
        memory = {"first": settled[0], "last": settled[-1], "most": max(settled)}
        summary["resident_mb"] = {name: round(value, 1) for name, value in memory.items()}
        print(f"{callers} callers {plan or ''}: {summary['answers']}, {summary['accepted_per_second']}/s", flush=True)
        return summary


def measure(bench: Bench, seconds: float, settings: Settings) -> dict[str, Any]:
    """Measure all parts, and which of the promises held."""
    part = seconds / 6
    bench.run(part / 3, 4)  # warm
    alone = bench.run(part, 1)
    closed: dict[int, list[dict[str, Any]]] = {callers: [] for callers in CALLERS}
    for _ in range(TURNS):
        for callers, runs in closed.items():
            runs.append(bench.run(2 * part / TURNS, callers))
    throughput = {n: float(np.median([run["accepted_per_second"] for run in runs])) for n, runs in closed.items()}
    impatient = bench.run(part, CALLERS[-1], patient=False)
    capacity = max(throughput.values())
    alone_p99 = alone["milliseconds"]["200"]["p99"]
    overload = bench.run(seconds, CONNECTIONS, rate=FACTOR * capacity, calm_ms=2 * alone_p99)

    limit_ms = 2 * alone_p99 + settings.queue_ms
    memory = overload["resident_mb"]
    held = {
        "throughput_4_to_64_within_10_percent": min(throughput.values()) >= 0.9 * throughput[CALLERS[0]],
        "accepted_p99_within_twice_unloaded_plus_queue": overload["milliseconds"]["200"]["p99"] <= limit_ms,
        "only_200_and_429": set(overload["answers"]) <= {"200", "429"} and not overload["faults"],
        "memory_flat_within_5_percent": memory["last"] <= 1.05 * memory["first"],
        "recovered_within_a_second": overload["calm_after_seconds"] <= 1.0,
    }
    return {
        "held": held,
        "capacity_per_second": capacity,
        "queue": settings.queue,
        "threads": settings.threads,
        "queue_bound_ms": settings.queue_ms,
        "accepted_p99_limit_ms": round(limit_ms, 2),
        "alone": alone,
        "throughput": {str(callers): value for callers, value in throughput.items()},
        "closed_loop": {str(callers): runs for callers, runs in closed.items()},
        "closed_loop_impatient": impatient,
        "overload": overload,
    }


if __name__ == "__main__":
    sys.exit(main())
