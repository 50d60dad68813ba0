"""The estimator finds what exact rates say, whatever pairs there are."""

from itertools import combinations

import numpy as np
import pytest

from listwright.training.traffic.propensity import all_pairs

TRUTH = np.array([1.0, 0.6, 0.45, 0.3, 0.05])


def exact(pairs, relevances, n):
    pairs = np.array(pairs)
    clicks = TRUTH[pairs] * np.array(relevances)[:, None]
    n = np.broadcast_to(np.asarray(n, dtype=float), len(pairs))
    return pairs, np.concatenate([n[:, None], n[:, None] * clicks], axis=1)


@pytest.mark.parametrize(
    "pairs",
    [
        [(k, k + 1) for k in range(4)],
        [(0, k) for k in range(1, 5)],
        list(combinations(range(5), 2)),
    ],
    ids=["neighbours", "with the first", "all"],
)
def test_exact_rates_give_the_truth(pairs):
    rng = np.random.default_rng(0)
    found = all_pairs(*exact(pairs, rng.uniform(0.02, 0.8, len(pairs)), rng.uniform(10, 1e6, len(pairs))), 5)
    assert found == pytest.approx(TRUTH, rel=2e-3)


def test_pairs_count_by_their_displays():
    """Two pairs that contradict each other: the answer lies by the one with more displays."""
    pairs = np.array([[0, 1], [0, 1]])
    evidence = np.array([[1e5, 5e4, 2.5e4], [1e3, 500.0, 500.0]])
    assert all_pairs(pairs, evidence, 2)[1] == pytest.approx(0.5, abs=0.02)
    assert all_pairs(pairs, evidence[::-1].copy(), 2)[1] == pytest.approx(0.5, abs=0.02)


def test_a_place_may_be_looked_at_more_than_the_first():
    assert all_pairs(np.array([[0, 1]]), np.array([[1000.0, 100.0, 200.0]]), 2) == pytest.approx([1.0, 2.0], rel=1e-3)
