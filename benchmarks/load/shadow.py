"""``python -m benchmarks.load.shadow``: what a challenger in the background costs requests.

A service ranks lists of 100 candidates with 136 features, in an open loop at shares of the peak. A shadow costs
requests in two ways:

- Each request that is shadowed takes longer: it is counted, and its list waits or is dropped. Here the challenger has
  no time to rank. The core's time of such requests is measured, and the 99th percentile with it is computed. It is
  measured as well: queries that are shadowed and queries that are not take turns of a quarter of a second.
- The challenger ranks lists meanwhile, with the default share of a core. All queries are shadowed. The 99th percentile
  of all of them is compared with that of the requests during which the challenger's process did not work.

All are ratios of 99th percentiles; the product of the computed one and the last one is the whole.
"""

from __future__ import annotations

import argparse
import http.client
import json
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from benchmarks.load.at_work import beside, lateness, spans_of_work
from benchmarks.load.more_work import core_seconds, later_by, more_work
from benchmarks.load.pairs import Pair
from benchmarks.load.service import service
from benchmarks.speed.floor import formats
from benchmarks.wide_bundle import RANKER, build, rows
from listwright.ranking import bundle
from listwright.ranking.experiments import fraction
from listwright.service.bundles import folder as models_folder
from listwright_lab import machine

CANDIDATES = 100
LOADS = (0.3, 0.6)
"""Rates of the open loops, as shares of the peak of a query that is not shadowed."""

NO_TIME, CORE_SHARE = 1e-9, 0.005
"""Shares of a core for the challenger: enough for one list only, and the default."""

SECONDS, QUICK_SECONDS = 180.0, 4.0
"""Duration at each load with the challenger's work, and without it; a 99th percentile of a shared machine needs many
requests."""

PEAKS, PEAK_S = 3, 5.0
"""Number and seconds of the closed loops, before the core's time is measured and after: in a slow moment alone the peak
would be too low."""

TURNS, QUICK_TURNS = 1000, 10
"""Pairs of turns in which the core's time is measured."""

STALL_MS = 20.0
"""Milliseconds of an answer that count as a pause of the machine: four times the 99th percentile."""

MOST_LATER = 0.03
"""Target: largest growth of the 99th percentile, as a share."""

FILE = """[[experiment]]
name = "rival"
kind = "shadow"
control = "wide"
challenger = "rival"
share = 0.5
core_share = {:g}
"""

MEDIA_TYPE = "application/x-npy"


def models_of(folder: Path) -> Path:
    """Build two bundles of the same size, with the file ``body`` of a list for them beside."""
    models = folder / "models"
    for name in ("wide", "rival"):
        build(models / name / "1")
        models_folder.point(models, name, "1")
    (models / "default").mkdir()
    (models / "default" / "ALIAS").write_text("wide\n", encoding="ascii")
    features = rows(np.random.default_rng(3), CANDIDATES)
    body, _ = formats(bundle.load(models / "wide" / "1").reranker, features)["npy"]
    (folder / "body").write_bytes(body)
    return models


@contextmanager
def shadowed(folder: Path, models: Path, core_share: float) -> Iterator[tuple[Pair, psutil.Process]]:
    """Start a service; yield it warm, as a pair ``without`` a shadow and ``with`` it, and its process."""
    file = folder / "experiments.toml"
    file.write_text(FILE.format(core_share), encoding="utf-8")
    served = models / "wide" / "1"
    with service(served, ranker=RANKER, queue_ms=10_000, models=models, experiments=file) as (process, connection, _):
        connection.close()
        services = Pair(folder, dict.fromkeys(("without", "with"), connection.port), query_ids())
        services.ask("with", folder / "body", MEDIA_TYPE, 5.0, 20.0)
        yield services, process


def challenger(process: psutil.Process) -> int:
    """Return the process that a service has started to rank in the background."""
    (pid,) = [child.pid for child in process.children() if any("spawn_main" in word for word in child.cmdline())]
    return pid


def query_ids() -> dict[str, str]:
    """Return a query that is not shadowed at a share of a half, and one that is.

    The id of a request names its query.
    """
    names = [f"query-{number}" for number in range(20)]
    inside = [name for name in names if fraction(name, "", "traffic") < 0.5]
    return {"without": next(name for name in names if name not in inside), "with": inside[0]}


def peaks_of(services: Pair, seconds: float) -> list[float]:
    """Measure lists a second of a query that is not shadowed, in closed loops."""
    request = ("without", services.folder / "body", MEDIA_TYPE, seconds)
    return [services.ask(*request)["accepted_per_second"] for _ in range(PEAKS)]


def core_time(services: Pair, process: psutil.Process, turns: int) -> dict[str, Any]:
    """Measure the share of a core that a shadowed request takes, and one that is not shadowed."""
    connection = http.client.HTTPConnection("127.0.0.1", services.ports["with"], timeout=30)
    body, ids = (services.folder / "body").read_bytes(), query_ids()

    def ask(kind: str) -> None:
        headers = {"Content-Type": MEDIA_TYPE, "Accept": MEDIA_TYPE, "X-Request-ID": ids[kind]}
        connection.request("POST", "/rerank", body, headers)
        response = connection.getresponse()
        response.read()
        if response.status != 200:
            raise SystemExit(f"the service answered {response.status}")

    try:
        return more_work(ask, lambda: core_seconds(process.pid), turns)
    finally:
        connection.close()


def taking_part(services: Pair, work: dict[str, Any], seconds: float, rate: float) -> dict[str, Any]:
    """Measure the cost of being shadowed for a request, at one load: as computed, and as measured."""
    body = services.folder / "body"
    answers = services.answers("without", body, MEDIA_TYPE, seconds / 2, rate)
    return {
        "rate": round(rate, 1),
        "computed": later_by(answers, work, stall_ms=STALL_MS),
        "measured": services.alternating(body, MEDIA_TYPE, seconds / 2, rate, stall_ms=STALL_MS),
    }


def ranking_beside(services: Pair, process: int, seconds: float, rate: float) -> dict[str, Any]:
    """Measure the cost of the challenger's process ranking meanwhile, at one load."""
    with spans_of_work(process) as spans:
        answers = services.answers("with", services.folder / "body", MEDIA_TYPE, seconds, rate)
    if not spans:
        raise SystemExit("the challenger's process did not work: nothing is measured")
    late = lateness(answers, beside(answers, spans), stall_ms=STALL_MS)
    return {"rate": round(rate, 1), "times_at_work": len(spans), **late}


def outcomes(metrics: str) -> dict[str, float]:
    """Parse how many lists were shadowed, and how many were dropped."""
    pattern = r'^listwright_experiment_requests_total\{.*outcome="(\w+)".*\} (\S+)$'
    return {name: float(count) for name, count in re.findall(pattern, metrics, flags=re.MULTILINE)}


def main() -> int:
    """Run the command line; write ``benchmarks/results/shadow.json``; return 1 if the target is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.load.shadow", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a minute that shows that it runs; writes no result")
    quick = parser.parse_args().quick
    seconds = QUICK_SECONDS if quick else SECONDS
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        models = models_of(folder)
        with shadowed(folder, models, NO_TIME) as (services, process):
            peaks = peaks_of(services, min(seconds, PEAK_S))
            work = core_time(services, process, QUICK_TURNS if quick else TURNS)
            peak = float(np.median(peaks + peaks_of(services, min(seconds, PEAK_S))))
            parts = [taking_part(services, work, seconds, load * peak) for load in LOADS]
        with shadowed(folder, models, CORE_SHARE) as (services, process):
            ranking = [ranking_beside(services, challenger(process), seconds, load * peak) for load in LOADS]
            outcome_counts = outcomes(services.metrics())
    loads = {
        f"{load:g}": {
            "taking_part": part,
            "ranking": meanwhile,
            "later": round((1.0 + part["computed"]["later"]) * (1.0 + meanwhile["later"]) - 1.0, 4),
        }
        for load, part, meanwhile in zip(LOADS, parts, ranking, strict=True)
    }
    result: dict[str, object] = {
        "candidates": CANDIDATES,
        "core_share": CORE_SHARE,
        "seconds": seconds,
        "target": MOST_LATER,
        "peak_per_second": peak,
        "core_time": work,
        "loads": loads,
        "outcomes": outcome_counts,
    }
    print(json.dumps(result, indent=1))
    if quick:
        return 0
    print(machine.save("shadow", "python -m benchmarks.load.shadow", result))
    return int(any(load["later"] > MOST_LATER for load in loads.values()))


if __name__ == "__main__":
    sys.exit(main())
