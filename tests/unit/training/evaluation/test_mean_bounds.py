"""Bounds of a mean that keep their level: against exact and simulated values, and what every sample must fulfil."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from listwright.training.evaluation.intervals import bound_mean, lists_needed, mean_p_value

GAINS = st.lists(st.floats(-1.0, 1.0).map(lambda value: round(value, 6)), min_size=1, max_size=40)


@pytest.mark.parametrize(("count", "ones"), [(5, 0), (10, 10), (20, 3), (50, 49), (200, 7)])
def test_of_zeros_and_ones_it_is_the_binomial_interval(count, ones):
    values = np.repeat([1.0, 0.0], [ones, count - ones])
    exact = binomtest(ones, count).proportion_ci(method="exact")
    assert bound_mean(values, limits=(0.0, 1.0)) == pytest.approx((exact.low, exact.high), abs=2.5e-3)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_saddlepoint_is_close_to_the_simulated_probability(weighted):
    rng = np.random.default_rng(4)
    values = rng.normal(0.02, 0.1, 30)
    weights = rng.integers(0, 4, 30).astype(float) if weighted else None
    of = np.ones(30) if weights is None else weights
    for bound in (-0.12, -0.05, -0.02):
        terms = np.append(of * (values - bound), of.max() * (-1.0 - bound))
        simulated = (rng.exponential(size=(200_000, 31)) @ terms <= 0.0).mean()
        assert mean_p_value(values, bound, weights, lowest=-1.0) == pytest.approx(simulated, rel=0.05, abs=1e-3)


@given(GAINS)
def test_the_interval_holds_the_mean_within_the_limits_and_turns_with_the_sign(values):
    array = np.array(values)
    low, high = bound_mean(array, limits=(-1.0, 1.0))
    assert -1.0 <= low <= array.mean() + 1e-9
    assert array.mean() - 1e-9 <= high <= 1.0
    turned = bound_mean(-array, limits=(-1.0, 1.0))
    assert turned == pytest.approx((-high, -low), abs=1e-7)
    wider = bound_mean(array, alpha=0.001, limits=(-1.0, 1.0))
    assert wider[0] <= low + 1e-9
    assert wider[1] >= high - 1e-9


@given(GAINS, st.integers(1, 5))
def test_weights_that_are_alike_change_nothing_and_those_of_zero_leave_out(values, weight):
    array = np.array(values)
    plain = bound_mean(array, limits=(-1.0, 1.0))
    assert bound_mean(array, np.full(len(array), float(weight)), limits=(-1.0, 1.0)) == pytest.approx(plain, abs=1e-7)
    more, weights = np.append(array, [1.0, -1.0]), np.append(np.ones(len(array)), [0.0, 0.0])
    assert bound_mean(more, weights, limits=(-1.0, 1.0)) == pytest.approx(plain, abs=1e-7)


@pytest.mark.parametrize("weight", [1e-300, 1e300])
def test_only_the_proportions_of_weights_count(weight):
    plain = bound_mean(np.array([0.1]), limits=(-1.0, 1.0))
    assert bound_mean(np.array([0.1]), np.array([weight]), limits=(-1.0, 1.0)) == pytest.approx(plain)


def test_nothing_that_counts_says_nothing():
    assert bound_mean(np.empty(0), limits=(-1.0, 1.0)) == (-1.0, 1.0)
    assert bound_mean(np.ones(3), np.zeros(3), limits=(0.0, 1.0)) == (0.0, 1.0)


def test_equal_gains_do_not_show_their_mean_exactly():
    """Twenty lists alike say little of the next one: no spread is no certainty."""
    low, high = bound_mean(np.full(20, 0.01), limits=(-1.0, 1.0))
    assert low < -0.1
    assert high > 0.1


def test_the_lists_that_are_needed_decide_it_in_four_of_five_cases():
    rng = np.random.default_rng(6)
    values = rng.normal(0.0, 0.1, 100)
    values += 0.03 - values.mean()
    needed = lists_needed(values, 0.0, lowest=-1.0)
    shows = [mean_p_value(rng.choice(values, round(needed)), 0.0, lowest=-1.0) <= 0.025 for _ in range(300)]
    assert np.mean(shows) == pytest.approx(0.8, abs=0.08)
    assert math.isinf(lists_needed(values, 0.03, lowest=-1.0))
    assert lists_needed(values, 0.0, np.full(100, 7.0), lowest=-1.0) == pytest.approx(needed)
