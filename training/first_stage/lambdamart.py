"""The LambdaMART first stage: tuned within a stated budget, and scored out-of-fold on its own training queries."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
from jaxtyping import Float

from listwright.ranking.candidates import lightgbm_input
from listwright.ranking.errors import RecipeError
from listwright.ranking.features import FeatureSchema
from listwright.ranking.first_stage import LightGbmFirstStage
from listwright.ranking.metrics import QueryNdcg
from listwright.ranking.threads import threads
from listwright.training.console.progress import NO_TASK, Task
from listwright.training.data.dataset import Dataset, Splits
from listwright.training.data.shards.rows import by_chunk
from listwright.training.first_stage.boosting import Directions, Grower, LocalGrower, Queries, bounds_of, settings_of
from listwright.training.recipe.config import LambdaMart, LambdaMartSettings
from listwright.training.search import (
    LAMBDAMART,
    GoesOn,
    Objective,
    OneOf,
    Range,
    Rounds,
    SearchResult,
    StepReport,
    Value,
    search,
)

Params = Mapping[str, Value]

PRUNE_AFTER = 50
"""Trees before a trial may be pruned: a slow learner needs some."""

MANY_CATEGORIES = 500
"""Categories of one feature above which ``cat_smooth`` is searched, and high by default."""

MUCH_SMOOTHING, LIGHTGBM_SMOOTHING = 1_000.0, 10.0
"""``cat_smooth`` by default, with so many and otherwise."""

_BEGIN, _END = "\nTree=0\n", "\nend of trees\n"


@dataclass(frozen=True, slots=True)
class TunedLambdaMart:
    """A fitted first stage.

    Args:
        model: LightGBM's text format, cut at the best iteration.
        params: Winning hyperparameters.
        trees: Number of trees kept, of each member.
        valid_ndcg: NDCG of the validation split at the recipe's cutoff (empty queries count 0).
        trials: Number of settings that were tried.
        members: Number of models with other seeds, whose sum the model is.
    """

    model: str
    params: Params
    trees: int
    valid_ndcg: float
    trials: int
    members: int = 1


def tune(
    train: Dataset,
    valid: Dataset,
    spec: LambdaMart,
    *,
    seed: int,
    journal: Path | None = None,
    task: Task = NO_TASK,
    grower: Grower | None = None,
    goes_on: GoesOn | None = None,
) -> TunedLambdaMart:
    """Fit LambdaMART with the hyperparameters and the number of trees that rank held-out queries best.

    Trial 1 is the recipe's ``settings``; the others come from Optuna's TPE sampler. Held out are the validation
    queries, or, with ``select_on = "folds"``, the parts of a cross-validation over the training queries; each trial
    stops early. Then ``spec.members`` of them are fitted with seeds of their own and summed.

    Args:
        train, valid: Training and validation split, under one schema.
        spec: First stage of the recipe, with the numbers of trials, trees and folds.
        seed: Seed of boosting and of the sampler.
        journal: File that remembers finished trials, so that an interrupted run goes on with the next one.
        task: Task that gets every finished trial and the best held-out NDCG so far.
        grower: Grower of the trees; None for this process.
        goes_on: Function that is called before each trial but the first; trials below the median of earlier ones are
            then ended early.

    Raises:
        RecipeError: if LightGBM refuses the data; with its message.
    """
    grower = grower or LocalGrower()
    best = search_settings(
        train,
        valid,
        spec,
        seed=seed,
        journal=journal,
        prune=goes_on is not None,
        task=task,
        grower=grower,
        goes_on=goes_on,
    )
    params = {**best.values, **bounds_of(train, spec.monotone)}
    models = _boost(train, params, seed=seed, trees=best.fact, members=spec.members, grower=grower)
    valid_ndcg = mean_ndcg(valid, _scores(models, valid), spec.ndcg_at)
    return TunedLambdaMart(summed(models), best.values, best.fact, valid_ndcg, best.trials, spec.members)


def search_settings(
    train: Dataset,
    valid: Dataset,
    spec: LambdaMart,
    *,
    seed: int,
    journal: Path | None = None,
    prune: bool = False,
    task: Task = NO_TASK,
    rounds: Rounds | None = None,
    grower: Grower | None = None,
    goes_on: GoesOn | None = None,
    watch: StepReport | None = None,
) -> SearchResult:
    """Search settings as :func:`tune` does, without the final fit; the fact of a trial is its number of trees.

    Args:
        train, valid, spec, seed, journal, task, grower, goes_on: See :func:`tune`.
        prune: Whether trials that stay below the median of earlier ones are ended early.
        rounds: Rounds of trials in other processes; see
            :class:`listwright.training.first_stage.lambdamart.SettingsTrial`.
        watch: Function that is called with the trees of a trial here, and the held-out NDCG; may end the search by
            raising.
    """
    objective = rounds.objective if rounds else trial_of(train, valid, spec, seed=seed, grower=grower)
    objective = _report_to(task, watch, objective)
    space, own = LAMBDAMART, spec.settings.model_dump()
    many = has_many_categories(train.schema)
    if own["cat_smooth"] is None:
        own["cat_smooth"] = MUCH_SMOOTHING if many else LIGHTGBM_SMOOTHING
    loss, _ = loss_of(train, spec.settings)
    if not many:
        space = {**space, "cat_smooth": Range(own["cat_smooth"], own["cat_smooth"])}
    own["objective"], space = loss, {**space, "objective": OneOf((loss,))}
    return search(
        space,
        objective,
        first=own,
        trials=spec.trials,
        seed=seed,
        journal=journal,
        name="lambdamart",
        prune_after=PRUNE_AFTER if prune else None,
        task=task,
        rounds=rounds,
        goes_on=goes_on,
    )


def has_many_categories(schema: FeatureSchema) -> bool:
    """Return whether a feature has more than :data:`MANY_CATEGORIES` categories."""
    return any(len(feature.categories) > MANY_CATEGORIES for feature in schema.features)


def loss_of(train: Dataset, settings: LambdaMartSettings) -> tuple[str, str]:
    """Return the loss that trees are fitted by, and the reason for it."""
    if settings.objective != "auto":
        return settings.objective, "the recipe sets it"
    if train.weights is not None:
        return "lambdarank", "training rows have weights"
    if (highest := train.labels.max()) > 1:
        return "lambdarank", f"training labels go up to {highest}"
    return "softmax", "training labels are 0 or 1, and rows have no weights"


def _report_to(task: Task, watch: StepReport | None, objective: Objective) -> Objective:
    def try_setting(number: int, values: dict[str, Value], report: StepReport) -> tuple[float, int]:
        def report_all(step: int, value: float) -> None:
            task.measure(step, {f"ndcg_trial_{number + 1}": value})
            if watch is not None:
                watch(step, value)
            report(step, value)

        return objective(number, values, report_all)

    return try_setting


def trial_of(train: Dataset, valid: Dataset, spec: LambdaMart, *, seed: int, grower: Grower | None = None) -> Objective:
    """Return an objective that scores one setting on the recipe's held-out queries; its fact is the number of trees."""
    parts = query_folds(train, spec.folds, seed) if spec.select_on == "folds" else None
    score = (grower or LocalGrower()).trial_of(train, valid, spec, parts)
    bounds = bounds_of(train, spec.monotone)
    return lambda number, values, report: score(number, settings_of({**values, **bounds}, seed), report)


def out_of_fold_scores(
    train: Dataset,
    tuned: TunedLambdaMart,
    *,
    folds: int,
    seed: int,
    ndcg_at: int = 10,
    monotone: Directions = (),
    task: Task = NO_TASK,
    grower: Grower | None = None,
) -> Float[np.ndarray, " R"]:
    """Return scores of the training rows, each by a model that was not fitted on its query.

    A reranker that is trained on scores of a model fitted on the same queries learns to trust an over-fitted score.
    Queries are dealt to ``folds`` parts after a seeded shuffle; each part is scored by LambdaMART with the winning
    hyperparameters and as many trees, fitted on the other parts. The task reports each part's NDCG at ``ndcg_at``.

    Returns:
        ``(R,)`` float64, in row order.
    """
    scores = np.empty(train.rows, dtype=np.float64)
    params = {**tuned.params, **bounds_of(train, monotone)}
    more: dict[str, Any] = {"trees": tuned.trees, "members": tuned.members, "grower": grower or LocalGrower()}
    for number, (rest, held_out) in enumerate(query_folds(train, folds, seed), start=1):
        models = _boost(train, params, seed=seed, queries=rest, **more)
        part = train.select(held_out)
        scores[train.rows_of(held_out)] = part_scores = _scores(models, part)
        task.reach(number)
        task.measure(number, {"ndcg_by_fold": mean_ndcg(part, part_scores, ndcg_at)})
    return scores


def scores_of(model: str, data: Dataset) -> Float[np.ndarray, " R"]:
    """Return ``(R,)`` scores of a model for every row, by the serving code."""
    return by_chunk(data.features, LightGbmFirstStage(model, data.schema).score)


def mean_ndcg(data: Dataset, scores: Float[np.ndarray, " R"], cutoff: int) -> float:
    """Return the weighted mean NDCG over queries; a query without a relevant candidate counts 0."""
    return float(np.average(query_ndcg(data, scores, cutoff), weights=data.query_weights))


def query_ndcg(data: Dataset, scores: Float[np.ndarray, " R"], cutoff: int) -> Float[np.ndarray, " N"]:
    """Return ``(N,)`` NDCG of every query; 0 for one without a relevant candidate."""
    return QueryNdcg(data.labels, data.offsets, cutoff=cutoff, gains=data.gains).of(scores)


def query_folds(train: Dataset, folds: int, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return for each part the queries to fit on, and those to hold out. Each part has queries of a weight above 0.

    Raises:
        RecipeError: if fewer than two queries count.
    """
    weights = train.query_weights
    counts = len(train) if weights is None else int((weights > 0.0).sum())
    folds = min(folds, counts)
    if folds < 2:
        above = "" if weights is None else " with a weight above 0"
        raise RecipeError(f"cross-fitting needs at least 2 training queries{above}, there are {counts}")
    place = np.random.default_rng(seed).permutation(len(train))
    if weights is not None:  # those that count are dealt first, so that each part has some
        place[np.lexsort((place, weights == 0.0))] = np.arange(len(train))
    part_of = place % folds
    return [(np.flatnonzero(part_of != part), np.flatnonzero(part_of == part)) for part in range(folds)]


def _boost(
    train: Dataset,
    params: Mapping[str, Any],
    *,
    seed: int,
    trees: int,
    members: int,
    grower: Grower,
    queries: Queries | None = None,
) -> list[str]:
    """Fit one model with this seed, and ``members - 1`` with seeds derived from it."""
    seeds = [seed, *np.random.default_rng(seed).integers(2**31, size=members - 1).tolist()]
    return [grower.boost(train, settings_of(params, member), trees, queries) for member in seeds]


def _scores(models: Sequence[str], data: Dataset) -> Float[np.ndarray, " R"]:
    """Return ``(R,)`` the sum of all models' scores."""
    boosters = [lightgbm.Booster(model_str=model) for model in models]

    def summed_up(rows: Float[np.ndarray, "M D"]) -> Float[np.ndarray, " M"]:
        matrix = lightgbm_input(rows, data.schema)
        options: dict[str, Any] = {"raw_score": True, "num_threads": threads()}
        sums: Float[np.ndarray, " M"] = np.sum([booster.predict(matrix, **options) for booster in boosters], axis=0)
        return sums

    return by_chunk(data.features, summed_up)


@dataclass(frozen=True, slots=True)
class SettingsTrial:
    """:func:`listwright.training.first_stage.lambdamart.trial_of` as an object that can be pickled.

    Args:
        read: Function that returns the splits; equal ones are called once in a process.
        spec: First stage of the recipe.
        seed: Seed of boosting.
    """

    read: Callable[[], Splits]
    spec: LambdaMart
    seed: int

    def __call__(self, number: int, values: dict[str, Value], report: StepReport) -> tuple[float, int]:
        """Run one trial."""
        return _objective(self)(number, values, report)


@lru_cache(maxsize=1)
def _objective(trial: SettingsTrial) -> Objective:
    splits = trial.read()
    return trial_of(splits.train, splits.valid, trial.spec, seed=trial.seed)


def summed(models: Sequence[str]) -> str:
    """Return one model in LightGBM's text format that scores as all of them together.

    Args:
        models: One or more models in that format, fitted on the same columns. What is no tree is the first one's: names
            of columns, importances, parameters.

    Raises:
        ValueError: if a text holds no trees.
    """
    if len(models) == 1:
        return models[0]
    trees = [tree for model in models for tree in _trees(model)]
    blocks = [f"Tree={number}\n{tree}" for number, tree in enumerate(trees)]
    sizes = " ".join(str(len(block.encode())) for block in blocks)
    head, tail = models[0].partition(_BEGIN)[0], models[0].partition(_END)[2]
    head = re.sub(r"^tree_sizes=.*$", f"tree_sizes={sizes}", head, flags=re.MULTILINE)
    return f"{head}\n{''.join(blocks)}{_END[1:]}{tail}"


def _trees(model: str) -> list[str]:
    """Return every tree's lines, without its number; the empty lines after it included."""
    begin, end = model.find(_BEGIN), model.find(_END)
    if not 0 < begin < end:
        raise ValueError("not a LightGBM text model with trees")
    return [tree.split("\n", 1)[1] for tree in model[begin + 1 : end + 1].split("Tree=")[1:]]
