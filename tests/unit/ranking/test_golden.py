"""When two answers to a golden list are the same computation."""

import numpy as np
import pytest

from ranking.candidates import Ranking, Route
from ranking.golden import TIE_TOLERANCE, same_order, same_scores

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
