"""``python -m listwright_lab.science.ties RECIPE=PATH ...``: what it changes that equal scores share their ranks.

LightGBM with the recipe's own settings, on every fold. Early stopping by LightGBM's metric, which keeps equal scores in
row order, or by the shared one. Both models are measured on the test queries both ways. ``chosen_first`` sorts the rows
of each query by falling label before all that: what an export with the chosen row first would have shown.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import lightgbm
import numpy as np
from jaxtyping import Float

from listwright.ranking.metrics import EvalProtocol, ndcg
from listwright.training.data.dataset import Dataset, Splits
from listwright.training.first_stage.boosting import HeldOutNdcg, lightgbm_dataset, settings_of
from listwright.training.first_stage.lambdamart import query_ndcg, scores_of
from listwright.training.pipeline.steps import load
from listwright.training.recipe import config
from listwright.training.recipe.config import LambdaMart
from listwright_lab import machine

CUTOFF = 10
FOLDS = 5
Values = Float[np.ndarray, " N"]


def measure(recipe: config.Recipe, sources: list[str], *, sort: bool) -> dict[str, object]:
    """Measure all folds, pooled over test queries."""
    spec = recipe.first_stage
    assert isinstance(spec, LambdaMart)
    pooled: dict[str, list[Values]] = {}
    ways = ("row_order", "shared")
    trees: dict[str, list[int]] = {way: [] for way in ways}
    tied: list[Values] = []
    for fold in range(1, FOLDS + 1):
        splits = load(recipe.model_copy(update={"fold": fold}), sources)
        if sort:
            train, valid, test = map(_chosen_first, (splits.train, splits.valid, splits.test))
            splits = replace(splits, train=train, valid=valid, test=test)
        for stopped in ways:
            model, count = _fit(splits, spec, stopped, recipe.seed)
            scores = scores_of(model, splits.test)
            trees[stopped].append(count)
            for measured, values in (
                ("row_order", _in_row_order(splits.test, scores)),
                ("shared", query_ndcg(splits.test, scores, CUTOFF)),
            ):
                pooled.setdefault(f"stopped by {stopped}, measured by {measured}", []).append(values)
            if stopped == "shared":
                rows = map(splits.test.slice, range(len(splits.test)))
                tied.append(np.array([len(np.unique(scores[of])) < of.stop - of.start for of in rows], np.float64))
    return {
        "recipe": recipe.name,
        "chosen_first": sort,
        "test_queries": sum(map(len, tied)),
        "queries_with_equal_scores": round(float(np.concatenate(tied).mean()), 4),
        "trees": {name: round(float(np.mean(counts)), 1) for name, counts in trees.items()},
        f"ndcg@{CUTOFF}": {name: round(float(np.concatenate(parts).mean()), 4) for name, parts in pooled.items()},
    }


def _chosen_first(data: Dataset) -> Dataset:
    query = np.repeat(np.arange(len(data)), data.lengths)
    rows = np.lexsort((-data.labels, query))
    return replace(data, features=data.features[rows], labels=data.labels[rows])


def _fit(splits: Splits, spec: LambdaMart, stopped: str, seed: int) -> tuple[str, int]:
    settings = settings_of(spec.settings.model_dump(), seed)
    shared = stopped == "shared"
    settings |= {"metric": "None"} if shared else {"metric": "ndcg", "eval_at": [CUTOFF]}
    train = lightgbm_dataset(splits.train)
    booster = lightgbm.train(
        settings,
        train,
        spec.max_trees,
        valid_sets=[lightgbm_dataset(splits.valid, reference=train)],
        feval=HeldOutNdcg(CUTOFF, splits.train.gains) if shared else None,
        callbacks=[lightgbm.early_stopping(spec.patience, verbose=False)],
    )
    return booster.model_to_string(num_iteration=booster.best_iteration), booster.best_iteration


def _in_row_order(data: Dataset, scores: Float[np.ndarray, " R"]) -> Values:
    """Return NDCG with equal scores ranked by row, as before bundle format 6."""
    values = []
    for n in range(len(data)):
        order = np.argsort(-scores[data.slice(n)], kind="stable")
        ranks = np.empty(len(order))
        ranks[order] = np.arange(len(order))
        values.append(ndcg(-ranks, data.labels[data.slice(n)], cutoff=CUTOFF, gains=data.gains))
    return EvalProtocol().apply(np.array(values))


def main() -> None:
    """Run the command line; write ``benchmarks/results/ties.json``."""
    parser = argparse.ArgumentParser(prog="python -m listwright_lab.science.ties", description=__doc__)
    parser.add_argument("sets", nargs="+", metavar="RECIPE=PATH")
    rows = []
    for name_and_path in parser.parse_args().sets:
        name, _, path = name_and_path.partition("=")
        for sort in (False, True):
            rows.append(measure(config.load(name), [path], sort=sort))
            print(rows[-1], flush=True)
    result = {"protocol": str(EvalProtocol()), "folds": FOLDS, "sets": rows}
    sets = " ".join(f"{row['recipe']}=PATH" for row in rows[::2])
    print(machine.save("ties", f"python -m listwright_lab.science.ties {sets}", result))


if __name__ == "__main__":
    main()
