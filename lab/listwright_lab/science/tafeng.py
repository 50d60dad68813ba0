"""``python -m listwright_lab.science.tafeng TAFENG --out FOLDER``: Ta Feng on usual days and in a promotion.

A fit in its default time beside ``buyers_7`` alone, and beside LightGBM with early stopping as most people fit it:
by ``lambdarank`` and by a softmax loss, each with and without ``subclass``, a category of 1,867 values. Every draw is
so many training lists of its own (``--lists``), on which all rankers are fitted. All lists are in order of time:

===============  ============================  ============================================================
Part             Days                          Use
===============  ============================  ============================================================
Training         up to 28 January              drawn
Validation       29 January to 6 February      stops every fit; drawn in the same share
Usual days       7 to 15 February              measured
Promotion        20 to 28 February             measured: the recipe's test queries. From 16 February on one
                                               product is sold at 13 instead of 25; from 20 to 23 February
                                               half of all customers buy it
After the rush   24 to 28 February             the last days of the promotion once more
===============  ============================  ============================================================

Intervals are 95 % percentile bootstraps over test queries and draws, so the spread over draws is in them. ``--out``
keeps what is finished: the same command goes on, and reports once every draw is there.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
from jaxtyping import Float, Int
from rich.console import Console

from listwright.ranking import bundle
from listwright.ranking.atomic_file import atomic_file
from listwright.training.data.dataset import Dataset, Splits
from listwright.training.data.split import checked, merged
from listwright.training.data.tables import tafeng
from listwright.training.evaluation.bootstrap import percentile_interval
from listwright.training.evaluation.protocol import evaluate
from listwright.training.first_stage.lambdamart import query_ndcg
from listwright.training.pipeline.budget import Budget
from listwright.training.pipeline.run import run
from listwright.training.pipeline.steps import load
from listwright.training.recipe import config
from listwright.training.recipe.config import Choice, Recipe
from listwright_lab import machine
from listwright_lab.crossed_means import resample_crossed_means
from listwright_lab.science import curve
from listwright_lab.science.budgeted import Values, twenty_lines
from listwright_lab.science.plain_lightgbm import CUTOFF

PERIODS = {
    "usual": ("2001-02-07", "2001-02-15"),
    "promotion": ("2001-02-20", "2001-02-28"),
    "after the rush": ("2001-02-24", "2001-02-28"),
}
"""First and last day of each period with test queries."""

MANY_VALUED = "subclass"

WITHOUT = f" without {MANY_VALUED}"

BY_SALES, FIT = "buyers_7", "fit"


def softmax(
    labels: Float[np.ndarray, " R"], scores: Float[np.ndarray, " R"], _: object, lengths: Int[np.ndarray, " N"]
) -> tuple[Float[np.ndarray, " R"], Float[np.ndarray, " R"]]:
    """Return gradient and Hessian of the cross entropy between a list's softmax and its labels, which are 0 or 1."""
    starts, query = np.cumsum(lengths) - lengths, np.repeat(np.arange(len(lengths)), lengths)
    share = np.exp(scores - np.maximum.reduceat(scores, starts)[query])
    share /= np.add.reduceat(share, starts)[query]
    return share - labels / np.add.reduceat(labels, starts)[query], np.maximum(share * (1 - share), 1e-16)


def rankers(recipe: Recipe, splits: Splits) -> dict[str, Callable[[], tuple[Values, str]]]:
    """Return the rankers: each a function with ``(N,)`` test NDCG and the name of what a fit ships."""
    names = splits.train.schema.names
    others = np.array([column for column, name in enumerate(names) if name != MANY_VALUED])
    train, valid, test = (part.narrowed(others) for part in (splits.train, splits.valid, splits.test))
    without = replace(splits, train=train, valid=valid, test=test)
    sales = np.asarray(splits.test.features[:, names.index(BY_SALES)], dtype=np.float64)
    return {
        BY_SALES: lambda: (query_ndcg(splits.test, np.nan_to_num(sales, nan=-1.0), CUTOFF), ""),
        "lambdarank": lambda: (twenty_lines(splits, relative=False), ""),
        f"lambdarank{WITHOUT}": lambda: (twenty_lines(without, relative=False), ""),
        "softmax": lambda: (twenty_lines(splits, relative=False, objective=softmax), ""),
        f"softmax{WITHOUT}": lambda: (twenty_lines(without, relative=False, objective=softmax), ""),
        FIT: lambda: fit(recipe, splits),
    }


def fit(recipe: Recipe, splits: Splits) -> tuple[Values, str]:
    """Return ``(N,)`` test NDCG of the default of a fit in its default time, and its name."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "tafeng" / "1"
        run(recipe, splits, out, budget=Budget(None), console=Console(quiet=True))
        fitted = bundle.load(out)
    manifest = fitted.manifest
    values = evaluate(fitted.reranker, splits.test).values[manifest.strategy][f"ndcg@{CUTOFF}"]
    kind = "LightGBM" if manifest.strategy == "first_stage" else manifest.strategy
    return np.nan_to_num(values), kind + (" + relative" if manifest.relative else "")


def draw_lists(whole: Splits, test: Dataset, lists: int, draw: int) -> Splits:
    """Draw training lists, and validation lists in the same share."""
    rng, share = np.random.default_rng(draw), lists / len(whole.train)
    train, valid = (part.select(curve.sample(rng, len(part), share)) for part in (whole.train, whole.valid))
    return checked(train, valid, test, f"tafeng, draw {draw} of {lists} lists")


def report(folder: Path, test: Dataset, draws: int) -> dict[str, object]:
    """Return the figures of every ranker in every period, and what the fits ship."""
    days = np.array([qid.partition("/")[2] for qid in test.qids])
    names = sorted({file.stem.partition("-")[2] for file in folder.glob("0-*.npz")})
    results = {name: [dict(np.load(folder / f"{draw}-{name}.npz")) for draw in range(draws)] for name in names}
    periods: dict[str, object] = {}
    for period, (first, last) in PERIODS.items():
        within = (days >= first) & (days <= last)
        values = {name: np.stack([of["values"][within] for of in every]) for name, every in results.items()}
        periods[period] = {
            "days": [first, last],
            "test_queries": int(within.sum()),
            "rankers": {
                name: {
                    f"ndcg@{CUTOFF}": _mean(of),
                    "by_draw": [round(float(mean), 4) for mean in of.mean(axis=1)],
                    **({} if name == FIT else {"fit_gains": _mean(values[FIT] - of)}),
                    **({"without_gains": _mean(values[other] - of)} if (other := name + WITHOUT) in values else {}),
                }
                for name, of in values.items()
            },
        }
    return {
        "shipped": [str(of["default"]) for of in results[FIT]],
        "cpu_seconds": {
            name: round(float(np.mean([of["seconds"] for of in every])), 1) for name, every in results.items()
        },
        "periods": periods,
    }


def _mean(values: Float[np.ndarray, "draws N"]) -> list[float]:
    """Return a mean and its interval."""
    low, high = percentile_interval(resample_crossed_means(values))
    return [round(float(value), 4) for value in (values.mean(), low, high)]


def share_of_customers(source: str) -> list[dict[str, object]]:
    """Return, for each day from 14 February on, the price of the product in promotion and who bought it."""
    lines = tafeng.read_transactions(Path(source))
    last = lines.filter(pl.col("day") >= pl.date(2001, 2, 14))
    product = last.group_by("product").agg(pl.col("customer").len()).sort("customer").item(-1, 0)
    rows = last.group_by("day").agg(
        median_price=(pl.col("paid") / pl.col("amount")).filter(pl.col("product") == product).median(),
        share=pl.col("customer").filter(pl.col("product") == product).n_unique() / pl.col("customer").n_unique(),
    )
    return rows.sort("day").select(pl.col("day").dt.to_string(), "median_price", pl.col("share").round(3)).to_dicts()


def main() -> None:
    """Run the command line; write ``benchmarks/results/tafeng.json``."""
    parser = argparse.ArgumentParser(
        prog="python -m listwright_lab.science.tafeng",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("source", metavar="TAFENG", help="as for listwright fit tafeng --data")
    parser.add_argument("--out", type=Path, required=True, help="folder for what is finished")
    parser.add_argument("--draws", type=int, default=5, metavar="N", help="draws of training lists (default: 5)")
    parser.add_argument(
        "--lists", type=int, default=4_000, metavar="N", help="training lists of a draw (default: 4000)"
    )
    options = parser.parse_args()
    recipe = config.load("tafeng")
    recipe = config.changed(recipe, {"choice": recipe.choice or Choice()})  # as listwright fit does
    whole, tests = curve.in_time(load(recipe, [options.source]))
    test = merged([tests["usual"], tests["promotion"]])
    options.out.mkdir(parents=True, exist_ok=True)
    for draw in range(options.draws):
        for name, rank in rankers(
            config.changed(recipe, {"seed": draw}), draw_lists(whole, test, options.lists, draw)
        ).items():
            file = options.out / f"{draw}-{name}.npz"
            if not file.exists():
                began = time.process_time()
                values, default = rank()
                with atomic_file(file) as to:
                    np.savez(to, values=values, default=default, seconds=time.process_time() - began)
                print(f"draw {draw}, {name}: {values.mean():.4f} {default}", flush=True)
    result = {
        "protocol": f"NDCG@{CUTOFF}; 95 % percentile bootstrap over test queries and draws; mean CPU seconds",
        "draws": options.draws,
        "lists": {"train": options.lists, "of": len(whole.train)},
        "promotion_by_day": share_of_customers(options.source),
        **report(options.out, test, options.draws),
    }
    command = (
        f"python -m listwright_lab.science.tafeng TAFENG --out FOLDER --draws {options.draws} --lists {options.lists}"
    )
    print(machine.save("tafeng", command, result))


if __name__ == "__main__":
    main()
