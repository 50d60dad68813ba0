"""How often a ranker moves a candidate against a monotone constraint, on the test lists."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from listwright.ranking.candidates import CandidateList, Ranking
from listwright.ranking.reranker import Reranker
from listwright.training.data.dataset import Splits
from listwright.training.evaluation.evaluate import whole
from listwright.training.first_stage.boosting import Directions
from listwright.training.reporting.measures.behaviour import spread

MOST_MOVES = 500
"""Test candidates that are moved per feature, evenly spread over the test rows."""

UNCHANGED = 1e-5
"""A smaller change of a score counts as none: it is float32's rounding."""


def violations(reranker: Reranker, splits: Splits, monotone: Directions) -> list[dict[str, object]]:
    """What happens to a test candidate whose feature grows, all else equal.

    Definition: each of at most :data:`MOST_MOVES` test candidates, evenly spread, is moved up to a value that is larger
    than its own and that a training row has, drawn with a fixed seed. Candidates without the value, without a larger
    one in training, or below the ranker's cutoff are not moved. A score is wrong if it moves against the constraint by
    more than :data:`UNCHANGED`; a rank if it does at all. To fall below the cutoff is to go down.

    Args:
        reranker: of the sealed bundle.
        splits: of the run; training rows give the values, test rows the candidates.
        monotone: constraints; those of 0, and of features that the schema lacks, say nothing to be measured.

    Returns:
        One row per feature and ranker (first stage, second stages): ``feature``, ``direction``, ``ranker``, ``moved``,
        and of these the counts ``scores_wrong`` and ``ranks_wrong``.
    """
    schema = splits.train.schema
    rankers = ("first_stage", *(stage.kind for stage in reranker.manifest.second_stages))
    rows: list[dict[str, object]] = []
    for name, direction in monotone:
        if direction == 0 or name not in schema.index:
            continue
        for ranker in rankers:
            moves = _moves(reranker, splits, schema.index[name], ranker)
            rows.append(
                {
                    "feature": name,
                    "direction": direction,
                    "ranker": ranker,
                    "moved": len(moves),
                    "scores_wrong": sum(direction * move.score < -UNCHANGED for move in moves),
                    "ranks_wrong": sum(direction * move.places < 0 for move in moves),
                }
            )
    return rows


class _Move(NamedTuple):
    """What a larger value did: change of the score, and places gained."""

    score: float
    places: int


def _moves(reranker: Reranker, splits: Splits, column: int, ranker: str) -> list[_Move]:
    test, rng = splits.test, np.random.default_rng(0)
    trained = np.sort(splits.train.features[:, column])
    trained = trained[~np.isnan(trained)]
    moves = []
    for row in map(int, spread(test.rows, MOST_MOVES)):
        n = int(np.searchsorted(test.offsets, row, side="right")) - 1
        value = test.features[row, column]
        first_larger = int(np.searchsorted(trained, value, side="right"))
        if np.isnan(value) or first_larger == len(trained):
            continue
        larger = trained[rng.integers(first_larger, len(trained))]
        features, place = test.features[test.slice(n)], row - int(test.offsets[n])
        moved = features.copy()
        moved[place, column] = larger
        before, after = (_ranked(reranker, rows, ranker, test.qids[n]) for rows in (features, moved))
        if np.isnan(before.scores[place]):
            continue
        fell = np.isnan(after.scores[place])
        change = -np.inf if fell else float(after.scores[place] - before.scores[place])
        moves.append(_Move(change, int(before.ranks[place] - after.ranks[place])))
    return moves


def _ranked(reranker: Reranker, features: Float[np.ndarray, "L D"], ranker: str, qid: str) -> Ranking:
    return whole(reranker.rerank(CandidateList(features), strategy=ranker), qid)
