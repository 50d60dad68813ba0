"""Attempts with LightGBM alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import lightgbm
import numpy as np
import pandas as pd
from jaxtyping import Float

from listwright.ranking.candidates import lightgbm_input
from listwright.training.data.dataset import Dataset, Splits
from listwright.training.first_stage import boosting, lambdamart
from listwright_lab.science.attempts.problem import LARGE, Problem, Scores, group_of, groupings
from listwright_lab.science.attempts.problem import by_query as ndcg_of

MEMBERS = 8


def plain(problem: Problem) -> Scores:
    """Fit LightGBM on the columns of the set."""
    return _single(problem, problem.plain, out_of_fold=False)


def relative(problem: Problem) -> Scores:
    """Fit the rival: LightGBM on these and list-relative columns."""
    return _single(problem, problem.wide, out_of_fold=True)


def extended(problem: Problem) -> Scores:
    """Fit LightGBM on the rival's columns, the place between the list's ends, the gaps to them, and its length."""
    return _single(problem, problem.extended, out_of_fold=problem.name not in LARGE)


def by_query(problem: Problem) -> Scores:
    """Fit the rival with whole queries in each bag, not rows."""
    with _bags_of_queries():
        return _single(problem, problem.wide, out_of_fold=problem.name not in LARGE)


def extended_by_query(problem: Problem) -> Scores:
    """Fit both changes together."""
    with _bags_of_queries():
        return _single(problem, problem.extended, out_of_fold=problem.name not in LARGE)


@contextmanager
def _bags_of_queries() -> Iterator[None]:
    original = boosting.settings_of

    def changed(params: Mapping[str, Any], seed: int) -> dict[str, Any]:
        return original(params, seed) | {"bagging_by_query": True}

    with patch.object(boosting, "settings_of", changed):
        yield


def _single(problem: Problem, splits: Splits, *, out_of_fold: bool) -> Scores:
    spec = problem.first_stage
    tuned = lambdamart.tune(splits.train, splits.valid, spec, seed=problem.seed)
    train, facts = None, {"trees": [float(tuned.trees)], "valid_ndcg": [tuned.valid_ndcg]}
    if out_of_fold:
        train = lambdamart.out_of_fold_scores(splits.train, tuned, folds=spec.folds, seed=problem.seed)
        facts["train_ndcg"] = [float(ndcg_of(splits.train, train).mean())]
    valid, test = (lambdamart.scores_of(tuned.model, part) for part in (splits.valid, splits.test))
    return Scores(train, valid, test, facts)


def grouped(problem: Problem) -> Scores:
    """Fit LightGBM on the rival's columns and comparisons within the candidates that share a category."""
    return _single(problem, problem.grouped, out_of_fold=False)


PENALTIES = (0.0, 0.1, 0.2, 0.5, 1.0)


def demoted(problem: Problem, rival: Scores) -> Scores:
    """Lower a candidate for each better one with its categories, by what ranks the out-of-fold scores best.

    The penalty is a share of the scores' standard deviation.
    """
    parts = problem.plain
    categories, unit = groupings(parts.train), float(rival.valid.std())

    def lower(data: Dataset, scores: Float[np.ndarray, " R"], penalty: float) -> Float[np.ndarray, " R"]:
        label, _ = group_of(data, categories)
        better = pd.Series(-scores).groupby(label).rank(method="min").to_numpy() - 1
        lowered: Float[np.ndarray, " R"] = scores - penalty * unit * better
        return lowered

    assert rival.train is not None
    tried = {value: lower(parts.train, rival.train, value) for value in PENALTIES if categories or not value}
    best = max(tried, key=lambda value: float(ndcg_of(parts.train, tried[value]).mean()))
    valid, test = (lower(data, scores, best) for data, scores in ((parts.valid, rival.valid), (parts.test, rival.test)))
    return Scores(tried[best], valid, test, {"penalty": [best]})


def extended_sum(problem: Problem, single: Scores) -> Scores:
    """Sum :data:`MEMBERS` models with both changes."""
    more = {"objective": "lambdarank", "bagging_by_query": True}
    return _sum(problem, problem.extended, int(single.facts["trees"][0]), more, single.train)


def softmax_sum(problem: Problem, single: Scores) -> Scores:
    """Sum :data:`MEMBERS` models of other seeds by the softmax loss."""
    return _sum(problem, problem.wide, int(single.facts["trees"][0]), {"objective": boosting.SoftmaxLoss()}, None)


def summed(problem: Problem, rival: Scores) -> Scores:
    """Sum :data:`MEMBERS` models of other seeds, with the rival's settings and number of trees.

    Its training rows have the rival's out-of-fold scores: weights of a stack are fitted on those.
    """
    more = {"objective": "lambdarank"}
    return _sum(problem, problem.wide, int(rival.facts["trees"][0]), more, rival.train)


def summed_xendcg(problem: Problem) -> Scores:
    """Sum as many boosters of LightGBM's other listwise objective, with the same settings and trees of their own."""
    splits, spec = problem.wide, problem.first_stage
    train = binned(splits.train)
    parts = np.random.default_rng(problem.seed).permutation(len(splits.train)) % spec.folds
    rows = [
        [splits.train.rows_of(np.flatnonzero(parts != k)), splits.train.rows_of(np.flatnonzero(parts == k))]
        for k in range(spec.folds)
    ]
    settings = settings_of(problem, {"objective": "rank_xendcg", "metric": "ndcg", "eval_at": [spec.ndcg_at]})
    stop: list[Callable[..., Any]] = [lightgbm.early_stopping(spec.patience, verbose=False)]
    curves = lightgbm.cv(settings, train, spec.max_trees, folds=rows, callbacks=stop)
    trees = int(np.argmax(np.array(curves[f"valid ndcg@{spec.ndcg_at}-mean"]))) + 1
    return _sum(problem, splits, trees, {"objective": "rank_xendcg"}, None)


def _sum(
    problem: Problem,
    splits: Splits,
    trees: int,
    more: dict[str, Any],
    train_scores: Float[np.ndarray, " R"] | None,
) -> Scores:
    train = binned(splits.train)
    predictions: list[Float[np.ndarray, " S"]] = []
    for member in range(MEMBERS):
        settings = settings_of(problem, more) | {"seed": 1000 * (problem.seed + 1) + member}
        booster = lightgbm.train(settings, train, trees)
        held_out = np.concatenate([matrix_of(splits.valid), matrix_of(splits.test)])
        predictions.append(np.asarray(booster.predict(held_out, raw_score=True)))
    mean = np.mean(predictions, axis=0)
    return Scores(train_scores, mean[: splits.valid.rows], mean[splits.valid.rows :], {"trees": [float(trees)]})


def settings_of(problem: Problem, more: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of :mod:`listwright.training.first_stage.lambdamart`."""
    own = problem.first_stage.settings.model_dump()
    if own["cat_smooth"] is None:
        most = max(len(feature.categories) for feature in problem.plain.train.schema.features)
        much = most > lambdamart.MANY_CATEGORIES
        own["cat_smooth"] = lambdamart.MUCH_SMOOTHING if much else lambdamart.LIGHTGBM_SMOOTHING
    return {
        **own,
        "bagging_freq": 1,
        "deterministic": True,
        "force_row_wise": True,
        "num_threads": 0,
        "feature_pre_filter": False,
        "verbosity": -1,
        "seed": problem.seed,
        **more,
    }


def matrix_of(data: Dataset) -> Float[np.ndarray, "R D"]:
    """Return what LightGBM reads."""
    return lightgbm_input(data.features[:], data.schema)


def binned(data: Dataset) -> lightgbm.Dataset:
    """Return the queries as LightGBM's dataset."""
    return lightgbm.Dataset(
        matrix_of(data),
        label=data.labels,
        group=data.lengths,
        categorical_feature=list(data.schema.categorical),
        params={"feature_pre_filter": False, "verbosity": -1},
        free_raw_data=False,
    )
