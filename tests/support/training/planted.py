"""Ranking data with a planted order."""

import numpy as np

from listwright.ranking.features import Feature, FeatureSchema
from listwright.training.data.dataset import Dataset
from listwright.training.recipe.config import LambdaMart


def ranking_data(rng, queries=60, length=8, noise=0.1):
    """Lists whose best candidate has the largest first feature, or the lucky category."""
    rows = queries * length
    numbers = rng.normal(size=(rows, 2)).astype(np.float32)
    categories = rng.integers(0, 4, size=rows)
    utility = numbers[:, 0] + 1.5 * (categories == 2) + noise * rng.normal(size=rows)
    order = utility.reshape(queries, length).argsort(axis=1).argsort(axis=1)
    labels = np.clip(order - length + 3, 0, 2).reshape(-1).astype(np.int32)
    schema = FeatureSchema(
        features=(
            Feature(name="utility"),
            Feature(name="noise"),
            Feature(name="kind", kind="categorical", categories=("a", "b", "c")),
        )
    )
    features = np.column_stack([numbers, categories]).astype(np.float32)
    offsets = np.arange(0, rows + 1, length)
    return Dataset(features, labels, offsets, tuple(f"q{n}" for n in range(queries)), schema)


SPEC = LambdaMart(trials=2, max_trees=30, patience=10, folds=3)
