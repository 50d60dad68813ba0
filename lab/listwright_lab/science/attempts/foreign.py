"""Attempts with the rankers of other libraries: CatBoost and XGBoost, with their default settings.

``make nightly`` installs both. They stop by the validation queries, and see the columns of :attr:`Problem.extended`.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from listwright.ranking.features import UNKNOWN_CODE
from listwright.training.data.dataset import Dataset
from listwright.training.first_stage.lambdamart import query_folds
from listwright_lab.science.attempts.problem import LARGE, Problem, Scores

TREES, PATIENCE, FOLDS = 1000, 50, 5

Grow = Callable[[Dataset, Dataset | None, int, int], tuple[Callable[[Dataset], Float[np.ndarray, " R"]], int]]
"""Function from training queries, queries to stop by (None: grow all), most trees and a seed to a scorer and its number
of trees.
"""


def catboost(problem: Problem) -> Scores:
    """Fit CatBoost's YetiRank."""

    def grow(train: Dataset, stop: Dataset | None, trees: int, seed: int) -> Any:
        model = import_module("catboost").CatBoostRanker(
            loss_function="YetiRank",
            iterations=trees,
            random_seed=seed,
            thread_count=1,
            verbose=False,
            allow_writing_files=False,
        )
        options = {} if stop is None else {"eval_set": _pool(stop), "early_stopping_rounds": PATIENCE}
        model.fit(_pool(train), **options)
        return (lambda data: np.asarray(model.predict(_pool(data)))), int(model.tree_count_)

    return _scores(problem, grow)


def _pool(data: Dataset) -> Any:
    library = import_module("catboost")
    features = data.features[:]
    categorical = list(data.schema.categorical)
    numeric = [d for d in range(features.shape[1]) if d not in data.schema.categorical]
    codes = np.nan_to_num(features[:, categorical], nan=-1.0).astype(np.int64)
    columns = library.FeaturesData(
        num_feature_data=np.ascontiguousarray(features[:, numeric]),
        cat_feature_data=codes.astype("S").astype(object) if categorical else None,
    )
    return library.Pool(columns, label=data.labels, group_id=_query_of_row(data))


def xgboost(problem: Problem) -> Scores:
    """Fit XGBoost's pairwise objective with 8 random pairs of each candidate."""

    def grow(train: Dataset, stop: Dataset | None, trees: int, seed: int) -> Any:
        library = import_module("xgboost")

        def matrix(data: Dataset) -> Any:
            kinds = ["c" if d in data.schema.categorical else "q" for d in range(len(data.schema))]
            rows = data.features[:].copy()
            for d in data.schema.categorical:  # an unknown category is a missing one
                rows[rows[:, d] == UNKNOWN_CODE, d] = np.nan
            return library.DMatrix(
                rows, label=data.labels, qid=_query_of_row(data), feature_types=kinds, enable_categorical=True
            )

        settings = {
            "objective": "rank:pairwise",
            "lambdarank_pair_method": "mean",
            "lambdarank_num_pair_per_sample": 8,
            "eval_metric": "ndcg@10",
            "nthread": 1,
            "seed": seed,
        }
        options: dict[str, Any] = {}
        if stop is not None:
            options = {"evals": [(matrix(stop), "valid")], "early_stopping_rounds": PATIENCE, "verbose_eval": False}
        model = library.train(settings, matrix(train), trees, **options)
        grown = int(model.best_iteration) + 1 if stop is not None else trees
        return (lambda data: np.asarray(model.predict(matrix(data), iteration_range=(0, grown)), np.float64)), grown

    return _scores(problem, grow)


def _query_of_row(data: Dataset) -> Int[np.ndarray, " R"]:
    return np.repeat(np.arange(len(data)), data.lengths)


def _scores(problem: Problem, grow: Grow) -> Scores:
    """Fit on all training queries, stopped by the validation queries; and score each training query out of fold."""
    splits, seed = problem.extended, problem.seed
    scorer, trees = grow(splits.train, splits.valid, TREES, seed)
    train = np.empty(splits.train.rows)
    for rest, held_out in query_folds(splits.train, 2 if problem.name in LARGE else FOLDS, seed):
        part, _ = grow(splits.train.select(rest), None, trees, seed)
        train[splits.train.rows_of(held_out)] = part(splits.train.select(held_out))
    return Scores(train, scorer(splits.valid), scorer(splits.test), {"trees": [float(trees)]})
