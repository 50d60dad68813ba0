"""``python -m benchmarks.routing``: what asking the router adds to a request, in process.

Requests that ask it and requests that do not take turns on the same lists. The router of the measured bundle always
abstains, so that the generalist runs as well: the longest way. Beside it, the way with a specialist instead.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks import machine
from benchmarks.wide_bundle import build, rows
from ranking import bundle
from ranking.candidates import CandidateList

REQUESTS = {10: 600, 100: 400, 1000: 80}
"""Requests of each kind at each list length."""

SPECIALISTS = 5
WARM_UP = 10

KINDS: dict[str, dict[str, object]] = {
    "generalist": {"strategy": "qilcm"},
    "router_then_generalist": {"strategy": "auto"},
    "specialist": {"specialist": 0},
}


def main() -> int:
    """Writes ``benchmarks/results/routing.json``."""
    table = []
    with tempfile.TemporaryDirectory() as folder:
        reranker = bundle.load(build(Path(folder) / "wide" / "1", specialists=SPECIALISTS)).reranker
        rng = np.random.default_rng(1)
        for length, requests in REQUESTS.items():
            seconds: dict[str, list[float]] = {kind: [] for kind in KINDS}
            routing = []
            for number in range(requests + WARM_UP):
                candidates = CandidateList(rows(rng, length))
                for kind, asked in KINDS.items():
                    started = time.perf_counter()
                    ranking = reranker.rerank(candidates, **asked)  # type: ignore[arg-type]
                    taken = time.perf_counter() - started
                    if number >= WARM_UP:
                        seconds[kind].append(taken)
                        if "routing" in ranking.timings_ms:
                            routing.append(ranking.timings_ms["routing"])
            medians = {kind: float(np.median(values)) * 1000 for kind, values in seconds.items()}
            added = medians["router_then_generalist"] / medians["generalist"] - 1.0
            row = {f"{kind}_ms": round(value, 4) for kind, value in medians.items()}
            row |= {"candidates": length, "routing_ms": round(float(np.median(routing)), 4), "added": round(added, 4)}
            table.append(row)
            print(row)
    result = {"features": 136, "specialists": SPECIALISTS, "at": "median", "table": table}
    print(machine.save("routing", "python -m benchmarks.routing", result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
