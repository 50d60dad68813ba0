"""What the first stage leaves to those behind it: its scores and order, and the candidates that reach them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from listwright.ranking.candidates import CandidateList
from listwright.ranking.order import best
from listwright.ranking.stages import SecondStage


class FirstPass(NamedTuple):
    """A list after the first stage.

    Args:
        candidates: all of them.
        widened: their features and list-relative columns; the features alone where the bundle has no such columns.
        scores: by the first stage.
        order: positions, best first.
    """

    candidates: CandidateList
    widened: Float[np.ndarray, "L W"]
    scores: Float[np.ndarray, " L"]
    order: Int[np.ndarray, " L"]

    def kept(self, stage: SecondStage | None) -> Int[np.ndarray, " C"]:
        """The candidates that reach a stage, in input order, so that ties keep it; see
        :func:`listwright.ranking.order.best`."""
        if stage is None or stage.cutoff is None or stage.cutoff >= len(self.order):
            return np.arange(len(self.order))
        return np.sort(best(stage.cutoff, self.order, self.scores, self.candidates.features))

    def inputs(self, kept: Int[np.ndarray, " C"], stage: SecondStage) -> Float[np.ndarray, "C E"]:
        """What a stage sees of them: features, list-relative columns and first-stage scores where these take part."""
        features = self.widened if stage.relative else self.candidates.features
        inputs: Float[np.ndarray, "C E"] = features if len(kept) == len(features) else features[kept]
        if stage.first_stage_score:
            inputs = np.column_stack([inputs, self.scores[kept].astype(np.float32)])
        return inputs
