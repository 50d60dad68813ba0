"""``python -m benchmarks.speed.routing``: what asking the router adds to a request, in process.

Requests that ask it and requests that do not take turns on the same lists. The router of the measured bundle abstains
each time, so that the generalist runs as well: the longest way. Beside it the same router, but so bold that it always
picks a specialist, which then answers instead of the generalist. (A router that never pays is not asked at all.)
"""

from __future__ import annotations

import copy
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.wide_bundle import build, check_route, rows
from listwright.ranking import bundle
from listwright.ranking.candidates import CandidateList
from listwright.ranking.reranker import Reranker
from listwright_lab import machine

REQUESTS = {10: 600, 100: 400, 1000: 80}
"""Requests of each kind at each list length."""

SPECIALISTS = 5
WARM_UP = 10

KINDS: dict[str, dict[str, object]] = {
    "generalist": {"strategy": "qilcm"},
    "router_then_generalist": {"strategy": "auto"},
    "router_to_specialist": {"strategy": "auto"},
    "specialist": {"specialist": 0},
}
ROUTES = {
    "generalist": ("qilcm", "caller"),
    "router_then_generalist": ("qilcm", "abstained"),
    "router_to_specialist": ("srm", "router"),
    "specialist": ("srm", "caller"),
}
"""Ranker and source of the choice, by kind of request."""


def main() -> int:
    """Run the command line; write ``benchmarks/results/routing.json``."""
    table = []
    with tempfile.TemporaryDirectory() as folder:
        reranker = bundle.load(build(Path(folder) / "wide" / "1", specialists=SPECIALISTS)).reranker
        rerankers = {"router_to_specialist": _bold(reranker)}
        rng = np.random.default_rng(1)
        for length, requests in REQUESTS.items():
            seconds: dict[str, list[float]] = {kind: [] for kind in KINDS}
            routing = []
            for number in range(requests + WARM_UP):
                candidates = CandidateList(rows(rng, length))
                for kind, options in KINDS.items():
                    started = time.perf_counter()
                    ranking = rerankers.get(kind, reranker).rerank(candidates, **options)  # type: ignore[arg-type]
                    elapsed = time.perf_counter() - started
                    strategy, decided_by = ROUTES[kind]
                    assert check_route(ranking, strategy).route.decided_by == decided_by
                    if number >= WARM_UP:
                        seconds[kind].append(elapsed)
                        if "routing" in ranking.timings_ms:
                            routing.append(ranking.timings_ms["routing"])
            medians = {kind: float(np.median(values)) * 1000 for kind, values in seconds.items()}
            added = medians["router_then_generalist"] / medians["generalist"] - 1.0
            row = {f"{kind}_ms": round(value, 4) for kind, value in medians.items()}
            saved = 1.0 - medians["router_to_specialist"] / medians["generalist"]
            row |= {"candidates": length, "routing_ms": round(float(np.median(routing)), 4)}
            row |= {"added": round(added, 4), "saved_where_routed": round(saved, 4)}
            table.append(row)
            print(row)
    result = {"features": 136, "specialists": SPECIALISTS, "at": "median", "table": table}
    print(machine.save("routing", "python -m benchmarks.speed.routing", result))
    return 0


def _bold(reranker: Reranker) -> Reranker:
    """Return the same rankers under a router that never abstains."""
    twin = copy.copy(reranker)
    twin.router = copy.copy(reranker.router)
    assert twin.router is not None
    twin.router.stage = twin.router.stage.model_copy(update={"margin": -2.0})
    return twin


if __name__ == "__main__":
    sys.exit(main())
