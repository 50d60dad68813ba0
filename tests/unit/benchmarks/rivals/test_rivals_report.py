"""The headline and the table of servers side by side."""

import json

import numpy as np
import pytest

from benchmarks.load.k6 import Step
from benchmarks.rivals import contenders, report
from benchmarks.rivals.report import Result
from benchmarks.rivals.rising_load import Observation

LIMIT = 50.0


def observed(rate, p99, *, others=0.0, answered=1000):
    return Observation(Step(rate, 10.0, answered, 0, 0, p99 and p99 / 2, p99, p99, 0.1), 5.0, others, 100.0)


def result(title, steps, *, ours=False, request_format="JSON rows", peak=1000):
    return Result(title, request_format, ours, {}, 110_000, 1.5, observed(None, 20.0, answered=peak), tuple(steps))


FAST = result("Fast", [observed(100, 10.0), observed(200, 40.0), observed(300, 400.0)], peak=2000)
SLOW = result("Slow", [observed(50, 30.0), observed(100, 800.0)])
DEAD = result("Dead", [observed(50, 3000.0)])
OURS = result("Listwright", [observed(300, 39.0), observed(500, 45.0), observed(600, 90.0)], ours=True, peak=5000)


def test_the_headline_is_over_the_best_rival_within_the_limit_and_at_its_own_percentile():
    found = report.headline([SLOW, FAST, DEAD, OURS], LIMIT)
    assert (found["best_rival"], found["sustained_rps"], found["p99_ms"]) == ("Fast", 200, 40.0)
    ours = found["ours"]["JSON rows"]
    assert ours["within_the_limit"] == {"sustained_rps": 500, "ratio": 500 / 200}
    assert ours["at_the_rivals_p99"] == {"sustained_rps": 300, "ratio": 300 / 200}
    assert ours["peak_over_rivals_peak"] == 5000 / 2000


def test_no_rival_no_headline():
    assert report.headline([DEAD, OURS], LIMIT) is None
    assert report.sentences(None, LIMIT) == ["no rival sustained anything within 50 ms"]


def test_a_format_that_sustains_nothing_is_said_to():
    found = report.headline([FAST, result("Listwright", [observed(300, 60.0)], ours=True)], LIMIT)
    assert found["ours"]["JSON rows"]["within_the_limit"] is None
    assert "nothing sustained within 50 ms" in report.sentences(found, LIMIT)[1]


def test_the_table_is_sorted_and_has_a_line_for_those_that_sustain_nothing():
    _, *lines = report.table([DEAD, SLOW, OURS, FAST], LIMIT)
    assert [line.split()[0] for line in lines] == ["Listwright,", "Fast", "Slow", "Dead"]
    assert lines[1].split() == ["Fast", "200.0", "200.0", "20.0", "40.0", "40.0", "2.5", "0.0"]
    assert lines[-1].split() == ["Dead", "100.0", "-", "-", "-", "-", "5.0", "0.0"]


def test_a_disturbed_machine_is_said():
    assert report.disturbed([FAST]) == []
    (line,) = report.disturbed([FAST, result("Slow", [observed(50, 30.0, others=0.73)])])
    assert "0.73 cores" in line


def test_what_is_written_is_json():
    written = json.loads(json.dumps(FAST.report(LIMIT)))
    assert written["sustained_rps"] == 200
    assert written["steps"][1]["p99_ms"] == 40.0
    assert written["steps"][1]["server_cpu_ms_per_answer"] == 5.0 / 1000 * 1e3
    assert DEAD.report(LIMIT)["sustained_rps"] is None


@pytest.mark.parametrize("contender", contenders.RIVALS, ids=lambda one: one.name)
def test_ranks_of_a_rivals_scores_count_from_one(contender):
    (request_format,) = contender.formats
    scores = [0.5, 2.0, 0.5, -1.0]
    answers = {"bentoml": scores, "mlserver": {"outputs": [{"name": "scores", "data": scores}]}}
    answer = answers.get(contender.name, {"scores": scores})
    assert request_format.read(json.dumps(answer).encode()).tolist() == [2, 1, 3, 4]  # equal scores keep input order


def test_every_format_writes_the_digits_of_float32():
    features = np.array([[0.1, 2.0], [3.5, 1e-3]], dtype=np.float32)
    for contender in (*contenders.RIVALS, contenders.OURS):
        for request_format in contender.formats:
            if request_format.content_type == contenders.JSON:
                body = request_format.write(features, ["a", "b"]).decode()
                assert all(digits in body for digits in ("0.1", "3.5", "0.001")), request_format
                assert "0.10000000149" not in body
