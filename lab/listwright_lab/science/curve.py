"""``python -m listwright_lab.science.curve TAFENG --out FOLDER``: from how many lists on does a second stage pay?

LightGBM, LightGBM with list-relative columns, and an MLP, QILCM and QILCM2 on top of the former, on a growing number of
training lists of Ta Feng. All have their default settings, but LightGBM's loss is ``lambdarank``, and networks on more
than 2,000 lists wait 5 epochs for a better one, not 15. The MLP sees no list: what QILCM gains and the MLP gains, too,
is not the list's context. All lists are in order of time:

==============  ============================  ==============================================
Part            Days                          Use
==============  ============================  ==============================================
Training        up to 28 January              drawn by the seed: 500, 2,000, 8,000, or all
Validation      29 January to 6 February      stops every fit; drawn in the same share
Usual days      7 to 19 February              measured: the recipe's validation queries
Promotion       20 to 28 February             measured: the recipe's test queries. One product
                                              at half its price is in half of all baskets
==============  ============================  ==============================================

A seed draws the lists and all that is random in a fit. Intervals are 95 % percentile bootstraps over test queries and
seeds. ``--out`` keeps what is finished: the same command goes on. ``--report`` fits nothing, and writes
``benchmarks/results/curve.json`` and ``curve.svg`` of what is there; numbers of lists of which nothing is there keep
the rows that ``curve.json`` has.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from listwright.ranking.atomic_file import atomic_file
from listwright.ranking.relative import NUMBER_KINDS
from listwright.training.data.dataset import Dataset, Splits
from listwright.training.evaluation.bootstrap import percentile_interval
from listwright.training.first_stage import fit as first_stage
from listwright.training.first_stage.lambdamart import query_ndcg
from listwright.training.pipeline.steps import load
from listwright.training.recipe import config
from listwright.training.recipe.config import LambdaMart, Recipe
from listwright.training.second_stage import fit as second_stage
from listwright.training.second_stage import loop
from listwright.training.second_stage.batching import lists_for
from listwright_lab import machine
from listwright_lab.crossed_means import resample_crossed_means
from listwright_lab.science.drawing import GREY, page, plain

CUTOFF = 10
SIZES = (500, 2_000, 8_000, 0)
"""Training lists; 0 stands for all."""

LAST_DAY = "2001-01-28"
"""Last day of the training lists."""

TITLES = {
    "plain": "LightGBM",
    "relative": "LightGBM + relative",
    "mlp": "MLP",
    "qilcm": "QILCM",
    "qilcm2": "QILCM2",
}
FOLDS = {"plain": 5, "relative": 2}
"""Folds of the out-of-fold scores. Networks train on those of ``plain`` only."""
COLOURS = {"relative": "#d29922", "mlp": "#a371f7", "qilcm": "#388bfd", "qilcm2": "#3fb950"}
COLUMNS = ("share_of_visits", "buyers_7")
"""Features that rank by themselves, for comparison."""

MANY, PATIENCE = 2_000, 5
"""Number of lists above which networks have the patience ``PATIENCE``, in epochs: an epoch has far more steps there."""

Values = Float[np.ndarray, " N"]


def measure(recipe: Recipe, splits: Splits, tests: dict[str, Dataset], lists: int, seed: int) -> dict[str, Values]:
    """Fit every ranker, and measure it.

    Returns:
        ``(N,)`` NDCG of each ranker in each period, and ``(3,)`` its seconds, validation NDCG, and trees or best epoch.
    """
    rng = np.random.default_rng([seed, lists])
    share = lists / len(splits.train) if lists else 1.0
    train, valid = (part.select(sample(rng, len(part), share)) for part in (splits.train, splits.valid))
    splits = replace(splits, train=train, valid=valid)
    spec = recipe.first_stage
    assert isinstance(spec, LambdaMart)
    figures: dict[str, Values] = {}
    for name in TITLES:
        began = time.perf_counter()
        if name in FOLDS:
            kinds = NUMBER_KINDS if name == "relative" else "none"
            rank = spec.settings.model_copy(update={"objective": "lambdarank"})
            settings = spec.model_copy(update={"trials": 1, "folds": FOLDS[name], "relative": kinds, "settings": rank})
            with tempfile.TemporaryDirectory() as state:
                first = first_stage.fit(settings, splits, seed=seed, state=Path(state))
            if name == "plain":
                alone = first
            values = {period: query_ndcg(test, first.scores_of(test), CUTOFF) for period, test in tests.items()}
            facts = float(query_ndcg(valid, first.valid_scores, CUTOFF).mean()), int(str(first.facts["trees"]))
        else:
            model = recipe.model_named(name)
            if len(train) > MANY:
                model = model.model_copy(update={"patience": PATIENCE})
            network = second_stage.fit(model, splits, alone, seed=seed)
            assert network is not None
            values = {}
            for period, test in tests.items():
                scores = alone.scores_of(test)
                ranked = lists_for(network.spec, test, scores)
                values[period] = loop.query_ndcg(loop.predict(network.module, ranked), ranked, test, scores, CUTOFF)
            facts = network.valid_ndcg, network.best_epoch
        figures |= {f"{name} {period}": of for period, of in values.items()}
        figures[f"{name} facts"] = np.array([time.perf_counter() - began, *facts])
        means = {period: round(float(of.mean()), 4) for period, of in values.items()}
        print(f"{len(train)} lists, seed {seed}, {name}: {means} {figures[f'{name} facts'].round(4)}", flush=True)
    return figures


def sample(rng: np.random.Generator, count: int, share: float) -> Int[np.ndarray, " M"]:
    """Draw a share of the lists."""
    return np.sort(rng.choice(count, round(count * share), replace=False))


def report(folder: Path, every: int) -> list[dict[str, Any]]:
    """Return one row for each number of lists, of which there are ``every``.

    A number that the folder has no fits of keeps its row of ``curve.json``. Each row names the processor of its fits.
    """
    last = json.loads((machine.RESULTS / "curve.json").read_text(encoding="utf-8"))
    before = {row["lists"]: {"cpu": last["machine"]["cpu"]} | row for row in last["rows"]}
    rows = []
    for size in SIZES:
        parts = [dict(np.load(file)) for file in sorted(folder.glob(f"{size}-*.npz"))]
        if parts:
            facts = {name: np.stack([part[f"{name} facts"] for part in parts]).mean(axis=0) for name in TITLES}
            row: dict[str, Any] = {"lists": size or every, "seeds": len(parts), "cpu": machine.facts()["cpu"]}
            for period in ("usual", "promotion"):
                values = {name: np.stack([part[f"{name} {period}"] for part in parts]) for name in TITLES}
                row[period] = {name: _figures(values, name) for name in TITLES}
            row["valid_ndcg@10"] = {name: round(float(of[1]), 4) for name, of in facts.items()}
            row["trees_or_best_epoch"] = {name: round(float(of[2]), 1) for name, of in facts.items()}
            rows.append(row)
        elif (size or every) in before:
            rows.append(before[size or every])
    return rows


def _figures(values: dict[str, Float[np.ndarray, "seeds N"]], name: str) -> dict[str, object]:
    rivals = [rival for rival in ("plain", "relative", "mlp") if name not in (rival, "plain")]
    return {
        "ndcg@10": round(float(values[name].mean()), 4),
        "sd_over_seeds": round(float(values[name].mean(axis=1).std(ddof=min(1, len(values[name]) - 1))), 4),
        **{f"over_{rival}": _gain(values[name] - values[rival]) for rival in rivals},
    }


def _gain(differences: Float[np.ndarray, "seeds N"]) -> list[float]:
    """Return a mean and its interval."""
    low, high = percentile_interval(resample_crossed_means(differences))
    return [round(float(value), 4) for value in (differences.mean(), low, high)]


def draw(rows: list[dict[str, Any]], file: Path) -> None:
    """Draw the gains over LightGBM against the number of training lists."""
    with page(file, 8.4, 3.6, salt="curve") as figure:
        sides = figure.subplots(1, 2)
        counts = [row["lists"] for row in rows]
        for axes, (period, title) in zip(sides, {"usual": "usual days", "promotion": "promotion"}.items(), strict=True):
            plain(axes)
            for name, colour in COLOURS.items():
                gains = np.array([row[period][name]["over_plain"] for row in rows])
                errors = np.abs(gains[:, 1:] - gains[:, :1]).T
                axes.errorbar(counts, gains[:, 0], yerr=errors, fmt="-o", color=colour, capsize=3, label=TITLES[name])
            axes.axhline(0.0, color=GREY, linewidth=1)
            axes.set_xscale("log")
            axes.minorticks_off()
            axes.set_xticks(counts, [f"{count:,}" for count in counts])
            axes.set(xlabel="training lists", title=title)
        sides[0].set(ylabel="gain over LightGBM, NDCG@10")
        sides[1].legend(frameon=False)


def _missing(folder: Path, seeds: list[int], sizes: list[int]) -> Iterator[tuple[int, int, Path]]:
    for seed in seeds:
        for size in sizes:
            file = folder / f"{size}-{seed}.npz"
            if not file.exists():
                yield size, seed, file


def in_time(splits: Splits) -> tuple[Splits, dict[str, Dataset]]:
    """Return the recipe's training lists by day, and the two periods that are measured."""
    late = np.array([qid.partition("/")[2] > LAST_DAY for qid in splits.train.qids])
    train, valid = (splits.train.select(np.flatnonzero(which)) for which in (~late, late))
    return replace(splits, train=train, valid=valid), {"usual": splits.valid, "promotion": splits.test}


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m listwright_lab.science.curve",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("source", metavar="TAFENG", help="as for listwright fit tafeng --data")
    parser.add_argument("--out", type=Path, required=True, help="folder for what is finished")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES), help="training lists; 0: all")
    parser.add_argument("--report", action="store_true", help="fit nothing, report what is there")
    options = parser.parse_args()
    recipe = config.load("tafeng")
    splits, tests = in_time(load(recipe, [options.source]))
    options.out.mkdir(parents=True, exist_ok=True)
    if not options.report:
        for size, seed, file in _missing(options.out, options.seeds, options.sizes):
            figures = measure(recipe, splits, tests, size, seed)
            with atomic_file(file) as to:
                np.savez(to, allow_pickle=False, **figures)
        return
    by_column = {
        period: {name: round(float(query_ndcg(test, _column(test, name), CUTOFF).mean()), 4) for name in COLUMNS}
        for period, test in tests.items()
    }
    rows = report(options.out, len(splits.train))
    result: dict[str, object] = {
        "protocol": f"NDCG@{CUTOFF}, 95 % percentile bootstrap over test queries and seeds",
        "settings": f"defaults; networks on more than {MANY} lists have a patience of {PATIENCE} epochs",
        "lists": {"train": len(splits.train), "valid": len(splits.valid)}
        | {name: len(of) for name, of in tests.items()},
        "by_one_column": by_column,
        "rows": rows,
    }
    print(machine.save("curve", "python -m listwright_lab.science.curve TAFENG --out FOLDER", result))
    draw(rows, machine.RESULTS / "curve.svg")


def _column(data: Dataset, name: str) -> Float[np.ndarray, " R"]:
    """Return a feature as scores; a missing value ranks last."""
    values: Float[np.ndarray, " R"] = np.asarray(data.features[:, data.schema.index[name]], dtype=np.float64)
    scores: Float[np.ndarray, " R"] = np.nan_to_num(values, nan=-1.0)
    return scores


if __name__ == "__main__":
    main()
