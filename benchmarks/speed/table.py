"""``python -m benchmarks.speed.table [--before COMMIT]``: what a Parquet table takes until a fit may begin.

The table has the shape of Ta Feng: 1.4 million rows in 35,000 lists by day, 23 numbers as float64, 3 categories as
text. Each reader runs in processes of its own, on one thread, in turns; figures are medians:

=====================  ===================================================================================
polars                 reads the columns that are used
polars and NumPy       what one writes in ten lines: a float32 matrix, codes of categories, queries by time
listwright             the same with all checks of cells, ids and labels, quantiles, and what looks like a leak
before                 listwright at COMMIT
=====================  ===================================================================================
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path
from statistics import median

import numpy as np
import polars as pl

from listwright_lab import machine

QUERIES, LONGEST, NUMBERS, CATEGORIES = 35_000, 80, 23, (2_000, 10, 8)
READERS = ("polars", "polars and NumPy", "listwright")
TURNS = 3
ROOT = Path(__file__).resolve().parents[2]


def write(path: Path, rng: np.random.Generator) -> None:
    """Write the table: lists of 2 to 80 candidates on 75 days."""
    lengths = rng.integers(2, LONGEST + 1, QUERIES)
    query = np.repeat(np.arange(QUERIES), lengths)
    rows = len(query)
    numeric = np.where(rng.random((NUMBERS, rows)) < 0.1, np.nan, rng.normal(size=(NUMBERS, rows)))
    days = np.datetime64("2026-01-01") + rng.integers(0, 75, QUERIES)
    columns = {
        "search": pl.Series(query).cast(pl.String),
        "day": days[query],
        "bought": (rng.random(rows) < 0.05).astype(np.int32),
        **{f"n{d}": pl.Series(values).fill_nan(None) for d, values in enumerate(numeric)},
        **{
            f"c{d}": pl.Series(rng.integers(0, count, rows)).cast(pl.String) + "x" for d, count in enumerate(CATEGORIES)
        },
    }
    pl.DataFrame(columns).write_parquet(path)


def read_by_hand(path: Path) -> int:
    """Read it in ten lines, and return the rows of the three splits."""
    frame = pl.read_parquet(path)
    texts = [f"c{d}" for d in range(len(CATEGORIES))]
    matrix = np.empty((frame.height, NUMBERS + len(texts)), dtype=np.float32)
    for d in range(NUMBERS):
        matrix[:, d] = frame[f"n{d}"].to_numpy()
    for d, name in enumerate(texts, start=NUMBERS):
        matrix[:, d] = frame[name].cast(pl.Categorical).to_physical().to_numpy()
    queries = frame.group_by("search", maintain_order=True).agg(pl.len(), pl.col("day").first())
    lengths, days = queries["len"].to_numpy(), queries["day"].to_numpy()
    split = np.searchsorted(np.quantile(np.unique(days).astype(int), [0.6, 0.8]), days.astype(int))
    parts = [matrix[np.repeat(split == n, lengths)] for n in range(3)]
    return sum(len(part) for part in parts)


def read(reader: str, path: Path) -> int:
    """Read it, and return its rows."""
    if reader == "polars":
        return pl.read_parquet(path).height
    if reader == "polars and NumPy":
        return read_by_hand(path)
    from listwright.training.data import load  # noqa: PLC0415 - each process loads its own reader only
    from listwright.training.recipe.config import Recipe  # noqa: PLC0415
    from listwright.training.recipe.data import TableData, TableSplit  # noqa: PLC0415

    split = TableSplit(by="time", column="day")
    recipe = Recipe(name="table", data=TableData(qid="search", label="bought", split=split))
    splits = load.load(recipe, [str(path)])
    load.doubtful(splits)
    return sum(part.rows for part in (splits.train, splits.valid, splits.test))


def measure(reader: str, path: Path) -> dict[str, float]:
    """Return CPU seconds after the imports, and peak memory."""
    read(reader, path.with_name("few.parquet"))
    before = _peak()
    began = time.process_time()
    rows = read(reader, path)
    seconds = time.process_time() - began
    peak = _peak() - before
    matrix = rows * (NUMBERS + len(CATEGORIES)) * 4
    return {"rows": rows, "cpu_seconds": round(seconds, 3), "memory_over_matrix": round(peak / matrix, 2)}


def _peak() -> int:
    """Return the peak resident memory of this program in bytes; rusage would hold that of who started it."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return 1024 * int(status.partition("VmHWM:")[2].split()[0])


def run(reader: str, path: Path, tree: Path = ROOT) -> dict[str, float]:
    """Measure a reader of a checkout in a process of its own, with an empty cache."""
    command = [sys.executable, "-m", "benchmarks.speed.table", "--measure", reader, "--file", str(path)]
    with tempfile.TemporaryDirectory(dir=path.parent) as cache:
        alone = {"POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1", "LISTWRIGHT_CACHE": cache, "PYTHONPATH": str(tree)}
        printed = subprocess.run(
            command, check=True, capture_output=True, text=True, cwd=tree, env={**os.environ, **alone}
        ).stdout
    print(f"{tree.name}, {reader}: {printed.strip()}", flush=True)
    result: dict[str, float] = json.loads(printed)
    return result


def main() -> None:
    """Run the command line; write ``benchmarks/results/table.json``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", choices=READERS, help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--before", metavar="COMMIT", help="an older checkout to measure beside this one")
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure, options.file)))
        return
    from benchmarks.load.unused import tree_of  # noqa: PLC0415 - no reader loads the service

    with (
        tempfile.TemporaryDirectory() as folder,
        tree_of(options.before) if options.before else nullcontext() as tree,
    ):
        path = Path(folder) / "table.parquet"
        write(path, np.random.default_rng(0))
        pl.read_parquet(path).head(100_000).write_parquet(path.with_name("few.parquet"))
        turns: dict[str, list[dict[str, float]]] = {}
        for _ in range(TURNS):
            for reader in READERS:
                turns.setdefault(reader, []).append(run(reader, path))
            if tree is not None:
                turns.setdefault("before", []).append(run("listwright", path, tree))
    results = {
        reader: {name: median(turn[name] for turn in all_turns) for name in all_turns[0]}
        for reader, all_turns in turns.items()
    }
    ours = results["listwright"]["cpu_seconds"]
    times = {reader: round(ours / result["cpu_seconds"], 2) for reader, result in results.items()}
    command = "python -m benchmarks.speed.table" + (f" --before {options.before}" if options.before else "")
    print(machine.save("table", command, {"readers": results, "listwright_over": times}))


if __name__ == "__main__":
    main()
