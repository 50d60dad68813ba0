"""How long the bundle takes in this process, by list length: a fact of this machine at this moment, not of the run."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path

import numpy as np

from listwright.ranking.candidates import CandidateList
from listwright.ranking.reranker import Reranker
from listwright.training.data.dataset import Dataset

LENGTHS = (1, 10, 25, 50, 100, 200)
REPEATS = 50
WARM_UP = 2


def measured_here(reranker: Reranker, test: Dataset, strategy: str) -> dict[str, object]:
    """What another run of the same recipe does not repeat: day, machine, latency."""
    return {
        "created_at": str(reranker.manifest.created_at),
        "machine": machine(),
        "latency": latency(reranker, test, strategy),
    }


def latency(reranker: Reranker, test: Dataset, strategy: str) -> dict[str, object]:
    """Median and 95th percentile of ``Reranker.rerank`` in milliseconds, on lists of rows drawn from the test split."""
    rng = np.random.default_rng(0)
    rows = []
    for length in LENGTHS:
        taken = []
        for _ in range(WARM_UP + REPEATS):
            candidates = CandidateList(test.features[rng.integers(0, test.rows, length)])
            started = time.perf_counter()
            reranker.rerank(candidates, strategy=strategy)
            taken.append((time.perf_counter() - started) * 1000.0)
        rows.append([length, *(round(float(q), 3) for q in np.quantile(taken[WARM_UP:], (0.5, 0.95)))])
    return {"columns": ["length", "median_ms", "p95_ms"], "repeats": REPEATS, "rows": rows}


def machine() -> str:
    """One line: processor, usable cores, threads, system, Python."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    threads = os.environ.get("OMP_NUM_THREADS", "not set")
    return (
        f"{_processor()}, {cores} usable cores, OMP_NUM_THREADS {threads}, {platform.system()} {platform.machine()}, "
        f"Python {platform.python_version()}"
    )


def _processor() -> str:
    told = Path("/proc/cpuinfo")
    lines = told.read_text(encoding="utf-8").splitlines() if told.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown processor"
