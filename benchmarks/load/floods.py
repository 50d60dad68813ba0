"""``python -m benchmarks.load.floods``: whether callers of other paths can starve those who rank.

Four callers rank lists of 100 candidates with 136 features, in turns alone and beside 64 callers who ask for another
path on and on and ignore ``Retry-After``. One worker, default settings, loopback; each kind of caller has a process of
its own. On two cores three processes compete: part of what is lost is the machine's.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.load.generator import Plan
from benchmarks.load.service import service
from benchmarks.speed.floor import formats
from benchmarks.wide_bundle import RANKER, build, rows
from listwright.ranking import bundle
from listwright_lab import machine

CANDIDATES, RANKERS, FLOOD = 100, 4, 64
TARGETS = (
    "GET /openapi.json",
    "GET /info",
    "GET /v2/models/wide",
    "GET /metrics",
    "GET /livez",
    "GET /nothing",
    "POST /livez",
    "POST /admin/reload",
)
TURNS = 3


def main() -> int:
    """Run the command line; write ``benchmarks/results/floods.json``."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.load.floods", description=__doc__)
    parser.add_argument("--seconds", type=float, default=4.0, help="of a turn")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        served = build(folder / "wide" / "1")
        body, _ = formats(bundle.load(served).reranker, rows(np.random.default_rng(3), CANDIDATES))["columnar JSON"]
        (folder / "body").write_bytes(body)
        (folder / "nothing").write_bytes(b"")
        with service(served, ranker=RANKER) as (_, connection, _):
            port = connection.port
            connection.close()
            table = measure(folder, port, options.seconds)
    for row in table:
        print(f"{row['target']:22} {row['ranked_per_second']:7.1f}/s, {row['of_alone']:.2f} of alone  {row['flood']}")
    facts: dict[str, object] = {"candidates": CANDIDATES, "rankers": RANKERS, "flood": FLOOD, "table": table}
    print(machine.save("floods", f"python -m benchmarks.load.floods --seconds {options.seconds:g}", facts))
    return 0


def measure(folder: Path, port: int, seconds: float) -> list[dict[str, Any]]:
    """Measure the ranking throughput beside each flood, over that alone just before and after."""
    ranking = Plan(port, str(folder / "body"), seconds, RANKERS).save(folder / "ranking.json")
    _run(ranking)  # warm
    table = []
    for target in TARGETS:
        flood = Plan(port, str(folder / "nothing"), seconds + 1, FLOOD, patient=False, target=target)
        plan, shares, beside, answers = flood.save(folder / "flood.json"), [], [], {}
        for _ in range(TURNS):
            alone = _rate(_run(ranking))
            with subprocess.Popen(_command(plan), stdout=subprocess.PIPE) as flooding:
                ranked = _rate(_run(ranking))
                assert flooding.stdout is not None
                answers = json.loads(flooding.stdout.read())["answers"]
            beside.append(ranked)
            shares.append(ranked / alone)
        rate, share = round(float(np.median(beside)), 1), round(float(np.median(shares)), 3)
        table.append({"target": target, "ranked_per_second": rate, "of_alone": share, "flood": answers})
    return table


def _rate(outcome: dict[str, Any]) -> float:
    return float(outcome["accepted_per_second"])


def _run(plan: Path) -> dict[str, Any]:
    outcome: dict[str, Any] = json.loads(subprocess.run(_command(plan), stdout=subprocess.PIPE, check=True).stdout)
    return outcome


def _command(plan: Path) -> list[str]:
    return [sys.executable, "-m", "benchmarks.load.generator", str(plan)]


if __name__ == "__main__":
    sys.exit(main())
