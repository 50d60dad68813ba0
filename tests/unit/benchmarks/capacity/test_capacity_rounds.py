"""Loads take turns with the calibration: what is measured, in which order, behind which balancer."""

from contextlib import contextmanager
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest

from benchmarks.capacity.measured import rounds
from benchmarks.capacity.measured.calibration import SPACED, Busy
from benchmarks.capacity.measured.replicas import Generator, Seen
from benchmarks.capacity.measured.rounds import _alternate, _parts
from benchmarks.capacity.measured.stand import CALIBRATED_LISTS, CALIBRATED_S, Part, Stand
from benchmarks.capacity.measured.traces import Trace

PARTS, CPU_S = 4, 0.002


class Played(Stand):
    """A stand without replicas: each of its loads is a line."""

    __slots__ = ()
    lines: ClassVar[list] = []
    balancer = None

    def _waiting(self, seconds):
        self.lines.append(("busy", self.balancer, seconds))
        at_s = np.arange(1, 500) * CPU_S
        asked_s = np.arange(0.0, 0.9, 0.1)
        trace = Trace(at_s, 0.5 * at_s, np.zeros(0), asked_s, asked_s)
        return Busy(Seen(np.ones(1), 0, 0, 0.0, 1.0, (), 0.0), [trace])

    def at(self, due):
        self.lines.append(("load", self.balancer, due))
        return Part(due, Seen(np.ones(1), 0, 0, 0.0, 1.0, (), 0.0), [], 0.0)


@pytest.fixture
def stand(monkeypatch):
    monkeypatch.setattr(Played, "lines", [])
    return Played(Generator.__new__(Generator), 0, [None, None], 4.0)


def alternated(stand, steps, parts=PARTS, number=0):
    @contextmanager
    def through(balancer):
        Played.balancer = balancer
        yield replace(stand)

    _alternate(stand, through, steps, number, parts)
    return stand.calibration


def planned(replicas):
    return [step for step in rounds.planned() if step.replicas == replicas]


@pytest.mark.parametrize("replicas", [1, 2])
def test_each_part_has_the_busy_loads_before_and_after(stand, replicas):
    steps = planned(replicas)
    calibration = alternated(stand, steps)
    assert len(calibration.busy) == len(steps) * PARTS + 1
    befores = [
        [next(place for place, one in enumerate(calibration.busy) if one.traces is run.near[0]) for run in step.runs]
        for step in steps
    ]
    assert befores == [[place + len(steps) * part for part in range(PARTS)] for place in range(len(steps))]
    assert all(
        run.near[1] is calibration.busy[at + 1].traces for run, at in zip(steps[0].runs, befores[0], strict=True)
    )


@pytest.mark.parametrize("replicas", [1, 2])
def test_each_distance_is_met_as_often_behind_the_usual_balancer_alone(stand, replicas):
    found = alternated(stand, planned(replicas)).spaced
    assert sorted(one.load for one in found) == sorted(SPACED * PARTS)
    spaced = [balancer for kind, balancer, due in Played.lines if kind == "load" and np.ptp(np.diff(due)) < 1e-9]
    assert len(spaced) == len(found)
    assert set(spaced) == {None if replicas == 1 else rounds.DEFAULT}


@pytest.mark.parametrize("kind", ["poisson", "bursty"])
def test_two_parts_in_a_row_have_the_same_arrivals(stand, kind):
    steps = [step for step in planned(2) if step.arrivals == kind or step.balancer != rounds.DEFAULT]
    alternated(stand, steps)
    first, second, third, fourth = (run.part.due for run in steps[0].runs)
    assert np.array_equal(first, second)
    assert np.array_equal(third, fourth)
    assert not np.array_equal(first[:5], third[:5])
    assert max(first[-1], third[-1]) < 4.0


def test_without_loads_all_distances_are_met(stand):
    calibration = alternated(stand, [None] * len(SPACED))
    assert sorted(one.load for one in calibration.spaced) == sorted(SPACED * PARTS)


def test_a_load_has_parts_of_about_four_seconds():
    assert _parts(24.0) == (6, 4.0)
    assert _parts(9.0) == (2, 4.5)
    assert _parts(1.0) == (1, 1.0)


def test_long_lists_are_calibrated_for_longer(stand, monkeypatch):
    stand.busy()
    assert [seconds for _, _, seconds in Played.lines] == [CALIBRATED_S] * 2
    assert len(stand.calibration.busy) == 1
    monkeypatch.setattr(type(stand.calibration), "cpu_s", lambda _: 0.05)
    stand.busy()
    assert Played.lines[-1][2] == pytest.approx(CALIBRATED_LISTS * 0.05)
