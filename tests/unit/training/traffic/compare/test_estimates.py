"""Means over queries with the variance of units, against simulation and the plain bootstrap."""

import math

import numpy as np
import pytest

from listwright.training.evaluation.bootstrap import MOST_GROUPS, resample_ratios
from listwright.training.traffic.compare.estimates import ratio_of


def draw(rng, units):
    n = rng.integers(1, 6, units).astype(float)
    own = rng.normal(size=units)
    return n * (1.0 + own) + rng.normal(size=units) * np.sqrt(n), n


def test_the_variance_is_that_of_the_mean_over_repeated_experiments():
    rng = np.random.default_rng(0)
    found = [ratio_of(*draw(rng, 400)) for _ in range(2000)]
    spread = np.var([one.value for one in found])
    assert np.mean([one.variance for one in found]) == pytest.approx(spread, rel=0.1)
    assert np.mean([one.value for one in found]) == pytest.approx(1.0, abs=0.01)


def test_by_hand():
    found = ratio_of(np.array([3.0, 0.0, 9.0]), np.array([2.0, 1.0, 0.0]))
    assert (found.value, found.units, found.queries, found.active) == (1.0, 2, 3.0, 1)
    assert found.variance == pytest.approx(((3 - 2) ** 2 + (0 - 1) ** 2) * 2 / 9)


def queries_of(rng, units, times, own):
    """Values of ``times`` queries of each unit, which differ by ``own``, and the sums of each unit."""
    values = own[:, None] + rng.normal(size=(units, times))
    return values.sum(axis=1), np.full(units, float(times)), np.square(values).sum(axis=1)


@pytest.mark.parametrize(("times", "between"), [(2, 1.0), (10, 1.0), (10, 0.0), (30, 0.3)])
def test_the_variance_within_units_is_what_more_of_their_queries_lower(times, between):
    """Against repeated experiments with the same units."""
    rng = np.random.default_rng(2)
    own = between * rng.normal(size=300)
    found = [ratio_of(*queries_of(rng, 300, times, own)) for _ in range(300)]
    spread = np.var([one.value for one in found])
    assert np.mean([one.within for one in found]) == pytest.approx(spread, rel=0.25)
    assert np.mean([one.variance for one in found]) == pytest.approx((between**2 + 1.0 / times) / 300, rel=0.25)


def test_units_that_never_came_back_tell_nothing_within():
    assert math.isnan(ratio_of(np.ones(5), np.ones(5), np.ones(5)).within)
    assert math.isnan(ratio_of(np.ones(5), np.ones(5)).within)


def test_nobody_and_one_unit_have_no_variance():
    none = ratio_of(np.zeros(2), np.zeros(2))
    assert math.isnan(none.value)
    assert math.isnan(none.variance)
    one = ratio_of(np.array([2.0]), np.array([4.0]))
    assert one.value == 0.5
    assert math.isnan(one.variance)


@pytest.mark.parametrize("units", [500, 3 * MOST_GROUPS])
def test_the_bootstrap_spreads_as_the_linearised_variance(units):
    rng = np.random.default_rng(1)
    totals, n = draw(rng, units)
    drawn = resample_ratios(totals, n, rng)
    found = ratio_of(totals, n)
    assert drawn.std() == pytest.approx(math.sqrt(found.variance), rel=0.08)
    assert drawn.mean() == pytest.approx(found.value, abs=0.2 * math.sqrt(found.variance))


def test_a_bootstrap_of_nothing_is_nothing():
    assert np.isnan(resample_ratios(np.zeros(3), np.zeros(3), np.random.default_rng(0))).all()
