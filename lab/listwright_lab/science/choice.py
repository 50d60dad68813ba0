"""``python -m listwright_lab.science.choice``: what ``auto`` means after a default fit, on planted data.

Without a shift and without context the plain first stage is right; with planted shifts it is wrong. Every seed draws
its own data.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from itertools import product
from pathlib import Path

from rich.console import Console

from listwright.ranking import bundle
from listwright.training.pipeline.run import run
from listwright.training.recipe.config import Choice, LambdaMart, Recipe
from listwright.training.recipe.data import SyntheticData
from listwright.training.recipe.model import QilcmSpec
from listwright_lab import machine

LENGTH = 20
SHIFTS = {"without a shift": 0.0, "with planted shifts": 0.5}


def recipe(queries: int, shift: float, seed: int) -> Recipe:
    """Return a recipe of planted data of one group, whose features a query shifts and scales by this much."""
    data = SyntheticData(
        queries=queries, min_length=LENGTH, max_length=LENGTH, numeric=10, categorical=1, groups=1, shift=shift
    )
    return Recipe(
        name="choice",
        data=data,
        first_stage=LambdaMart(trials=8, folds=4),
        model=QilcmSpec(confusion_weight=0.0, max_epochs=15, patience=4),
        choice=Choice(folds=3),
        seed=seed,
    )


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; write ``benchmarks/results/choice.json``."""
    parser = argparse.ArgumentParser(prog="python -m listwright_lab.science.choice", description=__doc__)
    parser.add_argument("--seeds", type=int, default=10, metavar="N", help="seeds 0 to N - 1")
    parser.add_argument("--queries", type=int, default=2000, metavar="N", help="lists in a data set (default: 2000)")
    options = parser.parse_args(arguments)
    table: list[dict[str, object]] = []
    for (name, shift), seed in product(SHIFTS.items(), range(options.seeds)):
        row = {"data": name, "seed": seed, **_fit(recipe(options.queries, shift, seed))}
        print(row, flush=True)
        table.append(row)
    counts = Counter((row["data"], row["default"]) for row in table)
    defaults = [{"data": name, "default": kind, "seeds": count} for (name, kind), count in counts.items()]
    sizes = {"queries": options.queries, "candidates": LENGTH, "seeds": options.seeds}
    result = {**sizes, "defaults": defaults, "table": table}
    print(
        machine.save(
            "choice",
            f"python -m listwright_lab.science.choice --seeds {options.seeds} --queries {options.queries}",
            result,
        )
    )
    return 0


def _fit(spec: Recipe) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "choice" / "1"
        run(spec, [], out, console=Console(quiet=True))
        manifest = bundle.load(out).manifest
    gains = {
        f"{gain.ranker} over {gain.over}": [round(value, 4) for value in (gain.mean, gain.low, gain.high)]
        for gain in manifest.choice
    }
    first = "relative" if manifest.relative else "plain"
    return {"default": first if manifest.strategy == "first_stage" else manifest.strategy, **gains}


if __name__ == "__main__":
    sys.exit(main())
