"""``python -m benchmarks.speed.evaluation --before COMMIT``: CPU seconds of measuring rankings, on one thread.

Two trees stand side by side, a commit and this one. Each fits LightGBM and QILCM on the same drawn choices, 28,000 rows
of 14 features in lists of 6, in turns; its steps of evaluation and report are measured, and the drawing of the page.
Then each scores and evaluates more lists by one of the bundles: the same ones under new query ids.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from benchmarks.load.unused import ROOT, tree_of
from listwright_lab import machine

LISTS, LENGTH, FEATURES, MANY, TURNS = 4_667, 6, 14, 100_000, 3

RECIPE = """
name = "choices"
about = "drawn choices"
minutes = 0
[data]
kind = "table"
[first_stage]
kind = "lambdamart"
trials = 1
[model]
kind = "qilcm"
max_epochs = 2
"""

STEPS = """
import json, sys
from contextlib import contextmanager
from time import process_time
from listwright.training import fit
try:
    from listwright.training.console.progress import Stopwatch
except ModuleNotFoundError:  # before this module had its folder
    from listwright.training.progress import Stopwatch
from listwright.training.reporting import report

spent, step, page = {}, Stopwatch.step, report.fit_page

@contextmanager
def timed(self, name):
    began = process_time()
    with step(self, name):
        yield
    spent[name] = process_time() - began

def timed_page(facts):
    began = process_time()
    drawn = page(facts)
    spent["page"] = process_time() - began
    return drawn

Stopwatch.step, report.fit_page = timed, timed_page
assert fit.main(sys.argv[1:]) == 0
print(json.dumps(spent))
"""


def draw_choices() -> pl.DataFrame:
    """Draw lists in which one of the candidates was chosen, by its features beside the others of its list."""
    rng = np.random.default_rng(0)
    features = rng.normal(size=(LISTS, LENGTH, FEATURES)).round(2)
    worth = features[..., 0] - (features[..., 1] > features[..., 1].mean(axis=1, keepdims=True))
    choice = (2.0 * worth + rng.gumbel(size=worth.shape)).argmax(axis=1)
    columns: dict[str, Any] = {f"f{n}": features[..., n].ravel() for n in range(FEATURES)}
    labels = np.eye(LENGTH, dtype=np.int32)[choice].ravel()
    qids = np.repeat(np.arange(LISTS), LENGTH)
    return pl.DataFrame({"qid": qids, "part": qids % 40, "label": labels, **columns})


def main() -> int:
    """Run the command line; write ``benchmarks/results/evaluation.json``."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed.evaluation", description=__doc__)
    parser.add_argument("--before", required=True, metavar="COMMIT", help="tree to compare with this one")
    parser.add_argument("--lists", type=int, default=MANY, metavar="N", help=f"lists to evaluate (default: {MANY})")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, tree_of(options.before) as before:
        folder, trees = Path(name), {"before": before, "now": ROOT}
        table = draw_choices()
        table.write_parquet(folder / "choices.parquet")
        copies = -(-options.lists // LISTS)
        many = pl.concat([table.with_columns(pl.col("qid") + n * LISTS) for n in range(copies)])
        many.head(options.lists * LENGTH).write_parquet(folder / "many.parquet")
        (folder / "choices.toml").write_text(RECIPE, encoding="utf-8")
        steps: dict[str, list[dict[str, float]]] = {tree: [] for tree in trees}
        rows = str(folder / "choices.parquet")
        fit_options = ["--qid", "qid", "--label", "label", "--ignore", "part", "--data", rows]
        for turn in range(TURNS):
            for tree, path in trees.items():
                out = folder / tree / f"{turn + 1}"
                fit = ["-c", STEPS, str(folder / "choices.toml"), *fit_options, "--out", str(out)]
                steps[tree].append(json.loads(_output_of([sys.executable, *fit], path).splitlines()[-1]))
                print(tree, {step: round(spent, 2) for step, spent in steps[tree][-1].items()}, flush=True)
        commands = _commands(folder)
        seconds: dict[str, dict[str, float]] = {kind: {} for kind in commands}
        for kind, command in commands.items():
            for tree, path in trees.items():
                (folder / "scored.parquet").unlink(missing_ok=True)
                seconds[kind][tree] = _cpu_of([sys.executable, "-m", "listwright", *command], path)
    result = {
        "before": options.before,
        "rows": LISTS * LENGTH,
        "features": FEATURES,
        "steps": {
            tree: {step: round(float(np.median([run[step] for run in runs])), 2) for step in runs[0]}
            for tree, runs in steps.items()
        },
        "lists": options.lists,
        "commands": {kind: {tree: round(spent, 1) for tree, spent in own.items()} for kind, own in seconds.items()},
    }
    print(json.dumps(result, indent=1))
    print(machine.save("evaluation", f"python -m benchmarks.speed.evaluation --before {options.before}", result))
    return 0


def _commands(folder: Path) -> dict[str, list[str]]:
    served, other = (f"{folder / 'before' / f'{turn}'}" for turn in (1, 2))
    data = ["--data", f"{folder / 'many.parquet'}", "--qid", "qid", "--jobs", "1"]
    score = ["score", served, *data, "--out", f"{folder / 'scored.parquet'}"]
    judged = [*data, "--label", "label"]
    return {
        "score": score,
        "evaluate": ["evaluate", served, *judged],
        "score by the first stage": [*score, "--strategy", "first_stage"],
        "evaluate the first stage": ["evaluate", served, *judged, "--strategy", "first_stage"],
        "evaluate two bundles": ["evaluate", served, other, *judged, "--by", "part", "--gate", "ndcg@10 >= -0.01"],
    }


def _output_of(command: list[str], tree: Path) -> str:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": f"{tree}"}
    return subprocess.run(command, cwd=tree, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout


def _cpu_of(command: list[str], tree: Path) -> float:
    """Run a command; return its CPU seconds, those of its workers among them."""
    began = resource.getrusage(resource.RUSAGE_CHILDREN)
    _output_of(command, tree)
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = ended.ru_utime + ended.ru_stime - began.ru_utime - began.ru_stime
    print(command[3], *command[-2:], tree.name, f"{spent:.1f}", flush=True)
    return spent


if __name__ == "__main__":
    sys.exit(main())
