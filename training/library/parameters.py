"""The parameters of ``training.Qilcm`` as a recipe, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from listwright.training.recipe import config
from listwright.training.recipe.config import Choice, Recipe
from listwright.training.recipe.model import QilcmSpec, named

UNSAVED = "library"
"""Name of a recipe, and a bundle, that has none of its own."""

AUTO = "auto"
"""The model that is chosen by comparing."""

_FIRST_STAGE = ("trials", "max_trees", "folds", "relative")
_QILCM = tuple(name for name in QilcmSpec.model_fields if name not in ("kind", "variant", "relative"))


def recipe_of(parameters: Mapping[str, Any]) -> Recipe:
    """The recipe that a table of the same columns would need.

    Raises:
        RecipeError: if a parameter is wrong.
    """
    values = {
        "name": UNSAVED,
        "about": "fitted on arrays in memory",
        "data": {
            "kind": "table",
            "qid": "qid",
            "label": "y",
            "categorical": tuple(parameters["categorical"]),
            "defaults": _by_name(parameters["defaults"]),
            "gains": parameters["gains"],
            "drop_constant": parameters["drop_constant"],
            "split": {"parts": parameters["parts"]},
        },
        "first_stage": {"kind": "lambdamart", "monotone": _by_name(parameters["monotone"])}
        | {name: parameters[name] for name in (*_FIRST_STAGE, "ndcg_at")},
        "model": {"kind": "qilcm"} | {name: parameters[name] for name in _QILCM},
        "seed": parameters["seed"],
        "minutes": parameters["minutes"],
    }
    recipe = config.of(values, "training.Qilcm")
    if parameters["model"] == AUTO:
        return config.changed(recipe, {"choice": Choice()})
    return config.changed(recipe, {"model": named(parameters["model"], recipe.model)})


def parameters_of(recipe: Mapping[str, Any], known: frozenset[str]) -> dict[str, Any]:
    """What a recipe says of the estimator's parameters, as far as they are known."""
    model, data = recipe["model"], recipe["data"]
    first = recipe["first_stage"]
    values = {**first, **data, **data.get("split", {}), **model, "seed": recipe["seed"]}
    values["minutes"] = recipe.get("minutes", 0.0)
    values["relative"] = first.get("relative", "none")
    values |= {"defaults": data.get("defaults") or None, "monotone": first.get("monotone") or None}
    variant = model.get("variant", "full")
    named_model = model.get("kind", "qilcm") + ("" if variant == "full" else f"-{variant.lower()}")
    values["model"] = named_model if recipe.get("choice") is None else AUTO
    lists = {name: tuple(value) for name, value in values.items() if isinstance(value, list)}
    return {name: value for name, value in (values | lists).items() if name in known}


def _by_name(values: Mapping[str, Any] | None) -> dict[str, Any]:
    """Values by name, NumPy's scalars as Python has them."""
    plain = (values or {}).items()
    return {name: value.item() if isinstance(value, np.generic) else value for name, value in plain}
