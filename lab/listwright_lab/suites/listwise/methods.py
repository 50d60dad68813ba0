"""Methods that the listwise suites compare, and the recipes of their data sets."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from listwright.ranking.errors import RecipeError
from listwright.training.pipeline.choice import compared_networks
from listwright.training.recipe import config
from listwright.training.recipe.config import Choice, LambdaMart, LambdaMartSettings, Recipe
from listwright.training.recipe.data import SyntheticData
from listwright.training.recipe.model import FirstStageAlone, Model, Network, NetworkSpec, Rivals
from listwright.training.search import space_of

RELATIVE = "+relative"
"""Suffix of methods on the first stage with list-relative columns."""

LAMBDAMART = "lambdamart"
LAMBDAMART_RELATIVE = LAMBDAMART + RELATIVE
SHIPPED = "shipped"
PRINTED = "qilcm-paper"

WEIGHTS = (0.0, 0.003, 0.01, 0.03, 0.1, 0.3)
"""lambda' of the lambda suite."""

SHIFTS = (0.0, 0.25, 0.5, 1.0)
"""Planted shifts of table3, where the data are planted."""

BASELINES = (LAMBDAMART, LAMBDAMART_RELATIVE, "dlcm", "dcm", "mlp")
"""Baselines: the paper's three, LambdaMART with list-relative columns, and an MLP without the list."""

OURS = ("qilcm", "qilcm-paper", "qilcm2", "qilcm" + RELATIVE, "qilcm2" + RELATIVE, SHIPPED)
"""Methods compared with them in table2; QILCM as printed only where it is named."""

_RIVALS: dict[str, tuple[str, ...]] = {
    "table2": ("qilcm", "dcm", "dlcm", "mlp", "qilcm2"),
    "table3": ("qilcm", "qilcm-v1", "qilcm-v2", "qilcm-v3"),
    "anomaly": ("qilcm", "dcm", "dlcm", "mlp"),
}

SUITES = ("table2", "table3", "anomaly", "lambda")


@dataclass(frozen=True, slots=True)
class Shipped:
    """The ranker that ``listwright fit`` would make the default, by queries that are not test queries.

    Args:
        networks: Second stages to compare, the simplest first.
        folds: Number of folds of the comparison.
    """

    networks: tuple[NetworkSpec, ...]
    folds: int


@dataclass(frozen=True, slots=True)
class Method:
    """One row of a suite.

    Args:
        spec: Second stage, the first stage alone, or the choice among several rankers.
        relative: Whether the first stage sees list-relative columns.
    """

    spec: Model | Shipped
    relative: bool = False


def select_methods(
    suite: str, recipe: Recipe, *, relative: bool = False, only: Collection[str] = ()
) -> dict[str, Method]:
    """Return the methods of a suite by name, LambdaMART first: the others rerank what it leaves.

    Args:
        suite: One of :data:`SUITES`.
        recipe: Recipe whose encoder, loss and fit all methods share, except for the settings in its ``[rivals]``.
        relative: Whether all methods rerank the first stage with list-relative columns; for table3 and anomaly.
        only: Names to keep beside LambdaMART; none keeps all.

    Raises:
        RecipeError: If the suite has no method of that name.
    """
    first = {name_on(LAMBDAMART, relative): Method(FirstStageAlone(), relative)}
    if suite == "lambda":
        base = recipe.model_named("qilcm")
        weighted = {weight_name(w): base.model_copy(update={"confusion_weight": w}) for w in WEIGHTS}
        return first | {name: Method(spec) for name, spec in weighted.items()}
    networks = {name: Method(recipe.model_named(name), relative) for name in _RIVALS[suite]}
    if suite != "table2":
        return first | networks
    on_relative = {
        LAMBDAMART_RELATIVE: Method(FirstStageAlone(), relative=True),
        **{name + RELATIVE: Method(recipe.model_named(name), relative=True) for name in ("qilcm", "qilcm2")},
    }
    printed = {PRINTED: Method(recipe.model_named(PRINTED))}
    every = first | on_relative | networks | printed | {SHIPPED: Method(_shipped(recipe))}
    in_order = {name: every[name] for name in (*BASELINES, *OURS)}
    if unknown := set(only) - set(in_order):
        raise RecipeError(f"--methods {', '.join(sorted(unknown))}: table2 has {', '.join(in_order)}")
    names = {LAMBDAMART, *only} if only else set(in_order) - {PRINTED}
    return {name: method for name, method in in_order.items() if name in names}


def _shipped(recipe: Recipe) -> Shipped:
    choice = recipe.choice or Choice()
    alone: dict[str, object] = {"choice": choice, "specialists": None, "router": None}
    return Shipped(tuple(compared_networks(config.changed(recipe, alone))), choice.folds)


def with_networks(recipe: Recipe, networks: Sequence[NetworkSpec], folds: int) -> Recipe:
    """Return the recipe with a choice among these networks over ``folds`` folds."""
    first, *others = networks
    choice = Choice(second_stages=tuple(network.kind for network in networks), folds=folds)
    changes: dict[str, object] = {
        "model": first,
        "rivals": {network.kind: network for network in others},
        "choice": choice,
        "specialists": None,
        "router": None,
    }
    return config.changed(recipe, changes)


def name_on(method: str, relative: bool) -> str:
    """Return the name of a method on one of the first stages."""
    return method + RELATIVE if relative else method


def untuned(recipe: Recipe) -> Recipe:
    """Return the recipe with the default of each setting that a search looks for, and no settings of rivals.

    The recipe's own values may have been found on queries that are tested here.
    """
    model = recipe.model
    if not isinstance(model, FirstStageAlone):
        searched = set(space_of(model))
        model = type(model).model_validate({name: getattr(model, name) for name in model.model_fields_set - searched})
    first = lambdamart_of(recipe).model_copy(update={"settings": LambdaMartSettings()})
    return config.changed(recipe, {"first_stage": first, "rivals": Rivals(), "model": model})


def weight_name(weight: float) -> str:
    """Return the name of QILCM with this weight lambda' of the confusion loss."""
    return f"qilcm-{weight:g}"


def title(method: str) -> str:
    """Return the title of a method for display."""
    if method.endswith(RELATIVE):
        return f"{title(method.removesuffix(RELATIVE))} + relative"
    if method == PRINTED:
        return "QILCM as printed"
    kind, _, more = method.partition("-")
    if more.replace(".", "").isdigit():
        return f"lambda' = {more}"
    return more.upper() if more else _TITLES[kind]


_TITLES = {
    LAMBDAMART: "LambdaMART",
    "qilcm": "QILCM",
    "qilcm2": "QILCM2",
    "dlcm": "DLCM",
    "dcm": "DCM",
    "mlp": "MLP",
    SHIPPED: "Shipped ranker",
}


def data_sets(suite: str, recipe: Recipe, shifts: Sequence[float]) -> list[Recipe]:
    """Return a recipe for each planted shift, or the recipe itself where nothing is planted.

    Raises:
        RecipeError: If shifts are given for data without planted shifts, or the first stage is not LambdaMART.
    """
    lambdamart_of(recipe)
    planted = isinstance(recipe.data, SyntheticData)
    if shifts and (suite != "table3" or not planted):
        what = f"recipe {recipe.name!r} reads real data" if suite == "table3" else f"the suite is {suite}"
        raise RecipeError(f"--shifts is for table3 with a recipe that plants its data, such as shifted; {what}")
    if suite != "table3" or not planted:
        return [recipe]
    return [
        recipe.model_copy(update={"data": recipe.data.model_copy(update={"shift": shift})})
        for shift in shifts or SHIFTS
    ]


def lambdamart_of(recipe: Recipe) -> LambdaMart:
    """Return the recipe's first stage.

    Raises:
        RecipeError: If the first stage is not LambdaMART.
    """
    if not isinstance(recipe.first_stage, LambdaMart):
        raise RecipeError(f"recipe {recipe.name!r} brings its own first stage; this suite fits LambdaMART itself")
    return recipe.first_stage


def cutoff(recipe: Recipe) -> int:
    """Return C, the number of candidates that every method reranks."""
    return _network(recipe).cutoff


def sees_score(recipe: Recipe) -> bool:
    """Return whether the networks have the first stage's score among their inputs."""
    return _network(recipe).first_stage_score


def _network(recipe: Recipe) -> Network:
    model = recipe.model_named("qilcm")
    assert isinstance(model, Network)
    return model


def facts(methods: Mapping[str, Method]) -> dict[str, object]:
    """Return the methods as JSON, part of the settings that results depend on."""
    return {name: {"relative": method.relative, **_spec_facts(method.spec)} for name, method in methods.items()}


def _spec_facts(spec: Model | Shipped) -> dict[str, object]:
    if isinstance(spec, Shipped):
        networks = [network.model_dump(mode="json") for network in spec.networks]
        return {"kind": SHIPPED, "folds": spec.folds, "networks": networks}
    return spec.model_dump(mode="json")
