"""``python -m listwright_lab.science.patience TAFENG --out FOLDER``: how long should LightGBM wait for a better tree?

Boosting stops after ``patience`` trees without a better NDCG of the queries that stop it. A short wait can end at a
small peak of the first trees. LightGBM has its default settings; half of the validation queries stops it, the other
half is measured. A seed draws the lists, the halves, and all that is random in a fit. ``--out`` keeps what is finished.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
from jaxtyping import Float

from listwright.ranking.relative import NUMBER_KINDS
from listwright.training.data.dataset import Splits
from listwright.training.first_stage.boosting import HeldOutNdcg, lightgbm_dataset, settings_of
from listwright.training.first_stage.lambdamart import MANY_CATEGORIES, MUCH_SMOOTHING
from listwright.training.first_stage.relative import candidates, widened
from listwright.training.pipeline.steps import load
from listwright.training.recipe import config
from listwright.training.recipe.config import LambdaMartSettings
from listwright_lab import machine
from listwright_lab.science.curve import in_time

CUTOFF = 10
WAITS = {"25": (25, 0), "50": (50, 0), "50, 100 at least": (50, 100), "100": (100, 0), "200": (200, 0)}
"""Patience and fewest trees that are compared; a fit goes on until the longest ends it."""

SIZES = (2_000, 8_000, 0)
"""Training lists; 0 stands for all."""

Curve = Float[np.ndarray, "2 trees"]
"""NDCG after every tree, on the half that stops and on the other."""


def boost(splits: Splits, seed: int, *, relative: bool) -> Curve:
    """Boost until the longest wait is over, and return both halves' NDCG."""
    wide = widened(splits, candidates(splits.train.schema, NUMBER_KINDS)) if relative else splits
    order = np.random.default_rng(seed).permutation(len(wide.valid))
    train = lightgbm_dataset(wide.train)
    halves = [lightgbm_dataset(wide.valid.select(np.sort(half)), reference=train) for half in np.array_split(order, 2)]
    many = any(len(feature.categories) > MANY_CATEGORIES for feature in wide.train.schema.features)
    settings = LambdaMartSettings(cat_smooth=MUCH_SMOOTHING if many else None)
    params = {name: value for name, value in settings.model_dump().items() if value is not None}
    curves: dict[str, dict[str, list[float]]] = {}
    longest = _Patience(max(patience for patience, _ in WAITS.values()))
    lightgbm.train(
        settings_of(params, seed) | {"metric": "None"},
        train,
        config.LambdaMart().max_trees,
        valid_sets=halves,
        valid_names=["stops", "measured"],
        feval=HeldOutNdcg(CUTOFF, None),
        callbacks=[lightgbm.record_evaluation(curves), longest],
    )
    return np.array([curves[name][f"ndcg@{CUTOFF}"] for name in ("stops", "measured")])


class _Patience:
    """Callback that ends boosting after so many trees without a better NDCG of the first half."""

    def __init__(self, trees: int) -> None:
        self._trees, self._best, self._at = trees, -1.0, 0

    def __call__(self, env: lightgbm.callback.CallbackEnv) -> None:
        assert env.evaluation_result_list
        value = float(env.evaluation_result_list[0][2])
        if value > self._best:
            self._best, self._at = value, env.iteration
        if env.iteration - self._at >= self._trees:
            raise lightgbm.callback.EarlyStopException(self._at, env.evaluation_result_list)


def stop(curve: Curve, patience: int, fewest: int) -> tuple[int, int, float]:
    """Return the trees that a wait keeps, the trees that it grows, and the measured NDCG of those that it keeps."""
    best = 0
    for tree, value in enumerate(curve[0]):
        if value > curve[0, best]:
            best = tree
        if tree - best >= patience and tree + 1 >= fewest:
            break
    return best + 1, tree + 1, float(curve[1, best])


def summarise(folder: Path) -> list[dict[str, Any]]:
    """Return one row for each number of lists and each kind of columns."""
    table = []
    for size in SIZES:
        for kind in ("plain", "relative"):
            curves = [np.load(file) for file in sorted(folder.glob(f"{size}-{kind}-*.npy"))]
            if curves:
                row: dict[str, Any] = {"lists": size or "all", "columns": kind, "seeds": len(curves)}
                for name, wait in WAITS.items():
                    trees, grown, ndcg = zip(*(stop(curve, *wait) for curve in curves), strict=True)
                    row[name] = {
                        "trees": list(trees),
                        "grown": round(float(np.mean(grown)), 1),
                        f"ndcg@{CUTOFF}": [round(value, 4) for value in ndcg],
                        "mean": round(float(np.mean(ndcg)), 4),
                    }
                table.append(row)
    return table


def main() -> None:
    """Run the command line; write ``benchmarks/results/patience.json``."""
    parser = argparse.ArgumentParser(
        prog="python -m listwright_lab.science.patience",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("source", metavar="TAFENG", help="as for listwright fit tafeng --data")
    parser.add_argument("--out", type=Path, required=True, help="folder for what is finished")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES), help="training lists; 0: all")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    splits, _ = in_time(load(config.load("tafeng"), [options.source]))
    for seed in options.seeds:
        for size in options.sizes:
            order = np.random.default_rng([seed, size]).permutation(len(splits.train))
            train = splits.train.select(np.sort(order[:size])) if size else splits.train
            for kind in ("plain", "relative"):
                file = options.out / f"{size}-{kind}-{seed}.npy"
                if not file.exists():
                    np.save(file, boost(replace(splits, train=train), seed, relative=kind == "relative"))
                curve = np.load(file)
                print(
                    f"{len(train)} lists, {kind}, seed {seed}: {[stop(curve, *wait) for wait in WAITS.values()]}",
                    flush=True,
                )
    sizes = " ".join(map(str, options.sizes))
    command = f"python -m listwright_lab.science.patience TAFENG --out FOLDER --sizes {sizes}"
    print(
        machine.save(
            "patience", command, {"protocol": f"NDCG@{CUTOFF} of the other half", "rows": summarise(options.out)}
        )
    )


if __name__ == "__main__":
    main()
