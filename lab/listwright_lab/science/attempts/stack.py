"""Attempts with weighted sums: of the scores of several rankers, and of the columns."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from scipy.optimize import minimize

from listwright.training.data.dataset import Dataset
from listwright.training.specialists.rankers import Standardise
from listwright_lab.science.attempts.problem import Problem, Scores, by_query

FOLDS = 5
PENALTIES = (0.1, 0.3, 1.0, 3.0, 10.0)


def stacked(problem: Problem, parts: list[Scores], *, fitted_on: list[Scores] | None = None) -> Scores:
    """Fit a weighted sum of parts.

    Args:
        problem: Problem whose training queries determine the weights.
        parts: Scores to add.
        fitted_on: Scores whose out-of-fold part determines the weights; None for ``parts``.
    """
    columns = [part.train for part in fitted_on or parts]
    assert all(column is not None for column in columns)
    weights = choice_weights(problem.plain.train, np.column_stack(columns))  # type: ignore[arg-type]
    train, valid, test = (
        np.column_stack([getattr(part, name) for part in parts]) @ weights for name in ("train", "valid", "test")
    )
    shares = weights * [float(np.std(part.valid)) for part in parts]
    return Scores(train, valid, test, {"weights": (shares / max(shares.sum(), 1e-12)).tolist()})


def blended(_: Problem, *parts: Scores) -> Scores:
    """Sum parts, each divided by its spread over the validation rows: nothing is fitted."""
    scales = [1.0 / (part.valid.std() or 1.0) for part in parts]
    valid, test = (
        np.sum([scale * getattr(part, name) for scale, part in zip(scales, parts, strict=True)], axis=0)
        for name in ("valid", "test")
    )
    return Scores(None, valid, test, {})


def linear(problem: Problem, _: Scores) -> Scores:
    """Fit a linear ranker on the columns, list-relative ones included, by the softmax loss.

    The ridge penalty is the one of :data:`PENALTIES` that ranks best out of fold.
    """
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


def choice_weights(data: Dataset, scores: Float[np.ndarray, "R M"]) -> Float[np.ndarray, " M"]:
    """Return ``(M,)`` weights from 0 that make the sum of the columns the best logit of AttRank's target."""
    scale = scores.std(axis=0)
    scale[scale == 0.0] = 1.0
    weights: Float[np.ndarray, " M"] = (
        fitted_weights(data, scores / scale, start=1.0 / scores.shape[1], least=0.0) / scale
    )
    return weights


def fitted_weights(
    data: Dataset, x: Float[np.ndarray, "R M"], *, ridge: float = 0.0, start: float = 0.0, least: float | None = None
) -> Float[np.ndarray, " M"]:
    """Return ``(M,)`` weights that make ``x @ weights`` the best logit of AttRank's target: a convex fit.

    Args:
        data: Lists whose labels are the target.
        x: ``(R, M)`` columns.
        ridge: Ridge penalty: half of it times the squared weights is added to the loss of a query.
        start: Initial value of every weight.
        least: Lower bound of every weight; None for none.
    """
    starts = data.offsets[:-1]
    query = np.repeat(np.arange(len(data)), data.lengths)
    target = np.where(data.labels > 0, np.exp(data.labels.astype(np.float64)), 0.0)
    totals = np.add.reduceat(target, starts)
    relevant = (totals > 0.0)[query]
    target = np.where(relevant, target / np.where(totals > 0.0, totals, 1.0)[query], 0.0)

    def loss(weights: Float[np.ndarray, " M"]) -> tuple[float, Float[np.ndarray, " M"]]:
        logits = x @ weights
        logits -= np.maximum.reduceat(logits, starts)[query]
        sums = np.add.reduceat(np.exp(logits), starts)[query]
        log_p = logits - np.log(sums)
        pull = np.where(relevant, np.exp(log_p), 0.0) - target
        value = -float(target @ log_p) / len(data) + ridge * float(weights @ weights) / 2
        return value, x.T @ pull / len(data) + ridge * weights

    bounds = [(least, None)] * x.shape[1]
    solution = minimize(loss, np.full(x.shape[1], start), jac=True, method="L-BFGS-B", bounds=bounds)
    weights: Float[np.ndarray, " M"] = solution.x
    return weights
