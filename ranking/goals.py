"""Several goals: candidates in the order of the weighted mean of their shares of the list by each.

A share is the softmax of a model's scores over their spread, the mean standard deviation within a list: so scores of
any scale become parts of one list. What a place gains is a sum over goals, and so are shares. A sum of scores is the
product of shares instead, which ranks high only what every goal ranks high (measured in decision 21).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float

from listwright.ranking.errors import UnknownGoalError
from listwright.ranking.first_stage import FirstStage
from listwright.ranking.order import log_odds, relevance
from listwright.ranking.stages import GoalsStage

LEAST_SHARE = float(np.finfo(np.float64).tiny)
"""Lowest share that has a logarithm here."""


class Goals:
    """Models of the goals besides the label. Threads may share it.

    Args:
        stage: Entry of the manifest.
        models: Model of each of its ``others``.
    """

    def __init__(self, stage: GoalsStage, models: Sequence[FirstStage]) -> None:
        self.stage, self.models = stage, models
        self.label_alone: Mapping[str, float] = dict.fromkeys(stage.names, 0.0) | {stage.label: 1.0}
        """Weights that leave the order to the label."""

    def weights(self, requested: Mapping[str, float] | None) -> Mapping[str, float]:
        """Return the weight of each goal: as requested, and by default where the request has none.

        Raises:
            UnknownGoalError: if a requested goal is not the bundle's, or all weights are 0.
        """
        defaults = self.stage.default_weights
        if requested is None:
            return defaults
        if unknown := requested.keys() - defaults.keys():
            raise UnknownGoalError(
                f"weights name {', '.join(map(repr, sorted(unknown)))}; the bundle's goals are {', '.join(defaults)}"
            )
        weights = {**defaults, **requested}
        if not any(weights.values()):
            raise UnknownGoalError("the weights of all goals are 0: give one of them a weight above 0")
        return weights

    def combines(self, weights: Mapping[str, float]) -> bool:
        """Return whether a goal besides the label has a weight above 0."""
        return any(weights[goal.name] for goal in self.stage.others)

    def log_odds(
        self,
        visible: Float[np.ndarray, "L W"],
        scores: Float[np.ndarray, " L"],
        first_stage_scores: Float[np.ndarray, " L"],
        strategy: str,
        weights: Mapping[str, float],
    ) -> dict[str, Float[np.ndarray, " L"]]:
        """Return the log-odds of the candidates by each goal with a weight above 0; the models of others are not run.

        Args:
            visible: ``(L, W)`` columns that the models see.
            scores: ``(L,)`` scores of the strategy; NaN below the cutoff, where those of the first stage continue them.
            first_stage_scores: ``(L,)`` scores of the first stage.
            strategy: Strategy that gave the scores.
            weights: Weight of each goal.

        Returns:
            ``(L,)`` by name, the label first.

        Raises:
            ScoringError: if a model fails.
        """
        stage, odds = self.stage, {}
        if weights[stage.label]:
            divisors = stage.spreads[strategy], stage.spreads["first_stage"]
            odds[stage.label] = log_odds(scores, first_stage_scores, *divisors)
        for goal, model in zip(stage.others, self.models, strict=True):
            if weights[goal.name]:
                scores = model.score(visible)
                odds[goal.name] = (scores - scores.max()) / goal.spread
        return odds


def combine(
    log_odds_by_goal: Mapping[str, Float[np.ndarray, " L"]], weights: Mapping[str, float]
) -> Float[np.ndarray, " L"]:
    """Return the logarithm of each candidate's share by all goals together; arguments as of :meth:`Goals.log_odds`."""
    total = sum(weights.values())
    shares = sum(weights[goal] / total * relevance(odds) for goal, odds in log_odds_by_goal.items())
    logarithms: Float[np.ndarray, " L"] = np.log(np.maximum(shares, LEAST_SHARE))
    return logarithms
