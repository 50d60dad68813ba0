"""Bootstrap samples and their intervals."""

import numpy as np
import pytest

from listwright.training.evaluation import bootstrap
from listwright.training.evaluation.bootstrap import (
    RESAMPLES,
    bootstrap_interval,
    bootstrap_intervals,
    percentile_interval,
    resample_ratios,
    resample_sums,
)


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
    monkeypatch.setattr(bootstrap, "_DRAWS_AT_A_TIME", 1)
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


def test_sums_are_those_of_units_drawn_with_replacement(monkeypatch):
    units = np.eye(7)
    counts = resample_sums(units, np.random.default_rng(0), 450)
    assert counts.sum(axis=1).tolist() == [7.0] * 450
    assert counts.mean(axis=0) == pytest.approx(np.ones(7), abs=0.15)
    monkeypatch.setattr(bootstrap, "_SAMPLES_AT_A_TIME", 1)
    assert np.array_equal(resample_sums(units, np.random.default_rng(0), 450), counts)


def test_an_interval_leaves_out_samples_without_an_estimate():
    ratios = resample_ratios(np.array([1.0, 0.0, 5.0]), np.array([2.0, 1.0, 0.0]), np.random.default_rng(0))
    assert set(ratios) == {0.0, 0.5, 1.0 / 3.0}, "the third unit has no query"
    assert percentile_interval(np.append(ratios, np.nan)).tolist() == [0.0, 0.5]
    assert np.isnan(percentile_interval(np.full((RESAMPLES, 2), np.nan))).all()
