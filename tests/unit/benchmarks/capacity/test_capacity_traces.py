"""What each list took, by the log of its replica and the system's account of the process."""

import json
import subprocess
import sys
import threading
import time
import zlib
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace

import numpy as np
import psutil
import pytest

from benchmarks.capacity.measured.replicas import Replica, Seen
from benchmarks.capacity.measured.traces import EVERY_S, LEAST, Trace, TraceError, mean_s, traced
from benchmarks.capacity.service_times import MOST_SHARED, stretched
from benchmarks.capacity.simulated.worker import Stretches, joined


def line(at, status=200, path="/rerank", **stages):
    return json.dumps(
        {
            "time": datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds"),
            "timings_ms": {"parse": 0.1, "queue": 9.0, **stages},
            "path": path,
            "status": status,
        }
    )


def seen(began_s, took_s=1.0, seconds=(0.01,)):
    return Seen(np.array(seconds, dtype=float), 0, 0, began_s, took_s, (), 0.0)


def busily(until_s):
    """Without the interpreter's lock."""
    while time.perf_counter() < until_s:
        zlib.compress(bytes(100_000), 6)


@pytest.fixture
def replica(tmp_path):
    log = tmp_path / "replica.log"
    log.write_text(line(time.time(), first_stage=70.0) + "\n", encoding="utf-8")
    return Replica(1, psutil.Process(), 1.0, log)


def test_what_a_load_left_in_the_log_is_found_in_its_order(replica):
    began_s, now = time.perf_counter(), time.time()

    def load():
        lines = [
            line(now + 2.0, first_stage=3.0, second_stage=1.0),
            line(now + 1.0, first_stage=2.0),
            line(now + 1.5, status=429),
            line(now + 1.5, path="/readyz"),
            line(now + 1.7, status=400),
            line(now - 1.0, first_stage=50.0),
            "not of the service",
        ]
        with replica.log.open("a", encoding="utf-8") as log:
            log.write("\n".join(lines) + "\n" + line(now + 1.8, first_stage=9.0)[:-9])
        return seen(began_s, seconds=(0.01, 0.02))

    found, (trace,) = traced(load, [replica])
    assert found.began_s == began_s
    assert trace.at_s == pytest.approx([1.0, 2.0], abs=0.05)
    assert trace.ranking_s == pytest.approx([0.002, 0.004])
    assert trace.refused_at_s == pytest.approx([1.5], abs=0.05)


def test_an_answer_without_a_first_stage_is_refused_by_its_times(replica):
    def load():
        with replica.log.open("a", encoding="utf-8") as log:
            log.write(line(time.time() + 1.0) + "\n")
        return seen(time.perf_counter())

    with pytest.raises(TraceError, match="no time of a first stage, but of parse, queue"):
        traced(load, [replica])


def test_the_system_says_how_long_this_process_ran(replica):
    """All of its threads."""
    used = []

    def load():
        began_s, before = time.perf_counter(), time.process_time()
        other = threading.Thread(target=busily, args=[began_s + 1.2])
        other.start()
        other.join()
        time.sleep(0.3)
        used.append((time.process_time() - before) / (time.perf_counter() - began_s))
        return seen(began_s, 1.5, ())

    _, (trace,) = traced(load, [replica])
    assert len(trace.asked_s) > 2
    assert 0.0 < trace.asked_s[0] < trace.asked_s[-1] < 1.5
    share = (trace.ran_s[-1] - trace.ran_s[0]) / (trace.asked_s[-1] - trace.asked_s[0])
    assert (np.diff(trace.ran_s) >= 0).all()  # the time of a thread that ended is kept
    assert share == pytest.approx(used[0], abs=0.3)  # others may have the core in a part of the time


def test_a_system_without_an_account_is_refused_by_the_name_of_the_file(tmp_path):
    nobody = SimpleNamespace(log=tmp_path / "log", process=SimpleNamespace(pid=2**30))
    nobody.log.touch()
    with pytest.raises(TraceError, match=f"/proc/{2**30}/task cannot be read"):
        traced(lambda: seen(0.0), [nobody])


def test_a_replica_that_ends_in_a_load_is_told(replica):
    ended = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])

    def load():
        ended.kill()
        ended.wait()
        time.sleep(3 * EVERY_S)
        return seen(0.0)

    with pytest.raises(TraceError, match=f"/proc/{ended.pid}/task"):
        traced(load, [replace(replica, process=psutil.Process(ended.pid))])


def even(count, *, refused=(), slow_from=None):
    """A list of 1 ms in each 10 ms, which is ranked for half of it; from a time on all takes twice as long."""
    at_s = 0.01 * np.arange(1, count + 1)
    slow = np.ones(count) if slow_from is None else np.where(at_s > slow_from, 2.0, 1.0)
    asked_s = np.arange(0.0, 0.01 * count + 0.3, 0.3) + 0.005
    summed_s = np.concatenate([[0.0], np.cumsum(0.001 * slow)])
    return Trace(at_s, 0.0005 * slow, np.array(refused, dtype=float), asked_s, summed_s[np.searchsorted(at_s, asked_s)])


def test_what_the_loop_did_is_shared_out_to_the_lists():
    trace = even(200, slow_from=1.005)
    assert trace.took_s() == pytest.approx(np.where(trace.at_s > 1.005, 0.002, 0.001))


def test_lists_of_each_stretch_share_what_the_loop_did_there():
    """Thirty lists between two questions; in the second stretch the loop takes three times as long."""
    trace = even(60)
    found = replace(trace, ran_s=trace.ran_s + np.array([0.0, 0.0, 0.06]))
    assert found.took_s() == pytest.approx(np.repeat([0.001, 0.003], 30))


def test_a_refusal_takes_its_part():
    """Thirty lists between two questions, and six refusals of half a list each."""
    trace = even(90, refused=0.3 + 0.01 * np.arange(1, 7))
    took_s = trace.took_s(refusal=0.5)
    assert took_s[35] == pytest.approx(0.001 * 30 / 33)
    assert took_s[5] == took_s[75] == pytest.approx(0.001)


def test_questions_with_few_lists_between_them_count_together():
    trace = even(200)
    often = np.arange(0.005, 2.0, 0.02)
    summed_s = 0.001 * np.searchsorted(trace.at_s, often).astype(float)
    summed_s[1::2] += 0.0005  # one list is cut in two
    found = Trace(trace.at_s, trace.ranking_s, trace.refused_at_s, often, summed_s)
    assert found.took_s() == pytest.approx(np.full(200, 0.001), rel=0.5 / LEAST + 1e-9)


def test_too_few_lists_are_refused_by_number():
    with pytest.raises(TraceError, match=f"answered {LEAST - 1} lists: give more --seconds"):
        even(LEAST - 1).took_s()


@pytest.mark.parametrize(("now", "slow"), [(0.0, 0.5), (0.304, 0.5), (0.306, 1.5), (9.0, 1.5)])
def test_a_replica_is_as_slow_as_in_that_stretch(now, slow):
    trace = even(60)
    found = replace(trace, ran_s=trace.ran_s + np.array([0.0, 0.0, 0.06]))
    assert found.slowness(0.0, 0.002)(now) == pytest.approx(slow)


def test_lists_spread_as_their_ranking_does_in_each_stretch():
    trace = even(60, slow_from=0.305)
    ranking_s = trace.ranking_s * np.tile([0.5, 1.5], 30)
    assert replace(trace, ranking_s=ranking_s).spread() == pytest.approx(np.tile([0.5, 1.5], 30))


def test_lists_that_are_not_in_the_log_are_missed(replica):
    with pytest.raises(TraceError, match="of 100 answers, 0 are in the logs"):
        traced(lambda: seen(time.perf_counter(), seconds=np.ones(100)), [replica])


@pytest.mark.parametrize(("now", "slow"), [(0.0, 0.5), (0.299, 0.5), (0.301, 1.5), (0.599, 1.5), (0.601, 0.5)])
def test_after_its_last_stretch_a_looped_trace_begins_anew(now, slow):
    trace = even(60)
    found = replace(trace, ran_s=trace.ran_s + np.array([0.0, 0.0, 0.06])).looped(0.002)
    assert found.span_s == pytest.approx(0.6)
    assert found(now) == pytest.approx(slow)
    assert replace(found, ahead_s=0.3)(now + 0.3) == pytest.approx(slow)


def test_traces_are_joined_one_after_the_other():
    first, second = Stretches((0.0, 0.5), (1.0, 2.0), 1.0), Stretches((0.0, 1.0), (3.0, 4.0), 2.0)
    both = joined([first, second])
    assert [both(now) for now in (0.1, 0.6, 1.1, 2.5, 3.1)] == [1.0, 2.0, 3.0, 4.0, 1.0]


def test_the_mean_time_is_that_of_all_lists_and_refusals():
    assert mean_s([even(90), even(60)]) == pytest.approx(0.001)
    assert mean_s([even(90, refused=0.3 + 0.01 * np.arange(1, 7))], refusal=0.5) == pytest.approx(0.001 * 90 / 93)


def test_a_load_that_ends_before_the_second_question_is_refused():
    with pytest.raises(TraceError, match=r"less than 0\.2 s: give more --seconds"):
        mean_s([replace(even(60), asked_s=np.zeros(1), ran_s=np.zeros(1))])


def test_a_mean_of_no_lists_is_refused():
    with pytest.raises(TraceError, match="answered 0 lists: give more --seconds"):
        mean_s([replace(even(60), at_s=np.zeros(0), ranking_s=np.zeros(0))])


def test_others_stretch_what_a_core_does():
    assert stretched(0.0) == 1.0
    assert stretched(0.2) == pytest.approx(1.25)
    assert stretched(1.5) == stretched(MOST_SHARED) < 11.0
