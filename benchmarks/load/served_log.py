"""``python -m benchmarks.load.served_log``: what the served log costs, with and without it in pairs of one run.

Two services of the same bundle stand side by side, one with a served log (share 1) and one without. They are asked in
turns, lists of 100 candidates with 136 features. The order of each pair changes from pair to pair.

- Peak: four callers in a closed loop; accepted requests a second.
- Latency: an open loop at a rate that both carry; the 99th percentile.

Figures are medians of the pairs' ratios and differences. The turns of one service leave the other idle.
"""

from __future__ import annotations

import argparse
import http.client
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import machine
from benchmarks.load.generator import Plan
from benchmarks.load.service import service
from benchmarks.speed.floor import formats
from benchmarks.wide_bundle import build, rows
from listwright.ranking import bundle

CANDIDATES, CALLERS, LOAD = 100, 4, 0.5
"""Of the open loop, the share of the peak without a log."""

PAIRS, SECONDS = 12, 5.0
QUICK_PAIRS, QUICK_SECONDS = 2, 1.0

MOST_LOST, MOST_LATER_MS = 0.03, 0.1
"""The targets: share of the peak that is lost, milliseconds that are added at the 99th percentile."""

FORMATS = ("npy", "columnar JSON")

MOST_BYTES = 4 * 2**30

Outcome = dict[str, Any]


class Pair:
    """The two services.

    Args:
        folder: for bodies, plans and the log.
        ports: of the service without and with a log.
    """

    def __init__(self, folder: Path, ports: dict[str, int]) -> None:
        self.folder, self.ports = folder, ports

    def ask(self, name: str, media_type: str, seconds: float, rate: float = 0.0) -> Outcome:
        """What comes of asking one of them."""
        body = str(self.folder / media_type.replace("/", "-"))
        callers = CALLERS if rate == 0.0 else 64
        plan = Plan(self.ports[name], body, seconds, callers, rate=rate, media_type=media_type)
        path = plan.save(self.folder / "plan.json")
        command = [sys.executable, "-m", "benchmarks.load.generator", str(path)]
        outcome: Outcome = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
        if set(outcome["answers"]) != {"200"} or outcome["faults"]:
            raise SystemExit(f"the service {name} a log answered {outcome['answers']}, faults {outcome['faults']}")
        return outcome

    def in_turns(self, pairs: int, media_type: str, seconds: float, rate: float = 0.0) -> list[dict[str, Outcome]]:
        """Pairs of outcomes; which service is first changes from pair to pair."""
        names = list(self.ports)
        found = []
        for number in range(pairs):
            turns = names if number % 2 == 0 else names[::-1]
            found.append({name: self.ask(name, media_type, seconds, rate) for name in turns})
        return found


@contextmanager
def both(folder: Path, workers: int) -> Iterator[Pair]:
    """The two services, warm."""
    served = build(folder / "wide" / "1")
    features = rows(np.random.default_rng(3), CANDIDATES)
    every = formats(bundle.load(served).reranker, features)
    for name in FORMATS:
        body, media_type = every[name]
        (folder / media_type.replace("/", "-")).write_bytes(body)
    log = folder / "log"
    settings = {"served_log": log, "served_max_bytes": MOST_BYTES}
    with ExitStack() as stack:
        ports = {}
        variants: dict[str, dict[str, Any]] = {"without": {}, "with": settings}
        for name, more in variants.items():
            _, connection, _ = stack.enter_context(service(served, workers=workers, queue_ms=10_000, **more))
            ports[name] = connection.port
            connection.close()
        pair = Pair(folder, ports)
        for name in ports:
            pair.ask(name, "application/x-npy", 1.0)
        yield pair


def measured(pair: Pair, media_type: str, pairs: int, seconds: float) -> dict[str, object]:
    """Peak and latency of one format."""
    peaks = pair.in_turns(pairs, media_type, seconds)
    rates = {name: [one[name]["accepted_per_second"] for one in peaks] for name in pair.ports}
    lost = [1.0 - with_log / without for without, with_log in zip(rates["without"], rates["with"], strict=True)]
    rate = LOAD * float(np.median(rates["without"]))
    loads = pair.in_turns(pairs, media_type, seconds, rate)
    p99 = {name: [one[name]["milliseconds"]["200"]["p99"] for one in loads] for name in pair.ports}
    later = [with_log - without for without, with_log in zip(p99["without"], p99["with"], strict=True)]
    return {
        "per_second": {name: round(float(np.median(found)), 1) for name, found in rates.items()},
        "lost": round(float(np.median(lost)), 4),
        "lost_quartiles": [round(float(value), 4) for value in np.percentile(lost, (25, 75))],
        "open_loop_rate": round(rate, 1),
        "p99_ms": {name: round(float(np.median(found)), 3) for name, found in p99.items()},
        "later_ms": round(float(np.median(later)), 3),
        "later_ms_quartiles": [round(float(value), 3) for value in np.percentile(later, (25, 75))],
    }


def counts(port: int) -> dict[str, float]:
    """What the service with a log has written and dropped."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", "/metrics")
    lines = connection.getresponse().read().decode().splitlines()
    connection.close()
    names = ("records", "bytes", "dropped")
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
    pairs, seconds = (QUICK_PAIRS, QUICK_SECONDS) if options.quick else (PAIRS, SECONDS)
    with tempfile.TemporaryDirectory() as name, both(Path(name), options.workers) as pair:
        found = {
            label: measured(pair, media_type, pairs, seconds)
            for label, media_type in zip(FORMATS, ("application/x-npy", "application/json"), strict=True)
        }
        written = counts(pair.ports["with"])
    result: dict[str, object] = {
        "candidates": CANDIDATES,
        "workers": options.workers,
        "pairs": pairs,
        "seconds": seconds,
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
