"""The bundle's latency by list length: a fact of this machine at this moment, and not of the run."""

from __future__ import annotations

import platform
import time
from pathlib import Path

import numpy as np

from listwright.ranking.candidates import CandidateList
from listwright.ranking.reranker import Reranker
from listwright.ranking.threads import cores, threads
from listwright.training.data.dataset import Dataset

LENGTHS = (1, 10, 25, 50, 100, 200)

REPEATS = 50

WARM_UP = 2


def measure_here(reranker: Reranker, test: Dataset, strategy: str) -> dict[str, object]:
    """Return the figures that another run of the same recipe does not repeat: day, machine, latency."""
    return {
        "created_at": str(reranker.manifest.created_at),
        "machine": describe_machine(),
        "latency": measure_latency(reranker, test, strategy),
    }


def measure_latency(reranker: Reranker, test: Dataset, strategy: str) -> dict[str, object]:
    """Measure median and 95th percentile of ``Reranker.rerank`` in milliseconds, on lists of random test rows."""
    rng = np.random.default_rng(0)
    rows = []
    for length in LENGTHS:
        milliseconds = []
        for _ in range(WARM_UP + REPEATS):
            candidates = CandidateList(test.features[rng.integers(0, test.rows, length)])
            started = time.perf_counter()
            reranker.rerank(candidates, strategy=strategy)
            milliseconds.append((time.perf_counter() - started) * 1000.0)
        rows.append([length, *(round(float(q), 3) for q in np.quantile(milliseconds[WARM_UP:], (0.5, 0.95)))])
    return {"columns": ["length", "median_ms", "p95_ms"], "repeats": REPEATS, "rows": rows}


def describe_machine() -> str:
    """Describe the machine in one line: processor, usable cores, threads, system, Python."""
    return (
        f"{_processor()}, usable cores: {cores()}, threads: {threads()}, {platform.system()} {platform.machine()}, "
        f"Python {platform.python_version()}"
    )


def _processor() -> str:
    file = Path("/proc/cpuinfo")
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown processor"
