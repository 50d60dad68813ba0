"""Attempts with both stages together: a network taught to trees, and trees fitted on what a network leaves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lightgbm
import numpy as np
from jaxtyping import Float

from listwright.training.data.dataset import Dataset, Splits
from listwright.training.first_stage.boosting import HeldOutNdcg, stopping
from listwright_lab.science.attempts.networks import BLOCKS, FOLDS, single
from listwright_lab.science.attempts.problem import Problem, Scores, by_query
from listwright_lab.science.attempts.trees import binned, matrix_of, settings_of

SHARE = 0.5
"""Weight of the network's choice probabilities in the target of the trees."""

Rows = Float[np.ndarray, " R"]


def softmax_trees(problem: Problem) -> Scores:
    """Fit the rival's columns by the softmax loss of the labels: what distillation is compared with."""
    return _softmax_trees(problem, problem.wide, None)


def xendcg_trees(problem: Problem) -> Scores:
    """Fit the rival's columns by LightGBM's own listwise cross entropy, ``rank_xendcg``."""
    scorer, trees = _grow(problem, problem.wide, {"objective": "rank_xendcg"}, None)
    return Scores(None, scorer(problem.wide.valid), scorer(problem.wide.test), {"trees": [float(trees)]})


def softmax_by_query(problem: Problem) -> Scores:
    """Fit the rival's columns by the softmax loss, with whole queries in each bag."""
    return _softmax_trees(problem, problem.wide, None, bagging_by_query=True)


def softmax_grouped(problem: Problem) -> Scores:
    """Fit comparisons within the candidates that share a category, too, by the softmax loss."""
    return _softmax_trees(problem, problem.grouped, None)


def distilled(problem: Problem, teacher: Scores) -> Scores:
    """Fit the rival's columns by the softmax loss; half of the target is the softmax of out-of-fold network scores."""
    assert teacher.train is not None
    return _softmax_trees(problem, problem.wide, teacher.train)


def _softmax_trees(problem: Problem, splits: Splits, teacher_scores: Rows | None, **more: object) -> Scores:
    train = splits.train
    starts, query = train.offsets[:-1], np.repeat(np.arange(len(train)), train.lengths)
    target = np.exp2(train.labels.astype(np.float64)) - 1.0
    totals = np.add.reduceat(target, starts)[query]
    counts = totals > 0.0  # a list without a relevant candidate teaches nothing
    target = np.where(counts, target / np.where(counts, totals, 1.0), 0.0)
    if teacher_scores is not None:
        target = (1.0 - SHARE) * target + SHARE * np.where(counts, _softmax(teacher_scores, starts, query), 0.0)

    def objective(scores: Rows, _: lightgbm.Dataset) -> tuple[Rows, Rows]:
        share = np.where(counts, _softmax(scores, starts, query), 0.0)
        return share - target, np.maximum(share * (1.0 - share), 1e-16)

    scorer, trees = _grow(problem, splits, {"objective": objective, **more}, None)
    valid, test = scorer(splits.valid), scorer(splits.test)
    return Scores(None, valid, test, {"trees": [float(trees)]})


def _softmax(scores: Rows, starts: np.ndarray, query: np.ndarray) -> Rows:
    shifted = np.exp(scores - np.maximum.reduceat(scores, starts)[query])
    shares: Rows = shifted / np.add.reduceat(shifted, starts)[query]
    return shares


def _grow(
    problem: Problem,
    splits: Splits,
    more: dict[str, Any],
    network: Scores | None,
    queries: np.ndarray | None = None,
) -> tuple[Callable[[Dataset], Rows], int]:
    """Fit trees, stopped by the validation queries.

    Args:
        problem: Problem with the settings of the first stage.
        splits: Splits of the problem, with the columns to fit.
        more: Further settings of LightGBM.
        network: Scores that the trees are added to; None for none.
        queries: ``(M,)`` indices of training queries to fit on; None for all.

    Returns:
        Function from a part to the scores of the trees alone, and the number of trees.
    """
    spec = problem.first_stage
    data = splits.train if queries is None else splits.train.select(queries)
    train, valid = binned(data), binned(splits.valid)
    if network is not None:
        assert network.train is not None
        train.set_init_score(network.train if queries is None else network.train[splits.train.rows_of(queries)])
        valid.set_init_score(network.valid)
    settings = settings_of(problem, {"objective": "lambdarank", **more, "metric": "None"})
    measure = HeldOutNdcg(spec.ndcg_at, None)
    booster = lightgbm.train(
        settings, train, spec.max_trees, valid_sets=[valid], feval=measure, callbacks=[stopping(spec.patience)]
    )
    trees = booster.best_iteration or booster.current_iteration()
    return (lambda part: np.asarray(booster.predict(matrix_of(part), raw_score=True, num_iteration=trees))), trees


def alternated(problem: Problem, network: Scores) -> Scores:
    """Fit trees on what the network leaves, and then a network on the sum: two rounds.

    The network's logits, which rank, are first scaled like LightGBM's scores, by what ranks validation queries best.
    """
    assert network.train is not None
    splits = problem.wide
    factors = (0.25, 0.5, 1.0, 2.0)
    best: tuple[float, float, Scores] | None = None
    for factor in factors:
        scaled = Scores(network.train * factor, network.valid * factor, network.test * factor, {})
        scorer, trees = _grow(problem, splits, {}, scaled)
        value = float(by_query(splits.valid, scaled.valid + scorer(splits.valid)).mean())
        if best is None or value > best[0]:
            best = value, factor, scaled
            valid, test = (
                start + scorer(part) for part, start in ((splits.valid, scaled.valid), (splits.test, scaled.test))
            )
            grown = float(trees)
    assert best is not None
    _, factor, scaled = best
    assert scaled.train is not None
    train = scaled.train.copy()
    part_of = np.random.default_rng([problem.seed, FOLDS]).permutation(len(splits.train)) % FOLDS
    for part in range(FOLDS):
        rest, held_out = np.flatnonzero(part_of != part), np.flatnonzero(part_of == part)
        scorer, _ = _grow(problem, splits, {}, scaled, rest)
        train[splits.train.rows_of(held_out)] += scorer(splits.train.select(held_out))
    first = Scores(train, valid, test, {})
    second = single(problem, splits, BLOCKS, first)
    return Scores(None, second.valid, second.test, {**second.facts, "factor": [factor], "trees": [grown]})
