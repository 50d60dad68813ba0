"""Clicks for ``listwright_lab.science.position_bias``: a weak ranker serves judged queries, and visitors click."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

from listwright.training.data.dataset import Dataset, Splits
from listwright.training.data.synthetic.traffic import (
    Shop,
    Visits,
    attractiveness,
    clicked,
    examination,
    judged_rows,
    swapped_rows,
)
from listwright.training.first_stage import lambdamart
from listwright.training.recipe.config import LambdaMart, LambdaMartSettings
from listwright.training.traffic.propensity import PositionBias, estimate

PLACES = 10

_SETTINGS = LambdaMartSettings(objective="lambdarank", num_leaves=15, min_data_in_leaf=50)
SPEC = LambdaMart(trials=1, max_trees=300, patience=30, relative="none", settings=_SETTINGS)
"""Of every fit; the weak ranker has fewer trees."""


@dataclass(frozen=True, slots=True)
class Served:
    """Queries and the order in which they are shown.

    Args:
        data: with the true labels.
        orders: of each query, candidates as the weak ranker has them; the shown ones only.
        highest: the largest label of the set.
    """

    data: Dataset
    orders: list[Int[np.ndarray, " M"]]
    highest: int

    def sessions(self, count: int, strength: float, rng: np.random.Generator) -> tuple[Dataset, Int[np.ndarray, " R"]]:
        """Return clicked lists as a dataset, and the place of each row."""
        queries = rng.integers(0, len(self.data), count)
        rows = np.concatenate([self.data.offsets[n] + self.orders[n] for n in queries])
        lengths = np.array([len(self.orders[n]) for n in queries])
        places = np.concatenate([np.arange(1, length + 1) for length in lengths])
        looks = examination(PLACES, strength)[places - 1]
        hits = clicked(attractiveness(self.data.labels[rows], highest=self.highest), looks, rng)
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        qids = tuple(f"s{n}" for n in range(count))
        features = np.asarray(self.data.features[rows], dtype=np.float32)
        return Dataset(features, hits.astype(np.int32), offsets, qids, self.data.schema), places


def serve(splits: Splits, seed: int) -> tuple[Served, Served]:
    """Return training and validation queries as the weak ranker shows them."""
    rng = np.random.default_rng(seed)
    tenth = rng.permutation(len(splits.train))[: max(10, len(splits.train) // 10)]
    weak = lambdamart.tune(splits.train.select(np.sort(tenth)), splits.valid, replace_trees(10), seed=seed)
    highest = max(1, *(int(part.labels.max()) for part in (splits.train, splits.valid)))
    train, valid = (Served(part, _orders(part, weak.model), highest) for part in (splits.train, splits.valid))
    return train, valid


def replace_trees(most: int) -> LambdaMart:
    """Return the settings with fewer trees."""
    return SPEC.model_copy(update={"max_trees": most})


def _orders(data: Dataset, model: str) -> list[Int[np.ndarray, " M"]]:
    scores = lambdamart.scores_of(model, data)
    return [np.argsort(-scores[data.slice(n)], kind="stable")[:PLACES] for n in range(len(data))]


def propensities(served: Served, strength: float, seed: int, count: int) -> PositionBias:
    """Estimate propensities from a log in which half of the lists have two neighbours swapped."""
    rng = np.random.default_rng([seed, 1])
    whole = [n for n, order in enumerate(served.orders) if len(order) == PLACES]
    queries = rng.choice(whole, count)
    rows = np.array([served.data.offsets[n] + served.orders[n] for n in queries])
    attraction = attractiveness(served.data.labels[rows], highest=served.highest)
    shop = Shop(length=PLACES, depth=PLACES, strength=strength)
    log = swapped_rows(shop, _visits(attraction), np.tile(np.arange(PLACES), (count, 1)), rng)
    with tempfile.TemporaryDirectory() as folder:
        log.write_parquet(Path(folder) / "rows.parquet")
        return estimate(Path(folder) / "rows.parquet", way="swaps", places=PLACES, same=None, seed=seed)


def harvested(served: Served, strength: float, seed: int, count: int) -> PositionBias:
    """Estimate propensities from two bundles' lists: the weak ranker's, and those of one that differs by noise."""
    rng = np.random.default_rng([seed, 3])
    whole = [n for n, order in enumerate(served.orders) if len(order) == PLACES]
    other = {n: np.argsort(np.arange(PLACES) + rng.normal(scale=3.0, size=PLACES)) for n in whole}
    queries, second = rng.choice(whole, count), rng.random(count) < 0.5
    rows = np.array([served.data.offsets[n] + served.orders[n] for n in queries])
    attraction = attractiveness(served.data.labels[rows], highest=served.highest)
    orders = np.array([other[n] if two else np.arange(PLACES) for n, two in zip(queries.tolist(), second, strict=True)])
    shop = Shop(length=PLACES, depth=PLACES, strength=strength)
    log = judged_rows(shop, _visits(attraction), orders, rng)
    log = log.with_columns(
        bundle=np.repeat(np.where(second, "shop/2", "shop/1"), PLACES), asked=np.repeat(queries.astype(str), PLACES)
    )
    with tempfile.TemporaryDirectory() as folder:
        log.write_parquet(Path(folder) / "rows.parquet")
        return estimate(Path(folder) / "rows.parquet", way="harvest", places=PLACES, same="asked", seed=seed)


def _visits(attraction: Float[np.ndarray, "N places"]) -> Visits:
    count = len(attraction)
    return Visits(np.arange(count), np.zeros(count, dtype=np.int64), attraction)
