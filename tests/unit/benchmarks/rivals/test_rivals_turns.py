"""What the rounds of ours and the best rival say."""

from dataclasses import replace

import pytest

from benchmarks.load.k6 import Step
from benchmarks.rivals import contenders, turns
from benchmarks.rivals.cores import shared
from benchmarks.rivals.measure import QUICK, Bench
from benchmarks.rivals.rising_load import Observation

LIMIT_MS = 50.0


def steps(rate, *p99s, lost=0):
    return [Step(rate, 5.0, 1000 - lost, lost, 0, 1.0, p99, p99, 0.1) for p99 in p99s]


def carried(ours, theirs=(30.0, 40.0, 20.0)):
    found = turns.summary("MLServer", 3, steps(100.0, *theirs), ours, LIMIT_MS)
    return found["ours"]["JSON rows"]["carried"], found


def multiples(*of_each):
    return {("JSON rows", multiple): given for multiple, given in zip(turns.MULTIPLES, of_each, strict=True)}


def test_the_median_of_the_rounds_counts():
    good, bad = steps(1.0, 10.0, 99.0, 29.0), steps(1.0, 10.0, 31.0, 31.0)
    most, found = carried(multiples(good, good, good, bad))
    assert (most, found["within_ms"]) == (3.0, 30.0)
    assert turns.sentences(found) == ["in turns with MLServer, JSON rows: 3 times its load within its p99"]


def test_a_multiple_counts_only_above_those_that_were_carried():
    good, bad = steps(1.0, 10.0), steps(1.0, 31.0)
    assert carried(multiples(good, bad, good, good))[0] == 2.0
    assert carried(multiples(bad, good, good, good))[0] is None


def test_lost_requests_and_the_limit_count_too():
    good = steps(1.0, 10.0)
    assert carried(multiples(good, steps(1.0, 10.0, lost=2), good, good))[0] == 2.0
    assert carried(multiples(good, steps(1.0, 10.0, lost=1), good, good))[0] == turns.MULTIPLES[-1]
    assert carried(multiples(good, good, good, steps(1.0, 60.0)), theirs=(70.0,))[0] == 3.0
    assert carried(multiples(good, good, good, [Step(1.0, 5.0, 0, 9, 0, None, None, None, 0.1)]))[0] == 3.0


@pytest.mark.parametrize("rounds", [1, 3])
def test_every_round_asks_the_rival_and_every_format(monkeypatch, rounds, tmp_path):
    asked = []

    class Started:
        def __init__(self, _bench, contender):
            self.name = contender.name

        def __enter__(self):
            return self.name, None

        def __exit__(self, *_):
            asked.append(f"{self.name} stopped")

    def observed_at(_bench, server, target, rate, *, as_at_speed):
        assert as_at_speed == 7.0
        asked.append((server, target, rate))
        return Observation(steps(rate, 10.0)[0], 1.0, 0.0, 7.0)

    monkeypatch.setattr(turns, "started", Started)
    monkeypatch.setattr(turns, "ready", lambda _bench, _server, _place, request_format: request_format.name)
    monkeypatch.setattr(turns, "observed_at", observed_at)
    plan = replace(QUICK, rounds=rounds)
    rival = next(one for one in contenders.RIVALS if one.name == "mlserver")
    found = turns.in_turns(
        Bench(tmp_path, tmp_path, shared(), plan, LIMIT_MS), rival, Observation(steps(100.0, 10.0)[0], 1.0, 0.0, 7.0)
    )
    a_round = []
    for multiple in turns.MULTIPLES:
        a_round.append(("mlserver", "JSON tensor", 100.0))
        a_round += [("listwright", request_format.name, 100.0 * multiple) for request_format in contenders.OURS.formats]
    assert asked == [*a_round * rounds, "listwright stopped", "mlserver stopped"]
    assert {name: of_format["carried"] for name, of_format in found["ours"].items()} == dict.fromkeys(
        [request_format.name for request_format in contenders.OURS.formats], turns.MULTIPLES[-1]
    )
