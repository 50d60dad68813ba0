"""The schema that a bundle will have: a given model's categories, the recipe's defaults, no constant columns."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from listwright.ranking.errors import DataError, RecipeError
from listwright.training.choice import compared_networks
from listwright.training.data import load as reading
from listwright.training.data.dataset import Splits
from listwright.training.data.load import with_defaults, without_constant
from listwright.training.first_stage import boosting, bring_your_own
from listwright.training.progress import SILENT, Progress
from listwright.training.recipe.config import GivenColumn, GivenModel, LambdaMart, Recipe
from listwright.training.recipe.model import FirstStageAlone

MOST_ROWS = 10_000
"""Of a query that LightGBM fits a ranker to."""


def load(recipe: Recipe, sources: Sequence[str], *, progress: Progress = SILENT) -> Splits:
    """The data of a recipe as everything that is fitted to them sees them.

    Args:
        recipe, sources, progress: as of :func:`listwright.training.data.load.load`.

    Raises:
        ListwrightError: as :func:`listwright.training.data.load.load` and :func:`under_bundle_schema`.
    """
    return under_bundle_schema(recipe, reading.load(recipe, sources, progress=progress))


def under_bundle_schema(recipe: Recipe, splits: Splits) -> Splits:
    """Splits under the schema that the bundle will have.

    Args:
        recipe: its first stage, and what it says of the features.
        splits: under the schema that the training queries fix.

    Raises:
        RecipeError: if a default or a monotone constraint does not fit; see
            :func:`listwright.training.data.load.with_defaults` and
            :func:`listwright.training.first_stage.boosting.check`. If there are weights that a part of the recipe
            cannot honour. If an ONNX graph that was brought along does not fit the data.
        SchemaMismatchError: if a model that was brought along does not fit the data.
        DataError: if all columns are constant, a label has no gain, no weight of a split is above 0, or a query has
            more rows than LambdaMART takes.
    """
    needed: frozenset[str] = frozenset()
    splits = splits.worth(recipe.data.gains).weighed()
    _check_weights(recipe, splits)
    match recipe.first_stage:
        case GivenModel(path=path):
            model = bring_your_own.read_model(Path(path), splits.train.schema)
            if isinstance(model, str):
                splits = splits.under(bring_your_own.under_model_categories(model, splits.train.schema))
            needed = bring_your_own.columns_of(model, splits.train.schema)
        case GivenColumn(column=column):
            needed = frozenset([column])
        case LambdaMart(monotone=directions):
            boosting.check_monotone(directions, splits.train.schema)
            _check_lengths(splits)
    splits = splits.described_by(with_defaults(splits.train.schema, recipe.data.defaults))
    return without_constant(splits, needed) if recipe.data.drop_constant else splits


def _check_lengths(splits: Splits) -> None:
    """Raise DataError for queries that LightGBM would refuse: of those that it fits to, and that it stops early by."""
    for name, part in (("training", splits.train), ("validation", splits.valid)):
        longest, more = int(np.argmax(part.lengths)), int((part.lengths > MOST_ROWS).sum()) - 1
        if more >= 0:
            others = f", and {more} more {name} queries have more than {MOST_ROWS:,}" if more else ""
            raise DataError(
                f"query {part.qids[longest]}",
                f"{part.lengths[longest]:,} rows{others}: LightGBM's LambdaMART takes {MOST_ROWS:,} a query at most. "
                "Keep the best of each query by a simple rule, or give listwright fit a first stage: --first-stage and "
                "--first-stage-column have no such limit",
            )


def _check_weights(recipe: Recipe, splits: Splits) -> None:
    """Raise RecipeError for a part of the recipe that cannot honour the weights of these rows."""
    train, weights = splits.train, splits.train.weights
    if weights is None:
        return
    if recipe.router is not None:
        raise RecipeError("a [router] counts every query the same: leave it out, or leave out the weights")
    by_query = "[specialists]" if recipe.specialists is not None else None
    networks = [spec for spec in (recipe.model, *compared_networks(recipe)) if not isinstance(spec, FirstStageAlone)]
    if any(spec.rank_loss == "plackett_luce" for spec in networks):
        by_query = 'rank_loss = "plackett_luce"'
    for n in range(len(train) if by_query else 0):
        low, high = (end(weights[train.slice(n)]) for end in (np.min, np.max))
        if low < high:
            ratio = "inf" if low == 0.0 else f"{high / low:.3g}"
            raise RecipeError(
                f"{by_query} weighs whole queries, and rows of query {train.qids[n]!r} have different weights (largest "
                f"over smallest: {ratio}): give the rows of a query one weight, or fit by another loss"
            )
