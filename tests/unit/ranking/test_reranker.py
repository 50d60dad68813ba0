"""The scoring path with stages that can be computed by hand."""

import numpy as np
import pytest

from listwright.ranking.errors import SchemaMismatchError
from listwright.ranking.order import relevance
from support.service.computed_by_hand import FOUR, Broken, Column, candidates, reranker


def test_second_stage_gives_the_order():
    ranking = reranker(Column(0), Column(1)).rerank(FOUR)
    assert ranking.order.tolist() == [2, 1, 3, 0]
    assert ranking.ranks.tolist() == [4, 2, 1, 3]
    assert ranking.scores.tolist() == [10, 30, 40, 20]
    assert ranking.first_stage_scores.tolist() == [1, 3, 2, 4]
    assert (ranking.stage_reached, ranking.degraded) == ("second_stage", False)
    assert ranking.route.decided_by == "bundle"


def test_candidates_below_the_cutoff_follow_in_first_stage_order():
    ranking = reranker(Column(0), Column(1), cutoff=2).rerank(FOUR)
    assert ranking.order.tolist() == [1, 3, 2, 0]  # 3 and 1 are kept; 1 has more stars; then 2, then 0
    assert np.isnan(ranking.scores[[0, 2]]).all()
    assert ranking.relevance[[1, 3]].sum() == pytest.approx(1.0)
    assert np.isnan(ranking.relevance[[0, 2]]).all()


def test_second_stage_sees_kept_candidates_in_input_order_with_the_first_stage_score_last():
    second = Column(1)
    reranker(Column(0), second, cutoff=3).rerank(FOUR)
    assert second.seen.tolist() == [[3, 30, 3], [2, 40, 2], [4, 20, 4]]
    assert second.seen.dtype == np.float32


def test_second_stage_can_do_without_the_first_stage_score():
    second = Column(1)
    reranker(Column(0), second, first_stage_score=False).rerank(FOUR)
    assert second.seen.shape == (4, 2)


def test_equal_scores_keep_input_order():
    ranking = reranker(Column(0), Column(1)).rerank(candidates([1, 5], [1, 5], [1, 7], [1, 5]))
    assert ranking.order.tolist() == [2, 0, 1, 3]


def test_caller_may_ask_for_the_first_stage():
    ranking = reranker(Column(0), Broken()).rerank(FOUR, strategy="first_stage")
    assert ranking.order.tolist() == [3, 1, 2, 0]
    assert (ranking.stage_reached, ranking.degraded) == ("first_stage", False)
    assert (ranking.route.strategy, ranking.route.decided_by) == ("first_stage", "caller")
    assert ranking.relevance.sum() == pytest.approx(1.0)


def test_failing_second_stage_degrades_to_the_first():
    ranking = reranker(Column(0), Broken()).rerank(FOUR)
    assert ranking.order.tolist() == [3, 1, 2, 0]
    assert (ranking.stage_reached, ranking.reason) == ("first_stage", "no oil")
    assert ranking.route.strategy == "qilcm"


def test_failing_first_stage_degrades_to_the_input_order():
    ranking = reranker(Broken(), Column(1)).rerank(FOUR)
    assert ranking.order.tolist() == [0, 1, 2, 3]
    assert (ranking.stage_reached, ranking.reason) == ("input_order", "no oil")
    assert np.isnan(ranking.first_stage_scores).all()
    assert np.isnan(ranking.relevance).all()


def test_wrong_width_is_refused():
    with pytest.raises(SchemaMismatchError, match="3 features, the bundle was fitted on 2"):
        reranker(Column(0), Column(1)).rerank(candidates([1, 2, 3]))


def test_relevance_is_the_softmax_of_what_was_scored():
    scores = np.array([np.log(1.0), np.nan, np.log(3.0)])
    assert relevance(scores)[[0, 2]] == pytest.approx([1 / 4, 3 / 4])
    assert relevance(np.array([1e4, 0.0])) == pytest.approx([1.0, 0.0])
