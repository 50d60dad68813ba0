"""Which stages are started before a deadline; stages can be computed by hand."""

from time import perf_counter

import numpy as np
import pytest

from listwright.ranking.deadline import Deadline
from listwright.ranking.errors import AbandonedError
from support.service.computed_by_hand import FOUR, Broken, Column, reranker

HOUR = 3600.0


class Never:
    engine = "column"

    def score(self, features):
        pytest.fail("this stage must not be started")


def within(seconds):
    return Deadline(perf_counter() + seconds)


def slow(first, second, **stages):
    """A reranker whose stages took so many seconds lately."""
    ranker = reranker(first, second)
    for stage, seconds in stages.items():
        ranker.pace.note(stage, len(FOUR), seconds)
    return ranker


def test_time_enough_changes_nothing():
    ranker = slow(Column(0), Column(1), first_stage=1.0, qilcm=1.0)
    ranking = ranker.rerank(FOUR, deadline=within(HOUR))
    assert ranking.order.tolist() == reranker(Column(0), Column(1)).rerank(FOUR).order.tolist()
    assert (ranking.degraded, ranking.late) == (False, False)


def test_a_second_stage_that_would_be_late_is_not_started():
    ranking = slow(Column(0), Never(), qilcm=2 * HOUR).rerank(FOUR, deadline=within(HOUR))
    assert ranking.order.tolist() == [3, 1, 2, 0]
    assert (ranking.stage_reached, ranking.late) == ("first_stage", True)
    assert ranking.reason == "the second stage was not started: it would have missed the deadline"
    assert ranking.relevance.sum() == pytest.approx(1.0)


@pytest.mark.parametrize(("seconds", "took"), [(HOUR, 2 * HOUR), (-1.0, 0.0)])
def test_a_first_stage_that_would_be_late_leaves_the_input_order(seconds, took):
    ranking = slow(Never(), Never(), first_stage=took).rerank(FOUR, deadline=within(seconds))
    assert ranking.order.tolist() == [0, 1, 2, 3]
    assert (ranking.stage_reached, ranking.late) == ("input_order", True)
    assert ranking.reason.startswith("the first stage was not started")
    assert np.isnan(ranking.scores).all()


def test_the_first_stage_alone_needs_no_time_for_the_second():
    ranker = slow(Column(0), Never(), qilcm=2 * HOUR)
    ranking = ranker.rerank(FOUR, strategy="first_stage", deadline=within(HOUR))
    assert (ranking.stage_reached, ranking.degraded) == ("first_stage", False)


def test_a_failure_is_not_lateness():
    ranking = reranker(Column(0), Broken()).rerank(FOUR, deadline=within(HOUR))
    assert (ranking.stage_reached, ranking.degraded, ranking.late) == ("first_stage", True, False)


def test_what_stages_take_is_remembered():
    ranker = reranker(Column(0), Column(1))
    ranking = ranker.rerank(FOUR)
    for stage, key in (("first_stage", "first_stage"), ("qilcm", "second_stage")):
        assert ranker.pace.expected(stage, len(FOUR)) * 1000.0 == pytest.approx(ranking.timings_ms[key])


def test_a_caller_that_goes_between_the_stages_is_not_worked_for():
    gone = []

    class LeavesNow(Column):
        def score(self, features):
            gone.append(True)
            return super().score(features)

    with pytest.raises(AbandonedError):
        reranker(LeavesNow(0), Never()).rerank(FOUR, deadline=Deadline(abandoned=lambda: bool(gone)))
