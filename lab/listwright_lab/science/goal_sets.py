"""Sets of lists with two goals, on which :mod:`listwright_lab.science.goals` measures."""

from __future__ import annotations

from datetime import date
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
from jaxtyping import Float

from listwright.training.data.tables import public, tafeng
from listwright.training.pipeline.goals import grade

SECOND = "second"
"""Column with the values of the second goal."""

LISTS = 4_000
"""Lists of a planted set, and training lists of a draw of Ta Feng."""

PERIODS = (
    (tafeng.FIRST_DAY, date(2001, 1, 28)),
    (date(2001, 1, 29), date(2001, 2, 6)),
    (date(2001, 2, 7), date(2001, 2, 15)),
)
"""First and last day of the visits of Ta Feng for training, validation and test."""

Values = Float[np.ndarray, "R 2"]
"""Values of the rows by both goals."""


class Data(NamedTuple):
    """A set of lists with two goals.

    Args:
        parts: Rows for training, validation and test: ``qid``, ``label``, ``second``, and features.
        categorical: Names of features that are categories.
        gains: Gain of label 0, 1 and so on; None for labels of 0 and 1.
        expected: ``(R, 2)`` expected values of the test rows by each goal, where they are known.
    """

    parts: tuple[pl.DataFrame, ...]
    categorical: tuple[str, ...] = ()
    gains: tuple[float, ...] | None = None
    expected: Values | None = None


def planted(seed: int, *, of_booked: bool) -> Data:
    """Draw lists of 20 candidates; margin and probability of booking are functions of 12 features."""
    rng, length = np.random.default_rng(seed), 20
    x = rng.normal(size=(LISTS * length, 12))
    context = np.repeat(rng.normal(size=(LISTS, 2)), length, axis=0)
    quality, price = x[:, 0], x[:, 1]
    utility = -2.2 + 0.9 * quality - 0.9 * price + 0.7 * np.tanh(x[:, 2] * x[:, 3]) + 0.5 * context[:, 0] * price
    probability = 1.0 / (1.0 + np.exp(-utility - 0.6 * (x[:, 4] > 0.8)))
    margin = np.exp(0.8 * price - 0.3 * quality + 0.5 * np.sin(2.0 * x[:, 5]) + 0.2 * context[:, 1])
    booked = (rng.random(len(x)) < probability).astype(np.int64)
    observed = margin * np.exp(rng.normal(scale=0.4, size=len(x)) - 0.08)
    columns = {f"x{n}": column for n, column in enumerate(np.column_stack([x, context]).T)}
    second, expected = (booked * observed, probability * margin) if of_booked else (observed, margin)
    goals = {"label": booked, SECOND: second, "probability": probability, "expected": expected}
    rows = pl.DataFrame({"qid": np.repeat(np.arange(LISTS), length), **goals, **columns})
    rows = rows.filter(pl.col("label").sum().over("qid") > 0).with_columns(part=pl.col("qid").rle_id())
    rows = rows.with_columns((pl.col("part") / pl.col("part").max() * 5).floor())
    parts = [rows.filter(part).drop("part") for part in (pl.col("part") < 3, pl.col("part") == 3, pl.col("part") > 3)]
    known = parts[2].select("probability", "expected").to_numpy()
    return Data(tuple(part.drop("probability", "expected") for part in parts), expected=known)


def orange_juice(path: Path, seed: int, *, money: bool) -> Data:
    """Return store-weeks of eleven brands; seeds are windows of 80 % of the weeks, each split by week, 60/20/20."""
    rows, stores = (public.of_bayesm(path, frame) for frame in ("yx", "storedemo"))
    of_list, key = ["store", "week"], pl.col("store", "brand", "week").cast(pl.Int64)
    prices = rows.select(f"price{n}" for n in range(1, 12)).to_numpy()
    own = prices[np.arange(len(rows)), rows["brand"].to_numpy().astype(int) - 1]
    rows = rows.select(key, "logmove", "deal", "feat", "profit", price=pl.Series(own)).sort("store", "brand", "week")
    before = {f"last_{name}": pl.col(name).shift(1) for name in ("logmove", "profit", "price", "deal", "feat", "week")}
    before["mean_logmove"] = pl.col("logmove").shift(1).ewm_mean(alpha=0.2, ignore_nulls=True)
    rows = rows.with_columns(**{name: of.over("store", "brand") for name, of in before.items()}).with_columns(
        weeks_since=pl.col("week") - pl.col("last_week"),
        price_over_last=pl.col("price") / pl.col("last_price"),
        price_over_mean=pl.col("price") / pl.col("price").mean().over(of_list),
        price_rank=pl.col("price").rank().over(of_list),
        deals=pl.col("deal").sum().over(of_list),
        logmove_in_list=pl.col("last_logmove") - pl.col("last_logmove").mean().over(of_list),
        profit_in_list=pl.col("last_profit") - pl.col("last_profit").mean().over(of_list),
    )
    stores = stores.rename({"STORE": "store"}).cast({"store": pl.Int64})
    rows = rows.join(stores, on="store", how="left").sort("week", "store", "brand")
    units, margin = pl.col("logmove").exp(), pl.col("profit").clip(0.0)
    rows = rows.with_columns(
        qid=pl.col("store") * 1000 + pl.col("week"),
        units=units,
        **{SECOND: units * pl.col("price") * margin / 100.0 if money else margin},
    )
    weeks = rows["week"].unique().sort()
    window = weeks[int(0.1 * seed * len(weeks)) :][: int(0.8 * len(weeks))]
    ends = [window[0], window[int(0.6 * len(window))], window[int(0.8 * len(window))], window[-1] + 1]
    parts = [rows.filter(pl.col("week").is_between(low, high, closed="left")) for low, high in pairwise(ends)]
    edges, gains = grade(parts[0]["units"].to_numpy())  # no row has no units: label 0 is grade 1
    grades = [np.searchsorted(edges, part["units"].to_numpy(), side="right") - 1 for part in parts]
    labelled = (
        part.drop("store", "week", "logmove", "profit", "last_week", "units").with_columns(label=of.clip(0))
        for part, of in zip(parts, grades, strict=True)
    )
    return Data(tuple(labelled), ("brand",), (0.0, *gains[2:]))


def ta_feng(path: Path, seed: int) -> Data:
    """Draw visits up to 28 January; tested on usual days, 7 to 15 February."""
    rows = _visits(path)
    train, valid, test = (
        rows.filter(pl.col("day").is_between(pl.lit(first), pl.lit(last))).drop("day") for first, last in PERIODS
    )
    share, rng = LISTS / train["qid"].n_unique(), np.random.default_rng(seed)
    samples = []
    for part in (train, valid):
        qids = part["qid"].unique(maintain_order=True)
        samples.append(part.filter(pl.col("qid").is_in(qids.filter(rng.random(len(qids)) < share).implode())))
    return Data((*samples, test), ("age_group", "pin_code"))


@cache
def _visits(path: Path) -> pl.DataFrame:
    rows = tafeng.table_with_spent(tafeng.read_transactions(path)).drop("subclass")
    return rows.rename({"visit": "qid", "bought": "label", "spent": SECOND})
