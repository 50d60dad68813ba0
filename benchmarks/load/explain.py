"""``python -m benchmarks.load.explain``: what explanations cost requests to rank, with and without them in pairs of one
run.

Two services of one bundle stand side by side. They are asked in turns, lists of 100 candidates with 136 features, in an
open loop at shares of the peak. While one of them is asked, it explains one list after another. The order changes from
pair to pair. Figures are medians of the pairs' ratios of the 99th percentile. ``--thread`` measures what was not built:
explanations in a thread of the worker, in the place of a process.
"""

from __future__ import annotations

import argparse
import http.client
import json
import re
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.load.pairs import Outcome, Pair, pair
from benchmarks.speed.floor import formats
from benchmarks.wide_bundle import build, check_route, rows
from listwright.ranking import bundle
from listwright.ranking.candidates import CandidateList
from listwright_lab import machine

CANDIDATES = 100
LOADS = (0.3, 0.6)
"""Rates of the open loops, as shares of the peak without explanations."""

PAIRS, SECONDS = 12, 8.0
QUICK_PAIRS, QUICK_SECONDS = 2, 2.0

MOST_LATER = 0.05
"""Target: largest growth of the 99th percentile, as a share."""

MEDIA_TYPE = "application/x-npy"


class ExplainedPair(Pair):
    """Pair of services, of which the one with explanations explains while it ranks."""

    def __init__(self, services: Pair, body: bytes) -> None:
        super().__init__(services.folder, services.ports)
        self._body = body
        self.seconds: list[float] = []

    def ask(self, name: str, body: Path, media_type: str, seconds: float, rate: float = 0.0) -> Outcome:
        """Load one of the services and return the outcome."""
        if name == "without":
            return super().ask(name, body, media_type, seconds, rate)
        end = threading.Event()
        thread = threading.Thread(target=self._explain, args=(end,))
        thread.start()
        try:
            return super().ask(name, body, media_type, seconds, rate)
        finally:
            end.set()
            thread.join()

    def explain(self) -> float:
        """Return the seconds of one whole explanation.

        Raises:
            SystemExit: if it is refused, or something is missing.
        """
        connection = http.client.HTTPConnection("127.0.0.1", self.ports["with"], timeout=120)
        began = time.perf_counter()
        connection.request("POST", "/explain", self._body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        content = response.read()
        connection.close()
        if response.status != 200 or json.loads(content)["meta"]["incomplete"]:
            raise SystemExit(f"an explanation was answered {response.status}: {content[-300:].decode()}")
        return time.perf_counter() - began

    def _explain(self, end: threading.Event) -> None:
        while not end.is_set():
            self.seconds.append(self.explain())


@contextmanager
def both(folder: Path, workers: int, *, in_a_thread: bool) -> Iterator[ExplainedPair]:
    """Start the two services and the process that explains; yield them warm."""
    served = build(folder / "wide" / "1")
    reranker = bundle.load(served).reranker
    features = rows(np.random.default_rng(3), CANDIDATES)
    body, _ = formats(reranker, features)["npy"]
    (folder / "body").write_bytes(body)
    middle = int(check_route(reranker.rerank(CandidateList(features))).order[CANDIDATES // 4])
    question = json.dumps({"features": features.tolist(), "candidate": middle}).encode()
    common = {"workers": workers, "queue_ms": 10_000}
    more: dict[str, Any] = {"explain": True, "explain_timeout_ms": 120_000}
    if in_a_thread:
        more["module"] = "benchmarks.load.explain_variant"
    with pair(folder, served, common, more) as services:
        explained = ExplainedPair(services, question)
        for _ in range(2):
            explained.explain()
        for name in services.ports:
            services.ask(name, folder / "body", MEDIA_TYPE, 5.0, 20.0)
        yield explained


def measured(services: ExplainedPair, pairs: int, seconds: float, rate: float) -> dict[str, object]:
    """Measure at one load."""
    services.seconds.clear()
    later = services.later(pairs, services.folder / "body", MEDIA_TYPE, seconds, rate)
    return {
        **later,
        "explanations": len(services.seconds),
        "explanation_s": round(float(np.median(services.seconds)), 3),
    }


def outcomes(metrics: str) -> dict[str, float]:
    """Parse the outcomes of the explanations from the metrics."""
    pattern = r'^listwright_explanations_total\{.*outcome="(\w+)".*\} (\S+)$'
    return {name: float(count) for name, count in re.findall(pattern, metrics, flags=re.MULTILINE)}


def earlier_runs() -> list[dict[str, object]]:
    """Return the runs of other commits, which the result retains."""
    text = (machine.RESULTS / "explain_load.json").read_text(encoding="utf-8")
    runs: list[dict[str, object]] = json.loads(text)["earlier"]
    return runs


def main() -> int:
    """Run the command line; write ``benchmarks/results/explain_load.json``; return 1 if the target is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.load.explain", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a minute that shows that it runs; writes no result")
    parser.add_argument("--workers", type=int, default=1, help="worker processes of each service")
    parser.add_argument("--thread", action="store_true", help="explain in a thread of the worker; writes no result")
    options = parser.parse_args()
    pairs, seconds = (QUICK_PAIRS, QUICK_SECONDS) if options.quick else (PAIRS, SECONDS)
    with (
        tempfile.TemporaryDirectory() as name,
        both(Path(name), options.workers, in_a_thread=options.thread) as services,
    ):
        request = ("without", services.folder / "body", MEDIA_TYPE, seconds)
        peak = float(np.median([services.ask(*request)["accepted_per_second"] for _ in range(3)]))
        loads = {f"{load:g}": measured(services, pairs, seconds, load * peak) for load in LOADS}
        outcome_counts = outcomes(services.metrics())
    result: dict[str, object] = {
        "candidates": CANDIDATES,
        "workers": options.workers,
        "pairs": pairs,
        "seconds": seconds,
        "target": MOST_LATER,
        "peak_per_second": peak,
        "loads": loads,
        "outcomes": outcome_counts,
        "earlier": earlier_runs(),
    }
    print(json.dumps(result, indent=1))
    if options.quick or options.thread:
        return 0
    print(machine.save("explain_load", f"python -m benchmarks.load.explain --workers {options.workers}", result))
    return int(any(float(str(load["later"])) > MOST_LATER for load in loads.values()))


if __name__ == "__main__":
    sys.exit(main())
