"""The schema that a bundle will have: a given model's categories, the recipe's defaults, no constant columns."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.progress import Progress

from training import bring_your_own
from training.config import GivenColumn, GivenModel, Recipe
from training.data import load as door
from training.data.constant import without_constant
from training.data.dataset import Splits
from training.data.defaults import with_defaults


def load(recipe: Recipe, sources: Sequence[str], *, progress: Progress | None = None) -> Splits:
    """The data of a recipe as everything that is fitted to them sees them.

    Args:
        recipe, sources, progress: as of :func:`training.data.load.load`.

    Raises:
        ListwrightError: as :func:`training.data.load.load` and :func:`under_bundle_schema`.
    """
    return under_bundle_schema(recipe, door.load(recipe, sources, progress=progress))


def under_bundle_schema(recipe: Recipe, splits: Splits) -> Splits:
    """Splits under the schema that the bundle will have.

    Args:
        recipe: its first stage, and what it says of the features.
        splits: under the schema that the training queries fix.

    Raises:
        RecipeError: if a default does not fit, see :func:`training.data.defaults.with_defaults`; or if an ONNX graph
            that was brought along does not fit the data.
        SchemaMismatchError: if a model that was brought along does not fit the data.
        DataError: if all columns are constant.
    """
    needed: frozenset[str] = frozenset()
    match recipe.first_stage:
        case GivenModel(path=path):
            model = bring_your_own.read_model(Path(path), splits.train.schema)
            if isinstance(model, str):
                splits = splits.under(bring_your_own.under_model_categories(model, splits.train.schema))
            needed = bring_your_own.columns_of(model, splits.train.schema)
        case GivenColumn(column=column):
            needed = frozenset([column])
    splits = splits.described_by(with_defaults(splits.train.schema, recipe.data.defaults))
    return without_constant(splits, needed) if recipe.data.drop_constant else splits
