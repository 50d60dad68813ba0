"""``python -m listwright_lab.science.precision``: what bfloat16 costs in NDCG@10, and in time, against float32.

Each network is fitted twice per seed on the same planted data and first stage, once per precision, by the switch that
``--precision`` sets. The test queries are ranked by either; validation and export are float32 in both.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch

from listwright.training.data.dataset import Splits
from listwright.training.first_stage import fit as first_stage
from listwright.training.first_stage.fit import FittedFirstStage
from listwright.training.pipeline.run import usable_device
from listwright.training.pipeline.steps import load
from listwright.training.recipe import config
from listwright.training.recipe.config import LambdaMart
from listwright.training.recipe.model import FirstStageAlone, NetworkSpec, model_like
from listwright.training.second_stage import fit as second_stage
from listwright.training.second_stage.batching import Lists
from listwright.training.second_stage.loop import predict, query_ndcg
from listwright_lab import machine

RECIPE = "demo"
MODELS = ("qilcm", "mlp", "dlcm")
PRECISIONS = ("float32", "bfloat16")


def measure(
    spec: NetworkSpec, splits: Splits, first: FittedFirstStage, seed: int, device: str
) -> tuple[float, float, int]:
    """Return NDCG@10 of the test queries, seconds of an epoch, and epochs."""
    fitted = second_stage.fit(spec, splits, first, seed=seed, device=device)
    assert fitted is not None
    scores = first.scores_of(splits.test)
    lists = Lists(splits.test, scores, cutoff=spec.cutoff, append_score=fitted.spec.first_stage_score)
    ndcg = query_ndcg(predict(fitted.module, lists), lists, splits.test, scores, 10).mean()
    return float(ndcg), float(np.median([epoch.seconds for epoch in fitted.history])), len(fitted.history)


def main() -> int:
    """Run the command line; write ``benchmarks/results/precision.json``, or ``precision_cuda.json`` of a GPU."""
    parser = argparse.ArgumentParser(prog="python -m listwright_lab.science.precision", description=__doc__)
    parser.add_argument("--seeds", type=int, default=5, help="seeds 0 to N - 1, 2 or more (default: 5)")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    options = parser.parse_args()
    device = usable_device(options.device)
    recipe = config.load(RECIPE)
    splits = load(recipe, ())
    assert isinstance(recipe.first_stage, LambdaMart)
    plain = recipe.first_stage.model_copy(update={"relative": "none"})
    with tempfile.TemporaryDirectory() as state:
        first = first_stage.fit(plain, splits, seed=0, state=Path(state))
    results: dict[str, dict[str, object]] = {}
    for name in MODELS:
        spec = model_like(name, recipe.model)
        assert not isinstance(spec, FirstStageAlone)
        runs = {
            precision: [
                measure(spec.model_copy(update={"precision": precision}), splits, first, seed, device)
                for seed in range(options.seeds)
            ]
            for precision in PRECISIONS
        }
        means = {precision: [round(float(x), 5) for x in np.mean(rows, axis=0)] for precision, rows in runs.items()}
        differences = np.subtract([row[0] for row in runs["bfloat16"]], [row[0] for row in runs["float32"]])
        results[name] = {
            "ndcg@10": {precision: mean[0] for precision, mean in means.items()},
            "seconds_per_epoch": {precision: mean[1] for precision, mean in means.items()},
            "difference": round(float(differences.mean()), 5),
            "standard_error": round(float(differences.std(ddof=1) / len(differences) ** 0.5), 5),
            "difference_by_seed": [round(float(value), 5) for value in differences],
        }
        print(f"{name:>6}  {means}  difference {differences.mean():+.4f}")
    on_gpu = device.startswith("cuda")
    result: dict[str, object] = {
        "recipe": RECIPE,
        "queries": len(splits.test),
        "seeds": options.seeds,
        "device": device,
        "gpu": torch.cuda.get_device_name() if on_gpu else None,
        "models": results,
    }
    command = f"python -m listwright_lab.science.precision --seeds {options.seeds} --device {options.device}"
    print(machine.save("precision_cuda" if on_gpu else "precision", command, result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
