"""``python -m benchmarks.load.served_log``: what the served log costs, with and without it in one run.

Lists of 100 candidates with 136 features.

- Peak: two services of the same bundle, one with a served log (share 1) and one without, asked in turns by four callers
  in a closed loop; accepted requests a second. Median of the pairs' ratios. Which is first changes from pair to pair.
  Both are started again several times: two processes of one program differ by about a percent.
- Latency: one service that logs half of all queries, asked in an open loop, a quarter of a second each, with a query
  that is logged and with one that is not; the 99th percentile of all pairs of turns without an answer above 50 ms. Two
  processes of one program differ by as much.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.load.pairs import Pair, pair
from benchmarks.load.service import service
from benchmarks.speed.floor import formats
from benchmarks.wide_bundle import RANKER, build, rows
from listwright.ranking import bundle
from listwright.service.served_log.writer import in_share
from listwright_lab import machine

CANDIDATES, LOAD = 100, 0.5
"""Candidates of a list, and rate of the open loop as a share of the peak without a log."""

STARTS, PAIRS, SECONDS = 5, 8, 2.0
QUICK_STARTS, QUICK_PAIRS, QUICK_SECONDS = 1, 2, 1.0
"""Measurement of the peak: starts of both services, pairs of turns of each start, and seconds of a turn."""

LATENCY_S, QUICK_LATENCY_S = 360.0, 4.0
"""Seconds of both kinds of turns together; a 99th percentile of a shared machine needs many requests."""

MOST_LOST = 0.05
"""Target: largest loss, as a share of the peak."""

FORMATS = {"npy": "application/x-npy", "columnar JSON": "application/json"}

MOST_BYTES = 4 * 2**30

QUEUE_MS = 10_000.0

COUNTED = ("records", "bytes", "dropped")


@contextmanager
def prepared() -> Iterator[tuple[Path, Path]]:
    """Yield a folder with a body of each format, and a bundle."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        served = build(folder / "wide" / "1")
        every = formats(bundle.load(served).reranker, rows(np.random.default_rng(3), CANDIDATES))
        for form, media_type in FORMATS.items():
            body, announced = every[form]
            assert announced == media_type
            (folder / form).write_bytes(body)
        yield folder, served


def warmed(services: Pair) -> Pair:
    """Send requests to each service for a second; return the services."""
    for name in services.ports:
        services.ask(name, services.folder / "npy", FORMATS["npy"], 1.0)
    return services


def query_ids() -> dict[str, str]:
    """Return a query that is not logged at a share of a half, and one that is.

    The id of a request names its query.
    """
    names = [f"query-{number}" for number in range(10)]
    inside = [name for name in names if in_share(name, 2**63)]
    return {"without": next(name for name in names if name not in inside), "with": inside[0]}


def peaks(
    folder: Path, served: Path, workers: int, starts: int, pairs: int, seconds: float
) -> dict[str, dict[str, Any]]:
    """Measure each format's peak, and what the log has written."""
    log = {"served_log": folder / "log", "served_max_bytes": MOST_BYTES}
    by_format: dict[str, list[dict[str, Any]]] = {form: [] for form in FORMATS}
    written = dict.fromkeys(COUNTED, 0.0)
    for _ in range(starts):
        with pair(folder, served, {"workers": workers, "queue_ms": QUEUE_MS}, log) as services:
            warmed(services)
            for form, media_type in FORMATS.items():
                by_format[form] += services.in_turns(pairs, folder / form, media_type, seconds)
            written = {name: written[name] + more for name, more in counts(services.metrics()).items()}
    return {**{form: _lost(rounds) for form, rounds in by_format.items()}, "written": written}


def _lost(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    rates = {name: [outcomes[name]["accepted_per_second"] for outcomes in rounds] for name in ("without", "with")}
    lost = [1.0 - with_log / without for without, with_log in zip(rates["without"], rates["with"], strict=True)]
    return {
        "per_second": {name: round(float(np.median(values)), 1) for name, values in rates.items()},
        "lost": round(float(np.median(lost)), 4),
        "lost_quartiles": [round(float(value), 4) for value in np.percentile(lost, (25, 75))],
    }


def latencies(
    folder: Path, served: Path, workers: int, seconds: float, rates: Mapping[str, float]
) -> dict[str, dict[str, Any]]:
    """Measure each format at its rate, and what the log has written."""
    log: dict[str, Any] = {"served_log": folder / "half", "served_max_bytes": MOST_BYTES, "served_share": 0.5}
    with service(served, ranker=RANKER, workers=workers, queue_ms=QUEUE_MS, **log) as (_, connection, _):
        connection.close()
        halves = warmed(Pair(folder, dict.fromkeys(("without", "with"), connection.port), query_ids()))
        by_format = {
            form: halves.alternating(folder / form, media_type, seconds, rates[form])
            for form, media_type in FORMATS.items()
        }
        return {**by_format, "written": counts(halves.metrics())}


def counts(metrics: str) -> dict[str, float]:
    """Parse how many records the service with a log has written and dropped."""
    lines = metrics.splitlines()
    return {
        name: sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f"listwright_served_{name}_total"))
        for name in COUNTED
    }


def main() -> int:
    """Run the command line; write ``benchmarks/results/served_log.json``."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.load.served_log", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a minute that shows that it runs; writes no result")
    parser.add_argument("--workers", type=int, default=1, help="worker processes of each service")
    options = parser.parse_args()
    long, quick = (STARTS, PAIRS, SECONDS, LATENCY_S), (QUICK_STARTS, QUICK_PAIRS, QUICK_SECONDS, QUICK_LATENCY_S)
    starts, pairs, seconds, latency_s = quick if options.quick else long
    with prepared() as (folder, served):
        peak = peaks(folder, served, options.workers, starts, pairs, seconds)
        rates = {form: LOAD * peak[form]["per_second"]["without"] for form in FORMATS}
        latency = latencies(folder, served, options.workers, latency_s, rates)
    result: dict[str, object] = {
        "candidates": CANDIDATES,
        "workers": options.workers,
        "starts": starts,
        "pairs": pairs,
        "seconds": seconds,
        "latency_seconds": latency_s,
        "targets": {"lost": MOST_LOST},
        "formats": {form: {**peak[form], "latency": latency[form]} for form in FORMATS},
        "written": {"peak": peak["written"], "latency": latency["written"]},
    }
    print(json.dumps(result, indent=1))
    if not options.quick:
        print(machine.save("served_log", f"python -m benchmarks.load.served_log --workers {options.workers}", result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
