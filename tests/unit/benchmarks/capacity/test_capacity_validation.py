"""The comparison of simulation and measurement: it finds what is equal, and what is not."""

import os
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.capacity.measured import rounds
from benchmarks.capacity.measured.costs import TRIES, NotAnsweredError, callers
from benchmarks.capacity.measured.replicas import Generator, Seen
from benchmarks.capacity.measured.rounds import Comparison, Rounds
from benchmarks.capacity.measured.stand import Others, Part, Run
from benchmarks.capacity.measured.traces import Trace
from benchmarks.capacity.service_times import ServiceTimes, stretched
from benchmarks.capacity.simulated import arrivals
from benchmarks.capacity.simulated.balancers import BALANCERS
from benchmarks.capacity.simulated.simulation import simulate
from benchmarks.capacity.simulated.worker import Stretches, Waking, steady
from benchmarks.capacity.validation import WAYS, compared, report

TIMES = ServiceTimes(
    cpu_s=0.004,
    spread=np.linspace(0.85, 1.15, 40),
    slowness=Stretches((0.0,), (1.0,), 1.0),
    waking=Waking(),
    around_s=0.0005,
    intake_s=0.0005,
    refusal_s=0.0003,
)
OTHERS = Others(haproxy_s=0.0002, generator_s=0.0003, replica_s=TIMES.cpu_s)
NOTHING = Others(0.0, 0.0, 1.0)
LISTS = 20_000


def played(step, *, slower=1.0, count=LISTS, times=TIMES, slowness=steady, then=None, number=0):
    """A run of the simulation in the place of real replicas, whose machine is slow at times.

    ``then`` is the slowness just before and just after; the same, unless it is given.
    """
    others_s = 0.0 if step.replicas == 1 else OTHERS.both_s
    rate = step.load * step.replicas / (times.cpu_s + others_s)
    due = arrivals.draw(step.arrivals, rate, count, np.random.default_rng(1))
    shared = len(due) / due[-1] / step.replicas * others_s
    now = times.scaled(stretched(shared))
    ranking_s = now.draw(len(due), np.random.default_rng(2))
    outcome = simulate(
        due,
        ranking_s,
        now.worker(),
        replicas=step.replicas,
        balancer=step.balancer or "random",
        slowness=[slowness] * step.replicas,
    )
    took = (outcome.seconds[outcome.answered] + times.around_s) * slower
    part = Part(
        due,
        Seen(took, int((~outcome.answered).sum()), 0, 0.0, float(due[-1]), (0.0,), 0.0),
        [
            traced(due, ranking_s / stretched(shared), times, outcome, slowness, slice(place, None, step.replicas))
            for place in range(step.replicas)
        ],
        shared,
    )
    return Run(number, part, [[busy(times, then or slowness)] * step.replicas] * 2)


def busy(times, slowness, seconds=20.0):
    """The trace of a replica that never sleeps."""
    drawn_s = times.intake_s + times.draw(int(seconds / times.cpu_s), np.random.default_rng(4))
    at_s, took_s, now = [], [], 0.0
    for each in drawn_s.tolist():
        took_s.append(each * slowness(now))
        now += took_s[-1]
        at_s.append(now)
    asked_s = np.arange(0.05, now, 0.1)
    summed_s = np.concatenate([[0.0], np.cumsum(took_s)])
    ran_s = summed_s[np.searchsorted(at_s, asked_s)]
    return Trace(np.array(at_s), 0.6 * np.array(took_s), np.zeros(0), asked_s, ran_s)


def traced(due, ranking_s, times, outcome, slowness, lists):
    """The trace of one replica, as if it had these lists: of two, each has every second one."""
    at_s, answered = (due + outcome.seconds)[lists], outcome.answered[lists]
    slow = np.array([slowness(at) for at in at_s])
    costs_s = np.where(answered, times.intake_s + ranking_s[lists], times.refusal_s) * slow
    order = np.argsort(at_s)
    asked_s = np.arange(0.05, at_s.max(), 0.1)
    summed_s = np.concatenate([[0.0], np.cumsum(costs_s[order])])
    first = order[answered[order]]
    return Trace(
        at_s[first],
        0.6 * (ranking_s[lists] * slow)[first],
        np.sort(at_s[~answered]),
        asked_s,
        summed_s[np.searchsorted(at_s[order], asked_s)],
    )


def beside(step, times=TIMES, rounds_=1):
    return compared(step, [times] * rounds_, [NOTHING if step.replicas == 1 else OTHERS] * rounds_)


def errors(step, times=TIMES, name="p99_ms_error"):
    row = beside(step, times)
    return [row[way][name] for way in WAYS]


@pytest.mark.parametrize("step", rounds.planned(), ids=str)
def test_a_simulated_machine_is_predicted(step):
    step.runs.append(played(step))
    row = beside(step)
    for way in WAYS:
        assert abs(row[way]["p99_ms_error"]) < 0.1
        assert abs(row[way]["answered_rps_error"]) < 0.01
        assert row["measured"]["refused"] == pytest.approx(row[way]["refused"], abs=0.01)


def test_answers_that_come_later_than_replicas_work_are_not():
    step = Comparison(1, None, "poisson", 0.7)
    step.runs.append(played(step, slower=1.5))
    assert errors(step) == pytest.approx([1 / 1.5 - 1] * 2, abs=0.04)


def halting(now):
    """Half a second of every two is twice as slow."""
    return 2.0 if now % 2.0 < 0.5 else 1.0


@pytest.mark.parametrize(
    "step", [Comparison(1, None, "poisson", 0.7), Comparison(2, "random", "poisson", 0.7)], ids=["one", "two"]
)
def test_a_machine_that_is_slow_at_times_is_predicted_where_it_was_so_before(step):
    step.runs.append(played(step, slowness=halting, count=4_000))
    assert max(map(abs, errors(step))) < 0.1
    step.runs = [played(step, slowness=halting, then=steady, count=4_000)]
    predicted, trace_driven = errors(step)
    assert predicted < -0.5
    assert abs(trace_driven) < 0.1


def test_a_machine_that_is_slower_than_before_and_after_is_told_by_its_trace_alone():
    step = Comparison(1, None, "poisson", 0.7)
    step.runs.append(played(step, slowness=lambda _: 1.2, then=steady))
    predicted, trace_driven = errors(step)
    assert predicted < -0.3
    assert abs(trace_driven) < 0.1


@pytest.mark.parametrize("load", [0.5, 0.7])
def test_lists_that_differ_much_are_told_by_their_trace(load):
    """A long list is not met more often than it arrives. The coefficient of variation is 0.8."""
    step = Comparison(2, "round robin", "poisson", load)
    took_s = np.random.default_rng(3).lognormal(0.0, 0.7, 4_000)
    step.runs.append(played(step, times=replace(TIMES, spread=took_s / took_s.mean())))
    assert abs(errors(step)[1]) < 0.15


def test_all_parts_count_together_and_those_of_each_round():
    step = Comparison(1, None, "poisson", 0.5)
    step.runs += [
        played(step, slower=slower, count=4_000, number=number) for number, slower in enumerate((1.0, 0.8, 2.0))
    ]
    row = beside(step, rounds_=3)
    told = [one["p99_ms_error"] for one in row["trace_driven_rounds"]]
    assert told == pytest.approx([0.0, 1 / 0.8 - 1, 1 / 2.0 - 1], abs=0.1)
    both = np.concatenate([run.part.seen.seconds for run in step.runs])
    assert row["measured"]["p99_ms"] == pytest.approx(1e3 * np.percentile(both, 99), abs=1e-3)
    assert row["lists"] == 12_000


def test_each_round_is_predicted_by_its_own_times():
    late = replace(TIMES, around_s=0.05)
    step = Comparison(1, None, "poisson", 0.5)
    step.runs += [played(step, count=4_000), played(step, times=late, count=4_000, number=1)]
    for times, right in (([TIMES, late], True), ([late, TIMES], False)):
        rounds_ = compared(step, times, [NOTHING] * 2)["predicted_rounds"]
        assert all((abs(one["p99_ms_error"]) < 0.1) is right for one in rounds_)


def test_what_others_take_is_the_mean_of_all_rounds():
    found = Rounds(others=[OTHERS, replace(OTHERS, generator_s=0.0005)]).pooled_others()
    assert (found.haproxy_s, found.generator_s) == pytest.approx((0.0002, 0.0004))


def test_a_measurement_is_compared_with_its_own_other_half():
    step = Comparison(1, None, "poisson", 0.5)
    step.runs += [played(step, slower=slower, count=4_000) for slower in (1.0, 1.5, 1.0, 1.5)]
    assert beside(step)["repeated"]["p99_ms_error"] == pytest.approx(0.5, abs=0.01)


def test_a_machine_that_became_slower_before_a_run_is_predicted():
    step = Comparison(1, None, "poisson", 0.7)
    step.runs.append(played(step, times=TIMES.scaled(1.2)))
    assert abs(errors(step)[0]) < 0.1


def reported(slower):
    found = Rounds(alone=[TIMES], behind=[TIMES], others=[OTHERS], speeds=[1.0], comparisons=rounds.planned())
    for step in found.comparisons:
        step.runs += [played(step, slower=slower if step.replicas == 2 else 1.0, count=2_000) for _ in range(2)]
    return {(one["figure"], one["way"]): one for one in report(found)["verdicts"]}


def test_the_report_says_how_many_loads_are_right():
    right, wrong = reported(1.0), reported(1.3)
    assert {one["loads_within"] / one["loads"] for one in right.values()} == {1.0}
    assert {way for _, way in right} == {"repeated", *WAYS}
    one_replica = sum(step.replicas == 1 for step in rounds.planned())
    for way in WAYS:
        assert wrong["p99", way]["loads_within"] == wrong["p99", way]["rounds_within"] == one_replica
        assert wrong["p99", way]["worst"] == pytest.approx(1 / 1.3 - 1, abs=0.1)


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


GOOD = Seen(np.array([0.1]), 0, 0, 0.0, 1.0, (), 0.0)


def test_what_a_pause_of_the_machine_spoilt_is_measured_again():
    assert callers(Paused(TRIES - 1), 0, 12, 1.0, []) is GOOD
    paused = Paused(TRIES)
    with pytest.raises(NotAnsweredError, match="of 4 lists, 1 were refused and 2 failed, in each of 3 tries"):
        callers(paused, 0, 12, 1.0, [])
    assert paused.runs == TRIES
