"""What the listwise suites fit: methods, seeds, folds and planted shifts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ranking.errors import RecipeError
from training.config import LambdaMart, Recipe
from training.data_config import SyntheticData
from training.model_config import FirstStageAlone, Model, Network

LAMBDAMART = "lambdamart"

WEIGHTS = (0.0, 0.003, 0.01, 0.03, 0.1, 0.3)
"""lambda' of the lambda suite."""

SHIFTS = (0.0, 0.25, 0.5, 1.0)
"""Planted shifts of table3, where the data are planted."""

BASELINES = (LAMBDAMART, "dlcm", "dcm", "mlp")
"""What QILCM has to beat: the paper's three, and the MLP that sees no list."""

_RIVALS: dict[str, tuple[str, ...]] = {
    "table2": ("qilcm", "dcm", "dlcm", "mlp", "qilcm2"),
    "table3": ("qilcm", "qilcm-v1", "qilcm-v2", "qilcm-v3"),
    "anomaly": ("qilcm", "dcm", "dlcm", "mlp"),
}

SUITES = ("table2", "table3", "anomaly", "lambda")


def methods(suite: str, recipe: Recipe) -> dict[str, Model]:
    """The methods of a suite by name, LambdaMART first: the others rerank what it leaves.

    Args:
        suite: one of :data:`SUITES`.
        recipe: its model's encoder, loss and fit are every method's that ``[rivals]`` says nothing else of.
    """
    if suite != "lambda":
        return {LAMBDAMART: FirstStageAlone(), **{name: recipe.model_named(name) for name in _RIVALS[suite]}}
    base = recipe.model_named("qilcm")
    weighted = {weight_name(w): base.model_copy(update={"confusion_weight": w}) for w in WEIGHTS}
    return {LAMBDAMART: FirstStageAlone(), **weighted}


def weight_name(weight: float) -> str:
    """Of QILCM with this lambda'."""
    return f"qilcm-{weight:g}"


def title(method: str) -> str:
    """What people read."""
    if method == LAMBDAMART:
        return "LambdaMART"
    kind, _, more = method.partition("-")
    if more.replace(".", "").isdigit():
        return f"lambda' = {more}"
    return more.upper() if more else {"mlp": "MLP", "dlcm": "DLCM", "dcm": "DCM", "qilcm2": "QILCM2"}.get(kind, "QILCM")


def data_sets(suite: str, recipe: Recipe, shifts: Sequence[float]) -> list[Recipe]:
    """The recipe once for every planted shift, or as it is.

    Raises:
        RecipeError: if shifts are asked for where none can be planted, or the first stage is not fitted here.
    """
    if not isinstance(recipe.first_stage, LambdaMart):
        raise RecipeError(f"recipe {recipe.name!r} brings its own first stage; this suite fits LambdaMART itself")
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


def cutoff(recipe: Recipe) -> int:
    """C, which all methods share."""
    return _network(recipe).cutoff


def sees_score(recipe: Recipe) -> bool:
    """Whether the networks have the first stage's score among their inputs."""
    return _network(recipe).first_stage_score


def _network(recipe: Recipe) -> Network:
    model = recipe.model_named("qilcm")
    assert isinstance(model, Network)
    return model


def facts(chosen: Mapping[str, Model]) -> dict[str, object]:
    """The methods as JSON: what results depend on."""
    return {name: spec.model_dump(mode="json") for name, spec in chosen.items()}
