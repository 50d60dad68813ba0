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


@pytest.mark.parametrize("kind", arrivals.ARRIVALS)
def test_parts_of_a_load_have_its_rate_in_the_end(kind):
    each = [arrivals.part(kind, 200.0, 4.0 * number, 4.0, 1) for number in range(400)]
    assert sum(map(len, each)) / 1600.0 == pytest.approx(200.0, rel=0.03)
    assert all((np.diff(due) >= 0).all() and due[0] >= 0 and due[-1] < 4.0 for due in each)
    assert not np.allclose(each[0][:5], each[1][:5])


def test_a_part_is_the_same_at_another_rate_but_faster():
    slow, fast = arrivals.part("poisson", 100.0, 8.0, 4.0, 1), arrivals.part("poisson", 125.0, 8.0, 4.0, 1)
    assert fast[: len(slow)] == pytest.approx(slow / 1.25)


def test_bursts_of_parts_are_at_the_same_times_at_any_rate():
    counts = [
        np.array([len(arrivals.part("bursty", rate, 1.0 * second, 1.0, 1)) for second in range(120)]) / rate
        for rate in (500.0, 2000.0)
    ]
    assert np.corrcoef(*counts)[0, 1] > 0.95
    assert counts[1].max() == pytest.approx(BURST_FACTOR, rel=0.1)
