"""Figures that can be checked by hand, and the intervals around them."""

import numpy as np
import pytest

from listwright.ranking.metrics import EvalProtocol
from listwright.training.evaluation import protocol as evaluate
from listwright.training.evaluation.intervals import RESAMPLES
from listwright.training.evaluation.protocol import METRICS, Evaluation, bootstrap_interval, bootstrap_intervals


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


def test_interval_covers_the_mean_and_shrinks_with_more_queries():
    rng = np.random.default_rng(1)
    few, many = rng.random(50), rng.random(5000)
    low, high = bootstrap_interval(few)
    assert low < few.mean() < high
    # the normal approximation says 1.96 sd / sqrt(n) to either side
    assert high - low == pytest.approx(2 * 1.96 * few.std() / np.sqrt(50), rel=0.15)
    assert np.diff(bootstrap_interval(many))[0] < (high - low) / 5
    assert bootstrap_interval(few) == (low, high), "an interval must repeat to the digit"
    assert bootstrap_interval(np.empty(0)) == (0.0, 0.0)


@pytest.mark.parametrize("weighted", [False, True])
def test_an_interval_is_the_same_however_many_samples_are_drawn_at_a_time(monkeypatch, weighted):
    rng = np.random.default_rng(1)
    values, weights = rng.random(61), rng.integers(0, 2, 61) * rng.random(61) if weighted else None
    at_once = bootstrap_interval(values, weights)
    monkeypatch.setattr(evaluate, "_DRAWS_AT_A_TIME", 1)
    assert bootstrap_interval(values, weights) == pytest.approx(at_once, abs=1e-12)


def test_intervals_of_several_means_are_those_of_each_by_definition():
    rng = np.random.default_rng(3)
    weights = rng.integers(0, 3, 40) * rng.random(40)
    counted = [(rng.random(40), None), (rng.random(40), weights), (rng.random(30), None), (rng.random(40), weights)]
    counted += [(np.empty(0), None), (rng.random(40), np.zeros(40)), (rng.random(40), weights[::-1])]
    found = bootstrap_intervals(counted)
    assert found[4:6] == [(0.0, 0.0)] * 2
    for (values, own), ends in zip(counted[:4] + counted[6:], found[:4] + found[6:], strict=True):
        drawn = np.random.default_rng(0).integers(0, len(values), (RESAMPLES, len(values)))
        means = np.average(values[drawn], weights=None if own is None else own[drawn], axis=1)
        assert ends == pytest.approx(np.quantile(means, [0.025, 0.975]), abs=1e-12)
