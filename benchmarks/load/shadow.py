"""``python -m benchmarks.load.shadow``: what a challenger in the background costs requests, with and without it in
pairs of one run.

Two services of the same two bundles stand side by side; one of them shadows every list. They are asked in turns, lists
of 100 candidates with 136 features, in an open loop at shares of the peak. The order changes from pair to pair. Figures
are medians of the pairs' ratios of the 99th percentile.
"""

from __future__ import annotations

import argparse
import http.client
import json
import re
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
from listwright.service.bundles import folder as models_folder

CANDIDATES, CALLERS = 100, 4
LOADS = (0.3, 0.6)
"""Of the open loops, shares of the peak without a shadow."""

PAIRS, SECONDS = 12, 5.0
QUICK_PAIRS, QUICK_SECONDS = 2, 1.0

MOST_LATER = 0.03
"""The target: by which share the 99th percentile may grow."""

FILE = '[[experiment]]\nname = "rival"\nkind = "shadow"\ncontrol = "wide"\nchallenger = "rival"\n'
MEDIA_TYPE = "application/x-npy"

Outcome = dict[str, Any]


class Both:
    """The two services.

    Args:
        folder: for the body and plans.
        ports: of the service without and with a shadow.
    """

    def __init__(self, folder: Path, ports: dict[str, int]) -> None:
        self.folder, self.ports = folder, ports

    def ask(self, name: str, seconds: float, rate: float = 0.0) -> Outcome:
        """What comes of asking one of them; without a rate, in a closed loop."""
        callers = CALLERS if rate == 0.0 else 64
        plan = Plan(self.ports[name], str(self.folder / "body"), seconds, callers, rate=rate, media_type=MEDIA_TYPE)
        command = [sys.executable, "-m", "benchmarks.load.generator", str(plan.save(self.folder / "plan.json"))]
        outcome: Outcome = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
        if set(outcome["answers"]) != {"200"} or outcome["faults"]:
            raise SystemExit(f"the service {name} a shadow answered {outcome['answers']}, faults {outcome['faults']}")
        return outcome

    def p99_ms(self, pairs: int, seconds: float, rate: float) -> dict[str, list[float]]:
        """99th percentiles of each, pair by pair; which service is first changes from pair to pair."""
        found: dict[str, list[float]] = {name: [] for name in self.ports}
        for number in range(pairs):
            for name in sorted(self.ports, reverse=number % 2 == 0):
                found[name].append(self.ask(name, seconds, rate)["milliseconds"]["200"]["p99"])
        return found


@contextmanager
def both(folder: Path, workers: int) -> Iterator[Both]:
    """The two services, warm, and the process of the shadow started."""
    models = folder / "models"
    for name in ("wide", "rival"):
        build(models / name / "1")
        models_folder.point(models, name, "1")
    (models / "default").mkdir()
    (models / "default" / "ALIAS").write_text("wide\n", encoding="ascii")
    features = rows(np.random.default_rng(3), CANDIDATES)
    body, _ = formats(bundle.load(models / "wide" / "1").reranker, features)["npy"]
    (folder / "body").write_bytes(body)
    (folder / "experiments.toml").write_text(FILE, encoding="utf-8")
    variants: dict[str, dict[str, Any]] = {"without": {}, "with": {"experiments": folder / "experiments.toml"}}
    with ExitStack() as stack:
        ports = {}
        for name, more in variants.items():
            settings = {"models": models, "workers": workers, "queue_ms": 10_000, **more}
            _, connection, _ = stack.enter_context(service(models / "wide" / "1", **settings))
            ports[name] = connection.port
            connection.close()
        found = Both(folder, ports)
        for name in ports:
            found.ask(name, 5.0, 20.0)
        yield found


def measured(services: Both, pairs: int, seconds: float, rate: float) -> dict[str, object]:
    """One load."""
    p99 = services.p99_ms(pairs, seconds, rate)
    later = [with_it / without - 1.0 for without, with_it in zip(p99["without"], p99["with"], strict=True)]
    return {
        "rate": round(rate, 1),
        "p99_ms": {name: round(float(np.median(values)), 3) for name, values in p99.items()},
        "later": round(float(np.median(later)), 4),
        "later_quartiles": [round(float(value), 4) for value in np.percentile(later, (25, 75))],
    }


def outcomes(port: int) -> dict[str, float]:
    """How many lists were shadowed, and how many were dropped."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    pattern = r'^listwright_experiment_requests_total\{.*outcome="(\w+)".*\} (\S+)$'
    return {name: float(count) for name, count in re.findall(pattern, text, flags=re.MULTILINE)}


def main() -> int:
    """Command line; writes ``benchmarks/results/shadow.json``; 1 if the target is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.load.shadow", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a minute that shows that it runs; writes no result")
    parser.add_argument("--workers", type=int, default=1, help="worker processes of each service")
    options = parser.parse_args()
    pairs, seconds = (QUICK_PAIRS, QUICK_SECONDS) if options.quick else (PAIRS, SECONDS)
    with tempfile.TemporaryDirectory() as name, both(Path(name), options.workers) as services:
        peak = float(np.median([services.ask("without", seconds)["accepted_per_second"] for _ in range(3)]))
        loads = {f"{load:g}": measured(services, pairs, seconds, load * peak) for load in LOADS}
        counted = outcomes(services.ports["with"])
    result: dict[str, object] = {
        "candidates": CANDIDATES,
        "workers": options.workers,
        "pairs": pairs,
        "seconds": seconds,
        "target": MOST_LATER,
        "peak_per_second": peak,
        "loads": loads,
        "outcomes": counted,
    }
    print(json.dumps(result, indent=1))
    if options.quick:
        return 0
    print(machine.save("shadow", f"python -m benchmarks.load.shadow --workers {options.workers}", result))
    return int(any(float(str(load["later"])) > MOST_LATER for load in loads.values()))


if __name__ == "__main__":
    sys.exit(main())
