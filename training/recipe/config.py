"""The recipe: everything needed to repeat a run, read from TOML into frozen values."""

from __future__ import annotations

import difflib
from importlib import resources
from importlib.resources.abc import Traversable
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    Field,
    FiniteFloat,
    PlainSerializer,
    ValidationError,
    field_validator,
    model_validator,
)

from listwright.ranking.errors import RecipeError
from listwright.ranking.plain_file import from_toml
from listwright.ranking.relative import RelativeKind
from listwright.ranking.stages import LightGbmEngine, NetworkKind, Weight
from listwright.training.recipe.data import LABEL, Data, Monotone, Positive, RecipePart
from listwright.training.recipe.model import FirstStageAlone, Model, QilcmSpec, Rivals, model_like

LAB = "listwright_lab"
"""Package of ``listwright-lab``: suites of papers, their recipes, and networks that only rivals need."""

GIVEN_IS_FREE = "{} was fitted elsewhere, and nothing binds it here: leave out {}, or have LambdaMART fitted"

_OF_A_KIND = {"data", "first_stage", "model"}
"""Sections whose fields depend on their kind, which pydantic adds to the path of a fault."""


class LambdaMartSettings(RecipePart):
    """LightGBM's hyperparameters, by its own names; the number of trees is found by early stopping.

    ``cat_smooth`` is the prior weight of a category, and the fewest rows of one that a split looks at. Its default is
    LightGBM's 10, but 1000 where a feature has more than 500 categories: trees learn by heart what a few rows say of
    each of them.

    ``objective`` is what trees are fitted by: ``lambdarank``; or ``softmax``, the cross entropy between the gains of a
    list and the softmax of its scores, which for one choice in each list is its likelihood. ``auto`` is ``softmax``
    where labels are 0 or 1 and rows have no weights (those of propensities are of a row, and this loss weighs lists),
    else ``lambdarank``. It is not searched.
    """

    objective: Literal["auto", "lambdarank", "softmax"] = "auto"
    learning_rate: Annotated[float, Field(gt=0.0)] = 0.05
    num_leaves: Annotated[int, Field(ge=2)] = 31
    min_data_in_leaf: Positive = 20
    lambdarank_truncation_level: Positive = 30
    feature_fraction: Annotated[float, Field(gt=0.0, le=1.0)] = 0.9
    bagging_fraction: Annotated[float, Field(gt=0.0, le=1.0)] = 0.9
    lambda_l2: Annotated[float, Field(gt=0.0)] = 1.0
    cat_smooth: Annotated[float, Field(gt=0.0)] | None = None


class LambdaMart(RecipePart):
    """LambdaMART as the first stage, and the budget for tuning it.

    Args:
        settings: Settings that are tried first, so that tuning never ends below them on what it is selected by:
            sensible ones, or those that ``listwright tune`` found.
        trials: Number of hyperparameter settings to try; 1 keeps ``settings``.
        select_on: Queries that settings and number of trees are selected on: ``valid``, the validation split; or
            ``folds``, the held-out parts of a cross-validation over the training queries, ``folds`` times the work, for
            sets whose validation split has a few dozen queries.
        members: Number of LambdaMARTs with other seeds whose sum is the first stage; serving takes that many times the
            trees.
        max_trees, patience: Bounds of boosting, which stops after ``patience`` trees without a better NDCG, but not
            before twice as many are grown.
        folds: Number of parts for the out-of-fold scores of the training queries, and for ``select_on = "folds"``.
        ndcg_at: Cutoff of the NDCG that tuning and early stopping look at.
        engine: Engine that scores with the fitted model: ``compiled``, or ``lightgbm`` itself.
        monotone: Direction of numeric features, all else equal: 1 where a larger value may never lower the score, -1
            where it may never raise it, 0 where it is free. A second stage is not bound by it; the report measures what
            it does.
        relative: List-relative columns beside the features: ``auto`` compares LambdaMART with and without them on
            queries that neither was trained on, and takes them where the mean is better; ``none``; or the kinds to take
            in any case. Columns that the trees hardly use are left out.
    """

    kind: Literal["lambdamart"] = "lambdamart"
    relative: Literal["auto", "none"] | tuple[RelativeKind, ...] = "auto"
    engine: LightGbmEngine = "compiled"
    settings: LambdaMartSettings = LambdaMartSettings()
    trials: Positive = 20
    select_on: Literal["valid", "folds"] = "valid"
    members: Positive = 1
    max_trees: Positive = 1000
    patience: Positive = 50
    folds: Annotated[int, Field(ge=2)] = 5
    ndcg_at: Positive = 10
    monotone: Monotone = ()

    @field_validator("relative")
    @classmethod
    def _names_each_kind_once(cls, kinds: str | tuple[RelativeKind, ...]) -> str | tuple[RelativeKind, ...]:
        if isinstance(kinds, tuple) and len(set(kinds)) < len(kinds):
            raise ValueError("names a kind of column twice")
        return kinds


class _ForeignStage(RecipePart):
    """A first stage that was fitted elsewhere."""

    @model_validator(mode="before")
    @classmethod
    def _is_bound_by_nothing(cls, values: Any) -> Any:
        if isinstance(values, dict) and "monotone" in values:
            raise ValueError(GIVEN_IS_FREE.format(f'kind = "{values.get("kind")}"', "monotone"))
        return values


class GivenModel(_ForeignStage):
    """A model that is in use already: LightGBM's text file or an ONNX graph, recognised by its content.

    Args:
        engine: Engine that scores with a LightGBM model, as for LambdaMART; an ONNX graph has one engine.
    """

    kind: Literal["model"] = "model"
    engine: LightGbmEngine = "compiled"
    path: str


class GivenColumn(_ForeignStage):
    """First-stage scores that stand in the data, in the feature column of this name."""

    kind: Literal["column"] = "column"
    column: str


FirstStage = Annotated[LambdaMart | GivenModel | GivenColumn, Field(discriminator="kind")]


class Srm(RecipePart):
    """SRM, a mixture of specialised Plackett-Luce rankers (Jagerman, Oosterhuis, de Rijke, 2017).

    Args:
        specialists: Number of specialists, K.
        hidden: Hidden widths of every f_k; empty for the paper's linear ranker, eq. (3).
        alpha: Parameter of the Dirichlet prior of the mixture weights, eq. (4).
        sigma: Standard deviation of the prior of every ranker's weights, eq. (5).
        transform: Transform of numeric features before they become z-scores: ``none``, or ``log`` for features that
            span magnitudes, symmetric log1p. ``raw`` features become no z-scores, as the paper has it; sigma then holds
            their weights in units of each feature.
        m_step: Optimiser: ``lbfgs``, or the paper's ``adam``; an MLP always takes Adam.
        top: Depth m of the paper's top-m event; None for the full event.
        restarts: Number of starting points; the best after ``short_run`` iterations goes on.
        short_run, max_iterations: Numbers of EM iterations of a trial run, and in all.
        batch_size, learning_rate, epochs: Settings of Adam; epochs per M-step.
        first_stage_score: Whether the first stage's score is one more input feature; the paper has none.
        cutoff: Number of candidates of the first stage to rank, C; None for the whole list.
    """

    kind: Literal["srm"] = "srm"
    specialists: Annotated[int, Field(ge=1, le=100)] = 5
    hidden: tuple[Positive, ...] = ()
    alpha: Annotated[float, Field(ge=1.0)] = 1.01
    sigma: Annotated[float, Field(gt=0.0)] = 0.1
    transform: Literal["none", "log", "raw"] = "none"
    m_step: Literal["lbfgs", "adam"] = "lbfgs"
    top: Positive | None = None
    restarts: Positive = 6
    short_run: Positive = 10
    max_iterations: Positive = 100
    batch_size: Positive = 128
    learning_rate: Annotated[float, Field(gt=0.0)] = 1e-3
    epochs: Positive = 5
    first_stage_score: bool = False
    cutoff: Positive | None = None


class Router(RecipePart):
    """The router that picks a specialist for an unseen list, or abstains to the generalist.

    Args:
        folds: Number of parts of the training queries; specialists and generalist are fitted anew without each, so that
            the router learns from lists that they did not see.
        trees, max_depth: Size of the forest that estimates shares and gains.
        ndcg_at: Cutoff of the NDCG that selects the best specialist and measures its gain.
        confidence: Level of the lower bound on the mean gain of routed queries that must be above 0.
    """

    folds: Annotated[int, Field(ge=2)] = 4
    trees: Positive = 100
    max_depth: Positive = 6
    ndcg_at: Positive = 10
    confidence: Annotated[float, Field(gt=0.5, lt=1.0)] = 0.95


class Choice(RecipePart):
    """Comparison by which a fit finds out which ranker ``auto`` means, on queries that none was fitted on.

    Args:
        second_stages: Second stages to compare, the simplest first; each must beat the best before it.
        folds: Number of parts of the training queries, each ranked by networks that were fitted without it, where there
            are too few validation queries to compare on.
    """

    second_stages: tuple[NetworkKind, ...] = ("qilcm", "qilcm2")
    folds: Annotated[int, Field(ge=2)] = 4


def _pairs(table: object) -> object:
    return tuple(table.items()) if isinstance(table, dict) else table


class Goals(RecipePart):
    """Default weights of the goals besides the label, which ``[data] goals`` names. The label's weight is 1.

    Args:
        weights: Weight of a goal, by name.
        ratios: Least NDCG@10 by a goal, by name, as a multiple of what the ranker for the label alone reaches on the
            validation queries. The weight is the smallest one that reaches it.
        cost: Most NDCG@10 by the label that the weight of any other goal may cost on the validation queries, at a
            one-sided confidence of 97.5 %. The weight is the one with the largest gain by that goal.
    """

    weights: Annotated[tuple[tuple[str, Weight], ...], BeforeValidator(_pairs), PlainSerializer(dict)] = ()
    ratios: Annotated[
        tuple[tuple[str, Annotated[FiniteFloat, Field(gt=0.0)]], ...], BeforeValidator(_pairs), PlainSerializer(dict)
    ] = ()
    cost: Annotated[float, Field(ge=0.0, le=1.0)] = 0.005


class Recipe(RecipePart):
    """One run: data, first stage, second stage.

    Args:
        name: Name of the recipe, and of the bundle unless ``--out`` says otherwise; by default that of its file.
        specialists: SRM beside the model; None for none.
        router: Router to the specialists; None leaves the choice to callers and hooks.
        goals: Default weights of the goals besides the label.
        choice: Comparison of second stages, which decides the default; None fits ``model`` alone.
        rivals: Settings of other networks, for :meth:`model_named`.
        about: Line for ``--help``.
        fold: Number of the fold of the data, from 1.
        seed: Seed of all randomness.
        minutes: Bound on the time of ``listwright fit`` without ``--minutes``; 0 for no bound, None for the default of
            :class:`listwright.training.pipeline.budget.Budget`.
    """

    name: str
    about: str = ""
    data: Data
    first_stage: FirstStage = LambdaMart()
    model: Model = QilcmSpec()
    choice: Choice | None = None
    specialists: Srm | None = None
    router: Router | None = None
    goals: Annotated[Goals, Field(exclude_if=lambda goals: goals == Goals())] = Goals()
    rivals: Rivals = Rivals()
    fold: Positive = 1
    seed: Annotated[int, Field(ge=0)] = 0
    minutes: Annotated[float, Field(ge=0.0, allow_inf_nan=False)] | None = None

    @model_validator(mode="after")
    def _router_has_specialists(self) -> Recipe:
        if self.router is not None and (self.specialists is None or self.specialists.specialists < 2):
            raise ValueError("a [router] needs [specialists] to choose among: two or more")
        if self.router is not None and isinstance(self.model, FirstStageAlone):
            raise ValueError("a [router] needs a second stage to abstain to: use another model.kind than first_stage")
        return self

    @model_validator(mode="after")
    def _rivals_see_the_same(self) -> Recipe:
        if isinstance(self.model, FirstStageAlone):
            return self
        for kind in Rivals.model_fields:
            rival = self.rivals.spec(kind)
            for field in ("cutoff", "first_stage_score", "ndcg_at"):
                if rival is not None and (has := getattr(rival, field)) != (own := getattr(self.model, field)):
                    fault = f"rivals.{kind}.{field} = {has!r}, but model.{field} = {own!r}"
                    raise ValueError(f"{fault}: all must see the same candidates and inputs, and be measured alike")
        return self

    @model_validator(mode="after")
    def _goals_have_columns(self) -> Recipe:
        weighted, bound, columns = dict(self.goals.weights), dict(self.goals.ratios), getattr(self.data, "goals", ())
        if self.goals != Goals() and not columns:
            raise ValueError("goals: the data have none besides the label; name one with --goal")
        if columns and self.router is not None:
            raise ValueError("a [router] knows one goal: leave it out, or the goals besides the label")
        if (getattr(self.data, "label", None) or LABEL) in columns:
            raise ValueError("goals: the label is the first goal already; leave it out")
        for name in (*weighted, *bound):
            if name not in columns:
                raise ValueError(f"goals: {name!r} is no goal; the data's goals are {', '.join(columns)}")
            if name in weighted and name in bound:
                raise ValueError(f"goals: {name!r} has a weight and a least ratio: leave one out")
        return self

    def model_named(self, name: str) -> Model:
        """Return the model of that name: as ``[rivals]`` has it, or fitted like ``[model]``.

        Raises:
            RecipeError: if there is no such model.
        """
        kind = name.partition("-")[0]
        own = None if self.model.kind == kind else self.rivals.spec(kind)
        return model_like(name, self.model if own is None else own)


def recipe_names() -> list[str]:
    """Return the names of the shipped recipes, in alphabetical order."""
    return sorted(_recipe_files())


def _recipe_files() -> dict[str, Traversable]:
    """Return the recipes that ship with Listwright, and those of papers where ``listwright-lab`` is installed."""
    packages = ["listwright.training", *([LAB] if find_spec(LAB) else [])]
    files = [file for package in packages for file in (resources.files(package) / "recipes").iterdir()]
    return {file.name.removesuffix(".toml"): file for file in files if file.name.endswith(".toml")}


def load(name_or_path: str, **changes: Any) -> Recipe:
    """Read a shipped recipe by name, or any recipe by path.

    Args:
        name_or_path: Name such as ``demo``, or a path that ends in ``.toml``.
        changes: Top-level fields to replace (``seed``, ``fold``); None leaves the recipe's own.

    Raises:
        RecipeError: if there is no such recipe or a field is wrong; every fault is named with its place.
    """
    files = _recipe_files()
    path: Any = Path(name_or_path) if name_or_path.endswith(".toml") else files.get(name_or_path)
    if path is None or not path.is_file():
        if name_or_path.endswith("-paper"):
            _check_laboratory(f"recipe {name_or_path!r}")
        if Path(name_or_path).exists():
            raise RecipeError(
                f"{name_or_path} is no recipe: give a table as --data {name_or_path} --qid COLUMN --label COLUMN, and "
                "other data as --data behind the name of their recipe"
            )
        known = ", ".join(recipe_names())
        raise RecipeError(f"no recipe {name_or_path!r}: use one of {known}, or the path of a .toml file")
    try:
        values = from_toml(path.read_bytes())
    except ValueError as error:
        raise RecipeError(f"{path}: not TOML: {error}") from error
    values.update({key: value for key, value in changes.items() if value is not None})
    return of({"name": Path(name_or_path).stem, **values}, str(path))


def of(values: dict[str, Any], place: str) -> Recipe:
    """Create a recipe from plain values, as TOML has them.

    Raises:
        RecipeError: if a field is wrong; every fault is named, with the place that they come from.
    """
    try:
        recipe = Recipe.model_validate(values)
    except ValidationError as error:
        raise RecipeError(f"{place}: {described(error, Recipe)}") from error
    for kind in (recipe.model.kind, *(() if recipe.choice is None else recipe.choice.second_stages)):
        if kind in ("dlcm", "dcm"):
            _check_laboratory(f"model {kind!r}")
    return recipe


def _check_laboratory(purpose: str) -> None:
    if find_spec(LAB) is None:
        raise RecipeError(f"{purpose} comes with listwright-lab, which is not installed: pip install listwright-lab")


def changed(recipe: Recipe, changes: dict[str, object]) -> Recipe:
    """Return a recipe with other fields.

    Raises:
        RecipeError: if they do not fit the rest.
    """
    return of({name: getattr(recipe, name) for name in Recipe.model_fields} | changes, f"recipe {recipe.name!r}")


def with_comparisons(recipe: Recipe, *, quick: bool, model: str | None) -> Recipe:
    """Return the recipe with its comparison of rankers: by default that of :class:`Choice`.

    Args:
        recipe: Recipe of the fit.
        quick: Whether to compare nothing, and to fit LightGBM without list-relative columns.
        model: Name of the only second stage; nothing is compared then. None for that of the recipe.
    """
    if quick:
        first = recipe.first_stage
        if isinstance(first, LambdaMart) and first.relative == "auto":
            first = first.model_copy(update={"relative": "none"})
        return changed(recipe, {"first_stage": first, "choice": None})
    if model is not None:
        return changed(recipe, {"choice": None})
    return recipe if recipe.choice is not None else changed(recipe, {"choice": Choice()})


def described(error: ValidationError, model: type[BaseModel]) -> str:
    """Describe all faults of a recipe in one line; a misspelled field gets the closest name in ``model``."""
    return "; ".join(_describe_fault(fault, model) for fault in error.errors())


def _place(parts: tuple[str | int, ...]) -> str:
    """Return the path of a fault, as the recipe spells it."""
    return ".".join(map(str, parts[:1] + parts[2:] if parts and parts[0] in _OF_A_KIND else parts))


def _fields(model: type[BaseModel]) -> list[str]:
    """Return the names of all fields of a model and its parts."""
    schema = model.model_json_schema()
    parts = [schema, *schema["$defs"].values()]
    return sorted({name for part in parts for name in part.get("properties", {})})


def _describe_fault(fault: Any, model: type[BaseModel]) -> str:
    """Describe one fault, with its place and the value there."""
    place, message = _place(fault["loc"]), str(fault["msg"]).removeprefix("Value error, ")
    if fault["type"] == "union_tag_not_found":
        return f"{place}: says no kind"
    if fault["type"] == "union_tag_invalid":
        return f"{place}: there is no kind {fault['ctx']['tag']!r}, use one of {fault['ctx']['expected_tags']}"
    if fault["type"] == "extra_forbidden":
        near = difflib.get_close_matches(str(fault["loc"][-1]), _fields(model), n=1)
        return f"{place}: there is no such field{f'; did you mean {near[0]}?' if near else ''}"
    if fault["type"] == "missing":
        return f"{place}: is missing"
    if not place or isinstance(fault["input"], dict):  # a section: the message names what is wrong in it
        return f"{place}: {message}" if place else message
    return f"{place}: {message} (got {fault['input']!r})"
