"""Attempts with LightGBM alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import lightgbm
import numpy as np
from jaxtyping import Float

from benchmarks.science.attempts.problem import LARGE, Problem, Scores
from benchmarks.science.attempts.problem import by_query as ndcg_of
from listwright.ranking.candidates import lightgbm_input
from listwright.training.data.dataset import Dataset, Splits
from listwright.training.first_stage import boosting, lambdamart
from listwright.training.stored.rows import in_memory

MEMBERS = 8


def plain(problem: Problem) -> Scores:
    """Fit LightGBM on the columns of the set."""
    return _single(problem, problem.plain, out_of_fold=False)


def relative(problem: Problem) -> Scores:
    """Fit the rival: LightGBM on these and list-relative columns."""
    return _single(problem, problem.wide, out_of_fold=True)


def extended(problem: Problem) -> Scores:
    """Fit LightGBM on the rival's columns, the place between the list's ends, the gaps to them, and its length."""
    return _single(problem, problem.extended, out_of_fold=True)


def by_query(problem: Problem) -> Scores:
    """Fit the rival with whole queries in each bag, not rows."""
    with _bags_of_queries():
        return _single(problem, problem.wide, out_of_fold=True)


def extended_by_query(problem: Problem) -> Scores:
    """Fit both changes together."""
    with _bags_of_queries():
        return _single(problem, problem.extended, out_of_fold=True)


@contextmanager
def _bags_of_queries() -> Iterator[None]:
    settings_of = boosting.settings_of

    def changed(params: Mapping[str, Any], seed: int) -> dict[str, Any]:
        return settings_of(params, seed) | {"bagging_by_query": True}

    with patch.object(boosting, "settings_of", changed):
        yield


def _single(problem: Problem, splits: Splits, *, out_of_fold: bool) -> Scores:
    spec = problem.first_stage
    tuned = lambdamart.tune(splits.train, splits.valid, spec, seed=problem.seed)
    train, facts = None, {"trees": [float(tuned.trees)], "valid_ndcg": [tuned.valid_ndcg]}
    if out_of_fold and problem.name not in LARGE:
        train = lambdamart.out_of_fold_scores(splits.train, tuned, folds=spec.folds, seed=problem.seed)
        facts["train_ndcg"] = [float(ndcg_of(splits.train, train).mean())]
    valid, test = (lambdamart.scores_of(tuned.model, part) for part in (splits.valid, splits.test))
    return Scores(train, valid, test, facts)


def summed(problem: Problem, rival: Scores) -> Scores:
    """Sum :data:`MEMBERS` models of other seeds, with the rival's settings and number of trees.

    Its training rows have the rival's out-of-fold scores: weights of a stack are fitted on those.
    """
    return _sum(problem, int(rival.facts["trees"][0]), {"objective": "lambdarank"}, rival.train)


def summed_xendcg(problem: Problem) -> Scores:
    """Sum as many boosters of LightGBM's other listwise objective, with the same settings and trees of their own."""
    splits, spec = problem.wide, problem.first_stage
    train = _lightgbm_dataset(splits.train)
    parts = np.random.default_rng(problem.seed).permutation(len(splits.train)) % spec.folds
    rows = [
        [splits.train.rows_of(np.flatnonzero(parts != k)), splits.train.rows_of(np.flatnonzero(parts == k))]
        for k in range(spec.folds)
    ]
    settings = _settings(problem, {"objective": "rank_xendcg", "metric": "ndcg", "eval_at": [spec.ndcg_at]})
    stop: list[Callable[..., Any]] = [lightgbm.early_stopping(spec.patience, verbose=False)]
    curves = lightgbm.cv(settings, train, spec.max_trees, folds=rows, callbacks=stop)
    trees = int(np.argmax(np.array(curves[f"valid ndcg@{spec.ndcg_at}-mean"]))) + 1
    return _sum(problem, trees, {"objective": "rank_xendcg"}, None)


def _sum(problem: Problem, trees: int, more: dict[str, Any], train_scores: Float[np.ndarray, " R"] | None) -> Scores:
    splits = problem.wide
    train = _lightgbm_dataset(splits.train)
    predictions: list[Float[np.ndarray, " S"]] = []
    for member in range(MEMBERS):
        settings = _settings(problem, more) | {"seed": 1000 * (problem.seed + 1) + member}
        booster = lightgbm.train(settings, train, trees)
        held_out = np.concatenate([_matrix(splits.valid), _matrix(splits.test)])
        predictions.append(np.asarray(booster.predict(held_out, raw_score=True)))
    mean = np.mean(predictions, axis=0)
    return Scores(train_scores, mean[: splits.valid.rows], mean[splits.valid.rows :], {"trees": [float(trees)]})


def _settings(problem: Problem, more: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of :mod:`listwright.training.first_stage.lambdamart`."""
    return {
        **problem.first_stage.settings.model_dump(),
        "bagging_freq": 1,
        "deterministic": True,
        "force_row_wise": True,
        "num_threads": 0,
        "feature_pre_filter": False,
        "verbosity": -1,
        "seed": problem.seed,
        **more,
    }


def _matrix(data: Dataset) -> Float[np.ndarray, "R D"]:
    return lightgbm_input(in_memory(data.features), data.schema)


def _lightgbm_dataset(data: Dataset) -> lightgbm.Dataset:
    return lightgbm.Dataset(
        _matrix(data),
        label=data.labels,
        group=data.lengths,
        categorical_feature=list(data.schema.categorical),
        params={"feature_pre_filter": False, "verbosity": -1},
        free_raw_data=False,
    )
