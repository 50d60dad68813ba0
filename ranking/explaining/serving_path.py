"""The serving path for many versions of one candidate, among others that stay as they are."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int

from listwright.ranking.candidates import CandidateList, FirstPass, Ranking
from listwright.ranking.errors import ScoringError
from listwright.ranking.explaining.protocol import ExplainedReranker

SAME_SCORE = 1e-4
"""Largest difference of a score that still counts as the same computation (absolute, and relative above 1)."""


@runtime_checkable
class VersionScorer(Protocol):
    """Scores versions of one candidate."""

    def score(self, versions: Float[np.ndarray, "M D"]) -> Float[np.ndarray, " M"]:
        """``(M,)`` the candidate's score with each row of features in its place.

        Raises:
            ScoringError: if a stage fails.
        """
        ...


class FirstStageVersions:
    """Scores of the first stage, which computes the list-relative columns anew for each version.

    Args:
        reranker: serves the bundle.
        candidates: all of the list.
        candidate: index of the one that has versions.
    """

    def __init__(self, reranker: ExplainedReranker, candidates: CandidateList, candidate: int) -> None:
        self._reranker, self._candidate = reranker, candidate
        self._features = candidates.features.copy()
        entry = reranker.manifest.first_stage
        self.sees_relative = entry.kind == "lightgbm" and entry.relative
        self.one_by_one = entry.kind != "onnx" and not self.sees_relative
        """Whether a candidate's score depends on no other candidate."""

    def score(self, versions: Float[np.ndarray, "M D"]) -> Float[np.ndarray, " M"]:
        """As :class:`VersionScorer`."""
        if self.one_by_one:
            return self._reranker.first_stage.score(versions)
        return np.array([self.whole(version)[1][self._candidate] for version in versions])

    def whole(
        self, version: Float[np.ndarray, " D"]
    ) -> tuple[CandidateList, Float[np.ndarray, " L"], Float[np.ndarray, "L W"]]:
        """The list with a version in it, its first-stage scores, and its widened features."""
        self._features[self._candidate] = version
        candidates = CandidateList(self._features)
        relative = self._reranker.relative
        widened = candidates.features if relative is None else relative.widened(candidates.features)
        scores = self._reranker.first_stage.score(widened if self.sees_relative else candidates.features)
        return candidates, scores, widened


class FinalVersions:
    """Final scores: list-relative columns, first stage and second stage are computed anew for each version.

    The candidates that reach the second stage, and the route, stay those of the answer.

    Args:
        reranker: serves the bundle.
        candidates: all of the list.
        candidate: index of the one that has versions; the second stage scored it.
        ranking: the answer.
    """

    def __init__(
        self, reranker: ExplainedReranker, candidates: CandidateList, candidate: int, ranking: Ranking
    ) -> None:
        self._first = FirstStageVersions(reranker, candidates, candidate)
        self._reranker, self._ranking, self._candidate = reranker, ranking, candidate
        self._second = reranker.second_pass
        self._stage = self._second.stage(ranking.route.strategy)
        self._kept: Int[np.ndarray, " C"] = np.flatnonzero(~np.isnan(ranking.scores))
        self._place = int(np.searchsorted(self._kept, candidate))
        self._inputs = self._inputs_of(candidates.features[candidate])
        self._width = candidates.features.shape[1]
        self._specialists = None if ranking.route.strategy != "srm" else self._specialist_scores(self._inputs).copy()

    def score(self, versions: Float[np.ndarray, "M D"]) -> Float[np.ndarray, " M"]:
        """As :class:`VersionScorer`."""
        if not self._first.one_by_one or self._stage.relative:
            return np.array([self._scored(self._inputs_of(version)) for version in versions], dtype=np.float64)
        inputs = np.tile(self._inputs[self._place], (len(versions), 1))
        inputs[:, : self._width] = versions
        if self._stage.first_stage_score:
            inputs[:, -1] = self._first.score(versions)
        if self._specialists is not None:  # they look at each candidate alone
            return np.array([self._mixed(row) for row in self._specialist_scores(inputs)])
        return np.array([self._scored(self._with(row)) for row in inputs], dtype=np.float64)

    def _with(self, row: Float[np.ndarray, " E"]) -> Float[np.ndarray, "C E"]:
        self._inputs[self._place] = row
        return self._inputs

    def _inputs_of(self, version: Float[np.ndarray, " D"]) -> Float[np.ndarray, "C E"]:
        """What the second stage sees of the list with a version in it."""
        candidates, scores, widened = self._first.whole(version)
        return FirstPass(candidates, widened, scores, self._ranking.order).inputs(self._kept, self._stage).copy()

    def _scored(self, inputs: Float[np.ndarray, "C E"]) -> float:
        route = self._ranking.route
        if route.strategy == "srm":
            return float(self._second.routed(self._specialist_scores(inputs), route)[self._place])
        return float(self._second.networks[route.strategy].score(inputs)[self._place])

    def _specialist_scores(self, inputs: Float[np.ndarray, "C E"]) -> Float[np.ndarray, "C K"]:
        assert self._second.specialists is not None
        return self._second.specialists.score(inputs)

    def _mixed(self, of_candidate: Float[np.ndarray, " K"]) -> float:
        assert self._specialists is not None
        self._specialists[self._place] = of_candidate
        return float(self._second.routed(self._specialists, self._ranking.route)[self._place])


def check_same(found: float, answered: float, what: str) -> None:
    """Raise where a score could not be computed again: an explanation would be one of something else.

    Raises:
        ScoringError: naming both scores.
    """
    if not abs(found - answered) <= SAME_SCORE * max(1.0, abs(answered)):
        raise ScoringError(f"the {what} gave {answered:.6g} in the answer and {found:.6g} when it was explained")
