import math
from time import perf_counter

import pytest

from listwright.ranking.deadline import FRESH_S, NO_DEADLINE, REMEMBERED, Deadline, LatencyEstimator
from listwright.ranking.errors import AbandonedError


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def paced(*seconds, stage="first_stage", length=100, clock=None):
    pace = LatencyEstimator(clock or Clock())
    for value in seconds:
        pace.note(stage, length, value)
    return pace


def within(seconds):
    return Deadline(perf_counter() + seconds)


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        ((), 0.0),
        ((3.0,), 3.0),
        ((9.0, 2.0), 2.0),
        ((1.0, 4.0, 2.0), 2.0),
        ((1.0, 1.0, 1.0, 70.0), 1.0),
        ((1.0, 1.0, 70.0, 70.0), 70.0),
        ((70.0, 70.0, *[1.0] * (REMEMBERED - 1)), 1.0),
    ],
)
def test_the_second_slowest_of_the_last_is_expected(seconds, expected):
    assert paced(*seconds).expected("first_stage", 100) == expected


def test_stages_and_size_classes_are_apart():
    pace = paced(3.0, length=64)
    assert pace.expected("first_stage", 127) == 3.0
    assert pace.expected("first_stage", 63) == pace.expected("first_stage", 128) == 0.0
    assert pace.expected("routing", 100) == 0.0


def test_stages_that_follow_each_other_must_fit_together():
    pace = paced(30.0)
    pace.note("routing", 100, 30.0)
    assert pace.fits(within(40), 100, "first_stage")
    assert not pace.fits(within(40), 100, "first_stage", "routing")


def test_what_is_unknown_is_tried_unless_it_is_too_late_already():
    assert LatencyEstimator().fits(within(1), 100, "first_stage")
    assert not LatencyEstimator().fits(within(-1), 100, "first_stage")


def test_a_slow_stage_is_tried_again_by_whoever_has_time_for_its_quickest_run():
    clock = Clock()
    pace = paced(0.5, *[60.0] * 50, clock=clock)
    tries = [pace.fits(within(1), 100, "first_stage") for _ in range(3 * REMEMBERED)]
    assert not any(tries), "it was slow a moment ago"
    clock.now += FRESH_S
    assert not pace.fits(within(0.4), 100, "first_stage"), "it has never been that quick"
    assert pace.fits(within(1), 100, "first_stage")
    pace.note("first_stage", 100, 60.0)
    clock.now += FRESH_S
    tries = [pace.fits(within(1), 100, "first_stage") for _ in range(REMEMBERED + 1)]
    assert tries == [False] * REMEMBERED + [True]


def test_whoever_is_in_a_hurry_changes_nothing_for_others():
    clock = Clock()
    pace = paced(*[2.0] * REMEMBERED, clock=clock)
    for _ in range(1000):
        assert not pace.fits(within(1e-6), 100, "first_stage")
        clock.now += 10 * FRESH_S
    assert pace.expected("first_stage", 100) == 2.0
    assert not pace.fits(within(1.9), 100, "first_stage")


def test_without_a_deadline_everything_fits():
    pace = paced(math.inf)
    assert all(pace.fits(NO_DEADLINE, 100, "first_stage") for _ in range(3))
    assert pace.expected("first_stage", 100) == math.inf, "and nothing is forgotten"


def test_nothing_is_done_for_a_caller_that_has_gone():
    with pytest.raises(AbandonedError):
        LatencyEstimator().fits(Deadline(abandoned=lambda: True), 100, "first_stage")
