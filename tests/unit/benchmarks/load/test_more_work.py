"""More work of a request, and the 99th percentile with it."""

import os
import time
from pathlib import Path

import numpy as np
import pytest

from benchmarks.load.more_work import TURN, answered_again, core_seconds, later_by, more_work


def answers(busy, every=0.004):
    """Of one worker, asked every few milliseconds, that has each request so long; by the plain recursion."""
    due = np.arange(len(busy)) * every
    done, found = -np.inf, []
    for asked, takes in zip(due, busy, strict=True):
        done = max(asked, done) + takes
        found.append(done - asked)
    return np.stack([due, found], axis=1)


@pytest.fixture
def busy():
    return np.random.default_rng(0).gamma(4.0, 0.0006, 50_000)


def test_as_much_work_gives_the_same_answers(busy):
    found = answers(busy)
    assert answered_again(found, 0.0) == pytest.approx(found[:, 1], abs=1e-9)


def test_more_work_gives_the_answers_of_a_slower_worker(busy):
    slow = np.concatenate([busy, 1.2 * busy])
    more = 0.1 * np.median(busy) * np.repeat([1.0, 1.2], 50_000)
    found, expected = answered_again(answers(slow), 0.1), answers(slow + more)[:, 1]
    assert np.median(np.abs(found / expected - 1.0)) < 0.02, "of the requests about it, not of all"
    assert np.percentile(found, 99) == pytest.approx(np.percentile(expected, 99), rel=0.05)


def test_the_percentile_grows_by_more_than_the_work(busy):
    found = later_by(answers(busy), {"more": 0.02, "more_95": [0.0, 0.04]}, stall_ms=1e6)
    p99 = [np.percentile(answers(busy + more * np.median(busy))[:, 1], 99) for more in (0.0, 0.02, 0.04)]
    assert found["later"] == pytest.approx(p99[1] / p99[0] - 1.0, abs=2e-3)
    assert found["later"] * p99[0] > 0.02 * np.median(busy), "requests wait for each other"
    assert found["later_95"] == pytest.approx([0.0, p99[2] / p99[0] - 1.0], abs=4e-3)


def test_seconds_with_a_pause_are_left_out(busy):
    paused = busy.copy()
    paused[10_000] = 0.5
    work = {"more": 0.02, "more_95": [0.01, 0.03]}
    calm, found = (later_by(answers(some), work, stall_ms=100.0) for some in (busy, paused))
    assert (calm["stalled_seconds"], found["stalled_seconds"], found["of"]) == (0, 2, 200)
    assert found["p99_ms"]["without"] == pytest.approx(calm["p99_ms"]["without"], rel=0.02)


def test_the_share_of_more_work_is_found():
    rng, spent, asked = np.random.default_rng(1), [0.0], []

    def ask(kind):
        asked.append(kind)
        spent[0] += {"without": 1.0, "with": 1.1}[kind] * rng.normal(1.0, 0.05)

    found = more_work(ask, lambda: spent[0], 400)
    assert found["more"] == pytest.approx(0.1, abs=0.01)
    low, high = found["more_95"]
    assert low < 0.1 < high
    assert high - low < 0.01
    assert asked.count("with") == asked.count("without") == 400 * (TURN + 1)
    assert found["core_us"] == pytest.approx({"without": 1e6, "with": 1.1e6}, rel=0.01)


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="needs Linux's account of a process")
def test_the_core_time_is_that_of_the_process():
    before, began = core_seconds(os.getpid()), time.process_time()
    while time.process_time() - began < 0.2:
        pass
    assert core_seconds(os.getpid()) - before == pytest.approx(0.2, abs=0.05)
