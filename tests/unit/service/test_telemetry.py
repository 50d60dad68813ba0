import logging

import numpy as np
import pytest
from prometheus_client import generate_latest

from ranking.candidates import Ranking, Route
from ranking.errors import RoutingError
from service.telemetry import FAULT_LOG_S, FaultLog, JsonLines, Telemetry


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def lines(caplog):
    caplog.set_level(logging.WARNING, "listwright.routing")
    return lambda: [(record.facts["kind"], record.facts["faults"]) for record in caplog.records]


def test_a_flood_of_faults_is_one_line_of_a_kind_with_their_number(lines, caplog):
    clock = Clock()
    log = FaultLog(clock)
    slow, busy = RoutingError("hook_timeout", "too slow"), RoutingError("hook_busy", "all hang")
    for _ in range(1000):
        log.note(slow)
    log.note(busy)
    assert lines() == [("hook_timeout", 1), ("hook_busy", 1)]
    clock.now += FAULT_LOG_S
    log.note(slow)
    assert lines()[2:] == [("hook_timeout", 1000)], "999 unsaid, and this one"
    log.note(slow)
    assert len(lines()) == 3
    assert '"message": "too slow; the next in turn decided"' in JsonLines().format(caplog.records[0])


def ranking(route):
    one = np.ones(1)
    return Ranking(np.zeros(1, dtype=int), one, one, one, "second_stage", route, timings_ms={"routing": 0.3})


def test_routes_and_faults_are_counted():
    telemetry = Telemetry()
    faults = (RoutingError("hook_raised", "x"), RoutingError("hook_passed", "y"))
    for route in (Route("srm", "router", 2, 0.5, faults), Route("qilcm", "abstained"), Route("qilcm", "abstained")):
        telemetry.observe(ranking(route), {"parse": 1.0, "queue": 0.0, "routing": 0.3, "total": 2.0})
    text = generate_latest(telemetry.registry).decode()
    assert 'listwright_routes_total{decided_by="router",specialist="2",strategy="srm"} 1.0' in text
    assert 'listwright_routes_total{decided_by="abstained",specialist="none",strategy="qilcm"} 2.0' in text
    assert 'listwright_routing_faults_total{kind="hook_raised"} 1.0' in text
    assert "hook_passed" not in text, "having no opinion is no fault"
    assert 'listwright_stage_seconds_bucket{le="0.0005",stage="routing"} 3.0' in text
