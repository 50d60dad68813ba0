"""Figures that can be checked by hand, and the intervals around them."""

import numpy as np
import pytest

from listwright.ranking.metrics import EvalProtocol
from listwright.training.evaluation.protocol import METRICS, Evaluation


def evaluation(first, second, protocol=None):
    def values(v):
        return {metric: np.array(v, dtype=float) for metric in METRICS}

    return Evaluation({"first_stage": values(first), "qilcm": values(second)}, protocol or EvalProtocol())


def mean(of, ranker, metric):
    return next(m for m in of.metrics() if (m.ranker, m.name) == (ranker, metric))


def test_empty_queries_count_as_the_protocol_says():
    values = [1.0, np.nan, 0.5]
    assert mean(evaluation(values, values), "qilcm", "ndcg@10").mean == pytest.approx((1 + 0 + 0.5) / 3)
    one = evaluation(values, values, EvalProtocol(empty_queries=1))
    assert mean(one, "qilcm", "ndcg@10").mean == pytest.approx((1 + 1 + 0.5) / 3)
    drop = evaluation(values, values, EvalProtocol(empty_queries="drop"))
    assert mean(drop, "qilcm", "ndcg@10").mean == pytest.approx((1 + 0.5) / 2)
    assert mean(drop, "qilcm", "ndcg@10").n == 2
    assert drop.empty_queries == 1


def test_gain_is_paired():
    rng = np.random.default_rng(0)
    first = rng.random(200)
    result = evaluation(first, first + 0.01)
    gain, low, high = result.gain("ndcg@5", "qilcm", "first_stage")
    assert gain == pytest.approx(0.01)
    assert (low, high) == (pytest.approx(0.01), pytest.approx(0.01))


def test_a_query_that_is_empty_for_one_ranker_is_dropped_for_the_pair():
    """A truncated ideal may be 0 for one first stage only."""
    result = evaluation([np.nan, 0.5, 0.25, 0.5], [0.5, 1.0, np.nan, 0.75], EvalProtocol(empty_queries="drop"))
    assert result.gain("ndcg@10", "qilcm", "first_stage")[0] == pytest.approx((0.5 + 0.25) / 2)
    assert mean(result, "qilcm", "ndcg@10").mean == pytest.approx((0.5 + 1.0 + 0.75) / 3)
