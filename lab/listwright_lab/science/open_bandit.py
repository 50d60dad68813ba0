"""``python -m listwright_lab.science.open_bandit PATH``: estimators on Open Bandit's small logs, whose answer is known.

Two policies showed fashion items in the same week (Saito et al. 2020; st-tech/zr-obp on GitHub, folder ``obd``):
``random`` drew them uniformly, ``bts`` by Thompson sampling. A row is one item at one of three places, with its true
propensity and whether it was clicked. The click rate of each policy is estimated from the log of the other.

The truth is the click rate of a policy's own log: about 50 clicks of 10,000 rows. Its binomial interval is wide, and
every error has that of the truth in it; ``difference_interval`` counts both. The policy ``bts`` is valued as its
average over the week, the share of each item at each place of its own log: its probabilities are logged for shown items
alone, and its published Beta parameters are those of the start, from which it learned on.

The estimators of the papers have the logged propensities: IPS (Horvitz & Thompson 1952), SNIPS (Swaminathan & Joachims
2015), DM and DR (Dudik et al. 2011), SNDR (DR with normalised weights), Switch-DR (Wang et al. 2017) and DRos (Su et
al. 2020), with the thresholds of the least estimated variance plus squared bias. ``naive`` is the click rate of the log
as it is. For ``listwright`` each row is a list of all items, valued by the functions of ``listwright estimate``: a
place of the list is an item at a place, seen as often as the logged policy shows it on average; the logged propensities
are not used. Its DR is IPS wherever the log shows the item. If the target is uniform, its SNIPS is DM by definition.
One model predicts the clicks for all, out of fold; bootstrap intervals hold it fixed, so that of DM is too narrow.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from jaxtyping import Bool, Float, Int
from scipy.special import expit
from scipy.stats import binomtest

from listwright.training.evaluation.bootstrap import RESAMPLES, group_units, percentile_interval, resample_sums
from listwright.training.traffic.estimate.estimate import values_by_estimator
from listwright.training.traffic.estimate.estimators import LoggedLists, fit_attraction, value_lists
from listwright.training.traffic.estimate.lists import FOLDS
from listwright_lab import machine

CAMPAIGNS = ("men", "women")
DIRECTIONS = (("bts", "random"), ("random", "bts"))
"""Policy of the log, and the policy that is valued."""

PLACES = 3
THRESHOLDS = np.append(10.0 ** np.arange(0.0, 5.5, 0.5), np.inf)
"""Thresholds of Switch-DR and DRos to choose from; with an infinite one both are DR."""

Columns = dict[str, Float[np.ndarray, " N"]]
"""Values of each row by name."""


class Log(NamedTuple):
    """Log of a policy, each row an item at a place.

    Args:
        items: ``(N,)`` numbers of the shown items, from 0.
        places: ``(N,)`` places of the shown items, from 0.
        clicks: ``(N,)`` whether the shown items were clicked.
        propensities: ``(N,)`` probabilities that the policy shows these items at these places.
        features: ``(N, items, D)`` features of every item in each row.
    """

    items: Int[np.ndarray, " N"]
    places: Int[np.ndarray, " N"]
    clicks: Bool[np.ndarray, " N"]
    propensities: Float[np.ndarray, " N"]
    features: Float[np.ndarray, "N items D"]


def read_log(folder: Path, campaign: str) -> Log:
    """Read a log and its items."""
    rows = pl.read_csv(folder / f"{campaign}.csv")
    items = pl.read_csv(folder / "item_context.csv").sort("item_id")
    codes = pl.col(pl.String).rank("dense")
    of_rows = rows.select("position", pl.col("^user_feature_.*$")).with_columns(codes).to_numpy()
    of_items = items.select("item_id", pl.col("^item_feature_.*$")).with_columns(codes).to_numpy()
    affinity = rows.select(f"user-item_affinity_{number}" for number in items["item_id"]).to_numpy()
    whole = (
        np.broadcast_to(of_rows[:, None], (*affinity.shape, of_rows.shape[1])),
        np.broadcast_to(of_items, (*affinity.shape, of_items.shape[1])),
        affinity[:, :, None],
    )
    return Log(
        rows["item_id"].to_numpy(),
        rows["position"].to_numpy() - 1,
        rows["click"].to_numpy() > 0,
        rows["propensity_score"].to_numpy(),
        np.concatenate(whole, axis=2).astype(np.float32),
    )


def average_policy(log: Log) -> Float[np.ndarray, "K items"]:
    """Return the share of each item at each place of a log."""
    counts = np.zeros((PLACES, log.features.shape[1]))
    np.add.at(counts, (log.places, log.items), 1.0)
    shares: Float[np.ndarray, "K items"] = counts / counts.sum(axis=1, keepdims=True)
    return shares


def predict_clicks(log: Log) -> Float[np.ndarray, "N items"]:
    """Predict the probability of a click on every item in each row, by models fitted on other rows."""
    count, items, width = log.features.shape
    fold, predicted = np.random.default_rng(0).permutation(count) % FOLDS, np.empty((count, items))
    features = log.features[np.arange(count), log.items]
    for number in range(FOLDS):
        rest, own = fold != number, fold == number
        trees, base = fit_attraction(features[rest], log.clicks[rest], np.ones(int(rest.sum())))
        raw = np.asarray(trees.predict(log.features[own].reshape(-1, width)))
        predicted[own] = expit(base + raw).reshape(-1, items)
    return predicted


def switch(weights: Float[np.ndarray, " N"], threshold: float) -> Float[np.ndarray, " N"]:
    """Return the weights without those above the threshold (Wang et al. 2017)."""
    return np.where(weights <= threshold, weights, 0.0)


def shrink(weights: Float[np.ndarray, " N"], threshold: float) -> Float[np.ndarray, " N"]:
    """Return the weights w threshold / (w^2 + threshold), of optimistic shrinkage (Su et al. 2020)."""
    return np.asarray(weights / (1.0 + np.square(weights) / threshold))


def choose_threshold(
    change: Callable[[Float[np.ndarray, " N"], float], Float[np.ndarray, " N"]],
    weights: Float[np.ndarray, " N"],
    errors: Float[np.ndarray, " N"],
    predicted: Float[np.ndarray, " N"],
) -> float:
    """Return the threshold with the least estimated variance plus squared bias."""

    def squared_error(threshold: float) -> float:
        changed = change(weights, threshold)
        variance = float((predicted + changed * errors).var()) / len(weights)
        return variance + float(((weights - changed) * errors).mean()) ** 2

    return float(min(THRESHOLDS, key=squared_error))


def value_rows(
    log: Log, target: Float[np.ndarray, "K items"], predicted: Float[np.ndarray, "N items"]
) -> tuple[Columns, dict[str, float]]:
    """Return the terms of the papers' estimators of a target policy, and their thresholds."""
    weights = target[log.places, log.items] / log.propensities
    errors = log.clicks - predicted[np.arange(len(weights)), log.items]
    dm = (target[log.places] * predicted).sum(axis=1)
    thresholds = {
        name: choose_threshold(change, weights, errors, dm) for name, change in (("switch", switch), ("dros", shrink))
    }
    columns = {
        "clicks": log.clicks.astype(np.float64),
        "weight": weights,
        "ips": weights * log.clicks,
        "dm": dm,
        "correction": weights * errors,
        "switch": switch(weights, thresholds["switch"]) * errors,
        "dros": shrink(weights, thresholds["dros"]) * errors,
    }
    return columns, thresholds


def value_as_lists(
    log: Log,
    logged: Float[np.ndarray, "K items"],
    target: Float[np.ndarray, "K items"],
    predicted: Float[np.ndarray, "N items"],
) -> Columns:
    """Return the values of a target policy as ``listwright estimate`` computes them, each row a list of all items."""
    count, items = predicted.shape
    cells = log.places[:, None] * items + np.arange(items)
    clicks = np.zeros((count, items), dtype=bool)
    clicks[np.arange(count), log.items] = log.clicks
    places = np.where(logged.ravel()[cells] > 0.0, cells, logged.size)
    lists = LoggedLists(np.arange(count + 1) * items, places.ravel(), clicks.ravel(), predicted.ravel())
    values = values_by_estimator(
        value_lists(lists, cells.reshape(-1, 1), propensities=logged.ravel(), weights=target.ravel(), clip=0.0)
    )
    return {f"listwright {name}": values[name][0, :, 0] for name in ("dr", "snips")}


def combine(means: dict[str, Any]) -> dict[str, Any]:
    """Return the estimates from the means of all columns."""
    dm, weight = means["dm"], means["weight"]
    return {
        "naive": means["clicks"],
        "ips": means["ips"],
        "snips": means["ips"] / weight,
        "dm": dm,
        "dr": dm + means["correction"],
        "sndr": dm + means["correction"] / weight,
        "switch-dr": dm + means["switch"],
        "dros": dm + means["dros"],
        **{name: mean for name, mean in means.items() if name.startswith("listwright")},
    }


def summarise(columns: Columns, clicks: Bool[np.ndarray, " M"]) -> dict[str, Any]:
    """Return the estimates with 95 % bootstrap intervals over rows, and their errors; clicks are the target's own."""
    rng, true = np.random.default_rng(0), float(clicks.mean())
    table = np.column_stack([*columns.values(), np.ones(len(columns["clicks"]))])
    sums = resample_sums(group_units(table, rng), rng)
    samples = combine(dict(zip(columns, (sums[:, :-1] / sums[:, -1:]).T, strict=True)))
    true_samples = rng.binomial(len(clicks), true, RESAMPLES) / len(clicks)
    estimates = {}
    for name, value in combine({name: float(column.mean()) for name, column in columns.items()}).items():
        estimates[name] = {
            "value": value,
            "interval": percentile_interval(samples[name]).tolist(),
            "absolute_error": abs(value - true),
            "relative_error": abs(value - true) / true,
            "difference_interval": percentile_interval(samples[name] - true_samples).tolist(),
        }
    interval = binomtest(int(clicks.sum()), len(clicks)).proportion_ci()
    return {
        "true": {"value": true, "clicks": int(clicks.sum()), "interval": [interval.low, interval.high]},
        "mean_weight": float(columns["weight"].mean()),  # 1 is expected
        "largest_weight": float(columns["weight"].max()),
        "effective_rows": float(columns["weight"].sum() ** 2 / np.square(columns["weight"]).sum()),
        "estimates": estimates,
    }


def main() -> None:
    """Run the command line; write ``benchmarks/results/open_bandit.json``."""
    parser = argparse.ArgumentParser(
        prog="python -m listwright_lab.science.open_bandit",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("path", type=Path, metavar="PATH", help="folder with bts and random")
    folder = parser.parse_args().path
    results: list[dict[str, Any]] = []
    for campaign in CAMPAIGNS:
        logs = {policy: read_log(folder / policy / campaign, campaign) for policy in ("bts", "random")}
        bts = average_policy(logs["bts"])
        policies = {"bts": bts, "random": np.full_like(bts, 1.0 / bts.shape[1])}
        for behaviour, target in DIRECTIONS:
            log, predicted = logs[behaviour], predict_clicks(logs[behaviour])
            columns, thresholds = value_rows(log, policies[target], predicted)
            columns |= value_as_lists(log, policies[behaviour], policies[target], predicted)
            facts = {"campaign": campaign, "log": behaviour, "policy": target, "rows": len(log.items)}
            results.append(facts | {"thresholds": thresholds} | summarise(columns, logs[target].clicks))
            errors = {name: f"{each['absolute_error']:.2%}" for name, each in results[-1]["estimates"].items()}
            print(campaign, behaviour, "->", target, errors)
    print(machine.save("open_bandit", "python -m listwright_lab.science.open_bandit PATH", {"results": results}))


if __name__ == "__main__":
    main()
