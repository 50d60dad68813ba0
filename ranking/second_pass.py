"""The second stages of a bundle: each rescores the best candidates of the first stage as one list."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float, Int

from listwright.ranking.candidates import Route
from listwright.ranking.first_pass import FirstPass
from listwright.ranking.manifest import Manifest
from listwright.ranking.relevance import mixture
from listwright.ranking.scorers import Scorer
from listwright.ranking.stages import NetworkStage, SecondStage


class SecondPass:
    """Scores by networks, specialists and their mixture. Threads may share it.

    Args:
        manifest: of the bundle.
        networks: by kind.
        specialists: SRM's rankers, ``(C, E) -> (C, K)``, if the bundle has any.
    """

    def __init__(self, manifest: Manifest, networks: Mapping[str, Scorer], specialists: Scorer | None = None) -> None:
        self.manifest, self.networks, self.specialists = manifest, networks, specialists
        self._stages: dict[str, NetworkStage] = {stage.kind: stage for stage in manifest.second_stages}

    def stage(self, strategy: str) -> SecondStage:
        """The manifest's entry of a strategy that has one: a network's kind, or ``srm``."""
        if strategy == "srm":
            assert self.manifest.srm is not None
            return self.manifest.srm
        return self._stages[strategy]

    def score(
        self, first: FirstPass, route: Route, specialists: Float[np.ndarray, "M K"] | None = None
    ) -> tuple[Int[np.ndarray, " C"], Float[np.ndarray, " C"]]:
        """The candidates that reach the route's stage, in input order, and their scores.

        Args:
            first: the list after the first stage.
            route: to a second stage.
            specialists: ``(M, K)`` of all K for the M candidates that reach them, where the router has asked already.

        Raises:
            ScoringError: if the stage fails.
        """
        stage = self.stage(route.strategy)
        kept = first.kept(stage)
        if route.strategy != "srm":
            return kept, self.networks[route.strategy].score(first.inputs(kept, stage))
        if specialists is None:
            kept, specialists = self.specialist_scores(first)
        return kept, self.routed(specialists, route)

    def specialist_scores(self, first: FirstPass) -> tuple[Int[np.ndarray, " C"], Float[np.ndarray, "C K"]]:
        """The candidates that reach the specialists, in input order, and their scores by each of them."""
        assert self.specialists is not None
        stage = self.stage("srm")
        kept = first.kept(stage)
        return kept, self.specialists.score(first.inputs(kept, stage))

    def routed(self, scores: Float[np.ndarray, "C K"], route: Route) -> Float[np.ndarray, " C"]:
        """The scores of the route's specialist; or the mixture's, where it names none.

        The mixture stands under the router's probabilities, or under its own weights where the router was not asked.
        """
        if route.specialist is not None:
            return scores[:, route.specialist]
        if route.probabilities is not None:
            return mixture(scores, route.probabilities)
        assert self.manifest.srm is not None
        return mixture(scores, np.array([specialist.weight for specialist in self.manifest.srm.specialists]))
