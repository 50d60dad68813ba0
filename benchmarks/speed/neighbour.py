"""``python -m benchmarks.speed.neighbour``: what a busy process on another core does to a ranking.

A list of 100 candidates with 136 features is ranked again and again in this process, alone and beside one other process
of the lowest priority (``SCHED_IDLE``). Each has a core of its own. The ways take turns; figures are medians of the
rounds' ratios to the time alone.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import signal
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from benchmarks import machine
from benchmarks.wide_bundle import build, rows
from listwright.ranking import bundle
from listwright.ranking.candidates import CandidateList
from listwright.ranking.reranker import Reranker

CANDIDATES = 100
ROUNDS, LISTS = 30, 200

START_S = 8.0
"""After which the other processes are at work."""

PACKED = os.urandom(2**15)


def explaining(core: int, folder: Path) -> None:
    """Explain one list again and again."""
    _to_the_side(core)
    reranker = bundle.load(folder).reranker
    candidates = CandidateList(rows(np.random.default_rng(3), CANDIDATES))
    while True:
        reranker.explain(candidates, 7)


def compressing(core: int, folder: Path) -> None:  # noqa: ARG001 - as the other one
    """Compute in the nearest cache alone: compress 32 KiB again and again."""
    _to_the_side(core)
    while True:
        zlib.compress(PACKED, 6)


WAYS: dict[str, Callable[[int, Path], None]] = {"explains": explaining, "compresses": compressing}


def _to_the_side(core: int) -> None:
    os.sched_setaffinity(0, {core})
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


@contextmanager
def neighbours(core: int, folder: Path) -> Iterator[dict[str, int]]:
    """The processes by what they do, as ids; all are stopped."""
    context, processes = multiprocessing.get_context("spawn"), {}
    try:
        for name, work in WAYS.items():
            processes[name] = context.Process(target=work, args=(core, folder), daemon=True)
            processes[name].start()
        time.sleep(START_S)
        for process in processes.values():
            assert process.pid is not None
            os.kill(process.pid, signal.SIGSTOP)
        yield {name: process.pid for name, process in processes.items() if process.pid is not None}
    finally:
        for process in processes.values():
            process.kill()
            process.join()


def milliseconds(reranker: Reranker, candidates: CandidateList) -> tuple[float, float]:
    """Median and 99th percentile of one round."""
    took = []
    for _ in range(LISTS):
        began = time.perf_counter()
        reranker.rerank(candidates)
        took.append(time.perf_counter() - began)
    median, p99 = np.percentile(took, (50, 99)) * 1e3
    return float(median), float(p99)


def measured(reranker: Reranker, pids: dict[str, int], rounds: int) -> dict[str, dict[str, float]]:
    """Times of each way, and their ratio to the time alone."""
    candidates = CandidateList(rows(np.random.default_rng(4), CANDIDATES))
    times: dict[str, list[tuple[float, float]]] = {"alone": [], **{name: [] for name in pids}}
    for number in range(rounds):
        turns = list(times) if number % 2 == 0 else list(times)[::-1]
        for name in turns:
            if name in pids:
                os.kill(pids[name], signal.SIGCONT)
                time.sleep(0.02)
            times[name].append(milliseconds(reranker, candidates))
            if name in pids:
                os.kill(pids[name], signal.SIGSTOP)
    alone = np.array(times["alone"])
    found = {}
    for name, values in times.items():
        ratios = np.array(values) / alone
        found[name] = {
            "median_ms": round(float(np.median(np.array(values)[:, 0])), 4),
            "p99_ms": round(float(np.median(np.array(values)[:, 1])), 4),
            "median_ratio": round(float(np.median(ratios[:, 0])), 3),
            "p99_ratio": round(float(np.median(ratios[:, 1])), 3),
        }
    return found


def main() -> int:
    """Command line; writes ``benchmarks/results/neighbour.json``."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed.neighbour", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"of each way ({ROUNDS})")
    options = parser.parse_args()
    if sys.platform != "linux" or len(os.sched_getaffinity(0)) < 2:
        parser.error("it takes Linux and two cores that this process may use")
    first, second, *_ = sorted(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as name:
        folder = build(Path(name) / "wide" / "1")
        os.sched_setaffinity(0, {first})
        reranker = bundle.load(folder).reranker
        with neighbours(second, folder) as pids:
            found = measured(reranker, pids, options.rounds)
    result: dict[str, object] = {"candidates": CANDIDATES, "lists": LISTS, "rounds": options.rounds, "ways": found}
    print(json.dumps(found, indent=1))
    print(machine.save("neighbour", "python -m benchmarks.speed.neighbour", result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
