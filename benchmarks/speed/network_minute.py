"""``python -m benchmarks.speed.network_minute --before COMMIT TABLE.parquet ...``: what a default fit's QILCM costs and
gains, by a commit and by this tree.

Each table has columns ``qid`` and ``label``; texts are categories. QILCM as recipe ``table`` has it reranks LightGBM's
first settings, in several folds, every fit in a process of its own on one thread, the two trees in turns. CPU seconds
are those of an epoch with its validation, of all epochs, and of writing the bundle: export, parity check, golden lists.
NDCG@10 is that of the test queries, paired.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars

from benchmarks.load.unused import ROOT, tree_of
from listwright.training.console.progress import SILENT
from listwright.training.first_stage import fit as first_stage
from listwright.training.pipeline.run import write_bundle
from listwright.training.pipeline.steps import Fitted, load
from listwright.training.recipe import config
from listwright.training.recipe.config import LambdaMart
from listwright.training.second_stage import fit as second_stage
from listwright.training.second_stage.batching import lists_for
from listwright.training.second_stage.loop import predict, query_ndcg
from listwright_lab import machine

PARTS = ("epoch", "all_epochs", "bundle")


def fit_one(table: Path, fold: int) -> dict[str, object]:
    """Fit one table's QILCM by the tree on the path; return CPU seconds, epochs and the NDCG of the test queries."""
    names = {name: kind for name, kind in polars.read_parquet_schema(table).items() if not name.startswith("__")}
    texts = [name for name, kind in names.items() if kind == polars.String]
    data = {"kind": "table", "qid": "qid", "label": "label", "categorical": texts}
    recipe = config.load("table", seed=fold, fold=fold, data=data)
    splits = load(recipe, [str(table)])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        spec = LambdaMart(relative="none", trials=1)
        first = first_stage.fit(spec, splits, seed=fold, state=folder, progress=SILENT)
        began = time.process_time()
        network = second_stage.fit(recipe.model, splits, first, seed=fold)
        trained = time.process_time()
        assert network is not None
        (folder / "bundle").mkdir()
        write_bundle(folder / "bundle", folder / "shop" / "1", recipe, splits, Fitted(first, networks=[network]))
        ended = time.process_time()
    scores = first.scores_of(splits.test)
    lists = lists_for(network.spec, splits.test, scores)
    values = query_ndcg(predict(network.module, lists), lists, splits.test, scores, 10)
    epochs = len(network.history)
    return {
        "epoch": (trained - began) / epochs,
        "all_epochs": trained - began,
        "bundle": ended - trained,
        "epochs": epochs,
        "ndcg": values.tolist(),
    }


def compare(table: Path, trees: dict[str, Path], folds: int) -> dict[str, object]:
    """Fit a table by both trees, in turns; return the means over the folds, and the paired gain."""
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in trees}
    for fold in range(1, folds + 1):
        for name, tree in trees.items():
            command = [sys.executable, "-P", str(Path(__file__).resolve()), str(table.resolve()), "--fold", str(fold)]
            environment = {**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}
            done = subprocess.run(command, cwd=tree, env=environment, check=True, capture_output=True, text=True)
            rows[name].append(json.loads(done.stdout.splitlines()[-1]))
    summary: dict[str, object] = {"table": table.stem}
    for part in (*PARTS, "epochs"):
        before, now = (float(np.mean([row[part] for row in rows[name]])) for name in trees)
        summary[part] = {"before": round(before, 2), "now": round(now, 2), "times": round(now / before, 3)}
    old, new = (np.concatenate([row["ndcg"] for row in rows[name]]) for name in trees)
    half = 1.96 * float(np.std(new - old, ddof=1)) / np.sqrt(len(new))
    means = {"before": round(float(old.mean()), 4), "now": round(float(new.mean()), 4)}
    summary["ndcg@10"] = means | {"gain": round(float((new - old).mean()), 4), "half_width": round(float(half), 4)}
    print(json.dumps(summary), flush=True)
    return summary


def main() -> int:
    """Run the command line; write ``benchmarks/results/network_minute.json``."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed.network_minute", description=__doc__)
    parser.add_argument("tables", nargs="+", type=Path, metavar="TABLE", help="Parquet files")
    parser.add_argument("--before", metavar="COMMIT", help="to compare this tree with")
    parser.add_argument("--folds", type=int, default=3, help="folds of each table")
    parser.add_argument("--fold", type=int, help="print the figures of one fit instead")
    options = parser.parse_args()
    if options.fold is not None:
        print(json.dumps(fit_one(options.tables[0], options.fold)))
        return 0
    if options.before is None:
        parser.error("--before: name a commit")
    with tree_of(options.before) as before:
        table = [compare(path, {"before": before, "now": ROOT}, options.folds) for path in options.tables]
    facts = {"before": options.before, "folds": options.folds, "cpu_seconds": table}
    names = " ".join(path.name for path in options.tables)
    command = f"python -m benchmarks.speed.network_minute --before {options.before} --folds {options.folds} {names}"
    print(machine.save("network_minute", command, facts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
