"""When a call ends, and what the server is told of it."""

import math

import numpy as np
import pytest

from listwright_client.deadline import LONGEST_S, WAY_BACK_S, Deadline


def test_a_timeout_is_the_callers_own_business():
    deadline = Deadline.starting(100.0, 5.0, None, None)
    assert deadline.ends_at == 105.0
    assert deadline.timeout_ms(100.0) is None
    assert deadline.allows(104.999)
    assert not deadline.allows(105.0)


def test_a_deadline_is_told_less_the_way_back():
    deadline = Deadline.starting(100.0, 5.0, 101.0, None)
    assert deadline.ends_at == 101.0
    assert deadline.timeout_ms(100.0) == 1000 - WAY_BACK_S * 1000
    assert deadline.timeout_ms(100.9) == 100 - WAY_BACK_S * 1000
    assert not deadline.allows(101.0 - WAY_BACK_S)


def test_timeout_ms_is_told_as_it_is_and_does_not_end_the_wait():
    deadline = Deadline.starting(100.0, 5.0, None, 20.0)
    assert deadline.timeout_ms(100.0) == 20
    assert deadline.timeout_ms(100.0151) == 5
    assert deadline.timeout_ms(100.0199999) == 1
    assert not deadline.allows(100.02)
    assert deadline.remaining(100.02) == pytest.approx(4.98)


@pytest.mark.parametrize(("timeout", "deadline"), [(0.01, None), (5.0, 100.01)])
def test_of_two_limits_the_nearer_is_told(timeout, deadline):
    assert Deadline.starting(100.0, timeout, deadline, 500.0).timeout_ms(100.0) == 10 - WAY_BACK_S * 1000


def test_no_socket_gets_a_limit_of_nothing():
    deadline = Deadline.starting(100.0, 5.0, None, None)
    assert 0 < deadline.remaining(math.nextafter(105.0, 0.0)) < 1e-9
    for moment in (105.0, 200.0):
        with pytest.raises(TimeoutError):
            deadline.remaining(moment)


@pytest.mark.parametrize(("timeout", "deadline"), [(1e10, None), (1e300, None), (5.0, 1e12)])
def test_a_limit_that_no_clock_reaches_is_one_of_years(timeout, deadline):
    assert Deadline.starting(100.0, timeout, deadline, None).ends_at == 100.0 + LONGEST_S


def test_a_limit_may_be_any_number():
    assert type(Deadline.starting(100.0, np.float32(1), None, None).ends_at) is float


@pytest.mark.parametrize("value", [None, "1", 10**400])
def test_a_timeout_that_is_no_number_is_named(value):
    with pytest.raises(ValueError, match="timeout is"):
        Deadline.starting(0.0, value, None, None)


@pytest.mark.parametrize("value", [0, -1.0, math.nan, math.inf])
@pytest.mark.parametrize("name", ["timeout", "timeout_ms"])
def test_limits_are_positive_and_finite(name, value):
    limits = {"timeout": 1.0, "timeout_ms": None, name: value}
    with pytest.raises(ValueError, match=f"{name} is {value}"):
        Deadline.starting(0.0, limits["timeout"], None, limits["timeout_ms"])


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_deadline_is_a_moment(value):
    with pytest.raises(ValueError, match="give a moment of the client's clock"):
        Deadline.starting(0.0, 1.0, value, None)
