"""Defaults of features: what stands for a feature that a request leaves out, under the schema that training fixed."""

from __future__ import annotations

import difflib

from listwright.ranking.errors import RecipeError
from listwright.ranking.features import FLOAT32_MAX, Feature, FeatureSchema, spelled
from listwright.training.data.tables.frames import listed
from listwright.training.recipe.data import Default, Defaults


def with_defaults(schema: FeatureSchema, defaults: Defaults) -> FeatureSchema:
    """The same schema with the defaults of its features.

    Args:
        schema: of the training split.
        defaults: by name of a feature. Text is a number where the feature is numeric; a category is spelled as in a
            request, so 2, 2.0 and "2" are one.

    Raises:
        RecipeError: if there is no such feature, a category is none that training saw, or a number does not fit
            float32; names the feature, the value, and what is possible.
    """
    features = list(schema.features)
    for name, value in defaults:
        column = schema.index.get(name)
        if column is None:
            near = difflib.get_close_matches(name, schema.names, n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            there = f"{hint}there are {listed(list(schema.names))}"
            raise RecipeError(f"the default {name} = {value}: {name!r} is no feature; {there}")
        features[column] = _with_default(features[column], value)
    return FeatureSchema(features=tuple(features))


def _with_default(feature: Feature, given: Default) -> Feature:
    default: float | str | None
    if feature.kind == "categorical":
        default, known = spelled(given), list(feature.categories)
        if default not in known:
            saw = f"a category that training never saw; it saw {listed(known) or 'none'}"
            raise RecipeError(f"the default of feature {feature.name!r} is {given!r}, {saw}")
    else:
        default = _number(given)
        if default is None:
            fits = f"expected a number from {-FLOAT32_MAX:.4g} to {FLOAT32_MAX:.4g} (float32)"
            raise RecipeError(f"the default of feature {feature.name!r} is {given!r}: {fits}")
    return Feature.model_validate({**feature.model_dump(), "default": default})


def _number(given: Default) -> float | None:
    """The number that it is, or that it reads as; None where it is none, or none of float32."""
    if isinstance(given, bool) or (isinstance(given, str) and "_" in given):  # float() takes both
        return None
    try:
        number = float(given)
    except (ValueError, OverflowError):
        return None
    return number if abs(number) <= FLOAT32_MAX else None
