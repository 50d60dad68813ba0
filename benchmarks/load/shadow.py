"""``python -m benchmarks.load.shadow``: what a challenger in the background costs requests, with and without it.

A service shadows half of all queries. It is asked in turns of five seconds with a query that is shadowed and with one
that is not, lists of 100 candidates with 136 features, in an open loop at shares of the peak. The first second and
a half of a turn is not looked at: lists of the last one may still wait; nor is a pair of turns with an answer
above 50 ms. Figures are ratios of the 99th percentiles, for each share of a core that the challenger may take.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import machine
from benchmarks.load.pairs import Pair
from benchmarks.load.service import service
from benchmarks.speed.floor import formats
from benchmarks.wide_bundle import build, rows
from listwright.ranking import bundle
from listwright.ranking.experiments.assignment import fraction
from listwright.service.bundles import folder as models_folder

CANDIDATES = 100
LOADS = (0.3, 0.6)
"""Of the open loops, shares of the peak of a query that is not shadowed."""

SHARES = (0.01,)
"""Of a core, for the challenger; the first is the default, which the target is for."""

SECONDS, QUICK_SECONDS = 240.0, 4.0
"""Of both kinds of turns together, at each load; a 99th percentile of a shared machine needs many requests."""

TURN_S, SETTLE_S = 5.0, 1.5
"""At most 9 lists wait for the challenger, a second and a half."""

PEAKS, PEAK_S = 3, 5.0

MOST_LATER = 0.03
"""The target: by which share the 99th percentile may grow."""

FILE = """[[experiment]]
name = "rival"
kind = "shadow"
control = "wide"
challenger = "rival"
share = 0.5
core_share = {:g}
"""
TAKEN_S = 2.0
"""After which the service has taken another file."""

MEDIA_TYPE = "application/x-npy"


@contextmanager
def both(folder: Path, workers: int) -> Iterator[Pair]:
    """The service as both, warm, and the process of the shadow started."""
    models = folder / "models"
    for name in ("wide", "rival"):
        build(models / name / "1")
        models_folder.point(models, name, "1")
    (models / "default").mkdir()
    (models / "default" / "ALIAS").write_text("wide\n", encoding="ascii")
    features = rows(np.random.default_rng(3), CANDIDATES)
    body, _ = formats(bundle.load(models / "wide" / "1").reranker, features)["npy"]
    (folder / "body").write_bytes(body)
    (folder / "experiments.toml").write_text(FILE.format(SHARES[0]), encoding="utf-8")
    more: dict[str, Any] = {"models": models, "workers": workers, "experiments": folder / "experiments.toml"}
    with service(models / "wide" / "1", queue_ms=10_000, **more) as (_, connection, _):
        connection.close()
        services = Pair(folder, dict.fromkeys(("without", "with"), connection.port), query_ids())
        services.ask("with", folder / "body", MEDIA_TYPE, 5.0, 20.0)
        yield services


def query_ids() -> dict[str, str]:
    """A query that is not shadowed at a share of a half, and one that is; the id of a request names its query."""
    names = [f"query-{number}" for number in range(20)]
    inside = [name for name in names if fraction(name, "", "traffic") < 0.5]
    return {"without": next(name for name in names if name not in inside), "with": inside[0]}


def later(services: Pair, share: float, seconds: float, peak: float) -> dict[str, Any]:
    """What one share of a core costs, at each load."""
    file = services.folder / "experiments.toml"
    hidden = file.with_suffix(".new")
    hidden.write_text(FILE.format(share), encoding="utf-8")
    hidden.replace(file)
    time.sleep(TAKEN_S)
    body, before = services.folder / "body", outcomes(services.metrics())
    turns = {"turn_s": min(TURN_S, seconds / 4), "settle_s": min(SETTLE_S, seconds / 20)}
    loads = {f"{load:g}": services.alternating(body, MEDIA_TYPE, seconds, load * peak, **turns) for load in LOADS}
    after = outcomes(services.metrics())
    return {"loads": loads, "outcomes": {name: count - before.get(name, 0.0) for name, count in after.items()}}


def outcomes(metrics: str) -> dict[str, float]:
    """How many lists were shadowed, and how many were dropped."""
    pattern = r'^listwright_experiment_requests_total\{.*outcome="(\w+)".*\} (\S+)$'
    return {name: float(count) for name, count in re.findall(pattern, metrics, flags=re.MULTILINE)}


def main() -> int:
    """Command line; writes ``benchmarks/results/shadow.json``; 1 if the target is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.load.shadow", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a minute that shows that it runs; writes no result")
    parser.add_argument("--workers", type=int, default=1, help="worker processes of each service")
    options = parser.parse_args()
    seconds = QUICK_SECONDS if options.quick else SECONDS
    with tempfile.TemporaryDirectory() as name, both(Path(name), options.workers) as services:
        asked = ("without", services.folder / "body", MEDIA_TYPE, min(seconds, PEAK_S))
        peak = float(np.median([services.ask(*asked)["accepted_per_second"] for _ in range(PEAKS)]))
        shares = {f"{share:g}": later(services, share, seconds, peak) for share in SHARES}
    result: dict[str, object] = {
        "candidates": CANDIDATES,
        "workers": options.workers,
        "seconds": seconds,
        "target": MOST_LATER,
        "peak_per_second": peak,
        "shares": shares,
    }
    print(json.dumps(result, indent=1))
    if options.quick:
        return 0
    print(machine.save("shadow", f"python -m benchmarks.load.shadow --workers {options.workers}", result))
    return int(any(load["later"] > MOST_LATER for load in shares[f"{SHARES[0]:g}"]["loads"].values()))


if __name__ == "__main__":
    sys.exit(main())
