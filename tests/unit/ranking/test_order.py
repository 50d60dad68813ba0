"""The one sort, on lists that can be ordered by eye."""

import numpy as np
import pytest

from listwright.ranking.order import rank_by_score, ranks_of

NAN = float("nan")
INF = float("inf")


@pytest.mark.parametrize(
    ("scores", "order"),
    [
        ([0.5], [0]),
        ([1.0, 3.0, 2.0], [1, 2, 0]),
        ([-1.0, -3.0, -2.0], [0, 2, 1]),
        ([2.0, 1.0, 2.0, 1.0, 2.0], [0, 2, 4, 1, 3]),  # equal scores keep input order
        ([0.0, -0.0, 0.0], [0, 1, 2]),  # both zeros are equal
        ([NAN, 1.0, NAN, 2.0], [3, 1, 0, 2]),  # NaN below every number, in input order
        ([NAN, -INF, INF], [2, 1, 0]),
        ([NAN, NAN], [0, 1]),
        ([], []),
    ],
)
def test_best_first(scores, order):
    assert rank_by_score(np.array(scores)).tolist() == order


def test_equal_scores_keep_input_order_in_long_lists():
    """Sorting networks and introsort are stable by accident on short lists."""
    assert rank_by_score(np.zeros(1000, dtype=np.float32)).tolist() == list(range(1000))


def test_scores_are_left_as_they_were():
    scores = np.array([1.0, 3.0, 2.0])
    rank_by_score(scores)
    assert scores.tolist() == [1.0, 3.0, 2.0]


def test_ranks_are_one_based_and_in_input_order():
    assert ranks_of(np.array([2, 0, 3, 1])).tolist() == [2, 4, 1, 3]
