"""Routing of an unseen list to a specialist or to none: hooks, and the bundle's own router."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int

from listwright.ranking.aggregates import Aggregates
from listwright.ranking.candidates import FirstPass
from listwright.ranking.errors import RoutingError, ScoringError
from listwright.ranking.scorers import Scorer
from listwright.ranking.stages import RouterStage, SrmStage

SMALLEST_SHARE = 1e-3
"""A forest says 0 of what it has not met; no probability is."""


@dataclass(frozen=True, slots=True)
class Query:
    """Input of a hook.

    Args:
        features: ``(L, D)`` raw features in schema order, read-only.
        context: Entries that the request has on the query as a whole, by name.
        first_stage_scores: ``(L,)`` scores of the first stage, read-only.
    """

    features: Float[np.ndarray, "L D"]
    context: Mapping[str, str | float | None]
    first_stage_scores: Float[np.ndarray, " L"]


@dataclass(frozen=True, slots=True)
class Choice:
    """The decision of a hook or router.

    Args:
        specialist: Number of the specialist, counted from 0; None abstains: the strategy's default answers.
        confidence: Probability that this is the best specialist, if known.
    """

    specialist: int | None
    confidence: float | None = None


@runtime_checkable
class Hook(Protocol):
    """A router of the operator's own, called before the bundle's."""

    def __call__(self, query: Query) -> Choice:
        """Pick a specialist, or abstain.

        Raises:
            RoutingError: if it cannot decide; the bundle's router decides instead.
        """
        ...


def ask(hook: Hook, first: FirstPass, srm: SrmStage | None) -> Choice:
    """Return a hook's choice among the specialists.

    Raises:
        RoutingError: if it cannot decide, or names none of them.
    """
    choice = hook(Query(_own(first.candidates.features), first.candidates.context, _own(first.scores)))
    count = 0 if srm is None else len(srm.specialists)
    if choice.specialist is not None and not 0 <= choice.specialist < count:
        raise RoutingError("unknown_specialist", f"the hook chose specialist {choice.specialist} of {count}")
    return choice


def _own(array: np.ndarray) -> np.ndarray:
    """Return a read-only copy: a hook can change nothing that ranks, now or later."""
    copy: np.ndarray = array.copy()
    copy.flags.writeable = False
    return copy


@dataclass(frozen=True, slots=True)
class Estimate:
    """Output of the bundle's router for a list.

    Args:
        probabilities: ``(K,)`` calibrated probabilities that each specialist is the best one; they sum to 1.
        gains: ``(K,)`` estimated NDCG over the generalist's.
        choice: Most probable specialist if its gain is above the margin, else an abstention.
    """

    probabilities: Float[np.ndarray, " K"]
    gains: Float[np.ndarray, " K"]
    choice: Choice


class BundleRouter:
    """The router that was fitted with the bundle. Holds no state between calls.

    Args:
        stage: Entry of the router in the manifest.
        aggregates: List aggregates, which are the router's input.
        graph: Graph ``(1, A) -> (1, 2 K)`` of the router.
        anomaly: Graph ``(1, M) -> (1, 1)`` of the anomaly score.
    """

    def __init__(self, stage: RouterStage, aggregates: Aggregates, graph: Scorer, anomaly: Scorer) -> None:
        self.stage = stage
        self.always_abstains = stage.margin is None
        self._aggregates, self._graph, self._anomaly = aggregates, graph, anomaly

    def estimate(
        self,
        features: Float[np.ndarray, "L D"],
        first_scores: Float[np.ndarray, " L"],
        by_first_stage: Int[np.ndarray, " L"],
        scores: Float[np.ndarray, "C K"],
        scored: Int[np.ndarray, " C"],
    ) -> Estimate:
        """Estimate each specialist's chance and gain on a list, and decide.

        The arguments are those of :meth:`listwright.ranking.aggregates.Aggregates.of`.

        Raises:
            RoutingError: if a graph fails.
        """
        try:
            aggregates = self._aggregates.of(features, first_scores, by_first_stage, self._anomaly_of, scores, scored)
            output = self._graph.score(aggregates[None])[0]
        except ScoringError as error:
            raise RoutingError("router_failed", str(error)) from error
        count = len(output) // 2
        return decide(output[:count].tolist(), output[count:], self.stage)

    def _anomaly_of(self, top_means: Float[np.ndarray, " M"]) -> float:
        return float(self._anomaly.score(top_means[None])[0, 0])


def decide(shares: Sequence[float], gains: Float[np.ndarray, " K"], stage: RouterStage) -> Estimate:
    """Turn the forest's output into a decision: calibrate, take the most probable, check that it gains enough."""
    exponent = 1.0 / stage.temperature
    powers = [max(share, SMALLEST_SHARE) ** exponent for share in shares]
    total = sum(powers)
    probabilities = [power / total for power in powers]
    highest = max(probabilities)
    best = probabilities.index(highest)
    profitable = stage.margin is not None and float(gains[best]) - stage.margin > 0.0
    return Estimate(np.array(probabilities), gains, Choice(best if profitable else None, highest))
