import math
from time import perf_counter

import pytest

from ranking.errors import AbandonedError
from ranking.pace import NO_DEADLINE, REMEMBERED, Deadline, Pace


def paced(*seconds, stage="first_stage", length=100):
    pace = Pace()
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
    assert Pace().fits(within(1), 100, "first_stage")
    assert not Pace().fits(within(-1), 100, "first_stage")


def test_a_slow_stage_is_tried_again_after_eight_refusals():
    pace = paced(*[60.0] * 50)
    answers = [pace.fits(within(1), 100, "first_stage") for _ in range(REMEMBERED + 1)]
    assert answers == [False] * REMEMBERED + [True]


def test_without_a_deadline_everything_fits():
    pace = paced(math.inf)
    assert all(pace.fits(NO_DEADLINE, 100, "first_stage") for _ in range(3))
    assert pace.expected("first_stage", 100) == math.inf, "and nothing is forgotten"


def test_nothing_is_done_for_a_caller_that_has_gone():
    with pytest.raises(AbandonedError):
        Pace().fits(Deadline(abandoned=lambda: True), 100, "first_stage")
