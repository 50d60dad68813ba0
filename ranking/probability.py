"""Probabilities of being relevant, from the scores of a ranker and a pointwise model.

A ranker knows the order within a list, and its scores cannot be compared between lists. A pointwise model knows how
many relevant candidates a list has, and more of how much they differ. So a candidate's log-odds are ``score /
temperature + weight * pointwise score + b``, with one ``b`` for each list: that by which the probabilities add up to
what the pointwise model expects. Where the two models contradict each other, the order is the ranker's: within a list,
no higher score has a lower probability. Where labels are choices, the log-odds are ``score / temperature``, and the
probabilities add up to 1: the softmax.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float, Int

from listwright.ranking.first_stage import FirstStage
from listwright.ranking.order import log_odds, relevance
from listwright.ranking.relative import RelativeColumns
from listwright.ranking.stages import ProbabilityStage

_MOST_STEPS = 100
"""Steps of the search for a level; half of them would do by bisection alone."""

_LARGEST = 500.0
"""Largest log-odds: exp of it is finite."""

FARTHEST = 1e6
"""Largest distance of a candidate's log-odds from the best of its list: a level added to both is exact to 1e-10."""

SUREST = 30.0
"""Largest log-odds of the pointwise model: the probability is below 1, and a sum of L of them below L."""


def sigmoid(values: Float[np.ndarray, " L"]) -> Float[np.ndarray, " L"]:
    """Return ``1 / (1 + exp(-values))``."""
    probabilities: Float[np.ndarray, " L"] = 1.0 / (1.0 + np.exp(-np.clip(values, -_LARGEST, _LARGEST)))
    return probabilities


def pointwise_probabilities(scores: Float[np.ndarray, " L"], slope: float, intercept: float) -> Float[np.ndarray, " L"]:
    """Return ``sigmoid(slope * score + intercept)``, above 0 and below 1, of a pointwise model's scores."""
    return sigmoid(np.clip(slope * scores + intercept, -SUREST, SUREST))


def level_probabilities(
    odds: Float[np.ndarray, " R"], expected: Float[np.ndarray, " N"], starts: Int[np.ndarray, " N"]
) -> Float[np.ndarray, " R"]:
    """Return the probabilities ``sigmoid(odds + b)`` that add up to a number, with one b for each list.

    Args:
        odds: ``(R,)`` log-odds of the candidates of N lists but for a constant; finite. Those more than
            :data:`FARTHEST` below the best of their list count as that far below.
        expected: ``(N,)`` sums of the probabilities, above 0 and below the lists' lengths.
        starts: ``(N,)`` first candidate of each list.

    Returns:
        ``(R,)`` probabilities; their sums differ from ``expected`` by rounding.
    """
    lengths = np.diff(starts, append=len(odds))
    highest = np.maximum.reduceat(odds, starts)
    odds = np.maximum(odds, np.repeat(highest - FARTHEST, lengths))
    low = np.log(expected) - np.log(lengths - expected) - highest
    high = low + highest - np.minimum.reduceat(odds, starts)
    level = 0.5 * (low + high)
    for _ in range(_MOST_STEPS):
        probabilities = sigmoid(odds + np.repeat(level, lengths))
        excess = np.add.reduceat(probabilities, starts) - expected
        near = high - low <= 1e-15 * np.maximum(1.0, np.abs(high))
        if (near | (np.abs(excess) <= 1e-12 * lengths)).all():
            break
        above = excess > 0.0
        low, high = np.where(above, low, level), np.where(above, level, high)
        slope = np.add.reduceat(probabilities * (1.0 - probabilities), starts)
        newton = level - excess / np.maximum(slope, np.finfo(np.float64).tiny)
        level = np.where((low < newton) & (newton < high), newton, 0.5 * (low + high))
    return sigmoid(odds + np.repeat(level, lengths))


def follow_scores(scores: Float[np.ndarray, " L"], values: Float[np.ndarray, " L"]) -> Float[np.ndarray, " L"]:
    """Return the values nearest to given ones that never rise while scores fall, and are equal where scores are.

    Definition: least squares, by pooling adjacent violators (isotonic regression: Ayer et al. 1955).
    """
    _, place, counts = np.unique(-scores, return_inverse=True, return_counts=True)
    pools: list[tuple[float, int, int]] = []  # mean, number of candidates, number of different scores
    for mean, count in zip((np.bincount(place, values) / counts).tolist(), counts.tolist(), strict=True):
        pool = (mean, count, 1)
        while pools and pools[-1][0] <= pool[0]:
            above, size, width = pools.pop()
            whole = size + pool[1]
            pool = ((above * size + pool[0] * pool[1]) / whole, whole, width + pool[2])
        pools.append(pool)
    means, _, widths = zip(*pools, strict=True)
    nearest: Float[np.ndarray, " L"] = np.repeat(means, widths)[place]
    return nearest


def relevance_probabilities(
    odds: Float[np.ndarray, " L"], pointwise: Float[np.ndarray, " L"], stage: ProbabilityStage, strategy: str
) -> Float[np.ndarray, " L"]:
    """Return the probabilities of one list's candidates to be relevant, falling along the ranker's order.

    Args:
        odds: ``(L,)`` log-odds by the ranker's scores alone.
        pointwise: ``(L,)`` scores of the pointwise model; finite.
        stage: Calibration of both.
        strategy: Strategy of the ranker.
    """
    expected = pointwise_probabilities(pointwise, stage.slope, stage.intercept).sum(keepdims=True)
    together = odds + stage.pointwise.get(strategy, 0.0) * pointwise
    return level_probabilities(follow_scores(odds, together), expected, np.zeros(1, np.int64))


class Calibration:
    """Calibration of one bundle's scores.

    Args:
        temperatures: Divisor of each strategy's scores that makes them log-odds.
        pointwise: Model of the candidates' log-odds of being relevant, and the entry of the manifest with its own
            calibration; None where exactly one candidate of a list is chosen.
        relative: List-relative columns that the model sees behind the features.
    """

    def __init__(
        self,
        temperatures: Mapping[str, float],
        pointwise: tuple[FirstStage, ProbabilityStage] | None = None,
        relative: RelativeColumns | None = None,
    ) -> None:
        self.temperatures, self._pointwise, self._relative = temperatures, pointwise, relative

    def probabilities(
        self,
        features: Float[np.ndarray, "L D"],
        scores: Float[np.ndarray, " L"],
        first_stage_scores: Float[np.ndarray, " L"],
        strategy: str,
    ) -> Float[np.ndarray, " L"] | None:
        """Return the probability of each candidate to be relevant, or chosen; falling along the ranker's order.

        Args:
            features: ``(L, D)`` features in schema order.
            scores: ``(L,)`` scores of the strategy; NaN below the cutoff.
            first_stage_scores: ``(L,)`` scores of the first stage.
            strategy: Strategy that gave the scores.

        Returns:
            ``(L,)`` probabilities; None where nothing scored the list or the strategy is not calibrated.

        Raises:
            ScoringError: if the pointwise model fails.
        """
        temperature = self.temperatures.get(strategy)
        if temperature is None or np.isnan(scores).all():
            return None
        odds = log_odds(scores, first_stage_scores, temperature, self.temperatures.get("first_stage", 1.0))
        if self._pointwise is None:
            return relevance(odds)
        return relevance_probabilities(odds, self._scores(features), self._pointwise[1], strategy)

    def expected(self, features: Float[np.ndarray, "L D"]) -> float:
        """Return the expected number of relevant candidates of a list, by the pointwise model."""
        assert self._pointwise is not None
        stage = self._pointwise[1]
        return float(pointwise_probabilities(self._scores(features), stage.slope, stage.intercept).sum())

    def pointwise(self, features: Float[np.ndarray, "L D"]) -> Float[np.ndarray, " L"]:
        """Return ``(L,)`` probabilities of being relevant as LightGBM's pointwise model alone gives them."""
        return sigmoid(self._scores(features))

    def _scores(self, features: Float[np.ndarray, "L D"]) -> Float[np.ndarray, " L"]:
        """Return ``(L,)`` scores of the pointwise model, at most :data:`SUREST` from 0."""
        assert self._pointwise is not None
        visible = features if self._relative is None else self._relative.widened(features)
        scores: Float[np.ndarray, " L"] = np.clip(self._pointwise[0].score(visible), -SUREST, SUREST)
        return scores
