"""What a candidate does to the others, and what makes its query unlike the training queries."""

from __future__ import annotations

import numpy as np

from listwright.ranking.candidates import CandidateList, Ranking
from listwright.ranking.errors import ScoringError
from listwright.ranking.explaining.again import Rerank
from listwright.ranking.explaining.explanation import AnomalyReasons, MovedCandidate, UnusualValue, id_of
from listwright.ranking.explaining.protocol import ExplainedReranker
from listwright.ranking.features import QUANTILE_LEVELS

MOST_FEATURES = 5
"""Unusual features that are named."""

_MEDIAN = QUANTILE_LEVELS.index(0.5)


def moves(rerank: Rerank, candidates: CandidateList, candidate: int, ranking: Ranking) -> tuple[MovedCandidate, ...]:
    """Who stands elsewhere among the others once the candidate has left, best first.

    Whoever was below moves up by one, which is no move. Candidates that the second stage reaches in its place may move.

    Args:
        rerank: what ranked the answer, see :mod:`listwright.ranking.explaining.again`.
        candidates: all of the list.
        candidate: index of the one that leaves.
        ranking: the answer.

    Raises:
        ScoringError: if a stage fails on the list without the candidate, as an earlier one would then answer.
    """
    if len(candidates) == 1:
        return ()
    others = np.delete(np.arange(len(candidates)), candidate)
    left = rerank(CandidateList(candidates.features[others], context=candidates.context))
    if left.degraded:
        raise ScoringError(f"without the candidate, {left.reason}")
    ranks, without = ranking.ranks, left.ranks
    found = [
        MovedCandidate(other, id_of(candidates, other), int(ranks[other]), int(rank))
        for other, rank in zip(others.tolist(), without, strict=True)
        if rank != ranks[other] - (ranks[other] > ranks[candidate])
    ]
    return tuple(sorted(found, key=lambda move: move.rank))


def anomaly(reranker: ExplainedReranker, candidates: CandidateList, ranking: Ranking) -> AnomalyReasons | None:
    """The anomaly score, and the features whose training median would lower it most.

    The score looks at the mean of each numeric feature over the first stage's top. One mean at a time is replaced.

    Args:
        reranker: serves the bundle.
        candidates: all of the list.
        ranking: the answer, with first-stage scores.

    Returns:
        None if the bundle has no anomaly score.

    Raises:
        ScoringError: if the forest's graph fails.
    """
    stage = reranker.manifest.anomaly
    if reranker.anomaly is None or stage is None:
        return None
    schema = reranker.manifest.feature_schema
    means = reranker.anomaly.means(candidates.features, ranking.first_stage_scores)
    features = [schema.features[d] for d in schema.numeric]
    rows = np.tile(means, (len(features) + 1, 1))
    for place, feature in enumerate(features):
        if feature.quantiles is not None:
            rows[place + 1, place] = feature.quantiles[_MEDIAN]
    score, *without = reranker.anomaly.of_means(rows).tolist()
    unusual = [
        UnusualValue(feature.name, None if np.isnan(mean) else float(mean), left)
        for feature, mean, left in zip(features, means, without, strict=True)
        if left < score
    ]
    unusual.sort(key=lambda one: one.anomaly_without)
    quantiles = dict(zip(map(str, QUANTILE_LEVELS), stage.quantiles, strict=False))
    return AnomalyReasons(score, quantiles, tuple(unusual[:MOST_FEATURES]))
