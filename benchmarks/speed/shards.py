"""``python -m benchmarks.speed.shards``: fits whose rows stay on disk, beside the same fits in memory.

A table of ``listwright generate`` is fitted both ways, in turns, each fit in a process of its own: seconds, peak
resident memory, and whether the bundles agree to the bit. Then a table that is much larger is fitted from disk alone.
Generating, and the first reading of a table, are part of no ratio; the first reading has a figure of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from listwright_lab import machine

FEATURES, LENGTH, TREES = 136, 100, 50

RECIPE = """
name = "shards"
about = "a fit that is limited in trees and epochs"
[data]
kind = "table"
[first_stage]
kind = "lambdamart"
trials = 1
max_trees = {trees}
patience = {trees}
folds = 2
relative = "none"
[model]
{model}
"""

NETWORK = 'kind = "qilcm"\nmax_epochs = 2\nconfusion_weight = 0.0'
ALONE = 'kind = "first_stage"'

BYTES_OF_BIN = 1
"""LightGBM keeps one byte for each value of at most 255 bins."""


def _timed(command: list[str], cache: Path) -> tuple[float, float]:
    """Run a process; return its seconds and peak resident GiB."""
    started = time.perf_counter()
    environment = {**os.environ, "LISTWRIGHT_CACHE": str(cache)}
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            output.seek(0)
            raise SystemExit(f"{' '.join(command)} failed:\n{output.read().decode()[-2000:]}")
    return time.perf_counter() - started, usage.ru_maxrss / 2**20


def _fit(folder: Path, data: Path, out: Path, shards: str, *, trees: int, model: str) -> dict[str, object]:
    """Run one fit; the steps are those of its report."""
    recipe = folder / "recipe.toml"
    recipe.write_text(RECIPE.format(trees=trees, model=model))
    columns = ["--qid", "qid", "--label", "label"]
    command = [sys.executable, "-m", "listwright", "fit", str(recipe), "--data", str(data), *columns, "--quick"]
    seconds, peak = _timed([*command, "--out", str(out), "--shards", shards], folder / "cache")
    steps = json.loads((out / "report.json").read_text())["measured_here"]["seconds"]
    figures = {"seconds": round(seconds, 1), "peak_gib": round(peak, 2)}
    return figures | {"steps": {name: round(float(step), 1) for name, step in steps.items()}}


def _generate(queries: int, out: Path) -> tuple[int, float]:
    """Write a table; return its rows, and the peak resident GiB of making it."""
    command = [sys.executable, "-m", "listwright", "generate", "--queries", str(queries), "--out", str(out)]
    _, peak = _timed([*command, "--features", str(FEATURES), "--length", str(LENGTH)], out.parent)
    import polars as pl  # noqa: PLC0415 - loaded after the fork, so that its memory is not the child's

    return int(pl.scan_parquet(out).select(pl.len()).collect().item()), round(peak, 2)


def _files(bundle: Path) -> dict[str, bytes]:
    """Return the files that serve; manifest and report are left out, as they hold the time of the fit."""
    skipped = ("manifest.json", "report.json", "report.html")
    return {path.name: path.read_bytes() for path in bundle.iterdir() if path.name not in skipped}


def compare(folder: Path, queries: int, rounds: int) -> dict[str, object]:
    """Run the same fit both ways, in turns; the first round fills the cache and is reported apart."""
    data = folder / "rows.parquet"
    rows, _ = _generate(queries, data)
    by_mode: dict[str, list[dict[str, object]]] = {"never": [], "always": []}
    same = True
    for number in range(rounds + 1):
        for shards, fits in by_mode.items():
            fits.append(_fit(folder, data, folder / shards / str(number), shards, trees=TREES, model=NETWORK))
            print(f"{shards}, round {number}: {fits[-1]}", flush=True)
        same = same and _files(folder / "never" / str(number)) == _files(folder / "always" / str(number))
    seconds = {shards: [float(str(fit["seconds"])) for fit in fits] for shards, fits in by_mode.items()}
    pairs = zip(seconds["always"][1:], seconds["never"][1:], strict=True)
    return {
        "rows": rows,
        "features": FEATURES,
        "same_files": same,
        "in_memory": by_mode["never"],
        "on_disk": by_mode["always"],
        "ratio_of_seconds": round(statistics.median(disk / memory for disk, memory in pairs), 3),
        "ratio_of_the_first_reading": round(seconds["always"][0] / seconds["never"][0], 3),
    }


def large(folder: Path, queries: int, trees: int, model: str) -> dict[str, object]:
    """Fit a table from disk that is much larger than memory; LightGBM's bins in memory are computed."""
    data = folder / "large.parquet"
    rows, generate_peak = _generate(queries, data)
    fit = _fit(folder, data, folder / "large" / "1", "always", trees=trees, model=model)
    binned = BYTES_OF_BIN * rows * FEATURES * 4 / 5 / 2**30  # training and validation queries, four fifths
    return {
        "rows": rows,
        "features": FEATURES,
        "trees": trees,
        "raw_gib": round(4 * rows * FEATURES / 2**30, 2),
        "bins_gib": round(binned, 2),
        "peak_beside_bins_gib": round(float(str(fit["peak_gib"])) - binned, 2),
        "generate_peak_gib": generate_peak,
        "microseconds_per_row": round(1e6 * float(str(fit["seconds"])) / rows, 1),
        **fit,
    }


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, default=4000, help="of the table that is fitted both ways")
    parser.add_argument("--rounds", type=int, default=3, help="of both fits, after the first")
    parser.add_argument("--large", type=int, help="fit a table of so many queries instead, from disk alone")
    parser.add_argument("--trees", type=int, default=20, help="of that fit")
    parser.add_argument("--network", action="store_true", help="and a network beside the trees")
    parser.add_argument("--folder", type=Path, help="where tables and shards are written (default: the system's)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        if options.large is None:
            result = compare(Path(name), options.queries, options.rounds)
            arguments, file = f"--queries {options.queries} --rounds {options.rounds}", "shards"
        else:
            model = NETWORK if options.network else ALONE
            result = large(Path(name), options.large, options.trees, model)
            arguments, file = f"--large {options.large} --trees {options.trees}", "shards_large"
    network = " --network" if options.network else ""
    print(f"written to {machine.save(file, f'python -m benchmarks.speed.shards {arguments}{network}', result)}")


if __name__ == "__main__":
    main()
