"""How unlike the training queries a query is, by the bundle's Isolation Forest."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from listwright.ranking.aggregates import Aggregates
from listwright.ranking.order import rank_by_score
from listwright.ranking.scorers import Scorer


class AnomalyScore:
    """Higher is stranger, in (0, 1) for a fitted forest. Threads may share it.

    Args:
        aggregates: give what the forest looks at.
        graph: ``(1, M) -> (1, 1)``.
    """

    def __init__(self, aggregates: Aggregates, graph: Scorer) -> None:
        self._aggregates, self._graph = aggregates, graph

    def of(self, features: Float[np.ndarray, "L D"], first_scores: Float[np.ndarray, " L"]) -> float:
        """The score of one list.

        Args:
            features: raw, in schema order.
            first_scores: of the first stage, finite.

        Raises:
            ScoringError: if the graph fails.
        """
        return float(self.of_means(self.means(features, first_scores)[None])[0])

    def means(
        self, features: Float[np.ndarray, "L D"], first_scores: Float[np.ndarray, " L"]
    ) -> Float[np.ndarray, " M"]:
        """What the score looks at: the mean of every numeric feature over the first stage's top; see :meth:`of`."""
        return self._aggregates.top_means(features, first_scores, rank_by_score(first_scores))

    def of_means(self, means: Float[np.ndarray, "n M"]) -> Float[np.ndarray, " n"]:
        """``(n,)`` the score of each row of means.

        Raises:
            ScoringError: if the graph fails.
        """
        return self._graph.score(means)[:, 0]
