"""The LambdaMART first stage: tuned within a stated budget, and scored out-of-fold on its own training queries."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import optuna
from jaxtyping import Float
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from ranking.errors import RecipeError
from ranking.first_stage import LightGbmFirstStage, lightgbm_input
from ranking.metrics import ndcg
from training.config import LambdaMart
from training.data.dataset import Dataset

Params = dict[str, float | int]

DEFAULTS: Params = {
    "learning_rate": 0.05,
    "num_leaves": 31,
    "min_data_in_leaf": 20,
    "lambdarank_truncation_level": 30,
    "feature_fraction": 0.9,
    "bagging_fraction": 0.9,
    "lambda_l2": 1.0,
}
"""The first trial, so that tuning never does worse than a sensible setting on what it is selected by."""


@dataclass(frozen=True, slots=True)
class TunedLambdaMart:
    """A fitted first stage.

    Args:
        model: LightGBM's text format, cut at the best iteration.
        params: the winning hyperparameters.
        trees: the number of trees kept.
        valid_ndcg: NDCG of the validation split at the recipe's cutoff (empty queries count 0).
        trials: settings that were tried.
    """

    model: str
    params: Params
    trees: int
    valid_ndcg: float
    trials: int


def tune(
    train: Dataset,
    valid: Dataset,
    spec: LambdaMart,
    *,
    seed: int,
    journal: Path | None = None,
    on_trial: Callable[[int, float], None] = lambda _done, _best: None,
) -> TunedLambdaMart:
    """Fit LambdaMART with the hyperparameters and the number of trees that rank held-out queries best.

    Trial 1 is :data:`DEFAULTS`; the others come from Optuna's TPE sampler. Held out are the validation queries, or,
    with ``select_on = "folds"``, the parts of a cross-validation over the training queries; each trial stops early.

    Args:
        train, valid: under one schema.
        spec: the budget.
        seed: fixes boosting and the sampler.
        journal: file that remembers finished trials, so that an interrupted run goes on with the next one.
        on_trial: told the number of finished trials and the best held-out NDCG so far.

    Raises:
        RecipeError: if LightGBM refuses the data; says what it said.
    """
    train_set = _lightgbm_dataset(train)
    valid_set = _lightgbm_dataset(valid, reference=train_set)
    parts = _row_folds(train, spec.folds, seed) if spec.select_on == "folds" else None
    study = _study(journal)
    if not any(trial.state in (TrialState.WAITING, TrialState.COMPLETE) for trial in study.trials):
        study.enqueue_trial(dict(DEFAULTS))
    while (done := _finished(study)) < spec.trials:
        study.sampler = optuna.samplers.TPESampler(seed=seed * 10_000 + done)  # the same draws after a resume
        trial = study.ask()
        value, trees = _held_out(train_set, valid_set, parts, _suggest(trial), spec, seed=seed)
        trial.set_user_attr("trees", trees)
        study.tell(trial, value)
        on_trial(done + 1, study.best_value)
    best = study.best_trial
    trees = int(best.user_attrs["trees"])
    booster = _boost(train_set, dict(best.params), seed=seed, trees=trees)
    valid_ndcg = mean_ndcg(valid, np.asarray(booster.predict(_matrix(valid), raw_score=True)), spec.ndcg_at)
    return TunedLambdaMart(booster.model_to_string(), dict(best.params), trees, valid_ndcg, spec.trials)


def out_of_fold_scores(
    train: Dataset,
    tuned: TunedLambdaMart,
    *,
    folds: int,
    seed: int,
    on_fold: Callable[[int], None] = lambda _done: None,
) -> Float[np.ndarray, " R"]:
    """Scores of the training rows, each by a model that did not see its query.

    A reranker that is trained on scores of a model fitted on the same queries learns to trust an over-fitted score.
    Queries are dealt to ``folds`` parts after a seeded shuffle; each part is scored by LambdaMART with the winning
    hyperparameters and as many trees, fitted on the other parts.

    Returns:
        ``(R,)`` float64, in row order.
    """
    scores = np.empty(train.rows, dtype=np.float64)
    for number, (rest, held_out) in enumerate(_query_folds(train, folds, seed), start=1):
        booster = _boost(_lightgbm_dataset(train.select(rest)), tuned.params, seed=seed, trees=tuned.trees)
        rows = train.rows_of(held_out)
        scores[rows] = booster.predict(lightgbm_input(train.features[rows], train.schema), raw_score=True)
        on_fold(number)
    return scores


def scores_of(model: str, data: Dataset) -> Float[np.ndarray, " R"]:
    """``(R,)`` scores of a model for every row, by the code that serves."""
    return LightGbmFirstStage(model, data.schema).score(data.features)


def mean_ndcg(data: Dataset, scores: Float[np.ndarray, " R"], cutoff: int) -> float:
    """Macro mean NDCG over queries; a query without a relevant candidate counts 0."""
    values = [
        ndcg(scores[rows], data.labels[rows], cutoff=cutoff) for rows in (data.slice(n) for n in range(len(data)))
    ]
    return float(np.nan_to_num(values).mean())


def _study(journal: Path | None) -> optuna.Study:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    storage = None if journal is None else JournalStorage(JournalFileBackend(str(journal)))
    return optuna.create_study(direction="maximize", storage=storage, study_name="lambdamart", load_if_exists=True)


def _query_folds(train: Dataset, folds: int, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """For each part: the queries to fit on, and those to hold out."""
    folds = min(folds, len(train))
    if folds < 2:
        raise RecipeError(f"cross-fitting needs at least 2 training queries, there are {len(train)}")
    part_of = np.random.default_rng(seed).permutation(len(train)) % folds
    return [(np.flatnonzero(part_of != part), np.flatnonzero(part_of == part)) for part in range(folds)]


def _row_folds(train: Dataset, folds: int, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    return [(train.rows_of(rest), train.rows_of(part)) for rest, part in _query_folds(train, folds, seed)]


def _held_out(
    train_set: lightgbm.Dataset,
    valid_set: lightgbm.Dataset,
    parts: list[tuple[np.ndarray, np.ndarray]] | None,
    params: Params,
    spec: LambdaMart,
    *,
    seed: int,
) -> tuple[float, int]:
    """Best held-out NDCG of one setting (LightGBM's own: empty queries count 1), and after how many trees."""
    name = f"ndcg@{spec.ndcg_at}"
    settings = _settings(params, seed) | {"metric": "ndcg", "eval_at": [spec.ndcg_at]}
    stop = lightgbm.early_stopping(spec.patience, verbose=False)
    with _clear_refusal():
        if parts is None:
            booster = lightgbm.train(settings, train_set, spec.max_trees, valid_sets=[valid_set], callbacks=[stop])
            return float(booster.best_score["valid_0"][name]), booster.best_iteration or booster.current_iteration()
        curves = lightgbm.cv(settings, train_set, spec.max_trees, folds=parts, callbacks=[stop])
    curve = np.array(curves[f"valid {name}-mean"])
    return float(np.max(curve)), int(np.argmax(curve)) + 1


def _finished(study: optuna.Study) -> int:
    return sum(trial.state == optuna.trial.TrialState.COMPLETE for trial in study.trials)


def _suggest(trial: optuna.Trial) -> Params:
    return {
        "learning_rate": trial.suggest_float("learning_rate", 0.01, 0.2, log=True),
        "num_leaves": trial.suggest_int("num_leaves", 4, 128, log=True),
        "min_data_in_leaf": trial.suggest_int("min_data_in_leaf", 5, 200, log=True),
        "lambdarank_truncation_level": trial.suggest_int("lambdarank_truncation_level", 10, 100, log=True),
        "feature_fraction": trial.suggest_float("feature_fraction", 0.3, 1.0),
        "bagging_fraction": trial.suggest_float("bagging_fraction", 0.5, 1.0),
        "lambda_l2": trial.suggest_float("lambda_l2", 1e-3, 100.0, log=True),
    }


def _matrix(data: Dataset) -> Float[np.ndarray, "R D"]:
    return lightgbm_input(data.features, data.schema)


def _lightgbm_dataset(data: Dataset, reference: lightgbm.Dataset | None = None) -> lightgbm.Dataset:
    return lightgbm.Dataset(
        _matrix(data),
        label=data.labels,
        group=data.lengths,
        reference=reference,
        categorical_feature=list(data.schema.categorical),
        params={"feature_pre_filter": False, "verbosity": -1},  # trials differ in min_data_in_leaf
        free_raw_data=False,
    )


def _boost(train: lightgbm.Dataset, params: Params, *, seed: int, trees: int) -> lightgbm.Booster:
    with _clear_refusal():
        return lightgbm.train(_settings(params, seed), train, num_boost_round=trees)


def _settings(params: Params, seed: int) -> dict[str, Any]:
    return {
        **params,
        "objective": "lambdarank",
        "bagging_freq": 1,
        "seed": seed,
        "deterministic": True,
        "force_row_wise": True,
        "num_threads": 0,  # OpenMP decides, so that OMP_NUM_THREADS counts
        "feature_pre_filter": False,
        "verbosity": -1,
    }


@contextmanager
def _clear_refusal() -> Iterator[None]:
    try:
        yield
    except lightgbm.basic.LightGBMError as error:
        raise RecipeError(f"LightGBM refused the training data: {error}") from error
