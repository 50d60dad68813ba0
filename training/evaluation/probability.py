"""Calibration of a bundle's scores to probabilities of being relevant.

The pointwise model's scores get a slope and an intercept, each ranker's scores a temperature; see
:mod:`listwright.ranking.probability`. Only the sum of the pointwise model's probabilities over a list counts: slope and
intercept are those by which single rows are likeliest, unless the numbers of relevant candidates of lists show that
others are better. They are fitted on training lists, too, by out-of-fold scores: validation lists alone are too few.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.optimize import minimize, minimize_scalar

from listwright.ranking.order import log_odds
from listwright.ranking.probability import level_probabilities, pointwise_probabilities
from listwright.ranking.reranker import Reranker
from listwright.ranking.stages import ProbabilityStage
from listwright.training.data.dataset import Dataset, Splits
from listwright.training.evaluation.calibration import FEWEST_LISTS, FOLDS, HIGHEST, LOWEST, SAME, are_choices
from listwright.training.evaluation.protocol import RankedRows, rank_rows
from listwright.training.evaluation.reliability import LEAST
from listwright.training.first_stage.lambdamart import scores_of
from listwright.training.first_stage.pointwise import Pointwise

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
    if len(splits.valid) < FEWEST_LISTS:
        return f"there are {len(splits.valid)} validation lists, and they are fitted on {FEWEST_LISTS} or more"
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
    parts = [(valid, ranked.order, scores_of(pointwise.model, valid))]
    if pointwise.train_scores is not None:
        parts.append((train, np.arange(train.rows), pointwise.train_scores))
    lists = ScoredLists(
        np.concatenate([data.labels[order] > 0 for data, order, _ in parts]),
        np.concatenate([_row_weights(data) for data, _, _ in parts]),
        np.concatenate([scores[order] for _, order, scores in parts]),
        np.cumsum(np.concatenate([[0], *(data.lengths for data, _, _ in parts)])),
        ranked,
    )
    return lists.calibration(reranker.manifest.strategy)


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

    def rows_of(self, queries: Queries) -> Int[np.ndarray, " S"]:
        """Return the rows of some lists, in the order given."""
        return np.concatenate([np.arange(self.offsets[n], self.offsets[n + 1]) for n in queries])

    def probabilities(self, queries: Queries, strategy: str, stage: ProbabilityStage) -> Float[np.ndarray, " S"]:
        """Return the probabilities of the candidates of some validation lists, by a calibration."""
        scores, first_scores = self.ranked.scores[strategy], self.ranked.first_scores
        stated, divisors = [], (stage.temperatures[strategy], stage.temperatures["first_stage"])
        for n in queries:
            rows = slice(self.offsets[n], self.offsets[n + 1])
            expected = float(pointwise_probabilities(self.levels[rows], stage.slope, stage.intercept).sum())
            stated.append(level_probabilities(log_odds(scores[rows], first_scores[rows], *divisors), expected))
        return np.concatenate(stated)

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
        rows = self.rows_of(queries)
        mean = float(np.average(self.relevant[rows], weights=self.weights[rows]))
        temperatures = {"first_stage": 1.0}
        stage = ProbabilityStage(
            slope=slope, intercept=intercept, temperatures=temperatures, lists=len(queries), mean=mean
        )

        def with_temperature(strategy: str, logarithm: float) -> ProbabilityStage:
            changed = stage.temperatures | {strategy: float(np.exp(logarithm))}
            return stage.model_copy(update={"temperatures": changed})

        def loss(logarithm: float, strategy: str) -> float:
            return self.loss(queries, self.probabilities(queries, strategy, with_temperature(strategy, logarithm)))

        for strategy in dict.fromkeys(("first_stage", *strategies)):
            scores, best = self.ranked.scores.get(strategy, self.ranked.first_scores), 0.0
            variances = [np.nanvar(scores[self.offsets[n] : self.offsets[n + 1]]) for n in queries]
            scale = float(np.sqrt(np.mean(variances)))
            if scale > SAME * float(np.nanmax(np.abs(scores[rows]))):
                ends = (np.log(scale * LOWEST), np.log(scale * HIGHEST))
                options = {"bounds": ends, "method": "bounded", "options": {"xatol": 1e-2}}
                best = float(minimize_scalar(loss, args=(strategy,), **options).x)
            stage = with_temperature(strategy, best)
        return stage

    def fit_level(self, queries: Queries) -> tuple[float, float]:
        """Return slope and intercept of the pointwise model's scores, by the labels of some lists.

        Those by which single rows are likeliest, unless those by which the numbers of relevant candidates are likeliest
        predict these better: by more than twice the standard error over lists.
        """
        rows, lengths = self.rows_of(queries), np.diff(self.offsets)[queries]
        levels, relevant, weights = self.levels[rows], self.relevant[rows], self.weights[rows]
        weights = weights / weights.sum()

        def losses(
            level: Float[np.ndarray, " 2"], sizes: Int[np.ndarray, " G"]
        ) -> tuple[Float[np.ndarray, " G"], Float[np.ndarray, " 2"]]:
            """Return the log loss of the share of relevant candidates in each group of rows, and the sum's gradient."""
            stated, starts = pointwise_probabilities(levels, *level), np.cumsum(sizes) - sizes
            expected, share = (np.add.reduceat(of, starts) / sizes for of in (stated, relevant.astype(np.float64)))
            weight = np.add.reduceat(weights, starts)
            steepness = np.repeat(weight * (expected - share) / (expected * (1.0 - expected)) / sizes, sizes)
            steepness *= stated * (1.0 - stated)
            loss = -weight * (share * np.log(expected) + (1.0 - share) * np.log1p(-expected))
            return loss, np.array([steepness @ levels, steepness.sum()])

        def likeliest(sizes: Int[np.ndarray, " G"]) -> Float[np.ndarray, " 2"]:
            def total(level: Float[np.ndarray, " 2"]) -> tuple[float, Float[np.ndarray, " 2"]]:
                loss, gradient = losses(level, sizes)
                return float(loss.sum()), gradient

            best: Float[np.ndarray, " 2"] = minimize(total, (1.0, 0.0), jac=True, bounds=BOUNDS, method="L-BFGS-B").x
            return best

        of_rows, of_lists = likeliest(np.ones(len(rows), np.int64)), likeliest(lengths)
        gains = losses(of_rows, lengths)[0] - losses(of_lists, lengths)[0]
        better = of_lists if gains.mean() > 2.0 * gains.std() / np.sqrt(len(gains)) else of_rows
        return float(better[0]), float(better[1])
