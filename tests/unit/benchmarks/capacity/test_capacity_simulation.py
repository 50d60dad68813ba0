"""The simulation against closed formulas, and its gate against the service's own."""

import asyncio
import math

import numpy as np
import pytest

from benchmarks.capacity.simulated import arrivals
from benchmarks.capacity.simulated.simulation import _Line, simulate
from benchmarks.capacity.simulated.worker import Waking, Worker, steady
from listwright.service.admission.gate import Gate

LISTS = 150_000


def mean_wait(load, ranking_s, *, servers=1, worker=None, seed=1):
    """Of lists whose sample has the load exactly: the wait depends on it steeply."""
    due = arrivals.draw("poisson", load * servers, LISTS, np.random.default_rng(seed))
    due *= LISTS * ranking_s.mean() / (load * servers * due[-1])
    outcome = simulate(due, ranking_s, worker or Worker())
    assert outcome.answered.all()
    return float((outcome.seconds - ranking_s).mean())


def exponential(seed=2):
    return np.random.default_rng(seed).exponential(1.0, LISTS)


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_mean_wait_of_m_m_1(load):
    assert mean_wait(load, exponential()) == pytest.approx(load / (1.0 - load), rel=0.06)


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_mean_wait_of_m_d_1(load):
    assert mean_wait(load, np.ones(LISTS)) == pytest.approx(load / (2.0 * (1.0 - load)), rel=0.06)


@pytest.mark.parametrize(("servers", "load"), [(2, 0.7), (4, 0.8), (8, 0.8)])
def test_mean_wait_of_m_m_c(servers, load):
    """Erlang's C formula."""
    offered = servers * load
    busy = offered**servers / math.factorial(servers) / (1.0 - load)
    waits = busy / (sum(offered**k / math.factorial(k) for k in range(servers)) + busy)
    expected = waits / (servers - offered)
    found = mean_wait(load, exponential(), servers=servers, worker=Worker(threads=servers))
    assert found == pytest.approx(expected, rel=0.08)


def test_random_splits_a_poisson_stream_into_poisson_streams():
    due = arrivals.draw("poisson", 4 * 0.6, LISTS, np.random.default_rng(3))
    ranking_s = exponential()
    outcome = simulate(due, ranking_s, Worker(), replicas=4, balancer="random")
    assert (outcome.seconds - ranking_s).mean() == pytest.approx(0.6 / 0.4, rel=0.06)


def test_a_loop_reads_what_has_arrived_before_it_ranks_the_next():
    """By hand: the first is read at 0, ranked until 1.5; then the two that came meanwhile are read, and ranked."""
    due = np.array([0.0, 0.6, 0.7])
    outcome = simulate(due, np.ones(3), Worker(intake_s=0.5))
    assert due + outcome.seconds == pytest.approx([1.5, 1.5 + 2 * 0.5 + 1.0, 1.5 + 2 * 0.5 + 2.0])


def test_a_list_that_finds_the_loop_asleep_takes_longer():
    due = np.array([1.0, 1.5, 4.25, 20.0])
    outcome = simulate(due, np.ones(4), Worker(waking=Waking((2.0, 4.0), (0.5, 0.75))))
    assert due + outcome.seconds == pytest.approx([2.75, 3.75, 5.375, 21.75])


def test_a_slow_replica_takes_longer_for_all_that_its_loop_does():
    """By hand: from 6 on all takes twice as long."""
    due = np.array([1.0, 3.0, 10.0, 10.5, 10.6])
    worker = Worker(intake_s=0.25, refusal_s=0.125, waking=Waking((2.0,), (0.5,)), places=0)
    outcome = simulate(due, np.ones(5), worker, slowness=[lambda now: 1.0 if now < 6.0 else 2.0])
    woke = 3.0 + 0.5 * (3.0 - 2.75) / 2.0
    assert due + outcome.seconds == pytest.approx([2.75, woke + 1.25, 13.5, 16.25, 14.25])
    assert outcome.answered.tolist() == [True, True, True, True, False]


def test_each_replica_has_its_own_slowness():
    due = np.array([0.0, 0.5, 10.0, 10.5])
    outcome = simulate(due, np.ones(4), Worker(), replicas=2, balancer="round robin", slowness=[steady, lambda _: 3.0])
    assert outcome.seconds == pytest.approx([1.0, 3.0, 1.0, 3.0])


def test_waking_is_scaled():
    assert Waking((2.0, 4.0), (0.5, 0.75)).scaled(2.0) == Waking((2.0, 4.0), (1.0, 1.5))


@pytest.mark.parametrize(("slept_s", "more_s"), [(0.0, 0.0), (1.0, 0.25), (2.0, 0.5), (3.0, 0.625), (9.0, 0.75)])
def test_waking_is_linear_between_its_points(slept_s, more_s):
    assert Waking((2.0, 4.0), (0.5, 0.75)).after(slept_s) == pytest.approx(more_s)
    assert Waking().after(slept_s) == 0.0


def test_threads_rank_while_the_loop_reads():
    due = np.array([0.0, 0.1, 0.2])
    outcome = simulate(due, np.ones(3), Worker(intake_s=0.25, threads=2))
    assert due + outcome.seconds == pytest.approx([1.25, 1.75, 2.25])


def test_beyond_its_places_a_line_refuses_and_the_refusal_takes_the_loops_time():
    """When the first is done, the second takes its turn, the third the only place."""
    due = np.array([0.0, 0.1, 0.2, 0.3, 0.4])
    outcome = simulate(due, np.ones(5), Worker(refusal_s=0.125, places=1))
    assert outcome.answered.tolist() == [True, True, True, False, False]
    assert due + outcome.seconds == pytest.approx([1.0, 2.25, 3.25, 1.125, 1.25])
    assert outcome.refused == pytest.approx(0.4)


def test_a_list_whose_turn_does_not_come_in_time_is_refused_later():
    """Turns of 1 s let both in for 10 s; then the one before them takes 50 s. The first gets its turn all the same: the
    slot was its own before the loop looked at the time."""
    worker = Worker(patience_s=10.0, refusal_s=0.25)
    due = np.array([0.0, 2.0, 2.1, 2.2, 2.3])
    outcome = simulate(due, np.array([1.0, 1.0, 50.0, 1.0, 1.0]), worker)
    assert outcome.answered.tolist() == [True, True, True, True, False]
    assert (due + outcome.seconds)[3:] == pytest.approx([54.25, 53.25])


def test_after_a_long_turn_one_list_may_wait_and_no_second():
    due = np.array([0.0, 2.0, 2.1, 2.2, 2.3])
    outcome = simulate(due, np.array([1.0, 50.0, 1.0, 1.0, 1.0]), Worker(patience_s=10.0))
    assert outcome.answered.tolist() == [True, True, True, True, False]


def test_seeds_reproduce():
    due = arrivals.draw("poisson", 6.0, 5_000, np.random.default_rng(4))
    ranking_s = exponential()[:5_000]

    def run(seed):
        return simulate(due, ranking_s, Worker(), replicas=8, balancer="power of two choices", seed=seed).seconds

    assert np.array_equal(run(1), run(1))
    assert not np.array_equal(run(1), run(2))


@pytest.mark.parametrize("seed", range(3))
def test_more_replicas_never_raise_the_mean_time_behind_least_connections(seed):
    due = arrivals.draw("poisson", 1.6, 20_000, np.random.default_rng(seed))
    ranking_s = exponential(seed + 10)[:20_000]
    means = [simulate(due, ranking_s, Worker(), replicas=count).seconds.mean() for count in range(2, 10)]
    assert means == sorted(means, reverse=True)
    assert means[0] > 1.2 * means[-1]


@pytest.mark.parametrize(("replicas", "load"), [(2, 0.8), (8, 0.7), (32, 0.9)])
def test_two_choices_lie_between_random_and_least_connections(replicas, load):
    due = arrivals.draw("poisson", load * replicas, 60_000, np.random.default_rng(5))
    ranking_s = exponential()[:60_000]
    found = {
        balancer: simulate(due, ranking_s, Worker(), replicas=replicas, balancer=balancer).seconds.mean()
        for balancer in ("random", "power of two choices", "least connections")
    }
    assert found["random"] > found["power of two choices"] > found["least connections"]


def test_balancers_that_know_only_their_own_lists_choose_worse():
    due = arrivals.draw("poisson", 0.8 * 16, 60_000, np.random.default_rng(6))
    ranking_s = exponential()[:60_000]
    means = [simulate(due, ranking_s, Worker(), replicas=16, balancers=count).seconds.mean() for count in (1, 4, 64)]
    assert means[0] < means[1] < means[2]


@pytest.mark.parametrize("waiting", [0, 1, 5, 26, 27, 63, 64])
@pytest.mark.parametrize("turn_s", [0.0, 0.001, 0.0033, 0.04, 0.2])
def test_the_gate_of_the_simulation_refuses_where_the_services_does(waiting, turn_s):
    async def refuses():
        gate = Gate(1, 64, patience_s=0.1)
        gate._free = 0
        gate._line.extend(asyncio.get_running_loop().create_future() for _ in range(waiting))
        gate._turns_s.extend([turn_s] * 8)
        return gate.is_full

    line = _Line(Worker(places=64, patience_s=0.1), [], steady, lambda _: None, lambda *_: None)
    line._free = 0
    line._line.extend((number, 0.0) for number in range(waiting))
    line._turns.extend([turn_s] * 8)
    assert (line._patience_s() is None) == asyncio.run(refuses())


@pytest.mark.parametrize(
    ("due", "ranking_s", "options", "said"),
    [
        ([], [], {}, "0 arrivals and 0 rankings: give as many of both"),
        ([1.0, 2.0], [1.0], {}, "2 arrivals and 1 rankings"),
        ([1.0], [1.0], {"replicas": 0}, "0 replicas, 1 balancers: give at least one"),
        ([1.0], [1.0], {"balancers": 0}, "1 replicas, 0 balancers: give at least one"),
        ([2.0, 1.0], [1.0, 1.0], {}, "go back in time: sort them"),
        ([1.0], [0.0], {}, r"a ranking takes 0\.0 s: give times above 0"),
        ([1.0], [math.nan], {}, "a ranking takes nan s: give times above 0"),
    ],
)
def test_errors_name_the_value_and_the_remedy(due, ranking_s, options, said):
    with pytest.raises(ValueError, match=said):
        simulate(np.array(due), np.array(ranking_s), Worker(), **options)
