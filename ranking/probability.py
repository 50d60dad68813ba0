"""Probabilities of being relevant, from the scores of a ranker and the level of its list.

A ranker knows the order within a list, and its scores cannot be compared between lists. A pointwise model knows how
many relevant candidates a list has. So a candidate's log-odds are ``score / temperature + b``, with one ``b`` for each
list: that by which the probabilities add up to what the pointwise model expects; to 1 where labels are choices, which
is the softmax. Within a list, no higher score has a lower probability.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float

from listwright.ranking.first_stage import FirstStage
from listwright.ranking.order import log_odds, relevance
from listwright.ranking.stages import ProbabilityStage

_MOST_STEPS = 100
"""Steps of the search for a level; half of them would do by bisection alone."""

_LARGEST = 500.0
"""Largest log-odds: exp of it is finite."""

SUREST = 30.0
"""Largest log-odds of the pointwise model: the probability is below 1, and a sum of L of them below L."""


def sigmoid(values: Float[np.ndarray, " L"]) -> Float[np.ndarray, " L"]:
    """Return ``1 / (1 + exp(-values))``."""
    probabilities: Float[np.ndarray, " L"] = 1.0 / (1.0 + np.exp(-np.clip(values, -_LARGEST, _LARGEST)))
    return probabilities


def pointwise_probabilities(scores: Float[np.ndarray, " L"], slope: float, intercept: float) -> Float[np.ndarray, " L"]:
    """Return ``sigmoid(slope * score + intercept)``, above 0 and below 1, of a pointwise model's scores."""
    return sigmoid(np.clip(slope * scores + intercept, -SUREST, SUREST))


def level_probabilities(odds: Float[np.ndarray, " L"], expected: float) -> Float[np.ndarray, " L"]:
    """Return the probabilities ``sigmoid(odds + b)`` that add up to a number, of a list.

    Args:
        odds: ``(L,)`` log-odds of the candidates but for a constant; finite.
        expected: Sum of the probabilities, above 0 and below L.

    Returns:
        ``(L,)`` probabilities; their sum differs from ``expected`` by rounding.
    """
    length = len(odds)
    low = np.log(expected) - np.log(length - expected) - odds.max()
    high = low + odds.max() - odds.min()
    level = 0.5 * (low + high)
    for _ in range(_MOST_STEPS):
        probabilities = sigmoid(odds + level)
        excess = float(probabilities.sum()) - expected
        if abs(excess) <= 1e-12 * length or high - low <= 1e-13 * max(1.0, abs(high)):
            break
        low, high = (low, level) if excess > 0.0 else (level, high)
        slope = float((probabilities * (1.0 - probabilities)).sum())
        newton = level - excess / slope if slope > 0.0 else low
        level = newton if low < newton < high else 0.5 * (low + high)
    return sigmoid(odds + level)


class Calibration:
    """Calibration of one bundle's scores.

    Args:
        temperatures: Divisor of each strategy's scores that makes them log-odds.
        pointwise: Model of the candidates' log-odds of being relevant, and the entry of the manifest with its own
            calibration; None where exactly one candidate of a list is chosen.
    """

    def __init__(
        self, temperatures: Mapping[str, float], pointwise: tuple[FirstStage, ProbabilityStage] | None = None
    ) -> None:
        self.temperatures, self._pointwise = temperatures, pointwise

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
        return level_probabilities(odds, self.expected(features))

    def expected(self, features: Float[np.ndarray, "L D"]) -> float:
        """Return the expected number of relevant candidates of a list, by the pointwise model."""
        assert self._pointwise is not None
        model, stage = self._pointwise
        return float(pointwise_probabilities(model.score(features), stage.slope, stage.intercept).sum())

    def pointwise(self, features: Float[np.ndarray, "L D"]) -> Float[np.ndarray, " L"]:
        """Return ``(L,)`` probabilities of being relevant as LightGBM's pointwise model alone gives them."""
        assert self._pointwise is not None
        return sigmoid(self._pointwise[0].score(features))
