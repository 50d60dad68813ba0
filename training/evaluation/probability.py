"""Calibration of a bundle's scores to probabilities of being relevant.

The pointwise model's scores get a slope and an intercept, each ranker's scores a temperature and a weight of the
pointwise score; see :mod:`listwright.ranking.probability`. Slope and intercept give the share of relevant candidates of
a list. They are fitted on training lists, too, by out-of-fold scores: validation lists alone are too few.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.optimize import minimize

from listwright.ranking.order import log_odds
from listwright.ranking.probability import level_probabilities, pointwise_probabilities, relevance_probabilities
from listwright.ranking.reranker import Reranker
from listwright.ranking.stages import ProbabilityStage
from listwright.training.data.dataset import Dataset, Splits
from listwright.training.evaluation.calibration import FEWEST_LISTS, FOLDS, HIGHEST, LOWEST, SAME, are_choices
from listwright.training.evaluation.protocol import RankedRows, rank_rows
from listwright.training.evaluation.reliability import LEAST
from listwright.training.first_stage.lambdamart import scores_of
from listwright.training.first_stage.pointwise import Pointwise
from listwright.training.first_stage.relative import widened_part

MOST_LISTS, MOST_CHECKED = 5_000, 500
"""Validation lists that a calibration is fitted on at most, and those that it is checked on, out of fold."""

BOUNDS = ((0.0, 10.0), (-50.0, 50.0))
"""Bounds of slope and intercept."""

NO_BETTER = "they predict validation lists that they are not fitted on no better than one rate for all candidates"
"""Reason for a bundle without probabilities, though its labels give some."""

Queries = Int[np.ndarray, " M"]
"""Numbers of queries."""


def obstacle_to(splits: Splits) -> str | None:
    """Return why labels give no probabilities of being relevant; None if they do, and empty if they are choices."""
    if are_choices(splits):
        return ""
    for name, part in (("training", splits.train), ("validation", splits.valid)):
        counted = part.labels if part.weights is None else part.labels[part.weights > 0.0]
        if not 0 < np.count_nonzero(counted) < len(counted):
            return f"the {name} rows are all relevant (label above 0), or none is"
    weights = splits.valid.query_weights
    count = len(splits.valid) if weights is None else np.count_nonzero(weights)
    if count < FEWEST_LISTS:
        return f"{count} validation lists count, and probabilities are fitted on {FEWEST_LISTS} or more"
    return None


def calibrate(reranker: Reranker, splits: Splits, pointwise: Pointwise) -> ProbabilityStage | None:
    """Fit the calibration of every strategy of a bundle, by the bundle's own scores of validation lists.

    Args:
        reranker: Reranker over the exported files.
        splits: Splits of the run; some of the candidates are relevant, and others are not.
        pointwise: Pointwise model.

    Returns:
        None where calibrations fitted on ``1 - 1 / FOLDS`` of the validation lists do not predict the others better
        than the share of relevant candidates does.

    Raises:
        ScoringError: if a ranking is degraded.
    """
    weights, rng = splits.valid.query_weights, np.random.default_rng(0)
    counted = rng.permutation(len(splits.valid) if weights is None else np.flatnonzero(weights))[:MOST_LISTS]
    valid, train = splits.valid.select(np.sort(counted)), splits.train
    ranked = rank_rows(reranker, valid, reranker.manifest.strategies)
    relative = reranker.manifest.relative
    parts = [(valid, ranked.order, scores_of(pointwise.model, widened_part(valid, relative)))]
    if pointwise.train_scores is not None:
        parts.append((train, np.arange(train.rows), pointwise.train_scores))
    lists = ScoredLists(
        np.concatenate([data.labels[order] > 0 for data, order, _ in parts]),
        np.concatenate([_row_weights(data) for data, _, _ in parts]),
        np.concatenate([scores[order] for _, order, scores in parts]),
        np.cumsum(np.concatenate([[0], *(data.lengths for data, _, _ in parts)])),
        ranked,
    )
    stage = lists.calibration(reranker.manifest.strategy)
    return None if stage is None else stage.model_copy(update={"relative": bool(relative)})


def _row_weights(data: Dataset) -> Float[np.ndarray, " R"]:
    weights = data.query_weights
    return np.repeat(np.ones(len(data)) if weights is None else weights, data.lengths)


@dataclass(frozen=True, slots=True)
class ScoredLists:
    """Validation lists and, behind them, training lists: R rows of N lists with their scores.

    Args:
        relevant: ``(R,)`` whether each candidate is relevant.
        weights: ``(R,)`` weight of its list.
        levels: ``(R,)`` scores of the pointwise model.
        offsets: ``(N + 1,)`` first row of each list, and the end of the last.
        ranked: Scores of the rankers, of the validation lists alone.
    """

    relevant: Bool[np.ndarray, " R"]
    weights: Float[np.ndarray, " R"]
    levels: Float[np.ndarray, " R"]
    offsets: Int[np.ndarray, " O"]
    ranked: RankedRows

    @property
    def valid(self) -> int:
        """Number of validation lists."""
        return int(np.searchsorted(self.offsets, len(self.ranked.order)))

    def slice(self, query: int) -> slice:
        """Return the place of a list's rows."""
        return slice(self.offsets[query], self.offsets[query + 1])

    def rows_of(self, queries: Queries) -> Int[np.ndarray, " S"]:
        """Return the rows of some lists, in the order given."""
        return np.concatenate([np.arange(self.offsets[n], self.offsets[n + 1]) for n in queries])

    def log_odds(self, queries: Queries, strategy: str, divisor: float, first_divisor: float) -> list[np.ndarray]:
        """Return the log-odds of the candidates of each of some validation lists, by a strategy's scores alone."""
        scores, first = self.ranked.scores.get(strategy, self.ranked.first_scores), self.ranked.first_scores
        return [log_odds(scores[rows], first[rows], divisor, first_divisor) for rows in map(self.slice, queries)]

    def probabilities(self, queries: Queries, strategy: str, stage: ProbabilityStage) -> Float[np.ndarray, " S"]:
        """Return the probabilities of the candidates of some validation lists, by a calibration."""
        odds = self.log_odds(queries, strategy, stage.temperatures[strategy], stage.temperatures["first_stage"])
        levels = [self.levels[self.slice(n)] for n in queries]
        return np.concatenate(
            [relevance_probabilities(*both, stage, strategy) for both in zip(odds, levels, strict=True)]
        )

    def loss(self, queries: Queries, probability: Float[np.ndarray, " S"]) -> float:
        """Return the weighted mean of ``-log`` of the probability of what happened in some lists."""
        rows = self.rows_of(queries)
        right = np.where(self.relevant[rows], probability, 1.0 - probability)
        return float(np.average(-np.log(np.maximum(right, LEAST)), weights=self.weights[rows]))

    def calibration(self, strategy: str) -> ProbabilityStage | None:
        """Return the calibration of every strategy; None where that of ``strategy`` does not predict, out of fold."""
        checked, gain = np.random.default_rng(0).permutation(self.valid)[:MOST_CHECKED], 0.0
        for fold in range(FOLDS):
            inside, outside = checked[np.arange(len(checked)) % FOLDS != fold], checked[fold::FOLDS]
            stage, rows = self.fit_stage(inside, (strategy,)), self.rows_of(outside)
            rate = self.loss(outside, np.full(len(rows), stage.mean))
            stated = self.loss(outside, self.probabilities(outside, strategy, stage))
            gain += float(self.weights[rows].sum()) * (rate - stated)
        return self.fit_stage(np.arange(self.valid), self.ranked.scores) if gain > 0.0 else None

    def fit_stage(self, queries: Queries, strategies: Iterable[str]) -> ProbabilityStage:
        """Return the calibration under which the labels of some validation lists, and the training lists, are likely.

        Args:
            queries: Numbers of the validation lists.
            strategies: Strategies besides the first stage.
        """
        slope, intercept = self.fit_level(np.concatenate([queries, np.arange(self.valid, len(self.offsets) - 1)]))
        rows, temperatures, weights = self.rows_of(queries), {"first_stage": 1.0}, {}
        expected = pointwise_probabilities(self.levels[rows], slope, intercept)
        for strategy in dict.fromkeys(("first_stage", *strategies)):
            temperatures[strategy], weights[strategy] = self._fit_strategy(
                queries, strategy, temperatures["first_stage"], expected
            )
        return ProbabilityStage(
            slope=slope,
            intercept=intercept,
            temperatures=temperatures,
            pointwise=weights,
            lists=len(queries),
            mean=float(np.average(self.relevant[rows], weights=self.weights[rows])),
        )

    def _fit_strategy(
        self, queries: Queries, strategy: str, first_temperature: float, stated: Float[np.ndarray, " S"]
    ) -> tuple[float, float]:
        """Return the temperature of a strategy and its weight of the pointwise score."""
        own, below = (self.log_odds(queries, strategy, *by) for by in ((1.0, np.inf), (np.inf, first_temperature)))
        scale = float(np.sqrt(np.mean([odds.var() for odds in own])))
        rows, lengths = self.rows_of(queries), np.array([*map(len, own)])
        if scale <= SAME * float(np.nanmax(np.abs(self.ranked.scores.get(strategy, self.ranked.first_scores)[rows]))):
            return 1.0, 0.0
        starts, columns = np.cumsum(lengths) - lengths, np.stack([np.concatenate(own) / scale, self.levels[rows]])
        rest, expected = np.concatenate(below), np.add.reduceat(stated, starts)
        weights = self.weights[rows] / self.weights[rows].sum()

        def loss(factors: Float[np.ndarray, " 2"]) -> tuple[float, Float[np.ndarray, " 2"]]:
            """Return the log loss and its gradient, as if the order might be that of both models."""
            probability = level_probabilities(factors @ columns + rest, expected, starts)
            steep = probability * (1.0 - probability) + LEAST
            means = np.add.reduceat(steep * columns, starts, axis=1) / np.add.reduceat(steep, starts)
            gradient = (columns - np.repeat(means, lengths, axis=1)) @ (weights * (probability - self.relevant[rows]))
            return self.loss(queries, probability), gradient

        bounds = ((1.0 / HIGHEST, 1.0 / LOWEST), (0.0, HIGHEST))
        sharpness, weight = minimize(loss, (1.0, 0.0), jac=True, bounds=bounds, method="L-BFGS-B").x
        return float(scale / sharpness), float(weight)

    def fit_level(self, queries: Queries) -> tuple[float, float]:
        """Return slope and intercept of the pointwise scores by which shares of relevant candidates are likeliest."""
        rows, lengths = self.rows_of(queries), np.diff(self.offsets)[queries]
        starts, levels = np.cumsum(lengths) - lengths, self.levels[rows]
        share = np.add.reduceat(self.relevant[rows].astype(np.float64), starts) / lengths
        weight = np.add.reduceat(self.weights[rows], starts) / self.weights[rows].sum()

        def loss(level: Float[np.ndarray, " 2"]) -> tuple[float, Float[np.ndarray, " 2"]]:
            stated = pointwise_probabilities(levels, *level)
            expected = np.add.reduceat(stated, starts) / lengths
            steep = np.repeat(weight * (expected - share) / (expected * (1.0 - expected)) / lengths, lengths)
            steep *= stated * (1.0 - stated)
            total = -weight @ (share * np.log(expected) + (1.0 - share) * np.log1p(-expected))
            return float(total), np.array([steep @ levels, steep.sum()])

        slope, intercept = minimize(loss, (1.0, 0.0), jac=True, bounds=BOUNDS, method="L-BFGS-B").x
        return float(slope), float(intercept)
