"""``python -m listwright_lab.science.selection RECIPE --data PATH``: LambdaMART chosen by the validation split, or by
folds.

The first stage alone, under both settings of ``select_on``, on all folds of a real set and a few seeds. Figures are
test NDCG@10 pooled over the folds, and the paired difference with its standard error over queries.
"""

from __future__ import annotations

import argparse

import numpy as np
from jaxtyping import Float

from listwright.ranking.metrics import EvalProtocol, ndcg
from listwright.training.data.dataset import Dataset
from listwright.training.first_stage.lambdamart import scores_of, tune
from listwright.training.pipeline.steps import load
from listwright.training.recipe import config
from listwright.training.recipe.config import LambdaMart
from listwright_lab import machine

CUTOFF = 10
WAYS = ("valid", "folds")


def measure(recipe: config.Recipe, sources: list[str], folds: int) -> dict[str, object]:
    """Measure one seed: both ways on every fold."""
    spec = recipe.first_stage
    if not isinstance(spec, LambdaMart):
        raise SystemExit(f"recipe {recipe.name!r} fits no LambdaMART")
    values: dict[str, list[Float[np.ndarray, " N"]]] = {way: [] for way in WAYS}
    for fold in range(1, folds + 1):
        splits = load(recipe.model_copy(update={"fold": fold}), sources)
        for way in WAYS:
            way_spec = spec.model_copy(update={"select_on": way})
            model = tune(splits.train, splits.valid, way_spec, seed=recipe.seed).model
            values[way].append(_by_query(splits.test, scores_of(model, splits.test)))
            print(f"seed {recipe.seed}, fold {fold}, {way}: {values[way][-1].mean():.4f}", flush=True)
    by_way = {way: np.concatenate(values[way]) for way in WAYS}
    difference = by_way["folds"] - by_way["valid"]
    return {
        "seed": recipe.seed,
        **{way: round(float(by_way[way].mean()), 4) for way in WAYS},
        "folds_less_valid": round(float(difference.mean()), 4),
        "standard_error": round(float(difference.std(ddof=1) / np.sqrt(len(difference))), 4),
    }


def _by_query(data: Dataset, scores: Float[np.ndarray, " R"]) -> Float[np.ndarray, " N"]:
    values = [ndcg(scores[data.slice(n)], data.labels[data.slice(n)], cutoff=CUTOFF) for n in range(len(data))]
    return EvalProtocol().apply(np.array(values))


def main() -> None:
    """Run the command line; write ``benchmarks/results/selection_RECIPE.json``."""
    parser = argparse.ArgumentParser(prog="python -m listwright_lab.science.selection", description=__doc__)
    parser.add_argument("recipe")
    parser.add_argument("--data", nargs="+", required=True, metavar="PATH")
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=3, metavar="N", help="seeds 0 to N - 1")
    options = parser.parse_args()
    rows = [
        measure(config.load(options.recipe, seed=seed), options.data, options.folds) for seed in range(options.seeds)
    ]
    result = {"protocol": str(EvalProtocol()), "metric": f"ndcg@{CUTOFF}", "folds": options.folds, "seeds": rows}
    command = f"python -m listwright_lab.science.selection {options.recipe} --data PATH --folds {options.folds}"
    print(machine.save(f"selection_{options.recipe}", f"{command} --seeds {options.seeds}", result))


if __name__ == "__main__":
    main()
