"""Monotone constraints: which columns of the first stage they bind, and in which direction."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence

from listwright.ranking.errors import RecipeError
from listwright.ranking.features import FeatureSchema

Directions = Sequence[tuple[str, int]]
"""Names of features with 1, -1 or 0, as :attr:`listwright.training.recipe.config.LambdaMart.monotone` has them."""


def check(monotone: Directions, schema: FeatureSchema) -> None:
    """Raise RecipeError for a feature that the data lack, or that is a category and so has no direction."""
    for name, value in monotone:
        if name not in schema.index:
            near = difflib.get_close_matches(name, schema.names, n=1)
            shown = ", ".join(schema.names[:20]) + (" …" if len(schema) > 20 else "")
            hint = f"did you mean {near[0]!r}? The" if near else "the"
            raise RecipeError(f"monotone: {name} = {value}: no feature {name!r}; {hint} features are {shown}")
        if schema.features[schema.index[name]].kind == "categorical":
            raise RecipeError(
                f"monotone: {name} = {value}: {name!r} is a category, and categories have no order: leave it out, or "
                "give its values as numbers"
            )


def constraints(
    monotone: Directions, columns: Sequence[str], derived_from: Mapping[str, str] | None = None
) -> list[int]:
    """The direction of every column of a feature matrix; 0 where it is free.

    Args:
        monotone: by name of a feature; a feature without a column (it was constant) binds nothing.
        columns: names of the columns.
        derived_from: the feature that a column is made from, where it rises with that feature; such a column is bound
            as its feature is.
    """
    direction, sources = dict(monotone), derived_from or {}
    return [direction.get(sources.get(column, column), 0) for column in columns]
