"""The LambdaMART first stage: tuned within a stated budget, and scored out-of-fold on its own training queries."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import lightgbm
import numpy as np
from jaxtyping import Float

from listwright.ranking.errors import RecipeError
from listwright.ranking.first_stage import LightGbmFirstStage, lightgbm_input
from listwright.ranking.metrics import QueryNdcg
from listwright.ranking.relative import RelativeColumn, RelativeKind
from listwright.training.data.dataset import Dataset
from listwright.training.first_stage.binning import lightgbm_dataset
from listwright.training.first_stage.boosting import Grower, HeldOutNdcg, clear_refusal, reporting, settings_of
from listwright.training.first_stage.monotone import Directions, constraints
from listwright.training.first_stage.summed_trees import summed
from listwright.training.progress import NO_TASK, Task
from listwright.training.recipe.config import LambdaMart
from listwright.training.search.optuna_search import Found, Objective, Rounds, StepReport, search
from listwright.training.search.space import LAMBDAMART, Value
from listwright.training.stored.rows import by_chunk

Params = Mapping[str, Value]

KINDS: tuple[RelativeKind, ...] = get_args(RelativeKind)
"""Of list-relative columns: each rises with its feature, and is bound as the feature is."""

PRUNE_AFTER = 50
"""Trees: a slow learner needs some to show what it can do."""


@dataclass(frozen=True, slots=True)
class TunedLambdaMart:
    """A fitted first stage.

    Args:
        model: LightGBM's text format, cut at the best iteration.
        params: the winning hyperparameters.
        trees: the number of trees kept, of each member.
        valid_ndcg: NDCG of the validation split at the recipe's cutoff (empty queries count 0).
        trials: settings that were tried.
        members: with other seeds, whose sum the model is.
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
) -> TunedLambdaMart:
    """Fit LambdaMART with the hyperparameters and the number of trees that rank held-out queries best.

    Trial 1 is the recipe's ``settings``; the others come from Optuna's TPE sampler. Held out are the validation
    queries, or, with ``select_on = "folds"``, the parts of a cross-validation over the training queries; each trial
    stops early. Then ``spec.members`` of them are fitted with seeds of their own and summed.

    Args:
        train, valid: under one schema.
        spec: the budget.
        seed: fixes boosting and the sampler.
        journal: file that remembers finished trials, so that an interrupted run goes on with the next one.
        task: told every finished trial and the best held-out NDCG so far.
        grower: grows the trees; None for this process.

    Raises:
        RecipeError: if LightGBM refuses the data; says what it said.
    """
    best = search_settings(train, valid, spec, seed=seed, journal=journal, task=task, grower=grower)
    params = {**best.values, **bounds_of(train, spec.monotone)}
    boosters = _boost(train, params, seed=seed, trees=best.fact, members=spec.members, grower=grower)
    valid_ndcg = mean_ndcg(valid, _scores(boosters, valid), spec.ndcg_at)
    model = summed([booster.model_to_string() for booster in boosters])
    return TunedLambdaMart(model, best.values, best.fact, valid_ndcg, spec.trials, spec.members)


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
) -> Found:
    """The search of :func:`tune` alone, without the final fit; the fact of a trial is its number of trees.

    Args:
        train, valid, spec, seed, journal, task, grower: as for :func:`tune`.
        prune: whether trials that stay below the median of earlier ones are ended early.
        rounds: runs trials elsewhere; see :class:`listwright.training.first_stage.settings_trial.SettingsTrial`.
    """
    make = trial_of if grower is None else grower.trial_of
    objective = rounds.objective if rounds else make(train, valid, spec, seed=seed)
    return search(
        LAMBDAMART,
        objective,
        first=spec.settings.model_dump(),
        trials=spec.trials,
        seed=seed,
        journal=journal,
        name="lambdamart",
        prune_after=PRUNE_AFTER if prune else None,
        task=task,
        rounds=rounds,
    )


def trial_of(train: Dataset, valid: Dataset, spec: LambdaMart, *, seed: int) -> Objective:
    """What one setting is worth on held-out queries; the fact is its number of trees."""
    train_set = lightgbm_dataset(train)
    valid_set = lightgbm_dataset(valid, reference=train_set)
    parts = _row_folds(train, spec.folds, seed) if spec.select_on == "folds" else None

    def try_setting(_number: int, values: dict[str, Value], report: StepReport) -> tuple[float, int]:
        params = {**values, **bounds_of(train, spec.monotone)}
        return _held_out(train_set, valid_set, parts, params, spec, seed=seed, report=report)

    return try_setting


def out_of_fold_scores(
    train: Dataset,
    tuned: TunedLambdaMart,
    *,
    folds: int,
    seed: int,
    monotone: Directions = (),
    task: Task = NO_TASK,
    grower: Grower | None = None,
) -> Float[np.ndarray, " R"]:
    """Scores of the training rows, each by a model that did not see its query.

    A reranker that is trained on scores of a model fitted on the same queries learns to trust an over-fitted score.
    Queries are dealt to ``folds`` parts after a seeded shuffle; each part is scored by LambdaMART with the winning
    hyperparameters and as many trees, fitted on the other parts.

    Returns:
        ``(R,)`` float64, in row order.
    """
    scores = np.empty(train.rows, dtype=np.float64)
    params = {**tuned.params, **bounds_of(train, monotone)}
    for number, (rest, held_out) in enumerate(query_folds(train, folds, seed), start=1):
        part = train.select(rest)
        boosters = _boost(part, params, seed=seed, trees=tuned.trees, members=tuned.members, grower=grower)
        scores[train.rows_of(held_out)] = _scores(boosters, train.select(held_out))
        task.reach(number)
    return scores


def scores_of(model: str, data: Dataset) -> Float[np.ndarray, " R"]:
    """``(R,)`` scores of a model for every row, by the code that serves."""
    return by_chunk(data.features, LightGbmFirstStage(model, data.schema).score)


def mean_ndcg(data: Dataset, scores: Float[np.ndarray, " R"], cutoff: int) -> float:
    """Mean NDCG over queries, by their weights; a query without a relevant candidate counts 0."""
    return float(np.average(query_ndcg(data, scores, cutoff), weights=data.query_weights))


def query_ndcg(data: Dataset, scores: Float[np.ndarray, " R"], cutoff: int) -> Float[np.ndarray, " N"]:
    """``(N,)`` NDCG of every query; 0 for one without a relevant candidate."""
    return QueryNdcg(data.labels, data.offsets, cutoff=cutoff, gains=data.gains).of(scores)


def query_folds(train: Dataset, folds: int, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """For each part: the queries to fit on, and those to hold out. Each part has queries of a weight above 0.

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


def _row_folds(train: Dataset, folds: int, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    return [(train.rows_of(rest), train.rows_of(part)) for rest, part in query_folds(train, folds, seed)]


def _held_out(
    train_set: lightgbm.Dataset,
    valid_set: lightgbm.Dataset,
    parts: list[tuple[np.ndarray, np.ndarray]] | None,
    params: Mapping[str, Any],
    spec: LambdaMart,
    *,
    seed: int,
    report: StepReport,
) -> tuple[float, int]:
    """Best held-out NDCG of one setting, and after how many trees."""
    measure = HeldOutNdcg(spec.ndcg_at, params.get("label_gain"))
    settings = settings_of(params, seed) | {"metric": "None"}
    stop = lightgbm.early_stopping(spec.patience, verbose=False)
    callbacks: list[Callable[..., Any]] = [stop, reporting(report)]
    with clear_refusal():
        if parts is None:
            booster = lightgbm.train(
                settings, train_set, spec.max_trees, valid_sets=[valid_set], feval=measure, callbacks=callbacks
            )
            best = booster.best_iteration or booster.current_iteration()
            return float(booster.best_score["valid_0"][measure.name]), best
        curves = lightgbm.cv(settings, train_set, spec.max_trees, folds=parts, feval=measure, callbacks=callbacks)
    curve = np.array(curves[f"valid {measure.name}-mean"])
    return float(np.max(curve)), int(np.argmax(curve)) + 1


def bounds_of(train: Dataset, monotone: Directions) -> dict[str, Any]:
    """What LightGBM is told beside its hyperparameters."""
    derived = {RelativeColumn(feature=name, kind=kind).name: name for name, _ in monotone for kind in KINDS}
    directions = constraints(monotone, train.schema.names, derived)
    bound: dict[str, Any] = {"monotone_constraints": directions} if any(directions) else {}
    return bound if train.gains is None else bound | {"label_gain": list(train.gains)}


def _boost(
    train: Dataset, params: Mapping[str, Any], *, seed: int, trees: int, members: int, grower: Grower | None
) -> list[lightgbm.Booster]:
    """One booster with this seed, and ``members - 1`` with seeds that it fixes."""
    seeds = [seed, *np.random.default_rng(seed).integers(2**31, size=members - 1).tolist()]
    if grower is not None:
        return [grower.boost(train, params, seed=one, trees=trees) for one in seeds]
    prepared = lightgbm_dataset(train)
    with clear_refusal():
        return [lightgbm.train(settings_of(params, one), prepared, num_boost_round=trees) for one in seeds]


def _scores(boosters: Sequence[lightgbm.Booster], data: Dataset) -> Float[np.ndarray, " R"]:
    """``(R,)`` the sum of what all give."""

    def summed_up(rows: Float[np.ndarray, "M D"]) -> Float[np.ndarray, " M"]:
        matrix = lightgbm_input(rows, data.schema)
        found: Float[np.ndarray, " M"] = np.sum([one.predict(matrix, raw_score=True) for one in boosters], axis=0)
        return found

    return by_chunk(data.features, summed_up)
