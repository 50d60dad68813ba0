"""``python -m listwright_lab.science.budgeted --out FOLDER SET[=PATH] ...``: a default fit beside two rivals.

The rivals are what an engineer has in an afternoon: LightGBM with early stopping, and the same with each number's
z-score and rank within its list, by pandas. ``--exhaustive`` adds the fit without a bound.

===================  ===================================================================================
``mq2008=PATH``      five folds, and so ``ohsumed`` and ``airline``
``mslr-sample=DIR``  the folder with ``msn1.fold1.train.5k.txt.gz`` and others; one split
``demo``             one split
``flat``             synthetic, ten seeds: no query shifts anything, and no candidate depends on others
===================  ===================================================================================

``--out`` keeps what is finished: the same command goes on. ``--report`` fits nothing, and writes
``benchmarks/results/budgeted.json``; sets of which nothing is there keep their rows. Seconds are of the machine as it
was.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float
from rich.console import Console

from listwright.ranking import bundle
from listwright.ranking.atomic_file import atomic_file
from listwright.training.data.dataset import Dataset, Splits
from listwright.training.evaluation.bootstrap import percentile_interval, resample_means
from listwright.training.evaluation.protocol import evaluate
from listwright.training.first_stage.lambdamart import query_ndcg
from listwright.training.pipeline.budget import Budget
from listwright.training.pipeline.run import run
from listwright.training.pipeline.steps import load
from listwright.training.recipe import config
from listwright.training.recipe.config import Choice, Recipe
from listwright.training.recipe.data import SyntheticData
from listwright_lab import machine
from listwright_lab.science.plain_lightgbm import CUTOFF, Objective, fit_lightgbm

FOLDS = {"mq2008": 5, "ohsumed": 5, "airline": 5, "mslr-sample": 1, "demo": 1, "flat": 10}
WAYS = ("lightgbm", "lightgbm + relative", "fit without a bound", "fit")

Values = Float[np.ndarray, " N"]


@dataclass(frozen=True, slots=True)
class Part:
    """Fold of a set; of a synthetic set, a seed."""

    name: str
    number: int
    recipe: Recipe
    sources: tuple[str, ...]


def parts_of(name: str, path: str) -> Iterator[Part]:
    """Yield all parts of a set."""
    for number in range(1, FOLDS[name] + 1):
        sources: tuple[str, ...] = (path,) if path else ()
        if name == "flat":
            data = SyntheticData(queries=2000, min_length=20, max_length=20, numeric=10, categorical=1, shift=0.0)
            recipe = Recipe(name="flat", data=data, seed=number)
        elif name == "mslr-sample":
            files = ("msn1.fold1.train.5k", "changli.mslr_fold1_valid_sample", "msn1.fold1.test.5k")
            parts = zip(("train", "valid", "test"), files, strict=True)
            sources = tuple(f"{part}={path}/{file}.txt.gz" for part, file in parts)
            recipe = config.load("letor")
        else:
            recipe = config.load(name).model_copy(update={"fold": number})
        recipe = config.changed(recipe, {"choice": recipe.choice or Choice()})  # as listwright fit does
        yield Part(name, number, recipe, sources)


def twenty_lines(splits: Splits, *, relative: bool, objective: Objective = "lambdarank") -> Values:
    """Return ``(N,)`` test NDCG of LightGBM as most people would fit it."""
    rank = fit_lightgbm(splits.train, splits.valid, objective=objective, relative=relative)
    return query_ndcg(splits.test, rank(splits.test), CUTOFF)


def fit(part: Part, minutes: float | None, test: Dataset) -> tuple[Values, str]:
    """Return ``(N,)`` test NDCG of the bundle's default, and its name."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / part.name / "1"
        run(part.recipe, part.sources, out, budget=Budget(minutes), console=Console(quiet=True))
        fitted = bundle.load(out)
    manifest = fitted.manifest
    values = evaluate(fitted.reranker, test).values[manifest.strategy][f"ndcg@{CUTOFF}"]
    columns = " + relative" if manifest.relative else ""
    kind = "LightGBM" if manifest.strategy == "first_stage" else manifest.strategy
    return np.nan_to_num(values), kind + columns


def measure(part: Part, folder: Path, *, exhaustive: bool) -> None:
    """Measure whatever of a part has no results yet."""
    splits = load(part.recipe, part.sources)
    ways: dict[str, Callable[[], tuple[Values, str]]] = {
        "lightgbm": lambda: (twenty_lines(splits, relative=False), ""),
        "lightgbm + relative": lambda: (twenty_lines(splits, relative=True), ""),
        "fit": lambda: fit(part, None, splits.test),
        "fit without a bound": lambda: fit(part, 0.0, splits.test),
    }
    for way in WAYS:
        if way == "fit without a bound" and not exhaustive:
            continue
        file = folder / f"{part.name}-{part.number}-{way}.npz"
        if not file.exists():
            began = time.perf_counter()
            values, default = ways[way]()
            seconds = time.perf_counter() - began
            with atomic_file(file) as to:
                np.savez(to, allow_pickle=False, values=values, default=default, seconds=seconds)
            print(f"{part.name} {part.number} {way}: {values.mean():.4f} {default}, {seconds:.0f} s", flush=True)


def report(folder: Path) -> list[dict[str, object]]:
    """Return one row for each set; one that the folder has no results of keeps its row of ``budgeted.json``."""
    last = json.loads((machine.RESULTS / "budgeted.json").read_text(encoding="utf-8"))["sets"]
    before = {row["set"]: row for row in last}
    rows: list[dict[str, object]] = []
    for name, count in FOLDS.items():
        row: dict[str, object] = {"set": name}
        by_way: dict[str, Values] = {}
        for way in WAYS:
            files = [folder / f"{name}-{number}-{way}.npz" for number in range(1, count + 1)]
            parts = [dict(np.load(file)) for file in files if file.exists()]
            if len(parts) < count:
                continue
            values = np.concatenate([part["values"] for part in parts])
            figures: dict[str, object] = {
                f"ndcg@{CUTOFF}": round(float(values.mean()), 4),
                "seconds": round(float(np.mean([part["seconds"] for part in parts])), 1),
            }
            if "fit" in way:
                figures["defaults"] = [str(part["default"]) for part in parts]
            for rival in ("lightgbm + relative", "fit without a bound"):
                if "fit" in way and rival != way and rival in by_way:
                    gained = values - by_way[rival]
                    low, high = percentile_interval(resample_means(gained))
                    figures[f"over {rival}"] = [round(float(value), 4) for value in (gained.mean(), low, high)]
            row[way], by_way[way] = figures, values
            row["test_queries"] = len(values)
        if len(row) > 1 or name in before:
            rows.append(row if len(row) > 1 else before[name])
    return rows


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m listwright_lab.science.budgeted",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("sets", nargs="*", metavar="SET[=PATH]")
    parser.add_argument("--out", type=Path, required=True, help="folder for what is finished")
    parser.add_argument("--exhaustive", action="store_true", help="fit without a bound, too")
    parser.add_argument("--report", action="store_true", help="fit nothing, report what is there")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if not options.report:
        for name_and_path in options.sets:
            name, _, path = name_and_path.partition("=")
            for part in parts_of(name, path):
                measure(part, options.out, exhaustive=options.exhaustive)
        return
    seconds = "seconds: mean of a part, those of a fit with reading and report"
    protocol = f"NDCG@{CUTOFF}, paired differences with 95 % bootstrap over test queries; {seconds}"
    command = "python -m listwright_lab.science.budgeted --out FOLDER SET[=PATH] ..."
    print(machine.save("budgeted", command, {"protocol": protocol, "sets": report(options.out)}))


if __name__ == "__main__":
    main()
