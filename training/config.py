"""The recipe: everything needed to repeat a run, read from TOML into frozen values."""

from __future__ import annotations

import tomllib
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from ranking.errors import RecipeError

Positive = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0.0, le=1.0)]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Split(_Frozen):
    """A split by query into ``parts`` equal parts after one seeded shuffle.

    Fold ``k`` (1-based) tests on part ``k``, validates on the next one (cyclic) and trains on the rest: five parts are
    the papers' 60/20/20, and its five folds test every query once.
    """

    parts: Annotated[int, Field(ge=3)] = 5


class LetorData(_Frozen):
    """SVMrank / LETOR text.

    Args:
        parts: names of the disjoint part files of a set that ships without folds; empty for anything else.
        valid_part, test_part: fold k validates on part ``k + valid_part`` and tests on part ``k + test_part``
            (1-based, cyclic); it trains on the remaining ones.
        split: how to split when neither the files nor the archive say which query belongs where.
    """

    kind: Literal["letor"] = "letor"
    parts: tuple[str, ...] = ()
    valid_part: int = 3
    test_part: int = 4
    split: Split = Split()


class TableData(_Frozen):
    """CSV or Parquet, one row per candidate.

    Args:
        file: name of the table inside the folder given by ``--data``; None where ``--data`` is the table itself.
        qid, label: column names.
        categorical: columns to treat as categories whatever their type; text columns always are.
        ignore: columns that are no features.
    """

    kind: Literal["table"] = "table"
    file: str | None = None
    qid: str | None = None
    label: str | None = None
    categorical: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    split: Split = Split()


class SyntheticData(_Frozen):
    """Data with a known truth (``training.data.synthetic``).

    Args:
        queries: number of lists.
        min_length, max_length: bounds of the list length (log-uniform).
        numeric, categorical: number of features of each kind.
        categories: values of each categorical feature.
        groups: K Plackett-Luce groups with their own weights.
        shift: s; every query scales feature d by ``exp(N(0, 0.4 s))`` and shifts it by ``N(0, 2 s)``.
        anomalous: share of queries whose s is tripled.
        missing: share of numeric values that are missing (in the first third of the numeric features).
        levels: relevance labels ``0 .. levels - 1``; ties abound.
        noise: scale of the Gumbel noise on the utilities.
    """

    kind: Literal["synthetic"] = "synthetic"
    queries: Positive = 1500
    min_length: Positive = 1
    max_length: Positive = 60
    numeric: Positive = 12
    categorical: Annotated[int, Field(ge=0)] = 2
    categories: Annotated[int, Field(ge=2)] = 8
    groups: Positive = 1
    shift: Annotated[float, Field(ge=0.0)] = 0.5
    anomalous: Share = 0.05
    missing: Share = 0.05
    levels: Annotated[int, Field(ge=2)] = 5
    noise: Annotated[float, Field(ge=0.0)] = 0.5
    split: Split = Split()

    @model_validator(mode="after")
    def _lengths_are_ordered(self) -> SyntheticData:
        if self.min_length > self.max_length:
            raise ValueError(f"min_length {self.min_length} is above max_length {self.max_length}")
        return self


Data = Annotated[LetorData | TableData | SyntheticData, Field(discriminator="kind")]


class LambdaMart(_Frozen):
    """LambdaMART as the first stage, and the budget for tuning it.

    Args:
        trials: hyperparameter settings tried; 1 keeps the defaults.
        select_on: what settings and number of trees are chosen by: ``valid``, the validation split; or ``folds``, the
            held-out parts of a cross-validation over the training queries, ``folds`` times the work, for
            sets whose validation split has a few dozen queries.
        max_trees, patience: boosting stops after ``patience`` trees without a better NDCG.
        folds: parts for the out-of-fold scores of the training queries, and for ``select_on = "folds"``.
        ndcg_at: cutoff of the NDCG that tuning and early stopping look at.
    """

    kind: Literal["lambdamart"] = "lambdamart"
    trials: Positive = 20
    select_on: Literal["valid", "folds"] = "valid"
    max_trees: Positive = 1000
    patience: Positive = 50
    folds: Annotated[int, Field(ge=2)] = 5
    ndcg_at: Positive = 10


class GivenModel(_Frozen):
    """A LightGBM model that already runs somewhere, as LightGBM's text file."""

    kind: Literal["model"] = "model"
    path: str


class GivenColumn(_Frozen):
    """First-stage scores that stand in the data, in the feature column of this name."""

    kind: Literal["column"] = "column"
    column: str


FirstStage = Annotated[LambdaMart | GivenModel | GivenColumn, Field(discriminator="kind")]


class Qilcm(_Frozen):
    """QILCM (Zhu, Chen, He, AAAI 2019) and how to fit it.

    Args:
        encoder_width: width of the two encoder layers, eq. (1).
        hidden: hidden widths of both MLPs, eqs. (3) and (9).
        query_norm: eq. (8) as ``1 / sqrt(var + eps^2)`` (``stable``) or as printed, ``1 / (sigma + eps)`` (``paper``).
        rank_loss: AttRank without (``per_query``) or with (``paper``) the factor 1/n of eq. (12).
        confusion_weight: lambda', the weight of the normalised Chamfer loss; the lambda of eq. (10) that it equals
            is printed. 0 leaves the loss out (the paper's variant 2).
        confusion_pairs: query pairs sampled per batch for eq. (13); None for all.
        first_stage_score: whether the first stage's score is one more input feature.
        cutoff: C, how many candidates of the first stage are reranked.
        dropout, weight_decay: regularisation on top of the paper's; 0 is the paper.
        batch_size, learning_rate, max_epochs, patience: Adam, in queries per batch; training stops after ``patience``
            epochs without a better validation NDCG at ``ndcg_at``.
    """

    kind: Literal["qilcm"] = "qilcm"
    encoder_width: Positive = 100
    hidden: tuple[Positive, ...] = (256, 128)
    query_norm: Literal["stable", "paper"] = "stable"
    rank_loss: Literal["per_query", "paper"] = "per_query"
    confusion_weight: Annotated[float, Field(ge=0.0)] = 0.01
    confusion_pairs: Positive | None = None
    first_stage_score: bool = True
    cutoff: Positive = 100
    dropout: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    weight_decay: Annotated[float, Field(ge=0.0)] = 0.0
    batch_size: Positive = 80
    learning_rate: Annotated[float, Field(gt=0.0)] = 1e-3
    max_epochs: Positive = 100
    patience: Positive = 15
    ndcg_at: Positive = 10


Model = Qilcm
"""The second stages that can be fitted; others join it as a closed union."""


class Recipe(_Frozen):
    """One run: data, first stage, second stage.

    Args:
        name: of the recipe, and of the bundle unless ``--out`` says otherwise.
        about: one line for ``--help``.
        fold: which fold of the data, 1-based.
        seed: the only source of randomness.
    """

    name: str
    about: str
    data: Data
    first_stage: FirstStage = LambdaMart()
    model: Model = Qilcm()
    fold: Positive = 1
    seed: Annotated[int, Field(ge=0)] = 0


def recipe_names() -> list[str]:
    """Names of the recipes that ship with Listwright."""
    folder = resources.files("training") / "recipes"
    return sorted(entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml"))


def load(name_or_path: str, **changes: Any) -> Recipe:
    """Read a shipped recipe by name, or any recipe by path.

    Args:
        name_or_path: ``demo``, or a path that ends in ``.toml``.
        changes: top-level fields to replace (``seed``, ``fold``); None leaves the recipe's own.

    Raises:
        RecipeError: if there is no such recipe or a field is wrong; every fault is named with its place.
    """
    if name_or_path.endswith(".toml"):
        path: Any = Path(name_or_path)
    else:
        path = resources.files("training") / "recipes" / f"{name_or_path}.toml"
    if not path.is_file():
        known = ", ".join(recipe_names())
        raise RecipeError(f"no recipe {name_or_path!r}: use one of {known}, or the path of a .toml file")
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise RecipeError(f"{path}: not TOML: {error}") from error
    values.update({key: value for key, value in changes.items() if value is not None})
    try:
        return Recipe.model_validate(values)
    except ValidationError as error:
        faults = "; ".join(f"{'.'.join(map(str, f['loc']))}: {f['msg']} (got {f['input']!r})" for f in error.errors())
        raise RecipeError(f"{path}: {faults}") from error
