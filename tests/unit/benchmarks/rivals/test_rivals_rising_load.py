"""How the highest sustained load is found."""

import pytest

from benchmarks.load.k6 import Step
from benchmarks.rivals.rising_load import LOST, MOST_BEYOND, Observation, bisected, knee, rising_steps

LIMIT = 50.0


def observed(rate, p99, dropped=0):
    return Observation(Step(rate, 1.0, 10_000 - dropped, 0, dropped, 1.0, p99, p99, 0.1), 5.0, 0.0, 100.0)


def server(capacity):
    """Answers in 10 ms up to its capacity, in 500 above; what was asked stands in the list."""
    asked = []

    def measure(rate):
        asked.append(rate)
        return observed(rate, 10.0 if rate <= capacity else 500.0)

    return measure, asked


def test_sustained_keeps_to_the_limit_and_loses_next_to_nothing():
    assert observed(100, LIMIT).sustained(LIMIT)
    assert not observed(100, LIMIT + 0.1).sustained(LIMIT)
    assert observed(100, 10.0, dropped=int(LOST * 10_000)).sustained(LIMIT)
    assert not observed(100, 10.0, dropped=int(LOST * 10_000) + 1).sustained(LIMIT)
    assert not observed(100, None).sustained(LIMIT)


def test_the_knee_is_the_highest_load_with_every_lower_one():
    steps = [observed(30, 60.0), observed(10, 9.0), observed(20, 40.0), observed(40, 45.0)]
    assert knee(steps, LIMIT).offered == 20
    assert knee(steps, 5.0) is None
    assert knee([], LIMIT) is None


def test_steps_end_above_the_knee_and_halve_the_last_one():
    measure, asked = server(capacity=80)
    steps = rising_steps(measure, 100, LIMIT, shares=(0.4, 0.7, 0.9, 1.0), halvings=2)
    assert asked == pytest.approx([40, 70, 90, 90, 80, 85, 85])
    assert [step.offered for step in steps] == sorted(step.offered for step in steps)
    assert knee(steps, LIMIT).offered == 80


def test_the_load_rises_beyond_a_peak_that_was_no_peak_but_not_for_ever():
    measure, asked = server(capacity=130)
    assert knee(rising_steps(measure, 100, LIMIT, shares=(0.5, 1.0), halvings=0), LIMIT).offered == pytest.approx(120)
    measure, asked = server(capacity=1e9)
    rising_steps(measure, 100, LIMIT, shares=(0.5, 1.0), halvings=2)
    assert len(asked) == 2 + MOST_BEYOND


def test_a_pause_is_tried_once_more():
    answers = iter([observed(40, 900.0), observed(40, 10.0), observed(70, 900.0), observed(70, 900.0)])
    steps = rising_steps(lambda _: next(answers), 100, LIMIT, shares=(0.4, 0.7, 1.0), halvings=0)
    assert [(step.offered, step.step.p99_ms) for step in steps] == [(40, 10.0), (70, 900.0)]
    answers = iter([observed(55, 900.0), observed(55, 10.0)])
    steps = bisected(lambda _: next(answers), steps, LIMIT, halvings=1)
    assert knee(steps, LIMIT).offered == 55


def test_where_nothing_was_sustained_the_halvings_go_down():
    measure, asked = server(capacity=12)
    steps = rising_steps(measure, 100, LIMIT, shares=(0.4, 1.0), halvings=2)
    assert asked == pytest.approx([40, 40, 20, 20, 10])
    assert knee(steps, LIMIT).offered == pytest.approx(10)


def test_halvings_under_another_limit_keep_the_steps():
    measure, asked = server(capacity=70)
    steps = bisected(measure, [observed(40, 8.0), observed(80, 20.0)], 9.0, halvings=1)
    assert asked == [60, 60]
    assert [step.offered for step in steps] == [40, 60, 80]
