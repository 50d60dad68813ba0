"""A linear ranker on the standardised columns of the set and its list-relative ones: what is simplest on top."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float

from listwright.training.data.dataset import Dataset
from listwright.training.specialists.rankers import Standardise
from listwright_lab.science.attempts.problem import Problem, Scores, by_query
from listwright_lab.science.attempts.stack import fitted_weights

FOLDS = 5
PENALTIES = (0.1, 0.3, 1.0, 3.0, 10.0)


def linear(problem: Problem, _: Scores) -> Scores:
    """Fit weights by the softmax loss, with the ridge penalty of :data:`PENALTIES` that is best out of fold."""
    splits = problem.wide
    standardise = Standardise(splits.train.schema, splits.train.features, "none")
    train, valid, test = (_standardised(standardise, part) for part in (splits.train, splits.valid, splits.test))
    tried = {ridge: _out_of_fold(splits.train, train, ridge, problem.seed) for ridge in PENALTIES}
    best = max(PENALTIES, key=lambda ridge: float(by_query(splits.train, tried[ridge]).mean()))
    weights = fitted_weights(splits.train, train, ridge=best)
    return Scores(tried[best], valid @ weights, test @ weights, {"ridge": [best]})


def _standardised(standardise: Standardise, data: Dataset) -> Float[np.ndarray, "R P"]:
    with torch.no_grad():
        columns: Float[np.ndarray, "R P"] = standardise(torch.from_numpy(data.features)).double().numpy()
    return columns


def _out_of_fold(data: Dataset, x: Float[np.ndarray, "R P"], ridge: float, seed: int) -> Float[np.ndarray, " R"]:
    part_of = np.random.default_rng([seed, FOLDS]).permutation(len(data)) % FOLDS
    scores = np.empty(data.rows)
    for part in range(FOLDS):
        rest, held_out = (np.flatnonzero(which) for which in (part_of != part, part_of == part))
        weights = fitted_weights(data.select(rest), x[data.rows_of(rest)], ridge=ridge)
        scores[data.rows_of(held_out)] = x[data.rows_of(held_out)] @ weights
    return scores
