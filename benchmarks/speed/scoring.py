"""``python -m benchmarks.speed.scoring``: what offline scoring takes beyond the ranking itself, and its memory.

The floor is the same bundle in as many processes as score, all at once, which rank the same lists from arrays in
memory. Two bundles: the demo, whose lists are short and cheap, and the wide bundle of the other benchmarks, which
writes all columns or the query ids alone. Each scores its rows three times between floors, while the memory of all
processes is looked at. A ratio is the median of the three. A job of one list says what a start takes.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np
import polars as pl
import psutil

from benchmarks import wide_bundle
from listwright.ranking import bundle
from listwright.ranking.candidates import CandidateList
from listwright.training.cluster import pool
from listwright.training.data.memory import read_unjudged
from listwright.training.data.synthetic import planted
from listwright.training.recipe.data import SyntheticData
from listwright_lab import machine

DEMO = Path(__file__).parents[2] / "models" / "demo" / "1"

DEMO_DATA = SyntheticData(min_length=5, max_length=20, numeric=10, categorical=2, shift=0.5)
"""Lists as the demo's recipe has them."""

FILE_LISTS = 8_000
"""Lists of a generated file: about 100,000 rows of the demo."""

STRATEGY = "qilcm"

SHORT_ROWS, LONG_ROWS, FLOOR_ROWS = 4_000_000, 10_000_000, 1_500_000
"""Rows of the jobs, and of a floor between two of them."""

ALL, IDS = ("--with-features",), ("--columns", "qid")
WIDE_LENGTH = 100

HELD_ROWS = 20_000
"""Rows that each process of the floor holds in memory, and ranks again and again."""

ROUNDS = 3
LOOK_S = 0.5
"""Seconds between two looks at the memory: each takes milliseconds of a core that scores."""


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; write ``benchmarks/results/scoring.json``."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed.scoring", description="Offline scoring.")
    parser.add_argument("--share", type=float, default=1.0, metavar="X", help="of the rows (default: 1)")
    share = parser.parse_args(arguments).share
    jobs = os.cpu_count() or 1
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wide = wide_bundle.build(folder / "bundles" / "wide" / "1")
        plan: list[tuple[Path, Callable[[int], pl.DataFrame], int, list[Sequence[str]]]] = [
            (wide, _wide_rows, SHORT_ROWS, [ALL, IDS]),
            (wide, _wide_rows, LONG_ROWS, [ALL, IDS]),
            (DEMO, _demo_rows, LONG_ROWS, [ALL]),
        ]
        table = []
        for served, make_frame, rows, written in plan:
            data = _generated(folder / "data", int(rows * share), make_frame)
            table += [_measured(folder, served, data, jobs, options, int(FLOOR_ROWS * share)) for options in written]
            shutil.rmtree(data)
        start = _start_seconds(folder, wide, jobs)
    facts = {"jobs": jobs, "seconds_of_a_start": start, "table": table}
    print(machine.save("scoring", "python -m benchmarks.speed.scoring", facts))
    return 0


def _generated(folder: Path, rows: int, make_frame: Callable[[int], pl.DataFrame]) -> Path:
    """Write a folder of Parquet files with at least so many rows, and return it."""
    folder.mkdir()
    number, held = 0, 0
    while held < rows:
        frame = make_frame(number)
        frame.write_parquet(folder / f"{number:05}.parquet")
        number, held = number + 1, held + frame.height
    os.sync()  # else the kernel writes it to the disk while it is scored
    return folder


def _demo_rows(number: int) -> pl.DataFrame:
    spec = DEMO_DATA.model_copy(update={"queries": FILE_LISTS})
    data, _ = planted.generate(spec, np.random.default_rng(number))
    columns: dict[str, Any] = {"qid": np.repeat(np.arange(len(data)) + number * FILE_LISTS, data.lengths)}
    for place, feature in enumerate(data.schema.features):
        values = data.features[:, place]
        names = np.array(("?", *feature.categories))
        columns[feature.name] = names[values.astype(int)] if feature.kind == "categorical" else values
    return pl.DataFrame(columns)


def _wide_rows(number: int) -> pl.DataFrame:
    lists = 1000
    rows = wide_bundle.rows(np.random.default_rng(number), lists * WIDE_LENGTH)
    ids = np.repeat(np.arange(lists) + number * lists, WIDE_LENGTH)
    names = [f"feature_{d + 1}" for d in range(rows.shape[1])]
    return pl.DataFrame({"qid": ids, **dict(zip(names, np.ascontiguousarray(rows.T), strict=True))})


def listwright(*arguments: str) -> None:
    """Run a command of ours; its output is kept for a failure."""
    done = subprocess.run([sys.executable, "-m", "listwright", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"listwright {arguments[0]} failed:\n{done.stdout}{done.stderr}")


def scored(served: Path, data: Path, out: Path, jobs: int, written: Sequence[str] = ()) -> float:
    """Score a file by the command; seconds."""
    options = ["--data", str(data), "--qid", "qid", "--out", str(out), "--jobs", str(jobs), "--strategy", STRATEGY]
    began = time.perf_counter()
    listwright("score", str(served), *options, *written)
    return time.perf_counter() - began


def _start_seconds(folder: Path, served: Path, jobs: int) -> float:
    """Return the seconds of a job of one list; the first one fills the caches."""
    data = folder / "list.parquet"
    _wide_rows(0)[:WIDE_LENGTH].write_parquet(data)
    seconds = []
    for number in range(1 + ROUNDS):
        seconds.append(scored(served, data, folder / f"list {number}", jobs))
    return round(median(seconds[1:]), 2)


def _columns(options: Sequence[str]) -> str:
    return "query ids" if options == IDS else "all"


def _count(folder: Path) -> int:
    return int(pl.scan_parquet(folder / "*.parquet").select(pl.len()).collect().item())


def floor(served: Path, data: Path, rows: int, jobs: int) -> float:
    """Return the candidates a second and core of processes that rank lists in memory at the same time."""
    with pool(jobs) as workers:
        each = [workers.submit(_ranked, str(served), str(data), rows) for _ in range(jobs)]
        return sum(future.result() for future in each) / jobs


def _ranked(served: str, data: str, rows: int) -> float:
    served_bundle = bundle.load(Path(served))
    schema = served_bundle.manifest.feature_schema
    frame = pl.read_parquet(Path(data) / "*.parquet", n_rows=HELD_ROWS)
    held, _ = read_unjudged(frame.select(schema.names), frame["qid"], schema, schema.names)
    lists = [CandidateList(candidates) for candidates, _ in held.lists()]
    for candidates in lists[:20]:
        wide_bundle.check_route(served_bundle.reranker.rerank(candidates, strategy=STRATEGY), STRATEGY)
    done, began = 0, time.perf_counter()
    while done < rows:
        for candidates in lists:
            served_bundle.reranker.rerank(candidates, strategy=STRATEGY)
        done += held.rows
    return done / (time.perf_counter() - began)


def _measured(folder: Path, served: Path, data: Path, jobs: int, options: Sequence[str], rows: int) -> dict[str, Any]:
    """Run jobs between floors of ``rows`` rows; return their rates, and the peak memory of all and of one process."""
    out, count = folder / "scored", _count(data)
    floors, seconds, memories = [floor(served, data, rows, jobs)], [], []
    for _ in range(ROUNDS):
        with memory() as most:
            seconds.append(scored(served, data, out, jobs, options))
        memories.append(most)
        shutil.rmtree(out)
        floors.append(floor(served, data, rows, jobs))
    rates = [count / elapsed / jobs for elapsed in seconds]
    ratios = [rate / mean(around) for rate, around in zip(rates, pairwise(floors), strict=True)]
    return {
        "bundle": served.parent.name,
        "columns": _columns(options),
        "features": len(bundle.load(served).manifest.feature_schema),
        "rows": count,
        "bytes_of_data": sum(path.stat().st_size for path in data.iterdir()),
        "seconds": round(median(seconds), 1),
        "floor_per_second_and_core": round(median(floors)),
        "scored_per_second_and_core": round(median(rates)),
        **{name: max(most[name] for most in memories) for name in memories[0]},
        "ratio": round(median(ratios), 3),
        "ratios": [round(ratio, 3) for ratio in ratios],
    }


@contextmanager
def memory() -> Iterator[dict[str, float]]:
    """Yield the most resident memory, in MiB, of the processes begun here: all together, and the largest one."""
    most = {"peak_rss_mib_all": 0.0, "peak_rss_mib_one": 0.0}
    over = threading.Event()

    def look() -> None:
        while not over.wait(LOOK_S):
            sizes = [_resident(child) for child in psutil.Process().children(recursive=True)]
            most["peak_rss_mib_all"] = max(most["peak_rss_mib_all"], round(sum(sizes), 1))
            most["peak_rss_mib_one"] = max(most["peak_rss_mib_one"], round(max(sizes, default=0.0), 1))

    looking = threading.Thread(target=look)
    looking.start()
    try:
        yield most
    finally:
        over.set()
        looking.join()


def _resident(process: psutil.Process) -> float:
    try:
        return float(process.memory_info().rss) / 2**20
    except psutil.NoSuchProcess:
        return 0.0


if __name__ == "__main__":
    sys.exit(main())
