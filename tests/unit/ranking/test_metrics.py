"""Every metric and every convention on lists that can be worked out by hand."""

from math import isnan, log2

import numpy as np
import pytest
from pydantic import ValidationError

from listwright.ranking.candidates import Ranking, Route
from listwright.ranking.metrics import (
    EvalProtocol,
    dcg,
    hit,
    ndcg,
    precision,
    reciprocal_rank,
)
from support.one_list import average_precision, expected_reciprocal_rank

LABELS = np.array([0, 2, 0, 1, 3])
SCORES = np.array([5.0, 4.0, 3.0, 2.0, 1.0])  # keeps input order
NOTHING_RELEVANT = np.zeros(4, dtype=np.int64)


def test_dcg_is_the_sum_of_its_definition():
    expected = (2**2 - 1) / log2(3) + (2**1 - 1) / log2(5) + (2**3 - 1) / log2(6)
    assert dcg(LABELS, cutoff=5) == pytest.approx(expected)


def test_dcg_stops_at_the_cutoff():
    assert dcg(LABELS, cutoff=3) == pytest.approx(3 / log2(3))


def test_ndcg_divides_by_the_best_order():
    ideal = 7 / log2(2) + 3 / log2(3)
    assert ndcg(SCORES, LABELS, cutoff=2) == pytest.approx((3 / log2(3)) / ideal)


def test_the_gain_of_a_high_label_is_exact():
    """2^40 - 1 is beyond int32 and between two float32 numbers."""
    assert dcg(np.array([40]), cutoff=1) == 2**40 - 1


@pytest.mark.parametrize("labels", [[1, 0, 0], [0, 1, 0], [0, 0, 1]])
@pytest.mark.parametrize("tied", [np.ones(3), np.full(3, np.nan)])
def test_equal_scores_share_their_ranks(tied, labels):
    """The relevant one stands at rank 1, 2 or 3, each with a third of the chance."""
    labels = np.array(labels)
    assert ndcg(tied, labels, cutoff=3) == pytest.approx((1 + 1 / log2(3) + 1 / log2(4)) / 3)
    assert ndcg(tied, labels, cutoff=1) == pytest.approx(1 / 3)
    assert reciprocal_rank(tied, labels) == pytest.approx((1 + 1 / 2 + 1 / 3) / 3)
    assert average_precision(tied, labels) == pytest.approx((1 + 1 / 2 + 1 / 3) / 3)
    assert precision(tied, labels, cutoff=2) == pytest.approx(1 / 3)
    assert hit(tied, labels, cutoff=2) == pytest.approx(2 / 3)
    assert expected_reciprocal_rank(tied, labels, cutoff=2) == pytest.approx((1 + 1 / 2) / 3 / 16)


def test_noise_with_the_relevant_candidate_first_is_worth_what_chance_is():
    assert ndcg(np.zeros(8), np.array([1, *[0] * 7]), cutoff=10) == pytest.approx(0.494183, abs=1e-6)


def test_scores_of_two_stages_tie_only_within_a_stage():
    ranking = Ranking(
        order=np.array([4, 0, 2, 1, 3]),
        scores=np.array([1.0, np.nan, 1.0, np.nan, 2.0]),
        relevance=np.zeros(5),
        first_stage_scores=np.array([5.0, 1.0, 9.0, 1.0, 1.0]),
        stage_reached="second_stage",
        route=Route("qilcm", "bundle"),
    )
    assert ranking.sort_keys.tolist() == [2.0, 1.0, 2.0, 1.0, 3.0]


def test_nothing_but_input_order_ties_everywhere():
    nothing = np.full(3, np.nan)
    route = Route("qilcm", "bundle")
    ranking = Ranking(np.arange(3), nothing, nothing, nothing, "input_order", route, reason="x")
    assert len(set(ranking.sort_keys.tolist())) == 1


def test_average_precision_and_err_are_their_definitions():
    assert average_precision(SCORES, LABELS) == pytest.approx((1 / 2 + 2 / 4 + 3 / 5) / 3)
    two, one, three = 3 / 16, 1 / 16, 7 / 16
    expected = two / 2 + (1 - two) * (one / 4 + (1 - one) * three / 5)
    assert expected_reciprocal_rank(SCORES, LABELS, cutoff=10) == pytest.approx(expected)
    gains = (0.0, 1.0, 2.0, 4.0)
    by_gains = 2 / 5 / 2 + (1 - 2 / 5) * (1 / 5 / 4 + (1 - 1 / 5) * 4 / 5 / 5)
    found = expected_reciprocal_rank(SCORES, LABELS, cutoff=10, gains=gains, highest=4.0)
    assert found == pytest.approx(by_gains)
    with pytest.raises(ValueError, match="gain 31, above the highest one, 15"):
        expected_reciprocal_rank(np.ones(1), np.array([5]), cutoff=1)


def test_nan_scores_rank_last():
    assert reciprocal_rank(np.array([np.nan, 1.0, 2.0]), np.array([1, 0, 0])) == 1 / 3


@pytest.mark.parametrize("cutoff", [1, 5])
def test_one_relevant_candidate_alone(cutoff):
    score, label = np.array([-3.0]), np.array([1])
    assert ndcg(score, label, cutoff=cutoff) == 1.0
    assert precision(score, label, cutoff=cutoff) == 1 / cutoff
    assert hit(score, label, cutoff=cutoff) == 1.0
    assert reciprocal_rank(score, label) == average_precision(score, label) == 1.0
    assert expected_reciprocal_rank(score, label, cutoff=cutoff) == 1 / 16


@pytest.mark.parametrize("labels", [np.array([0]), NOTHING_RELEVANT])
def test_nothing_relevant(labels):
    scores = np.arange(len(labels), dtype=np.float64)
    assert isnan(ndcg(scores, labels, cutoff=10))
    assert precision(scores, labels, cutoff=10) == 0.0
    assert hit(scores, labels, cutoff=10) == 0.0
    assert reciprocal_rank(scores, labels) == average_precision(scores, labels) == 0.0
    assert expected_reciprocal_rank(scores, labels, cutoff=10) == 0.0


def test_relevant_means_any_label_above_zero():
    assert precision(SCORES, LABELS, cutoff=5) == 3 / 5
    assert reciprocal_rank(SCORES, LABELS) == 1 / 2


def test_kept_limits_the_ideal_only():
    kept = np.array([True, True, True, True, False])  # the first stage dropped the best candidate
    ideal = 3 / log2(2) + 1 / log2(3)
    assert ndcg(SCORES, LABELS, cutoff=2, kept=kept) == pytest.approx((3 / log2(3)) / ideal)


def test_kept_everything_is_the_full_ideal():
    assert ndcg(SCORES, LABELS, cutoff=3, kept=np.ones(5, dtype=bool)) == ndcg(SCORES, LABELS, cutoff=3)


def test_nothing_relevant_among_the_kept_is_an_empty_query():
    kept = np.array([True, False, True, False, False])
    assert isnan(ndcg(SCORES, LABELS, cutoff=5, kept=kept))


@pytest.mark.parametrize(
    ("empty_queries", "values"), [(0, [0.5, 0.0, 1.0, 0.0]), (1, [0.5, 1.0, 1.0, 1.0]), ("drop", [0.5, 1.0])]
)
def test_the_three_conventions_for_empty_queries(empty_queries, values):
    per_query = np.array([0.5, np.nan, 1.0, np.nan])
    assert EvalProtocol(empty_queries=empty_queries).apply(per_query).tolist() == values
    assert np.isnan(per_query).tolist() == [False, True, False, True]


def test_the_default_protocol():
    assert EvalProtocol() == EvalProtocol(empty_queries=0, ideal="full")


def test_a_printed_protocol_names_every_choice():
    text = str(EvalProtocol(empty_queries="drop", ideal="truncated"))
    for choice in (
        "2^y-1",
        "log2(rank+1)",
        "mean over queries",
        "empty_queries=drop",
        "ideal=truncated",
        "share their ranks",
    ):
        assert choice in text
    assert "keep input order" in str(EvalProtocol(ties="input_order"))


@pytest.mark.parametrize("facts", [{"empty_queries": 2}, {"empty_queries": "skip"}, {"ideal": "half"}, {"gain": "y"}])
def test_an_unknown_convention_is_refused(facts):
    with pytest.raises(ValidationError):
        EvalProtocol(**facts)


@pytest.mark.parametrize("cutoff", [0, -1])
@pytest.mark.parametrize("metric", [ndcg, precision, hit])
def test_a_cutoff_that_is_no_rank_is_refused(metric, cutoff):
    with pytest.raises(ValueError, match=f"cutoff {cutoff}: expected a rank"):
        metric(SCORES, LABELS, cutoff=cutoff)


def test_gains_stand_for_the_definitions():
    labels, gains = np.array([2, 0, 1]), (0.0, 1.0, 10.0)
    assert dcg(labels, cutoff=3, gains=gains) == pytest.approx(10 / log2(2) + 0 + 1 / log2(4))
    ideal = 10 / log2(2) + 1 / log2(3)
    assert ndcg(np.array([3.0, 2.0, 1.0]), labels, cutoff=3, gains=gains) == pytest.approx((10 + 1 / 2) / ideal)
    assert dcg(labels, cutoff=3, gains=(0.0, 1.0, 3.0)) == dcg(labels, cutoff=3)
    with pytest.raises(IndexError):
        dcg(labels, cutoff=3, gains=(0.0, 1.0))
