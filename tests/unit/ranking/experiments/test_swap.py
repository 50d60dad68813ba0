"""The random swap of neighbours: its shape, its frequencies, its propensity."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from listwright.ranking.experiments import adjacent_swap


@given(st.permutations(range(8)), st.integers(2, 12), st.text(max_size=10))
def test_one_pair_of_neighbours_changes_places_and_nothing_else(order, k, query_id):
    found = adjacent_swap(order, k=k, share=1.0, query_id=query_id, salt="s")
    upper, lower = found.places
    assert lower == upper + 1 < min(k, 8)
    assert (found.order[upper], found.order[lower]) == (order[lower], order[upper])
    assert [c for place, c in enumerate(found.order) if place not in found.places] == [
        c for place, c in enumerate(order) if place not in found.places
    ]
    assert found.propensity == 1.0 / (min(k, 8) - 1)
    assert adjacent_swap(order, k=k, share=1.0, query_id=query_id, salt="s") == found


@pytest.mark.parametrize("length", [0, 1])
def test_a_list_without_neighbours_is_never_swapped(length):
    assert adjacent_swap(range(length), k=5, share=1.0, query_id="q", salt="s") is None


def test_each_pair_comes_as_often_as_its_propensity_says():
    found = [adjacent_swap(range(9), k=5, share=0.4, query_id=f"q{n}", salt="s") for n in range(10_000)]
    counts = Counter(swap.places for swap in found if swap is not None)
    assert sorted(counts) == [(0, 1), (1, 2), (2, 3), (3, 4)]
    assert {swap.propensity for swap in found if swap is not None} == {0.1}
    for count in counts.values():
        assert binomtest(count, len(found), 0.1).pvalue > 0.001
