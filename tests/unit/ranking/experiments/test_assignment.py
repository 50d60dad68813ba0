"""Draws by hash: uniform, independent, the same everywhere; shares add up."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, chi2_contingency, kstest

from listwright.ranking.experiments import arm_of, bounds, fraction, place_of

KEYS = [f"unit-{number}" for number in range(10_000)]


def test_fractions_are_uniform():
    assert kstest([fraction(key, "salt", "arm") for key in KEYS], "uniform").pvalue > 0.001


@given(st.text(max_size=20), st.text(max_size=20), st.sampled_from(["traffic", "arm", "swap", "pair"]))
def test_a_fraction_is_one(key, salt, purpose):
    found = fraction(key, salt, purpose)
    assert 0.0 <= found < 1.0
    assert fraction(key, salt, purpose) == found


@pytest.mark.parametrize(
    ("one", "other"),
    [(("s", "arm"), ("s", "traffic")), (("s", "arm"), ("t", "arm")), (("s", "swap"), ("s", "pair"))],
)
def test_draws_with_other_salts_and_for_other_purposes_are_independent(one, other):
    table = np.zeros((2, 2))
    for key in KEYS:
        table[int(fraction(key, *one) < 0.5), int(fraction(key, *other) < 0.5)] += 1
    assert chi2_contingency(table).pvalue > 0.001


def test_salt_and_key_are_kept_apart():
    found = {fraction(key, salt, "arm") for key, salt in [("ab", "c"), ("b", "ca"), ("abc", ""), ("", "cab")]}
    assert len(found) == 4


def test_another_process_draws_the_same():
    code = (
        "from listwright.ranking.experiments import fraction;"
        "print(fraction('u\\u00fc', 'salt', 'traffic'), fraction('u\\u00fc', 'salt', 'pair'))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert said == [str(fraction("uü", "salt", purpose)) for purpose in ("traffic", "pair")]


@given(st.integers(1, 32))
def test_shares_that_add_up_to_one_leave_nobody_out(count):
    shares = [1.0 / count] * count
    assert bounds(shares)[-1] == pytest.approx(1.0, abs=1e-15)
    assert bounds([0.1] * 10)[-1] == 1.0
    assert all(place_of(key, "s", shares) is not None for key in KEYS[:50])


def test_each_share_gets_its_part():
    shares = [0.2, 0.5, 0.1]
    places = [place_of(key, "s", shares) for key in KEYS]
    for place, share in enumerate(shares):
        assert binomtest(places.count(place), len(KEYS), share).pvalue > 0.001
    assert binomtest(places.count(None), len(KEYS), 0.2).pvalue > 0.001


def test_a_share_behind_the_others_moves_nobody_between_them():
    before, after = [0.2, 0.3], [0.2, 0.3, 0.5]
    for key in KEYS[:500]:
        place = place_of(key, "s", before)
        assert place_of(key, "s", after) == (2 if place is None else place)


def test_arms_have_their_shares_and_a_larger_one_takes_nobody_back():
    small = [arm_of(key, "s", 0.3) for key in KEYS]
    large = [arm_of(key, "s", 0.6) for key in KEYS]
    assert binomtest(small.count("challenger"), len(KEYS), 0.3).pvalue > 0.001
    assert binomtest(large.count("challenger"), len(KEYS), 0.6).pvalue > 0.001
    assert not any(one == "challenger" and other == "control" for one, other in zip(small, large, strict=True))
