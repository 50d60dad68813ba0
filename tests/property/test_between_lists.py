"""What is true of every intraclass correlation, and one that was computed by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from listwright.training.pipeline.diagnosis import intraclass_correlation


@st.composite
def values_in_lists(draw):
    """Values, some missing, and their lists, which need not stand together."""
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 12, draw(st.integers(2, 20)))
    list_of = np.repeat(np.arange(len(lengths)), lengths)
    level = draw(st.sampled_from([0.0, 0.3, 3.0]))
    values = rng.normal(size=len(list_of)) + level * rng.normal(size=len(lengths))[list_of]
    values[rng.random(len(values)) < draw(st.sampled_from([0.0, 0.3]))] = np.nan
    order = rng.permutation(len(values))
    return values[order], list_of[order]


def test_by_hand():
    """Lists (1, 3), (4, 6, 8), (5): means 2, 6, 5, of all 4.5; k = 3, N = 6.

    MSB = (2 * 6.25 + 3 * 2.25 + 1 * 0.25) / 2 = 9.75, MSW = (2 + 8) / 3 = 10 / 3, n_0 = (6 - 14 / 6) / 2 = 11 / 6.
    """
    values = np.array([1.0, 3.0, 4.0, 6.0, np.nan, 8.0, 5.0])
    lists = np.array([0, 0, 1, 1, 1, 1, 2])
    expected = (9.75 - 10 / 3) / (9.75 + 5 / 6 * 10 / 3)
    assert intraclass_correlation(values, lists) == pytest.approx(expected, rel=1e-12)


@given(values_in_lists())
def test_it_is_a_share(case):
    found = intraclass_correlation(*case)
    assert found is None or 0.0 <= found <= 1.0


@given(values_in_lists(), st.floats(0.01, 1e6), st.booleans(), st.floats(-1e6, 1e6))
def test_it_has_no_unit(case, scale, turned, level):
    values, lists = case
    factor = -scale if turned else scale
    found, mapped = (
        intraclass_correlation(values, lists),
        intraclass_correlation(factor * values + level * scale, lists),
    )
    assert mapped == pytest.approx(found, abs=1e-6)


@given(values_in_lists(), st.randoms(use_true_random=False))
def test_names_of_lists_and_the_order_of_rows_do_not_matter(case, random):
    values, lists = case
    order = list(range(len(values)))
    random.shuffle(order)
    assert intraclass_correlation(values[order], 1000 - lists[order]) == pytest.approx(
        intraclass_correlation(values, lists), abs=1e-9
    )


@given(values_in_lists())
def test_constant_within_lists_is_one(case):
    _, lists = case
    level = np.random.default_rng(0).normal(size=100).astype(np.float32)[lists]
    found = intraclass_correlation(level, lists)
    assert found == pytest.approx(1.0, abs=1e-12) if len(lists) > len(np.unique(lists)) else found is None


def test_shuffled_lists_have_about_nothing_and_a_planted_level_its_share():
    rng = np.random.default_rng(0)
    lists = np.repeat(np.arange(2000), rng.integers(1, 20, 2000))
    values = rng.normal(size=len(lists)) + 2.0 * rng.normal(size=2000)[lists]
    assert intraclass_correlation(values, lists) == pytest.approx(0.8, abs=0.02), "4 / (4 + 1)"
    assert intraclass_correlation(rng.permutation(values), lists) < 0.01


@pytest.mark.parametrize(
    ("values", "lists"),
    [
        ([2.0, 2.0, 2.0, 2.0], [0, 0, 1, 1]),
        ([1.0, 2.0, 3.0], [0, 1, 2]),
        ([1.0, 2.0, 3.0], [0, 0, 0]),
        ([np.nan, np.nan, np.nan], [0, 0, 1]),
        ([1.0, np.nan, 3.0, np.nan], [0, 0, 1, 1]),
    ],
    ids=["one value", "lists of one", "one list", "no value", "one value per list"],
)
def test_what_has_no_share(values, lists):
    assert intraclass_correlation(np.array(values), np.array(lists)) is None


def test_huge_and_tiny_numbers():
    lists = np.repeat(np.arange(50), 4)
    values = np.random.default_rng(0).normal(size=200) + np.arange(50)[lists] / 10
    expected = intraclass_correlation(values, lists)
    for scale in (1e37, 1e-37):
        scaled = (values * scale).astype(np.float32)
        assert intraclass_correlation(scaled, lists) == pytest.approx(expected, abs=1e-6)
