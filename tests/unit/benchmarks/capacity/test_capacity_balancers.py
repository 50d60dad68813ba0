"""Who gets the next list."""

from collections import Counter

import numpy as np
import pytest

from benchmarks.capacity.simulated.balancers import BALANCERS, HAPROXY, chooser


def chosen(balancer, open_lists, count=8_000, seed=1):
    choose = chooser(balancer, np.array(open_lists), seed)
    return Counter(choose() for _ in range(count))


def test_random_does_not_look():
    found = chosen("random", [9, 0, 9, 0])
    assert all(number == pytest.approx(2_000, rel=0.1) for number in found.values())
    assert set(found) == {0, 1, 2, 3}


def test_round_robin_takes_turns():
    choose = chooser("round robin", np.array([5, 0, 0]), 1)
    assert [choose() for _ in range(7)] == [0, 1, 2, 0, 1, 2, 0]


def test_least_connections_takes_the_least_and_sees_changes():
    lists = np.array([2, 1, 1])
    choose = chooser("least connections", lists, 1)
    assert choose() == 1
    lists[1] += 1
    assert choose() == 2


def test_of_two_that_are_drawn_with_replacement_the_less_loaded():
    """The loaded one of two only where it is drawn twice: in a quarter of the draws."""
    found = chosen("power of two choices", [1, 0])
    assert found[0] / 8_000 == pytest.approx(0.25, rel=0.1)


def test_each_has_a_name_in_haproxy():
    assert set(HAPROXY) == set(BALANCERS)
