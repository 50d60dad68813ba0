"""Arrivals have the rate and the spread that they say."""

import numpy as np
import pytest

from benchmarks.capacity.simulated import arrivals
from benchmarks.capacity.simulated.arrivals import BURST_FACTOR, BURST_S, BURST_SHARE


def drawn(kind, rate=50.0, count=200_000, seed=1):
    return arrivals.draw(kind, rate, count, np.random.default_rng(seed))


@pytest.mark.parametrize("kind", arrivals.ARRIVALS)
def test_as_many_as_asked_for_in_order_at_the_rate(kind):
    due = drawn(kind)
    assert due.shape == (200_000,)
    assert (np.diff(due) >= 0).all()
    assert len(due) / due[-1] == pytest.approx(50.0, rel=0.05)


@pytest.mark.parametrize("kind", arrivals.ARRIVALS)
def test_a_seed_reproduces(kind):
    assert np.array_equal(drawn(kind), drawn(kind))
    assert not np.array_equal(drawn(kind), drawn(kind, seed=2))


def test_poisson_counts_have_the_variance_of_their_mean():
    counts = np.bincount(drawn("poisson").astype(int))[:-1]
    assert counts.var() == pytest.approx(counts.mean(), rel=0.06)


def test_bursty_counts_vary_as_the_rate_does():
    """Variance of the counts of short windows: that of Poisson, and that of the two rates."""
    width = BURST_S / 20
    counts = np.bincount((drawn("bursty") / width).astype(int))[:-1]
    calm = (1.0 - BURST_FACTOR * BURST_SHARE) / (1.0 - BURST_SHARE)
    mean = 50.0 * width
    of_rates = mean**2 * (BURST_SHARE * (BURST_FACTOR - 1.0) ** 2 + (1.0 - BURST_SHARE) * (calm - 1.0) ** 2)
    assert counts.var() == pytest.approx(mean + of_rates, rel=0.06)


def test_the_mean_of_the_two_rates_is_the_rate():
    calm = (1.0 - BURST_FACTOR * BURST_SHARE) / (1.0 - BURST_SHARE)
    assert 0.0 < calm < 1.0 < BURST_FACTOR
    assert BURST_SHARE * BURST_FACTOR + (1.0 - BURST_SHARE) * calm == pytest.approx(1.0)
