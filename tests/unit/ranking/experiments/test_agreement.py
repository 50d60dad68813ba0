"""Agreement of two orders, against SciPy and against the definition."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kendalltau

from listwright.ranking.experiments import PERSISTENCE, agreement
from listwright.ranking.order import ranks_of

TWO = st.integers(2, 12).flatmap(lambda length: st.tuples(*[st.permutations(range(length))] * 2))


def overlap_by_definition(one, other):
    depths = range(1, len(one) + 1)
    shares = [len(set(one[:d]) & set(other[:d])) / d for d in depths]
    seen = sum(share * PERSISTENCE ** (d - 1) for share, d in zip(shares, depths, strict=True)) * (1 - PERSISTENCE)
    return seen + shares[-1] * PERSISTENCE ** len(one)


@given(TWO)
def test_small_lists(orders):
    one, other = map(np.array, orders)
    found = agreement(one, other)
    assert found.kendall_tau == pytest.approx(kendalltau(ranks_of(one), ranks_of(other)).statistic)
    assert found.rbo == pytest.approx(overlap_by_definition(*map(list, orders)))
    assert found.top_1 == (one[0] == other[0])
    assert agreement(other, one) == pytest.approx(found)


@pytest.mark.parametrize("length", [64, 65, 130, 1000])
def test_long_lists(length):
    one, other = (np.random.default_rng(seed).permutation(length) for seed in (1, 2))
    assert agreement(one, other).kendall_tau == pytest.approx(kendalltau(ranks_of(one), ranks_of(other)).statistic)
    assert agreement(one, one) == pytest.approx((1.0, 1.0, 1.0))
    assert agreement(one, one[::-1]).kendall_tau == pytest.approx(-1.0)


@pytest.mark.parametrize("length", [0, 1])
def test_lists_without_pairs_agree(length):
    assert agreement(np.arange(length), np.arange(length)) == (1.0, 1.0, 1.0)


def test_orders_of_other_candidates_are_refused():
    with pytest.raises(ValueError, match="each once"):
        agreement(np.array([0, 1]), np.array([0, 2]))
    with pytest.raises(ValueError, match="2 and 3"):
        agreement(np.array([0, 1]), np.array([0, 1, 2]))
