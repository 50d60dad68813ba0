"""``python -m benchmarks.speed.throughput``: what four clients get out of the machine, and what one candidate more
costs.

- Four clients, each asking again once it is answered, against what the cores could do at best: as many rankings a
  second as cores, less what the generator itself used of them, divided by the floor (``benchmarks.speed.floor``), which
  is measured in the same run. For one worker with threads, one without, and a worker without threads per core.
- One client, and lists of 100 to 1000 candidates: what each further candidate costs, in the lower and in the upper half
  of that range. (A cost per candidate outright would fall with length: the second stage rescores 100 at most.)
"""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.load.generator import Plan
from benchmarks.load.service import service
from benchmarks.speed.floor import STARTS, ask, bare_app, formats, post, summary
from benchmarks.wide_bundle import RANKER, build, rows
from listwright.ranking import bundle
from listwright.ranking.reranker import Reranker
from listwright_lab import machine

CANDIDATES, CLIENTS, SECONDS = 100, 4, 10.0
LENGTHS = (100, 550, 1000)
ROUNDS = 400
TURNS, TURN, WARM = 12, 40, 8
"""Turns of every length and format, rounds of a turn, and rounds at its beginning that do not count."""

FORMATS = ("npy", "columnar JSON")
SETTINGS: dict[str, dict[str, Any]] = {
    "1 worker, 2 threads": {"workers": 1, "threads": 2},
    "1 worker, no threads": {"workers": 1, "threads": 0},
    "2 workers, no threads": {"workers": 2, "threads": 0},
}


def main() -> int:
    """Run the command line; write ``benchmarks/results/throughput.json``."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        served = build(folder / "wide" / "1")
        reranker = bundle.load(served).reranker
        floors = _floors(served, reranker)
        with service(served, ranker=RANKER) as (_, ours, _):
            cost = _cost(reranker, ours)
        clients = [
            _four_clients(folder, served, reranker, request_format, settings, floors[request_format])
            for settings in SETTINGS
            for request_format in FORMATS
        ]
    result = {"clients": clients, "cost": cost, "features": len(reranker.schema)}
    print(machine.save("throughput", "python -m benchmarks.speed.throughput", result))
    return 0


def _floors(served: Path, reranker: Reranker) -> dict[str, float]:
    """Return the milliseconds of each format, over several starts: each depends on the cores it lands on."""
    times: dict[str, list[float]] = {}
    for _ in range(STARTS):
        with service(served, ranker=RANKER) as (_, ours, _), bare_app() as bare:
            ask(reranker, ours, bare, CANDIDATES, ROUNDS // STARTS, times)
    return {
        str(row["format"]): float(str(row["in_process_ms"])) + float(str(row["bare_round_trip_ms"]))
        for row in summary(CANDIDATES, times)
    }


def _four_clients(
    folder: Path, served: Path, reranker: Reranker, request_format: str, name: str, floor_ms: float
) -> dict[str, object]:
    """Return the outcome of four clients, and its share of what could be."""
    body, kind = formats(reranker, rows(np.random.default_rng(3), CANDIDATES))[request_format]
    (folder / "body").write_bytes(body)
    with service(served, ranker=RANKER, **SETTINGS[name]) as (_, connection, _):
        port = connection.port
        connection.close()
        _load(Plan(port, str(folder / "body"), SECONDS / 5, CLIENTS, media_type=kind), folder)  # warm
        outcome = _load(Plan(port, str(folder / "body"), SECONDS, CLIENTS, media_type=kind), folder)
    cores = os.cpu_count() or 1
    best = (cores - outcome["generator_cpu_share"]) / floor_ms * 1e3
    row = {
        "settings": name,
        "format": request_format,
        "answers": outcome["answers"],
        "per_second": outcome["accepted_per_second"],
        "p99_ms": outcome["milliseconds"]["200"]["p99"],
        "generator_cpu_share": outcome["generator_cpu_share"],
        "floor_ms": round(floor_ms, 3),
        "of_cores_over_floor": round(outcome["accepted_per_second"] / best, 3),
    }
    print(json.dumps(row), flush=True)
    return row


def _load(plan: Plan, folder: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.load.generator", str(plan.save(folder / "plan.json"))]
    outcome: dict[str, Any] = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    return outcome


def _cost(reranker: Reranker, ours: http.client.HTTPConnection) -> list[dict[str, object]]:
    """Return the microseconds of each further candidate, in both halves of the range.

    Lengths and formats take turns.

    A turn is some rounds, of which the first do not count: a list would be charged for what a longer one before it left
    to do after its answer, and for the caches that it took. Lengths are compared within each turn of all of them, a
    second or two: the machine's speed changes by the minute.
    """
    rng = np.random.default_rng(4)
    requests = [
        (request_format, length, *sent)
        for length in LENGTHS
        for request_format, sent in formats(reranker, rows(rng, length)).items()
    ]
    p50_us: dict[str, list[list[float]]] = {request_format: [] for request_format, *_ in requests}
    for turn in range(TURNS):
        first = turn % len(requests)
        medians: dict[tuple[str, int], float] = {}
        for request_format, length, body, kind in requests[first:] + requests[:first]:
            seconds = []
            for _ in range(TURN):
                began = time.perf_counter()
                post(ours, body, kind, {})
                seconds.append(time.perf_counter() - began)
            medians[request_format, length] = float(np.median(seconds[WARM:])) * 1e6
        for request_format, turns in p50_us.items():
            turns.append([medians[request_format, length] for length in LENGTHS])
    table = []
    for request_format, turns in p50_us.items():
        lower, upper = (float(step) for step in np.median(np.diff(turns) / np.diff(LENGTHS), axis=0))
        row: dict[str, object] = {
            "format": request_format,
            "p50_ms": {
                str(length): round(value / 1e3, 3)
                for length, value in zip(LENGTHS, np.median(turns, axis=0), strict=True)
            },
            "further_candidate_us": [round(lower, 2), round(upper, 2)],
            "upper_over_lower": round(upper / lower, 3),
        }
        print(json.dumps(row), flush=True)
        table.append(row)
    return table


if __name__ == "__main__":
    sys.exit(main())
