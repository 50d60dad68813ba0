"""Who decides which ranker answers: callers, hooks, routers, switches. The application without a port."""

import sys
import threading
import types
from unittest import mock

import pytest
from prometheus_client.parser import text_string_to_metric_families

from listwright.ranking.router import Choice
from listwright.service.bundles.routing_switch import RoutingSwitch
from support.service.asgi import serving as client
from support.service.bundles import make_bundle
from support.stand_ins import any_choice
from support.waiting import until

PLENTY_MS = 60_000
SPECIALISTS = 3


@pytest.fixture(scope="module")
def routed(tmp_path_factory):
    """A bundle whose router takes specialist 0 (few stars) or 2 (many) where the mean price is above 0.25."""
    return make_bundle(tmp_path_factory.mktemp("models") / "shop" / "7", cutoff=2, specialists=SPECIALISTS, margin=0.25)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A bundle with specialists and no router."""
    return make_bundle(tmp_path_factory.mktemp("models") / "shop" / "8", specialists=SPECIALISTS)


class Hooks:
    """A module of hooks whose behaviour the request's context steers."""

    def __init__(self):
        self.let_go = threading.Event()
        self.queries = []

    def steered(self, query):
        self.queries.append(query)
        match query.context.get("hook"):
            case "raise":
                raise ValueError("feature value 1234.5")
            case "hang":
                assert self.let_go.wait(PLENTY_MS / 1000.0)
            case "odd":
                return any_choice(1.5)
            case "pass":
                return None
            case "abstain":
                return Choice(None, 0.25)
        return Choice(int(query.context.get("pick", 1)), 0.75)


@pytest.fixture
def hooks(monkeypatch):
    found = Hooks()
    module = types.ModuleType("steered_hooks")
    module.steered = found.steered
    monkeypatch.setitem(sys.modules, "steered_hooks", module)
    yield found
    found.let_go.set()


HOOK = {"hook": "steered_hooks:steered", "hook_budget_ms": PLENTY_MS}


def body(*, price=1.0, stars=1.0, **more):
    rows = [{"price": price, "stars": stars + step, "bm25": 1.0, "carrier": "A5"} for step in (-0.5, 0.0, 0.5)]
    return {"candidates": [{"features": row} for row in rows], **more}


def ask(asked, **request):
    response = asked.post("/rerank", json=body(**request))
    assert response.status_code == 200, response.text
    return response.json()


def route_of(asked, **request):
    route = ask(asked, **request)["route"]
    return route["decided_by"], route["strategy"], route["specialist"], route["confidence"]


def told(asked):
    routing = asked.get("/info").json()["routing"]
    return routing["enabled"], routing["reason"], routing["hook"], routing["router"]


def counted(asked, name, *labels):
    """``{label values: count}`` of a counter."""
    return {
        tuple(sample.labels[label] for label in labels): sample.value
        for family in text_string_to_metric_families(asked.get("/metrics").text)
        for sample in family.samples
        if sample.name == name
    }


def faults(asked):
    return {kind: count for (kind,), count in counted(asked, "listwright_routing_faults_total", "kind").items()}


def test_the_caller_is_an_oracle(routed, hooks):
    """Its word counts before hook and router, and with routing off."""
    for settings in ({}, HOOK, {"routing": False}):
        with client(routed, **settings) as asked:
            for number in range(SPECIALISTS):
                assert route_of(asked, specialist=number) == ("caller", "srm", number, None)
            assert route_of(asked, specialist=1.0, strategy="srm") == ("caller", "srm", 1, None)
            assert route_of(asked, strategy="qilcm") == ("caller", "qilcm", None, None)
            assert route_of(asked, strategy="first_stage") == ("caller", "first_stage", None, None)
    assert hooks.queries == []


def test_a_named_specialist_gives_its_own_scores(routed):
    with client(routed) as asked:
        scores = [tuple(ask(asked, specialist=number)["scores"]) for number in range(SPECIALISTS)]
        mixture = tuple(ask(asked, strategy="srm", price=0.0)["scores"])
    assert len({*scores, mixture}) == SPECIALISTS + 1


def test_the_router_decides_and_abstains(routed):
    with client(routed) as asked:
        by, strategy, specialist, confidence = route_of(asked, stars=1.0)
        assert (by, strategy, specialist) == ("router", "srm", 2)
        assert 1 / SPECIALISTS < confidence <= 1
        assert route_of(asked, stars=-1.0)[:3] == ("router", "srm", 0)
        assert route_of(asked, price=0.0)[:3] == ("abstained", "qilcm", None)
        assert route_of(asked, price=0.0, strategy="srm")[:3] == ("abstained", "srm", None)
        assert counted(asked, "listwright_routes_total", "strategy", "decided_by", "specialist") == {
            ("srm", "router", "2"): 1,
            ("srm", "router", "0"): 1,
            ("qilcm", "abstained", "none"): 1,
            ("srm", "abstained", "none"): 1,
        }
        assert counted(asked, "listwright_stage_seconds_count", "stage")[("routing",)] == 4


def test_a_failing_router_is_counted_and_the_bundle_decides(routed):
    """Its graph gives NaN where the mean price is above 500."""
    with client(routed) as asked:
        answer = ask(asked, price=1000.0)
        assert answer["route"]["decided_by"] == "bundle"
        assert answer["meta"]["status"] == "ok", "the generalist is what was asked for"
        assert faults(asked) == {"router_failed": 1}


def test_the_hook_decides_before_the_router(routed, hooks):
    with client(routed, **HOOK) as asked:
        assert route_of(asked, context={"pick": 1, "device": "phone"}) == ("hook", "srm", 1, 0.75)
        assert route_of(asked, context={"hook": "abstain"}) == ("hook", "qilcm", None, None)
        assert route_of(asked, context={"hook": "abstain"}, strategy="srm") == ("hook", "srm", None, None)
        assert faults(asked) == {}
    query = hooks.queries[0]
    assert query.context == {"pick": 1, "device": "phone"}
    assert query.features.shape == (3, 4)
    assert query.first_stage_scores.shape == (3,)
    assert not query.features.flags.writeable
    assert not query.first_stage_scores.flags.writeable


def test_the_hook_sees_features_from_the_context(routed, hooks):
    with client(routed, **HOOK) as asked:
        rows = [{"features": {"price": 1.0, "carrier": "A5"}}] * 2
        request = {"candidates": rows, "context": {"stars": 4.5, "pick": 2}}
        assert asked.post("/rerank", json=request).json()["route"]["specialist"] == 2
    assert hooks.queries[0].features[:, 1].tolist() == [4.5, 4.5]


@pytest.mark.parametrize(
    ("context", "kind"),
    [
        ({"hook": "raise"}, "hook_raised"),
        ({"hook": "odd"}, "hook_invalid"),
        ({"pick": SPECIALISTS}, "unknown_specialist"),
        ({"pick": -1}, "unknown_specialist"),
    ],
)
def test_a_hook_at_fault_is_counted_and_the_router_decides(routed, hooks, caplog, context, kind):
    with client(routed, **HOOK) as asked:
        for _ in range(3):
            assert route_of(asked, context=context)[:3] == ("router", "srm", 2)
        assert route_of(asked, context=context, price=0.0)[0] == "abstained"
        assert faults(asked) == {kind: 4}
    lines = [record.facts for record in caplog.records if record.name == "listwright.routing"]
    assert lines == [{"kind": kind, "faults": 1}], "one line, however often"
    assert "1234.5" not in caplog.text


def test_without_a_router_the_bundle_decides_for_a_hook_at_fault(plain, hooks):
    with client(plain, **HOOK) as asked:
        assert route_of(asked, context={"hook": "raise"}) == ("bundle", "qilcm", None, None)
        assert route_of(asked, context={"hook": "pass"}) == ("bundle", "qilcm", None, None)
        assert route_of(asked, context={"hook": "raise"}, strategy="srm") == ("caller", "srm", None, None)
        assert faults(asked) == {"hook_raised": 2}


def test_a_hook_without_opinion_is_no_fault(routed, hooks, caplog):
    with client(routed, **HOOK) as asked:
        assert route_of(asked, context={"hook": "pass"})[:3] == ("router", "srm", 2)
        assert faults(asked) == {}
    assert [record for record in caplog.records if record.name == "listwright.routing"] == []


def test_hung_hooks_cost_a_budget_each_and_then_nothing(routed, hooks):
    """Two threads for each that computes: two calls are waited for, the others refused, and one returns."""
    with client(routed, hook=HOOK["hook"], hook_budget_ms=1, threads=1) as asked:
        for _ in range(5):
            assert route_of(asked, context={"hook": "hang"})[:3] == ("router", "srm", 2)
        assert faults(asked) == {"hook_timeout": 2, "hook_busy": 3}
        assert len(hooks.queries) == 2, "nothing queues behind a hung call"
        assert asked.get("/readyz").status_code == 200


def test_the_kill_switch_is_a_file(routed, hooks, tmp_path):
    switch = tmp_path / "routing.off"
    with client(routed, routing_off_file=switch, **HOOK) as asked:
        assert route_of(asked)[0] == "hook"
        assert told(asked) == (True, None, True, True)
        switch.touch()
        until(lambda: not told(asked)[0])
        assert route_of(asked) == ("bundle", "qilcm", None, None)
        assert route_of(asked, strategy="srm") == ("caller", "srm", None, None)
        assert route_of(asked, specialist=1) == ("caller", "srm", 1, None)
        assert told(asked) == (False, "the file of LISTWRIGHT_ROUTING_OFF_FILE exists", True, True)
        assert len(hooks.queries) == 1
        switch.unlink()
        until(lambda: told(asked)[0])
        assert route_of(asked)[0] == "hook"


def test_the_kill_switch_is_not_looked_at_where_nobody_would_be_asked(routed, monkeypatch):
    look = mock.Mock(return_value=None)
    monkeypatch.setattr(RoutingSwitch, "off", look)
    with client(routed) as asked:
        for request in ({"strategy": "qilcm"}, {"strategy": "first_stage"}, {"specialist": 0}):
            ask(asked, **request)
        assert look.call_count == 0
        ask(asked)
        ask(asked, strategy="srm")
        assert look.call_count == 2


def test_routing_can_be_off_for_good(routed, hooks):
    with client(routed, routing=False, **HOOK) as asked:
        assert route_of(asked) == ("bundle", "qilcm", None, None)
        assert told(asked)[:2] == (False, "LISTWRIGHT_ROUTING is false")
    assert hooks.queries == []


def test_info_describes_the_specialists(routed, plain):
    with client(routed) as asked:
        info = asked.get("/info").json()
    assert info["specialists"] == [
        {"number": 0, "weight": 4 / 7, "queries": 100, "top_features": [{"feature": "price", "weight": 1.0}]},
        {"number": 1, "weight": 2 / 7, "queries": 99, "top_features": [{"feature": "stars", "weight": 1.0}]},
        {"number": 2, "weight": 1 / 7, "queries": 98, "top_features": [{"feature": "bm25", "weight": 1.0}]},
    ]
    assert info["cutoff"] == 2
    assert info["cutoffs"] == {"qilcm": 2, "srm": None}
    assert info["routing"] == {"enabled": True, "reason": None, "hook": False, "router": True}
    with client(plain) as asked:
        assert route_of(asked) == ("bundle", "qilcm", None, None)
        assert told(asked) == (False, "the bundle has no router, and the settings name no hook", False, False)


def test_a_bundle_without_specialists(tmp_path, hooks):
    folder = make_bundle(tmp_path / "shop" / "9")
    with client(folder, **HOOK) as asked:
        info = asked.get("/info").json()
        assert info["specialists"] == []
        assert info["cutoffs"] == {"qilcm": 100}
        assert told(asked) == (False, "the bundle has no specialists", True, False)
        assert route_of(asked) == ("bundle", "qilcm", None, None)
        for request, kind in (({"strategy": "srm"}, "strategy"), ({"specialist": 0}, "specialist")):
            response = asked.post("/rerank", json=body(**request))
            assert response.status_code == 404
            assert response.json()["type"] == f"urn:listwright:unknown-{kind}"
    assert hooks.queries == []
