"""How idle the thread that answers is: from when requests came and were answered."""

import pytest

from listwright.service.served_log.idle import IdleShare
from support.served import taken


def noted(*times):
    """After requests of these seconds of their coming and of their answer."""
    idle = IdleShare()
    for came, answered in times:
        idle.note(taken(at=answered, milliseconds={"total": 1000.0 * (answered - came)}))
    return idle.share


def test_time_between_an_answer_and_the_next_request_is_idle():
    assert noted() == noted((0.0, 1.0)) == 1.0
    assert noted((0.0, 1.0), (4.0, 5.0)) == pytest.approx(0.75)


def test_a_request_that_waited_for_another_one_leaves_no_idle_time():
    assert noted((0.0, 1.0), (0.5, 2.0), (0.7, 3.0)) == 0.0


def test_the_last_hundred_requests_decide():
    idle = [(float(number), number + 0.5) for number in range(1000)]
    busy = [(999.9 + number, 1001.0 + number) for number in range(200)]
    assert noted(*idle) == pytest.approx(0.5)
    assert noted(*idle, *busy[:10]) > 0.2
    assert noted(*idle, *busy) < 0.02


def test_a_clock_that_is_set_back_is_no_time():
    assert noted((10.0, 11.0), (4.0, 5.0)) == 1.0
    assert noted((10.0, 11.0), (4.0, 5.0), (6.0, 7.0)) == pytest.approx(0.5)
