"""Times of a list from short loads: each spaced one is compared with the busy ones beside it."""

import numpy as np
import pytest

from benchmarks.capacity.measured.calibration import LIGHT, SPACED, Busy, Calibration, Spaced, waited_beyond_s
from benchmarks.capacity.measured.replicas import Seen
from benchmarks.capacity.measured.traces import Trace

TOOK_S, WAITED_S = 0.002, 0.0005
MORE = dict(zip(SPACED, (0.0, 0.1, 0.2, 0.3, 0.4), strict=True))


def seen(*seconds):
    return Seen(np.array(seconds), 0, 0, 0.0, 1.0, (), 0.0)


def even(took_s, distance_s):
    """Lists at equal distances, for a second."""
    at_s = np.arange(distance_s, 1.0, distance_s)
    asked_s = np.arange(0.0, 1.0, 0.1)
    return Trace(at_s, 0.5 * np.full(len(at_s), took_s), np.zeros(0), asked_s, took_s * np.searchsorted(at_s, asked_s))


def calibrated(slow):
    """On a machine that is as slow as these, one after the other; the loads take turns."""
    found = Calibration()
    for number, now in enumerate(slow):
        found.busy.append(Busy(seen(0.02), [even(TOOK_S * now, TOOK_S * now)]))
        load = SPACED[number % len(SPACED)]
        took_s, distance_s = TOOK_S * now * (1 + MORE[load]), TOOK_S / load
        found.spaced.append(Spaced(load, distance_s, seen(took_s + WAITED_S * now), [even(took_s, distance_s)], number))
    found.busy.append(found.busy[-1])
    return found


def test_what_lists_take_after_sleeps_is_more_than_those_that_never_sleep_take():
    times = calibrated([1.0] * 20).times(0.15, 0.1)
    assert times.cpu_s == pytest.approx(TOOK_S)
    assert times.waking.more_s == pytest.approx([TOOK_S * more for more in MORE.values()], rel=0.01, abs=1e-6)
    assert times.waking.slept_s == pytest.approx(
        [max(0.0, TOOK_S / load - TOOK_S * (1 + more)) for load, more in MORE.items()], rel=0.02, abs=1e-6
    )
    assert times.around_s == pytest.approx(WAITED_S)
    assert (times.intake_s, times.refusal_s) == pytest.approx((0.15 * TOOK_S, 0.1 * TOOK_S))
    assert times.spread == pytest.approx(1.0)
    assert set(np.round(times.slowness.ratios, 6)) == {1.0}


def test_a_machine_that_becomes_slower_does_not_seem_to_wake_slowly():
    steady = calibrated([1.0] * 40).times(0.15, 0.1)
    drifting = calibrated(np.linspace(0.8, 1.2, 40)).times(0.15, 0.1)
    assert drifting.waking.more_s == pytest.approx(steady.waking.more_s, abs=0.03 * TOOK_S)
    assert drifting.around_s == pytest.approx(steady.around_s, rel=0.05)
    assert drifting.slowness(0.1) == pytest.approx(0.8 * TOOK_S / drifting.cpu_s, rel=0.01)
    assert drifting.slowness(drifting.slowness.span_s - 0.1) == pytest.approx(1.2 * TOOK_S / drifting.cpu_s, rel=0.01)


def test_no_list_takes_less_than_nothing():
    """Even where the intake seems to be more than a list."""
    times = calibrated([1.0, 1.5] * 10).times(1.2, 0.1)
    drawn_s = times.draw(10_000, np.random.default_rng(0))
    assert (drawn_s > 0.0).all()
    assert drawn_s.mean() + times.intake_s == pytest.approx(times.cpu_s, rel=0.01)


def test_near_are_the_busy_loads_before_and_after():
    found = calibrated([1.0, 1.1, 1.2])
    assert found.near(1) == [found.busy[1].traces, found.busy[2].traces]


def test_what_a_caller_waits_beyond_is_the_rest_of_the_median():
    load = seen(0.003, 0.004, 0.009), [even(0.001, 0.005), even(0.001, 0.01)]
    assert waited_beyond_s(*load) == pytest.approx(0.003)
    assert LIGHT in SPACED
