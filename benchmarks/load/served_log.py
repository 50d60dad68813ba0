"""``python -m benchmarks.load.served_log``: what the served log costs, with and without it in pairs of one run.

Two services of the same bundle stand side by side, one with a served log (share 1) and one without. They are asked in
turns, lists of 100 candidates with 136 features. The turns of one service leave the other idle.

- Peak: four callers in a closed loop; accepted requests a second. Median of the pairs' ratios. Which service is first
  changes from pair to pair.
- Latency: an open loop at a rate that both carry, a second each, by one generator; the 99th percentile of all turns.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from benchmarks import machine
from benchmarks.load.pairs import Pair, pair
from benchmarks.speed.floor import formats
from benchmarks.wide_bundle import build, rows
from listwright.ranking import bundle

CANDIDATES, LOAD = 100, 0.5
"""Of the open loop, the share of the peak without a log."""

PAIRS, SECONDS = 30, 2.0
QUICK_PAIRS, QUICK_SECONDS = 2, 1.0
"""Of the peak."""

LATENCY_S, QUICK_LATENCY_S = 360.0, 4.0
"""Of both services together; a 99th percentile of a shared machine needs many requests."""

MOST_LOST, MOST_LATER_MS = 0.03, 0.1
"""The targets: share of the peak that is lost, milliseconds that are added at the 99th percentile."""

FORMATS = {"npy": "application/x-npy", "columnar JSON": "application/json"}

MOST_BYTES = 4 * 2**30


@contextmanager
def both(folder: Path, workers: int) -> Iterator[Pair]:
    """The two services, warm, and a file with a body of each format."""
    served = build(folder / "wide" / "1")
    every = formats(bundle.load(served).reranker, rows(np.random.default_rng(3), CANDIDATES))
    for name, media_type in FORMATS.items():
        body, said = every[name]
        assert said == media_type
        (folder / name).write_bytes(body)
    log = {"served_log": folder / "log", "served_max_bytes": MOST_BYTES}
    with pair(folder, served, {"workers": workers, "queue_ms": 10_000}, log) as services:
        for name in services.ports:
            services.ask(name, folder / "npy", FORMATS["npy"], 1.0)
        yield services


def measured(services: Pair, name: str, pairs: int, seconds: float, latency_s: float) -> dict[str, object]:
    """Peak and latency of one format."""
    body, media_type = services.folder / name, FORMATS[name]
    peaks = services.in_turns(pairs, body, media_type, seconds)
    rates = {name: [one[name]["accepted_per_second"] for one in peaks] for name in services.ports}
    lost = [1.0 - with_log / without for without, with_log in zip(rates["without"], rates["with"], strict=True)]
    return {
        "per_second": {name: round(float(np.median(found)), 1) for name, found in rates.items()},
        "lost": round(float(np.median(lost)), 4),
        "lost_quartiles": [round(float(value), 4) for value in np.percentile(lost, (25, 75))],
        "latency": services.alternating(body, media_type, latency_s, LOAD * float(np.median(rates["without"]))),
    }


def counts(metrics: str) -> dict[str, float]:
    """What the service with a log has written and dropped."""
    names = ("records", "bytes", "dropped")
    lines = metrics.splitlines()
    return {
        name: sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f"listwright_served_{name}_total"))
        for name in names
    }


def main() -> int:
    """Command line; writes ``benchmarks/results/served_log.json``."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.load.served_log", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a minute that shows that it runs; writes no result")
    parser.add_argument("--workers", type=int, default=1, help="worker processes of each service")
    options = parser.parse_args()
    long, quick = (PAIRS, SECONDS, LATENCY_S), (QUICK_PAIRS, QUICK_SECONDS, QUICK_LATENCY_S)
    pairs, seconds, latency_s = quick if options.quick else long
    with tempfile.TemporaryDirectory() as name, both(Path(name), options.workers) as services:
        found = {name: measured(services, name, pairs, seconds, latency_s) for name in FORMATS}
        written = counts(services.metrics())
    result: dict[str, object] = {
        "candidates": CANDIDATES,
        "workers": options.workers,
        "pairs": pairs,
        "seconds": seconds,
        "latency_seconds": latency_s,
        "targets": {"lost": MOST_LOST, "later_ms": MOST_LATER_MS},
        "formats": found,
        "written": written,
    }
    print(json.dumps(result, indent=1))
    if not options.quick:
        print(machine.save("served_log", f"python -m benchmarks.load.served_log --workers {options.workers}", result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
