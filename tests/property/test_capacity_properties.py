"""What holds for any lists at any replicas of the simulation."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.capacity.simulated.balancers import BALANCERS
from benchmarks.capacity.simulated.simulation import simulate
from benchmarks.capacity.simulated.worker import Worker

SECONDS = st.floats(0.001, 5.0)
WORKERS = st.builds(
    Worker,
    intake_s=st.floats(0.0, 0.5),
    refusal_s=st.floats(0.0, 0.5),
    threads=st.integers(0, 3),
    places=st.integers(0, 6),
    patience_s=st.floats(0.01, 20.0),
)
ENDLESS = st.builds(Worker, intake_s=st.floats(0.0, 0.5), threads=st.integers(0, 3))


@st.composite
def lists(draw):
    gaps = draw(st.lists(st.floats(0.0, 2.0), min_size=1, max_size=60))
    ranking_s = draw(st.lists(SECONDS, min_size=len(gaps), max_size=len(gaps)))
    return np.cumsum(gaps), np.array(ranking_s)


@given(lists(), WORKERS, st.integers(1, 4), st.sampled_from(BALANCERS), st.integers(1, 3))
def test_every_list_is_answered_or_refused_after_it_came(drawn, worker, replicas, balancer, balancers):
    due, ranking_s = drawn
    outcome = simulate(due, ranking_s, worker, replicas=replicas, balancer=balancer, balancers=balancers)
    least = np.where(outcome.answered, ranking_s + worker.intake_s, 0.0)
    assert (outcome.seconds >= least - 1e-9).all()
    assert outcome.answered.any(), "who comes first is never refused"


@given(lists(), WORKERS, st.integers(1, 4), st.sampled_from(BALANCERS))
def test_no_replica_works_more_than_there_is_time(drawn, worker, replicas, balancer):
    due, ranking_s = drawn
    outcome = simulate(due, ranking_s, worker, replicas=replicas, balancer=balancer)
    slots = replicas * max(1, worker.threads)
    assert ranking_s[outcome.answered].sum() <= slots * (outcome.ended_s - outcome.began_s) + 1e-9


@given(lists(), ENDLESS, st.integers(1, 4), st.sampled_from(BALANCERS))
def test_without_limits_nothing_is_refused(drawn, worker, replicas, balancer):
    due, ranking_s = drawn
    assert simulate(due, ranking_s, worker, replicas=replicas, balancer=balancer).refused == 0.0


@given(lists())
def test_one_replica_ranks_first_come_first_served(drawn):
    """Lindley's recursion, list by list."""
    due, ranking_s = drawn
    end, expected = 0.0, []
    for at, takes in zip(due, ranking_s, strict=True):
        end = max(end, at) + takes
        expected.append(end)
    assert due + simulate(due, ranking_s, Worker()).seconds == pytest.approx(expected)


@given(lists(), st.integers(1, 5))
def test_threads_take_lists_in_order_each_as_soon_as_one_is_free(drawn, threads):
    """Kiefer and Wolfowitz's recursion, list by list."""
    due, ranking_s = drawn
    free, expected = [0.0] * threads, []
    for at, takes in zip(due, ranking_s, strict=True):
        first = free.index(min(free))
        free[first] = max(free[first], at) + takes
        expected.append(free[first])
    assert due + simulate(due, ranking_s, Worker(threads=threads)).seconds == pytest.approx(expected)
