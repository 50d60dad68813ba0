import json
import logging
import os
import sys

import numpy as np
import pytest
from prometheus_client import generate_latest

from listwright.ranking.candidates import Ranking, Route
from listwright.ranking.errors import RoutingError
from listwright.ranking.manifest import Manifest
from listwright.service.telemetry.logs import Repeats, json_lines
from listwright.service.telemetry.metrics import FAULT_LOG_S, Telemetry
from support.stand_ins import Clock, standing_in

SHOP = ("shop", "7")
MANIFEST = standing_in(Manifest, name="shop", version="7")


@pytest.fixture
def lines(caplog):
    caplog.set_level(logging.WARNING, "listwright.routing")
    return lambda: [(record.facts["kind"], record.facts["faults"]) for record in caplog.records]


def test_a_flood_of_faults_is_one_line_of_a_kind_with_their_number(lines, caplog):
    clock = Clock(1000.0)
    telemetry = Telemetry()
    telemetry._faults = Repeats(FAULT_LOG_S, clock)

    def note(fault):
        telemetry.observe(ranking(Route("qilcm", "bundle", faults=(fault,))), MANIFEST, {"total": 2.0})

    slow, busy = RoutingError("hook_timeout", "too slow"), RoutingError("hook_busy", "all hang")
    for _ in range(1000):
        note(slow)
    note(busy)
    assert lines() == [("hook_timeout", 1), ("hook_busy", 1)]
    clock.now += FAULT_LOG_S
    note(slow)
    assert lines()[2:] == [("hook_timeout", 1000)], "999 unsaid, and this one"
    note(slow)
    assert len(lines()) == 3
    assert '"message": "too slow; the next in turn decided"' in json_lines().format(caplog.records[0])


def ranking(route):
    one = np.ones(1)
    return Ranking(np.zeros(1, dtype=int), one, one, one, "second_stage", route, timings_ms={"routing": 0.3})


def test_routes_and_faults_are_counted():
    telemetry = Telemetry()
    telemetry.set_bundles({SHOP: "compiled"}, [], [])
    faults = (RoutingError("hook_raised", "x"), RoutingError("hook_passed", "y"))
    for route in (Route("srm", "router", 2, 0.5, faults), Route("qilcm", "abstained"), Route("qilcm", "abstained")):
        telemetry.observe(ranking(route), MANIFEST, {"parse": 1.0, "queue": 0.0, "routing": 0.3, "total": 2.0})
    text = generate_latest(telemetry.registry).decode()
    assert 'listwright_routes_total{decided_by="router",specialist="2",strategy="srm"} 1.0' in text
    assert 'listwright_routes_total{decided_by="abstained",specialist="none",strategy="qilcm"} 2.0' in text
    assert 'listwright_routing_faults_total{kind="hook_raised"} 1.0' in text
    assert "hook_passed" not in text, "having no opinion is no fault"
    stage = 'listwright_stage_seconds_bucket{le="0.0005",model="shop",outcome="ok",stage="routing",version="7"}'
    assert f"{stage} 3.0" in text
    route = 'decided_by="abstained",model="shop",outcome="ok",strategy="qilcm",version="7"'
    assert f"listwright_route_seconds_count{{{route}}} 2.0" in text


def test_a_version_that_is_gone_leaves_no_series_behind():
    telemetry = Telemetry()
    telemetry.set_bundles({SHOP: "compiled"}, [], [])
    telemetry.observe(ranking(Route("qilcm", "bundle")), MANIFEST, {"total": 2.0})
    telemetry.set_bundles({("shop", "8"): "compiled"}, [SHOP], [])
    assert 'version="7"' in generate_latest(telemetry.registry).decode(), "kept for a rollback"
    telemetry.set_bundles({("shop", "9"): "compiled"}, [("shop", "8")], [])
    telemetry.observe(ranking(Route("qilcm", "bundle")), MANIFEST, {"total": 2.0})
    assert 'version="7"' not in generate_latest(telemetry.registry).decode(), "an answer may outlive its bundle"


def test_a_line_is_one_json_object_with_its_facts_and_what_went_wrong():
    try:
        raise ValueError("two\nlines")
    except ValueError:
        record = logging.LogRecord("uvicorn.error", logging.ERROR, __file__, 1, "lost %s", ("ü",), sys.exc_info())
    record.facts = {"status": 500, "timings_ms": {"parse": 0.1}}
    line = json_lines().format(record)
    assert "\n" not in line
    assert line.isascii()
    fields = json.loads(line)
    assert "ValueError: two\nlines" in fields.pop("exception")
    assert fields.pop("time").endswith("+00:00")
    assert fields.pop("pid") == os.getpid()
    assert fields == {
        "level": "error",
        "logger": "uvicorn.error",
        "message": "lost ü",
        "status": 500,
        "timings_ms": {"parse": 0.1},
    }
