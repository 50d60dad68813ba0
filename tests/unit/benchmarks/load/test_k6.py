"""A step of load from k6's own summary."""

import pytest

from benchmarks.load import k6

ANSWERED = {"count": 290, "avg": 672.17, "p(50)": 573.1868, "p(99)": 1932.7435, "p(99.9)": 1963.8968, "max": 1972.7}
SUMMARY = {
    "state": {"testRunDurationMs": 3270.4},
    "metrics": {
        "answered": {"type": "trend", "contains": "time", "values": ANSWERED},
        "failed": {"type": "counter", "contains": "default", "values": {"count": 1, "rate": 0.3}},
        "dropped_iterations": {"type": "counter", "contains": "default", "values": {"count": 609, "rate": 186.2}},
        "iterations": {"type": "counter", "contains": "default", "values": {"count": 291, "rate": 88.7}},
    },
}


def test_what_k6_says_of_an_overloaded_server():
    step = k6.parse(SUMMARY, offered_rps=300.0, seconds=3, generator_cpu_s=0.456)
    assert (step.answered, step.failed, step.dropped) == (290, 1, 609)
    assert (step.p50_ms, step.p99_ms, step.p999_ms) == (573.187, 1932.744, 1963.897)
    assert step.answered_rps == pytest.approx(290 / 3)
    assert step.lost == pytest.approx((1 + 609) / (290 + 1 + 609))
    assert step.generator_cpu_s == 0.46


def test_k6_leaves_out_what_did_not_happen():
    metrics = {"answered": SUMMARY["metrics"]["answered"]}
    step = k6.parse({"metrics": metrics}, offered_rps=100.0, seconds=3, generator_cpu_s=0.1)
    assert (step.failed, step.dropped, step.lost) == (0, 0, 0.0)


def test_nothing_answered_is_no_percentile_and_all_lost():
    step = k6.parse({"metrics": {}}, offered_rps=100.0, seconds=3, generator_cpu_s=0.1)
    assert (step.answered, step.p50_ms, step.p99_ms, step.lost) == (0, None, None, 1.0)
