"""Scores of an answer: finite for every candidate, and a stable sort by them gives the answer's order."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from listwright.ranking.order import finite_scores, rank_by_score, refined_order, relevance

TYPES = st.sampled_from(["<f8", "<f4"])
LARGEST = 1e6
RAW = st.floats(-LARGEST, LARGEST) | st.sampled_from([0.0, -0.0, 1.0, 1.0 + 2**-52, -2000.0, 5e-324, -LARGEST, LARGEST])


@st.composite
def reranked_lists(draw):
    """Scores of a second stage, NaN below its cutoff, and the order; none are scored at a cutoff of 0."""
    length = draw(st.integers(1, 20))
    first = draw(hnp.arrays(np.float64, length, elements=st.integers(0, 3).map(float) | RAW))
    by_first_stage = rank_by_score(first)
    positions = np.sort(by_first_stage[: draw(st.integers(0, length))])
    scores = np.full(length, np.nan)
    scores[positions] = draw(hnp.arrays(np.float64, len(positions), elements=RAW))
    return scores, refined_order(scores[positions], positions, by_first_stage)


def check(scores, order, found):
    assert np.isfinite(found).all()
    assert found.dtype == scores.dtype
    assert rank_by_score(found).tolist() == order.tolist()
    assert rank_by_score(np.array(found.tolist())).tolist() == order.tolist(), "as JSON has them"


@given(reranked_lists(), st.sampled_from([1e-6, 0.1, 1.0, 30.0, 1e12]), TYPES)
@example((np.array([-2000.0, 0.0, -1000.0]), np.array([1, 2, 0])), 1.0, "<f8")  # two shares are 0
def test_shares_keep_their_values_and_the_others_stand_below_0(reranked, temperature, dtype):
    scores, order = reranked
    shares = relevance(scores, temperature).astype(dtype)
    found = finite_scores(shares, order)
    check(shares, order, found)
    scored = ~np.isnan(scores)
    assert (found[scored] >= 0).all()
    assert found[order][~scored[order]].tolist() == [-k for k in range(1, np.count_nonzero(~scored) + 1)]
    assert found[scored] == pytest.approx(shares[scored], rel=1e-5, abs=1e-40)
    if (np.diff(shares[order][scored[order]]) < 0).all():
        assert found[scored].tobytes() == shares[scored].tobytes()


@given(reranked_lists(), TYPES)
def test_raw_scores_keep_their_values_and_the_others_stand_below_them(reranked, dtype):
    scores, order = reranked[0].astype(dtype), reranked[1]
    found = finite_scores(scores, order)
    check(scores, order, found)
    scored = ~np.isnan(scores)
    assert found[scored] == pytest.approx(scores[scored], rel=1e-5, abs=1e-40)
    assert (found[~scored] < min(0.0, found[scored].min(initial=0.0))).all()


@given(reranked_lists())
def test_numbers_that_sort_to_the_order_are_left_as_they_are(reranked):
    scores, order = reranked  # in the type that they were sorted in
    scored = ~np.isnan(scores)
    assert finite_scores(scores, order)[scored].tobytes() == scores[scored].tobytes()


@given(reranked_lists(), TYPES, st.randoms(use_true_random=False))
def test_an_order_that_scores_did_not_make_gets_them_by_place(reranked, dtype, random):
    scores, order = reranked[0].astype(dtype), reranked[1].tolist()
    sorted_scores = np.sort(finite_scores(scores, reranked[1]))
    random.shuffle(order)
    found = finite_scores(scores, np.array(order))
    check(scores, np.array(order), found)
    assert np.sort(found) == pytest.approx(sorted_scores, rel=1e-5, abs=1e-40)


@given(st.integers(1, 20), TYPES)
def test_a_list_that_nothing_scored_has_its_places_alone(length, dtype):
    found = finite_scores(np.full(length, np.nan, dtype=dtype), np.arange(length))
    assert found.tolist() == [-k for k in range(1, length + 1)]
