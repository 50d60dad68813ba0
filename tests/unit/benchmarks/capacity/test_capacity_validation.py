"""The comparison of simulation and measurement: it finds what is equal, and what is not."""

import os
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.capacity import arrivals, rounds
from benchmarks.capacity.balancers import BALANCERS
from benchmarks.capacity.measure import TRIES, Footprint, NotAnsweredError, ServiceTimes, callers
from benchmarks.capacity.replicas import Generator, Seen
from benchmarks.capacity.rounds import Beside, Comparison, Rounds, Run
from benchmarks.capacity.simulation import Waking, simulate
from benchmarks.capacity.validation import compared, report

TIMES = ServiceTimes(
    cpu_s=0.004,
    took_s=np.linspace(0.0035, 0.0055, 40),
    waking=Waking((0.002, 0.008), (0.0002, 0.0005)),
    woken_s=0.005,
    intake_s=0.0005,
    refusal_s=0.0003,
)
BESIDE = Beside(replica_s=TIMES.cpu_s, haproxy_s=0.0002, generator_s=0.0003, took_s=0.0055)


def played(step, *, slower=1.0, count=20_000, times=TIMES):
    """A run of the simulation in the place of real replicas."""
    beside = None if step.balancer is None else BESIDE
    beside_s = 0.0 if beside is None else beside.cpu_s
    rate = step.load * step.replicas / (times.cpu_s + beside_s)
    due = arrivals.draw(step.arrivals, rate, count, np.random.default_rng(1))
    ranking_s = times.draw(len(due), np.random.default_rng(2))
    outcome = simulate(
        due, ranking_s, times.worker(beside_s=beside_s), replicas=step.replicas, balancer=step.balancer or "random"
    )
    around_s = times.around_s if beside is None else BESIDE.took_s - times.typical_s - beside_s
    took = (outcome.seconds[outcome.answered] + around_s) * slower
    refused = int((~outcome.answered).sum())
    return Run(due, Seen(took, refused, 0, float(due[-1]), (0.0,), 0.0), times.cpu_s)


@pytest.mark.parametrize("step", rounds.planned(), ids=str)
def test_a_simulated_machine_is_predicted(step):
    step.runs.append(played(step))
    row = compared(step, [TIMES], None if step.balancer is None else [BESIDE])
    assert abs(row["p99_ms_error"]) < 0.1
    assert abs(row["answered_rps_error"]) < 0.01
    assert row["measured"]["refused"] == pytest.approx(row["simulated"]["refused"], abs=0.01)


def test_a_slower_machine_is_not():
    step = Comparison(1, None, "poisson", 0.7)
    step.runs.append(played(step, slower=1.5))
    assert compared(step, [TIMES], None)["p99_ms_error"] == pytest.approx(1 / 1.5 - 1, abs=0.04)


def test_each_round_is_predicted_by_its_own_times():
    half = replace(TIMES, cpu_s=0.008, took_s=2 * TIMES.took_s, woken_s=0.01)
    step = Comparison(1, None, "poisson", 0.7)
    step.runs += [played(step, times=half), played(step, times=half), played(step)]
    times = [half, half, TIMES]
    row = compared(step, times, None)
    assert abs(row["p99_ms_error"]) < 0.1
    step.runs = [replace(run, cpu_s=TIMES.cpu_s) for run in step.runs]
    assert abs(compared(step, [TIMES, TIMES, TIMES], None)["p99_ms_error"]) > 0.3


def test_a_machine_that_became_slower_before_a_run_is_predicted():
    step = Comparison(1, None, "poisson", 0.7)
    step.runs.append(played(step, times=replace(TIMES, cpu_s=1.2 * TIMES.cpu_s, woken_s=1.2 * TIMES.woken_s)))
    assert abs(compared(step, [TIMES], None)["p99_ms_error"]) < 0.1


def reported(slower):
    footprint = Footprint(1, 1, 1.0, 1, 1, 1.0, 1.0)
    found = Rounds([TIMES], [BESIDE], [1.0], True, rounds.planned(), footprint)
    for step in found.comparisons:
        step.runs.append(played(step, slower=slower if step.replicas == 2 else 1.0, count=4_000))
    return report(found)


def test_the_report_says_what_holds():
    assert reported(1.0)["holds"] == {"throughput at saturation": True, "p99": True}
    wrong = reported(1.3)
    assert wrong["holds"] == {"throughput at saturation": True, "p99": False}
    assert wrong["worst"]["p99"] == pytest.approx(1 / 1.3 - 1, abs=0.05)


def test_rounds_are_pooled():
    other = replace(TIMES, cpu_s=0.006, took_s=np.array([0.007]))
    pooled = Rounds([TIMES, other], [BESIDE, replace(BESIDE, generator_s=0.0005)]).pooled()
    assert pooled.cpu_s == pytest.approx(0.005)
    assert len(pooled.took_s) == 41
    assert Rounds([], [BESIDE, replace(BESIDE, generator_s=0.0005)]).pooled_beside().generator_s == pytest.approx(
        0.0004
    )


def test_the_plan_has_every_balancer_and_both_numbers_of_replicas():
    steps = rounds.planned()
    assert {step.balancer for step in steps} == {None, *BALANCERS}
    assert {step.replicas for step in steps} == {1, 2}
    for count in (1, 2):
        assert sum(step.load < 1.0 and step.arrivals == "poisson" for step in steps if step.replicas == count) >= 3


def test_others_share_the_replicas_cores_only_where_there_are_no_more(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    assert rounds.cores().replicas == (0, 1)
    assert rounds.cores().shared
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 4, 5}, raising=False)
    assert rounds.cores().others == {4, 5}
    assert not rounds.cores().shared


class Paused(Generator):
    """A generator on a machine that pauses in its first runs."""

    def __init__(self, pauses):
        self.pauses, self.runs = pauses, 0

    def callers(self, *_):
        self.runs += 1
        paused = self.runs <= self.pauses
        return replace(GOOD, refused=1, other=2) if paused else GOOD


GOOD = Seen(np.array([0.1]), 0, 0, 1.0, (), 0.0)


def test_what_a_pause_of_the_machine_spoilt_is_measured_again():
    assert callers(Paused(TRIES - 1), 0, 12, 1.0, []) is GOOD
    paused = Paused(TRIES)
    with pytest.raises(NotAnsweredError, match="of 4 lists, 1 were refused and 2 failed, in each of 3 tries"):
        callers(paused, 0, 12, 1.0, [])
    assert paused.runs == TRIES
