"""How late requests are while a process works."""

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from benchmarks.load.at_work import PAUSE_S, beside, lateness, spans_of_work
from support.waiting import until


def test_a_request_is_beside_a_span_that_it_meets():
    spans = [[1.0, 2.0], [5.0, 5.5]]
    answers = np.array([[0.0, 0.9], [0.5, 0.6], [1.2, 0.1], [1.9, 5.0], [2.1, 2.8], [2.1, 3.0], [5.6, 1.0]])
    assert beside(answers, spans).tolist() == [False, True, True, True, False, True, False]
    assert not beside(answers, []).any()


def answered(later_ms, share, seed=0):
    """Twenty minutes of requests, of which a share is beside the process, and later."""
    rng = np.random.default_rng(seed)
    due = np.arange(0.0, 1200.0, 0.05)
    at_work = rng.random(len(due)) < share
    ms = rng.exponential(1.0, len(due)) + 2.0 + later_ms * at_work
    return np.stack([due, ms / 1e3], axis=1), at_work


def test_lateness_is_that_of_all_against_those_away():
    answers, at_work = answered(later_ms=20.0, share=0.005)
    found = lateness(answers, at_work, stall_ms=1e6)
    ms = answers[:, 1] * 1e3
    assert found["p99_ms"]["all"] == pytest.approx(np.percentile(ms, 99), abs=1e-3)
    assert found["later"] == pytest.approx(np.percentile(ms, 99) / np.percentile(ms[~at_work], 99) - 1.0, abs=1e-4)
    low, high = found["later_95"]
    assert 0.0 < low < found["later"] < high, "half of the latest percent is beside the process"
    assert found["share_beside"] == pytest.approx(0.005, abs=0.002)


def test_what_is_not_later_has_an_interval_around_zero():
    low, high = lateness(*answered(later_ms=0.0, share=0.02), stall_ms=1e6)["later_95"]
    assert -0.03 < low < 0.0 < high < 0.03


def test_a_pause_of_the_machine_is_left_out_and_counted():
    answers, at_work = answered(later_ms=0.0, share=0.02)
    at_work[100:110], at_work[4000:4010] = True, False
    paused = answers.copy()
    paused[100:110, 1] = paused[4000:4010, 1] = 0.3  # half a second each, the first one beside the process
    found, before = (lateness(some, at_work, stall_ms=20.0) for some in (paused, answers))
    assert (found["stalled_seconds"], found["begun_beside"], before["stalled_seconds"]) == (2, 1, 0)
    assert (found["of"], found["requests"]) == (1200, len(answers) - 40)
    assert found["p99_ms"]["all"] == pytest.approx(before["p99_ms"]["all"], abs=0.1)
    assert found["p99_ms_with_stalls"]["beside"] > 10 * found["p99_ms"]["beside"]


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="needs Linux's account of a process")
def test_the_spans_of_a_process_are_when_it_works():
    works = "import sys\nfor _ in sys.stdin: sum(range(2_000_000))"
    with subprocess.Popen([sys.executable, "-c", works], stdin=subprocess.PIPE, text=True) as process:
        with spans_of_work(process.pid) as spans:
            until(lambda: spans and time.perf_counter() - spans[-1][1] > 0.5)  # it has started
            started, begins = len(spans), []
            for _ in range(2):
                begins.append(time.perf_counter())
                process.stdin.write("\n")
                process.stdin.flush()
                time.sleep(0.05 + 20 * PAUSE_S)
        process.stdin.close()
    found = spans[started:]
    assert all(any(begin < at + 0.4 and end > at for begin, end in found) for at in begins)
    assert all(end > begin for begin, end in spans)
