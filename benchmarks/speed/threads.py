"""``python -m benchmarks.speed.threads``: CPU seconds of LightGBM and of a whole fit on a busy or limited machine.

A synthetic table of 41,000 rows, 3 features, lists of 5. Three pieces of work, each in a process of its own: a LightGBM
fit of 300 trees by Listwright; the same by ``lightgbm.train`` with its default threads, stopped after a minute; and
``listwright fit`` of the first 2,000 lists with a fixed plan. They run beside 0, 2, 4 and 8 busy loops, and with a CPU
quota of half a core, which takes a control group and so root.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import polars as pl

from listwright.ranking.features import Feature, FeatureSchema
from listwright.training.data.dataset import Dataset
from listwright.training.first_stage.boosting import LocalGrower, lightgbm_dataset, settings_of
from listwright.training.recipe.config import LambdaMartSettings
from listwright_lab import machine

LISTS, LENGTH, FEATURES = 8_200, 5, 3
TREES, RIVAL_S = 300, 60.0
FIT_LISTS = 2_000
HALF_A_CORE = "half a core"
GROUPS = {
    "/sys/fs/cgroup/cpu": {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "50000"},
    "/sys/fs/cgroup": {"cpu.max": "50000 100000"},
}
"""Folders of control groups of version 1 and 2, and the files that give half a core."""


def main() -> int:
    """Run the command line; write ``benchmarks/results/threads.json``."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed.threads", description="Fits on a busy machine.")
    parser.add_argument("--data", type=Path, metavar="FILE", help="Parquet with qid, label and numeric features")
    parser.add_argument("--loops", default="0,2,4,8", metavar="N,N", help="busy loops beside the work")
    parser.add_argument("--grow", choices=("listwright", "lightgbm"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.grow is not None:
        grow(options.data, options.grow)
        return 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = planted() if options.data is None else pl.read_parquet(options.data)
        rows.write_parquet(folder / "rows.parquet")
        first = rows["qid"].unique(maintain_order=True).head(FIT_LISTS)
        rows.filter(pl.col("qid").is_in(first.implode())).write_parquet(folder / "few.parquet")
        table: list[dict[str, Any]] = []
        for loops in map(int, options.loops.split(",")):
            with busy(loops):
                table.append({"beside": f"{loops} busy loops", **measured(folder)})
            print(table[-1], flush=True)
        with half_a_core() as group:
            table.append({"beside": HALF_A_CORE, **measured(folder, group)})
        print(table[-1], flush=True)
    for row in table:
        for work in ("listwright_trees", "listwright_fit"):
            row[f"{work}_ratio"] = round(row[work]["cpu_s"] / table[0][work]["cpu_s"], 2)
    result = {"rows": rows.height, "trees": TREES, "lists_of_the_fit": FIT_LISTS, "table": table}
    print(machine.save("threads", f"python -m benchmarks.speed.threads --loops {options.loops}", result))
    return 0


def planted() -> pl.DataFrame:
    """Return lists of one chosen candidate each, by features that mean something within their list."""
    rng = np.random.default_rng(0)
    features = rng.normal(size=(LISTS, LENGTH, FEATURES)).astype(np.float32)
    relative = features[:, :, 0] - features[:, :, 0].mean(1, keepdims=True)
    worth = relative + 0.5 * features[:, :, 1] + rng.gumbel(size=(LISTS, LENGTH))
    labels = (worth == worth.max(1, keepdims=True)).astype(int)
    columns = {f"f{d}": features[:, :, d].ravel() for d in range(FEATURES)}
    return pl.DataFrame({"qid": np.repeat(np.arange(LISTS), LENGTH), "label": labels.ravel(), **columns})


def grow(data: Path, by: str) -> None:
    """Fit trees in this process."""
    table = pl.read_parquet(data)
    names = [name for name in table.columns if name not in ("qid", "label")]
    starts = np.flatnonzero(table["qid"].rle_id().diff().fill_null(1).to_numpy())
    train = Dataset(
        table.select(names).to_numpy().astype(np.float32),
        table["label"].to_numpy().astype(np.int32),
        np.append(starts, table.height),
        tuple(map(str, range(len(starts)))),
        FeatureSchema(features=tuple(Feature(name=name) for name in names)),
    )
    params = LambdaMartSettings().model_dump() | {"objective": "lambdarank", "cat_smooth": 10.0}
    if by == "listwright":
        LocalGrower().boost(train, settings_of(params, 1), TREES)
    else:
        binned = lightgbm_dataset(train)
        assert binned.params is not None
        binned.params["num_threads"] = 0
        lightgbm.train(settings_of(params, 1), binned, TREES)


def measured(folder: Path, group: Path | None = None) -> dict[str, dict[str, float | bool]]:
    """Measure each piece of work; one that is stopped has no end."""
    trees = ["-m", "benchmarks.speed.threads", "--data", str(folder / "rows.parquet"), "--grow"]
    out = folder / "models" / str(time.time_ns())
    fit = ["-m", "listwright", "fit", "--data", str(folder / "few.parquet"), "--qid", "qid", "--label", "label"]
    figures = {
        "listwright_trees": seconds([*trees, "listwright"], group),
        "lightgbm_trees": seconds([*trees, "lightgbm"], group, RIVAL_S),
        "listwright_fit": seconds([*fit, "--quick", "--minutes", "0", "--out", str(out)], group),
    }
    figures["listwright_fit"]["bundle"] = (out / "manifest.json").is_file()
    return figures


def seconds(arguments: Sequence[str], group: Path | None, limit: float = 1800.0) -> dict[str, float | bool]:
    """Run Python with default threads; CPU and wall seconds, those of what it starts included."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "POLARS_"))}
    enter = "" if group is None else f"echo $$ > {group / 'cgroup.procs'}; "
    began = time.perf_counter()
    process = subprocess.Popen(
        ["sh", "-c", f'{enter}exec "$@"', "sh", sys.executable, *arguments], env=variables, stdout=subprocess.DEVNULL
    )
    stop = threading.Timer(limit, process.kill)
    stop.start()
    _, status, usage = os.wait4(process.pid, 0)
    stop.cancel()
    process.returncode = os.waitstatus_to_exitcode(status)
    wall = time.perf_counter() - began
    if process.returncode and wall < limit:
        raise SystemExit(f"{' '.join(arguments)} failed")
    return {"cpu_s": round(usage.ru_utime + usage.ru_stime, 2), "wall_s": round(wall, 2), "ended": wall < limit}


@contextmanager
def busy(loops: int) -> Iterator[None]:
    """Keep so many processes busy meanwhile."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(loops)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


@contextmanager
def half_a_core() -> Iterator[Path]:
    """Make a control group with a quota of half a core, and remove it again."""
    for top, files in GROUPS.items():
        group = Path(top) / f"listwright-{os.getpid()}"
        if not (Path(top) / "cgroup.procs").is_file():
            continue
        group.mkdir()
        try:
            if all((group / name).is_file() for name in files):
                for name, text in files.items():
                    (group / name).write_text(text)
                yield group
                return
        finally:
            group.rmdir()
    raise SystemExit("no control group can be made here: run it as root, on a Linux that lets root make them")


if __name__ == "__main__":
    sys.exit(main())
