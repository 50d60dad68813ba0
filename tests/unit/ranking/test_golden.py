"""When two answers to a golden list are the same computation."""

import json
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from listwright.ranking import golden
from listwright.ranking.candidates import Ranking, Route
from listwright.ranking.errors import BundleError
from listwright.ranking.golden import TIE_TOLERANCE, GoldenList, replay, same_order, same_scores
from listwright.ranking.order import best, rank_by_score, refined_order
from listwright.ranking.reranker import Reranker

NAN = float("nan")
NEAR = TIE_TOLERANCE / 2


def ranking(order, scores, first_stage_scores):
    return Ranking(
        order=np.array(order),
        scores=np.array(scores),
        relevance=np.array(scores),
        first_stage_scores=np.array(first_stage_scores),
        stage_reached="second_stage",
        reason=None,
        route=Route("qilcm", "bundle"),
        timings_ms={},
    )


@pytest.mark.parametrize(
    ("scores", "first_stage_scores", "other", "same"),
    [
        ([3.0, 2.0, 1.0], [0.0, 0.0, 0.0], [2, 1, 0], False),  # equal below, but the second stage told them apart
        ([3.0, 2.0, 2.0 - NEAR], [3.0, 2.0, 1.0], [0, 2, 1], True),
        ([3.0, 2.0, 2.0 - 3 * TIE_TOLERANCE], [3.0, 2.0, 1.0], [0, 2, 1], False),
        ([1.0 + NEAR, 1.0, NAN, NAN], [4.0, 3.0, 1.0, 1.0], [1, 0, 3, 2], True),  # near ties in both parts
        ([2.0, 1.0, NAN, NAN], [4.0, 3.0, 2.0, 1.0], [0, 1, 3, 2], False),
        ([2.0, 1.0, NAN], [1.0, 1.0, 1.0], [0, 2, 1], False),  # never across the cutoff
    ],
)
def test_only_near_ties_may_swap(scores, first_stage_scores, other, same):
    order = list(range(len(scores)))
    found = ranking(order, scores, first_stage_scores)
    assert same_order(found, np.array(order))
    assert same_order(found, np.array(other)) is same


def test_nan_equals_nan_only():
    assert same_scores(np.array([1.0, NAN]), np.array([1.0, NAN]))
    assert not same_scores(np.array([1.0, NAN]), np.array([1.0, 0.0]))
    assert not same_scores(np.array([1.0]), np.array([1.0, 1.0]))
    assert not same_scores(np.array([1.0]), np.array([1.001]))


class TwoKept(Reranker):
    """Rescores the two best by the first column, by how far their second column lies from the two's mean."""

    def __init__(self):
        """Without stages."""

    def rerank(self, candidates, **_):
        features = candidates.features.astype(np.float64)
        first = features[:, 0]
        kept = np.sort(best(2, rank_by_score(first), first, candidates.features))
        scores = np.full(len(first), np.nan)
        scores[kept] = features[kept, 1] - features[kept, 1].mean()
        return ranking(refined_order(scores[kept], kept, rank_by_score(first)), scores, first)


@pytest.mark.parametrize(
    ("kept", "scores", "loads"),
    [
        ((0, 1), (1.0, -1.0), True),
        ((0, 2), (2.0, -2.0), True),  # another of those that tie at the cutoff, and what it gets beside the first
        ((0, 2), (2.0, -1.0), False),
        ((0, 3), (3.0, -3.0), False),  # which does not tie
        ((1, 2), (1.0, -1.0), False),  # without the best
    ],
)
def test_a_record_may_hold_another_candidate_of_a_tie_at_the_cutoff(kept, scores, loads):
    features, first = [[2.0, 9.0], [1.0, 7.0], [1.0, 5.0], [0.0, 3.0]], [2.0, 1.0, 1.0, 0.0]
    recorded = [None] * 4
    for place, score in zip(kept, scores, strict=True):
        recorded[place] = score
    order = [*kept, *(i for i in range(4) if i not in kept)]
    golden = GoldenList(features=features, first_stage_scores=first, scores=recorded, order=order)
    if loads:
        replay(TwoKept(), [golden], Path("golden.jsonl"))
        return
    with pytest.raises(BundleError, match="does not compute what the trainer computed"):
        replay(TwoKept(), [golden], Path("golden.jsonl"))


LINE = b'{"features":[[1,null]],"first_stage_scores":[1],"scores":[null],"order":[0]}\n'


def test_a_golden_file_may_be_as_large_as_the_limits(monkeypatch, tmp_path):
    monkeypatch.setattr(golden, "MAX_FILE_BYTES", 3 * len(LINE))
    monkeypatch.setattr(golden, "MAX_LINES", 3)
    monkeypatch.setattr(golden, "MOST_VALUES", sum(map(LINE.count, b",[{")))
    assert len(golden.read(3 * LINE, tmp_path)) == 3
    with pytest.raises(BundleError, match=rf"more than {3 * len(LINE)} bytes or 3 lines"):
        golden.read(3 * LINE + b" ", tmp_path)
    with pytest.raises(BundleError, match="or 3 lines"):
        golden.read(b"{}\n" * 4, tmp_path)
    with pytest.raises(BundleError, match=r"line 2: .*more than"):
        golden.read(LINE + LINE.replace(b"[0]", b"[0,1]"), tmp_path)
    monkeypatch.setattr(golden, "MAX_FILE_VALUES", 2 * golden.MOST_VALUES)
    assert len(golden.read(2 * LINE, tmp_path)) == 2
    with pytest.raises(BundleError, match="it has more than"):
        golden.read(3 * LINE, tmp_path)


@pytest.mark.parametrize("field", ["features", "scores", "first_stage_scores", "order", "probabilities"])
def test_of_many_faults_in_a_list_the_first_is_made_and_no_other(field):
    values = json.loads(LINE) | {field: ["x"] * 10_000}
    with pytest.raises(ValidationError) as raised:
        golden.GoldenList.model_validate(values)
    assert raised.value.error_count() == 1
