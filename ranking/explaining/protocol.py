"""What an explanation needs of a reranker, which itself stands above this package."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from listwright.ranking.aggregates import AnomalyScore
from listwright.ranking.candidates import CandidateList, Ranking
from listwright.ranking.deadline import NO_DEADLINE, Deadline, LatencyEstimator
from listwright.ranking.first_stage import FirstStage
from listwright.ranking.manifest import Manifest
from listwright.ranking.relative import RelativeColumns
from listwright.ranking.router import Hook
from listwright.ranking.scorers import SecondPass


@runtime_checkable
class ExplainedReranker(Protocol):
    """A :class:`listwright.ranking.reranker.Reranker`."""

    manifest: Manifest
    first_stage: FirstStage
    first_stage_model: Callable[[], bytes] | None
    second_pass: SecondPass
    relative: RelativeColumns | None
    anomaly: AnomalyScore | None
    pace: LatencyEstimator

    def rerank(
        self,
        candidates: CandidateList,
        *,
        strategy: str = "auto",
        specialist: int | None = None,
        hook: Hook | None = None,
        routing: bool = True,
        deadline: Deadline = NO_DEADLINE,
    ) -> Ranking:
        """Order the candidates, best first."""
        ...
