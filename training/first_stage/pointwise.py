"""LightGBM on single rows: the log-odds of being relevant, comparable between lists."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, NamedTuple

import lightgbm
import numpy as np
from jaxtyping import Float

from listwright.training.data.dataset import Dataset
from listwright.training.first_stage.boosting import (
    FasterThreads,
    clear_refusal,
    lightgbm_dataset,
    model_text,
    reporting,
)
from listwright.training.first_stage.lambdamart import (
    LIGHTGBM_SMOOTHING,
    MUCH_SMOOTHING,
    has_many_categories,
    query_folds,
    scores_of,
)
from listwright.training.search import GoesOn, StepReport

SETTINGS: dict[str, Any] = {
    "objective": "binary",
    "metric": "binary_logloss",
    "learning_rate": 0.05,
    "num_leaves": 15,
    "min_data_in_leaf": 20,
    "deterministic": True,
    "force_row_wise": True,
    "feature_pre_filter": False,
    "verbosity": -1,
}

MOST_TREES, PATIENCE = 300, 40

FOLDS = 3
"""Parts of the training queries, each scored by a model of the others."""


class Pointwise(NamedTuple):
    """A pointwise model.

    Args:
        model: LightGBM's text.
        train_scores: ``(R,)`` out-of-fold scores of the training rows; None where there was no time for them.
    """

    model: str
    train_scores: Float[np.ndarray, " R"] | None


def fit_pointwise(
    train: Dataset, valid: Dataset, *, seed: int, report: StepReport, goes_on: GoesOn = lambda _done, _seconds: True
) -> Pointwise:
    """Fit a model of a candidate being relevant (label > 0) to single rows; early stopping by the log loss.

    Args:
        train, valid: Training and validation split, under one schema.
        seed: Seed of boosting, and of the folds.
        report: Function that is called with the trees so far, and the log loss of the validation rows; may end the
            fit by raising :class:`listwright.training.search.TimeOverError`.
        goes_on: Function that decides from the finished folds, and the seconds of the next, whether to fit that.

    Raises:
        RecipeError: if LightGBM refuses the data; with its message.
    """
    train, valid = (replace(part, labels=(part.labels > 0).astype(np.int32)) for part in (train, valid))
    faster, began = FasterThreads(), time.perf_counter()
    smoothing = MUCH_SMOOTHING if has_many_categories(train.schema) else LIGHTGBM_SMOOTHING
    settings = SETTINGS | {"cat_smooth": smoothing, "seed": seed, "num_threads": faster.count}
    binned = lightgbm_dataset(train)
    with clear_refusal(), faster.bounded():
        booster = lightgbm.train(
            settings,
            binned,
            num_boost_round=MOST_TREES,
            valid_sets=[lightgbm_dataset(valid, reference=binned)],
            callbacks=[lightgbm.early_stopping(PATIENCE, verbose=False), reporting(report), faster],
        )
        trees, seconds = booster.best_iteration or booster.current_iteration(), time.perf_counter() - began
        scores: Float[np.ndarray, " R"] = np.empty(train.rows)
        for fold, (inside, outside) in enumerate(query_folds(train, FOLDS, seed)):
            if not goes_on(fold, seconds):
                return Pointwise(model_text(booster, trees), None)
            part = binned.subset(train.rows_of(inside).tolist())
            part.free_raw_data = True  # it needs no rows, which may be on disk
            other = model_text(lightgbm.train(settings, part, num_boost_round=trees, callbacks=[faster]), trees)
            scores[train.rows_of(outside)] = scores_of(other, train.select(outside))
    return Pointwise(model_text(booster, trees), scores)
