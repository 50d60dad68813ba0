"""The first stage over the rows of many lists: what it says of each alone, to the bit, or nothing."""

import numpy as np
import pytest

from listwright.ranking import bundle
from listwright.ranking.candidates import CandidateList
from support.service.bundles import make_bundle, rows
from support.service.computed_by_hand import FOUR, Broken, Column, reranker

LENGTHS = (1, 7, 120, 3, 40, 1)


@pytest.fixture(scope="module")
def matrix():
    return rows(np.random.default_rng(3), sum(LENGTHS))


def test_rankings_are_the_same_to_the_bit(tmp_path, matrix):
    served = bundle.load(make_bundle(tmp_path / "shop" / "1")).reranker
    assert served.first_stage.engine == "compiled"
    known, first = served.first_stage_scores(matrix), 0
    assert known is not None
    for length in LENGTHS:
        here = slice(first, first + length)
        alone = served.rerank(CandidateList(matrix[here]))
        told = served.rerank(CandidateList(matrix[here]), first_stage_scores=known[here])
        for name in ("order", "scores", "relevance", "first_stage_scores"):
            np.testing.assert_array_equal(getattr(told, name), getattr(alone, name))
        first += length


def test_a_first_stage_that_may_see_the_list_says_nothing(tmp_path, matrix):
    for number, changes in enumerate(({"relative": True}, {"first_stage": "onnx"})):
        served = bundle.load(make_bundle(tmp_path / "shop" / str(number), **changes)).reranker
        assert served.first_stage_scores(matrix) is None


def test_one_that_fails_says_nothing(monkeypatch):
    monkeypatch.setattr(Broken, "engine", "compiled")
    assert reranker(Broken(), Column(1)).first_stage_scores(FOUR.features) is None


def test_known_scores_are_taken_and_their_time_is_no_pace():
    served = reranker(Broken(), Column(1))
    ranking = served.rerank(FOUR, first_stage_scores=np.array([4.0, 3.0, 2.0, 1.0]))
    assert ranking.first_stage_scores.tolist() == [4, 3, 2, 1]
    assert ranking.stage_reached == "second_stage"
    assert served.pace.expected("first_stage", len(FOUR)) == 0.0
    assert served.pace.expected("qilcm", len(FOUR)) > 0.0
