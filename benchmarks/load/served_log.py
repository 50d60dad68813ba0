"""``python -m benchmarks.load.served_log``: what the served log costs, with and without it in one run.

Lists of 100 candidates with 136 features.

- Peak: two services of the same bundle, one with a served log (share 1) and one without, asked in turns by four callers
  in a closed loop; accepted requests a second. Median of the pairs' ratios. Which is first changes from pair to pair.
- Latency: one service that logs half of all queries, asked in an open loop, a quarter of a second each, with a query
  that is logged and with one that is not; the 99th percentile of all pairs of turns without an answer above 50 ms. Two
  processes of one program differ by about the target.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import machine
from benchmarks.load.pairs import Pair, pair
from benchmarks.load.service import service
from benchmarks.speed.floor import formats
from benchmarks.wide_bundle import build, rows
from listwright.ranking import bundle
from listwright.service.served_log.writer import in_share

CANDIDATES, LOAD = 100, 0.5
"""Of the open loop, the share of the peak without a log."""

PAIRS, SECONDS = 30, 2.0
QUICK_PAIRS, QUICK_SECONDS = 2, 1.0
"""Of the peak."""

LATENCY_S, QUICK_LATENCY_S = 360.0, 4.0
"""Of both kinds of turns together; a 99th percentile of a shared machine needs many requests."""

MOST_LOST, MOST_LATER_MS = 0.03, 0.1
"""The targets: share of the peak that is lost, milliseconds that are added at the 99th percentile."""

FORMATS = {"npy": "application/x-npy", "columnar JSON": "application/json"}

MOST_BYTES = 4 * 2**30


@contextmanager
def both(folder: Path, workers: int) -> Iterator[tuple[Pair, Pair]]:
    """The two services, the one that logs half, all warm, and a file with a body of each format."""
    served = build(folder / "wide" / "1")
    every = formats(bundle.load(served).reranker, rows(np.random.default_rng(3), CANDIDATES))
    for name, media_type in FORMATS.items():
        body, said = every[name]
        assert said == media_type
        (folder / name).write_bytes(body)
    common = {"workers": workers, "queue_ms": 10_000}
    log = {"served_log": folder / "log", "served_max_bytes": MOST_BYTES}
    half: dict[str, Any] = {**common, **log, "served_log": folder / "half", "served_share": 0.5}
    with pair(folder, served, common, log) as services, service(served, **half) as (_, connection, _):
        connection.close()
        halves = Pair(folder, dict.fromkeys(services.ports, connection.port), query_ids())
        for asked in (services, halves):
            for name in asked.ports:
                asked.ask(name, folder / "npy", FORMATS["npy"], 1.0)
        yield services, halves


def query_ids() -> dict[str, str]:
    """A query that is not logged at a share of a half, and one that is; the id of a request names its query."""
    names = [f"query-{number}" for number in range(10)]
    inside = [name for name in names if in_share(name, 2**63)]
    return {"without": next(name for name in names if name not in inside), "with": inside[0]}


def measured(
    services: Pair, halves: Pair, name: str, pairs: int, seconds: float, latency_s: float
) -> dict[str, object]:
    """Peak and latency of one format."""
    body, media_type = services.folder / name, FORMATS[name]
    peaks = services.in_turns(pairs, body, media_type, seconds)
    rates = {name: [one[name]["accepted_per_second"] for one in peaks] for name in services.ports}
    lost = [1.0 - with_log / without for without, with_log in zip(rates["without"], rates["with"], strict=True)]
    return {
        "per_second": {name: round(float(np.median(found)), 1) for name, found in rates.items()},
        "lost": round(float(np.median(lost)), 4),
        "lost_quartiles": [round(float(value), 4) for value in np.percentile(lost, (25, 75))],
        "latency": halves.alternating(body, media_type, latency_s, LOAD * float(np.median(rates["without"]))),
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
    with tempfile.TemporaryDirectory() as name, both(Path(name), options.workers) as (services, halves):
        found = {name: measured(services, halves, name, pairs, seconds, latency_s) for name in FORMATS}
        written = {"peak": counts(services.metrics()), "latency": counts(halves.metrics())}
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
