"""``python -m benchmarks.speed.parse``: how fast LETOR text is read, beside other readers of the same file.

The others are the reader for where there is no C compiler, scikit-learn's, and polars, which only splits the lines into
strings, with one thread.

The file has the shape of MSLR-WEB30K: 136 features, about 120 candidates a query, two thirds of the columns whole
numbers and the rest decimals. Its rows repeat some distinct ones under new labels and qids, which no parser can notice.
Each reader runs in a process of its own, so that its peak memory is its own, and reads the file once. The four meet
on a tenth of the rows: scikit-learn's time grows faster than the file (on all of them it was stopped after 11 minutes).
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from listwright_lab import machine

FEATURES = 136
DISTINCT = 5000
"""Distinct feature rows in the file."""

READERS = ("listwright", "listwright, not compiled", "polars, into strings", "scikit-learn")


def write(path: Path, rows: int, rng: np.random.Generator) -> None:
    """Write an MSLR-shaped file."""
    whole = rng.random(FEATURES) < 2 / 3
    values = np.where(whole, rng.geometric(0.02, (DISTINCT, FEATURES)) - 1, rng.lognormal(0, 2, (DISTINCT, FEATURES)))
    values[rng.random(values.shape) < 0.4] = 0
    distinct = [
        " ".join(f"{d}:{value:.0f}" if value % 1 == 0 else f"{d}:{value:.6f}" for d, value in enumerate(row, start=1))
        for row in values
    ]
    labels = rng.choice(5, size=rows, p=[0.52, 0.32, 0.13, 0.02, 0.01])
    picked = rng.integers(DISTINCT, size=rows)
    query, left = 1, int(rng.integers(1, 240))
    with path.open("w", encoding="ascii") as file:
        for label, row in zip(labels, picked, strict=True):
            file.write(f"{label} qid:{query} {distinct[row]} \n")
            left -= 1
            if left == 0:
                query, left = query + 1, int(rng.integers(1, 240))


def measure(reader: str, path: Path) -> dict[str, float]:
    """Return seconds, peak memory and a sum over the rows, to check that both readers agree."""
    if reader.startswith("polars"):
        import polars as pl  # noqa: PLC0415 - each process loads its own reader only

        started = time.perf_counter()
        frame = pl.read_csv(path, separator=" ", has_header=False, infer_schema=False)
        seconds = time.perf_counter() - started
        rows, queries, total = frame.height, 0, 0.0  # the strings are not looked at
    elif reader.startswith("listwright"):
        from listwright.training.data.letor import text  # noqa: PLC0415

        if "not compiled" in reader:
            text.scan = None
        started = time.perf_counter()
        with path.open("rb") as file:
            dataset = text.read(file, path.name)
        seconds = time.perf_counter() - started
        rows, queries, total = dataset.rows, len(dataset), float(dataset.features[:].sum(dtype=np.float64))
    else:
        from sklearn.datasets import load_svmlight_file  # noqa: PLC0415

        started = time.perf_counter()
        matrix, _, qids = load_svmlight_file(str(path), n_features=FEATURES, dtype=np.float32, query_id=True)
        seconds = time.perf_counter() - started
        rows, queries, total = matrix.shape[0], len(np.unique(qids)), float(matrix.data.sum(dtype=np.float64))
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6  # Linux counts in KiB
    return {
        "rows": rows,
        "queries": queries,
        "sum": total,
        "seconds": round(seconds, 2),
        "rows_per_second": round(rows / seconds),
        "peak_mb": round(peak_mb),
    }


def run(reader: str, path: Path) -> dict[str, float]:
    """Run ``reader`` in a process of its own and return its measurements."""
    command = [sys.executable, "-m", "benchmarks.speed.parse", "--measure", reader, "--file", str(path)]
    alone = {**os.environ, "POLARS_MAX_THREADS": "1"}
    printed = subprocess.run(command, check=True, capture_output=True, text=True, env=alone).stdout
    print(f"{reader}: {printed.strip()}", flush=True)
    result: dict[str, float] = json.loads(printed)
    return result


def compare(rows: int) -> dict[str, object]:
    """Read a file of ``rows`` with ours, and one of a tenth of them with all."""
    with tempfile.TemporaryDirectory() as folder:
        whole, part = Path(folder) / "mslr.txt", Path(folder) / "part.txt"
        write(whole, rows, np.random.default_rng(0))
        alone = run("listwright", whole)
        megabytes = round(whole.stat().st_size / 1e6, 1)
        whole.unlink()
        write(part, rows // 10, np.random.default_rng(0))
        results = {reader: run(reader, part) for reader in READERS}
    ours = results["listwright"]
    for reader, theirs in results.items():
        if ours["rows"] != theirs["rows"]:
            raise SystemExit(f"listwright and {reader} disagree")
        if reader.startswith("polars"):
            continue
        if ours["queries"] != theirs["queries"] or not np.isclose(ours["sum"], theirs["sum"]):
            raise SystemExit(f"listwright and {reader} disagree")
    return {
        "features": FEATURES,
        "whole_file": {"file_mb": megabytes, "listwright": alone},
        "a_tenth": results,
        "times_of_listwright": {
            reader: round(result["seconds"] / ours["seconds"], 2) for reader, result in results.items()
        },
        "load_average_after": round(os.getloadavg()[0], 2),
    }


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--measure", choices=READERS, help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure, options.file)))
        return
    result = compare(options.rows)
    path = machine.save("parse", f"python -m benchmarks.speed.parse --rows {options.rows}", result)
    print(f"{result['times_of_listwright']}; written to {path}")


if __name__ == "__main__":
    main()
