"""``python -m listwright_lab.science.smoothing TAFENG AIRLINE``: LightGBM's ``cat_smooth`` by training lists.

Where a feature has many categories, trees learn by heart what a few rows say of each. The default of ``cat_smooth``
there was chosen by the validation queries of these two sets. LightGBM has the defaults of its kind, no list-relative
columns, and is stopped early by another half of the validation queries than the one it is measured on. A seed draws
the lists, the halves, and all that is random in a fit. Gains are means over seeds, of other queries in each: they have
no interval.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import numpy as np
from jaxtyping import Float

from listwright.training.data.dataset import Splits
from listwright.training.first_stage import lambdamart
from listwright.training.first_stage.lambdamart import query_ndcg
from listwright.training.pipeline.steps import load
from listwright.training.recipe import config
from listwright.training.recipe.config import LambdaMart, Recipe
from listwright_lab import machine
from listwright_lab.science.curve import in_time

CUTOFF = 10
OWN, OTHERS = 10.0, (100.0, 1_000.0, 10_000.0)
"""LightGBM's own value, and those that are tried."""

SIZES = {"tafeng": (200, 500, 2_000, 8_000, 0), "airline": (0,)}
"""Training lists; 0 stands for all."""

Values = Float[np.ndarray, " N"]


def measure(recipe: Recipe, splits: Splits, seed: int) -> dict[float, Values]:
    """Fit LightGBM with each value, and return its NDCG of the queries that did not stop it."""
    order = np.random.default_rng(seed).permutation(len(splits.valid))
    stop_half, other_half = (splits.valid.select(np.sort(half)) for half in np.array_split(order, 2))
    results = {}
    for value in (OWN, *OTHERS):
        spec = recipe.first_stage
        assert isinstance(spec, LambdaMart)
        settings = spec.settings.model_copy(update={"cat_smooth": value})
        spec = spec.model_copy(update={"trials": 1, "relative": "none", "settings": settings})
        model = lambdamart.tune(splits.train, stop_half, spec, seed=seed).model
        results[value] = query_ndcg(other_half, lambdamart.scores_of(model, other_half), CUTOFF)
    return results


def compare(name: str, source: str, seeds: int) -> list[dict[str, object]]:
    """Return one row for each number of lists."""
    recipe = config.load(name)
    splits = load(recipe, [source])
    if name == "tafeng":
        splits, _ = in_time(splits)
    most = max(len(feature.categories) for feature in splits.train.schema.features)
    rows = []
    for size in SIZES[name]:
        runs = []
        for seed in range(seeds):
            train = splits.train
            if size:
                places = np.random.default_rng([seed, size]).choice(len(train), size, replace=False)
                train = train.select(np.sort(places))
            runs.append(measure(recipe, replace(splits, train=train), seed))
            means = {value: round(float(of.mean()), 4) for value, of in runs[-1].items()}
            print(f"{name}, {len(train)} lists, seed {seed}: {means}", flush=True)
        values = {value: np.stack([run[value] for run in runs]) for value in (OWN, *OTHERS)}
        row: dict[str, object] = {"set": name, "most_categories": most, "lists": len(train), "rows": train.rows}
        row["seeds"] = seeds
        row[f"ndcg@{CUTOFF}"] = round(float(values[OWN].mean()), 4)
        for value in OTHERS:
            row[f"{value:.0f}"] = round(float((values[value] - values[OWN]).mean()), 4)
        rows.append(row)
    return rows


def main() -> None:
    """Run the command line; write ``benchmarks/results/smoothing.json``."""
    parser = argparse.ArgumentParser(
        prog="python -m listwright_lab.science.smoothing",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("tafeng", metavar="TAFENG", help="as for listwright fit tafeng --data")
    parser.add_argument("airline", metavar="AIRLINE", help="as for listwright fit airline --data")
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    rows = [row for name in SIZES for row in compare(name, getattr(options, name), options.seeds)]
    command = f"python -m listwright_lab.science.smoothing TAFENG AIRLINE --seeds {options.seeds}"
    print(machine.save("smoothing", command, {"gains_over_cat_smooth": OWN, "rows": rows}))


if __name__ == "__main__":
    main()
