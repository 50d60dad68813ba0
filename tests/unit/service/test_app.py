"""The application without a port: what no ordinary request can bring about."""

import asyncio
import json
import logging

import pytest

from listwright.ranking import bundle
from listwright.ranking.errors import CandidateError, EmptyListError, ListwrightError, SchemaMismatchError
from listwright.service import problems
from listwright.service.admission import throttle
from listwright.service.app import create_app
from listwright.service.auth.middleware import Bucket
from listwright.service.settings import Settings
from listwright.service.telemetry.logs import json_lines
from listwright.service.wire import json_codec
from support.service.asgi import asking
from support.service.bundles import make_bundle

BODY = {"features": [[1234.5, 2.0, 3.0, "A5"], [2.0, 1.0, 0.0, "B2"]]}


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    return Settings(bundle=make_bundle(tmp_path_factory.mktemp("models") / "shop" / "7", graph="nan"))


@pytest.fixture
def app(settings):
    return create_app(settings, models=bundle.load(settings.bundle))


@pytest.fixture
def client(app):
    with asking(app) as client:
        yield client


def test_the_factory_reads_the_environment_and_loads_at_start_up(settings, monkeypatch):
    monkeypatch.setenv("LISTWRIGHT_BUNDLE", str(settings.bundle))
    app = create_app()
    assert app.service.current.models is None
    with asking(app) as client:
        assert client.get("/readyz").status_code == 200


def test_nothing_is_served_before_a_bundle_is_loaded(app):
    with asking(app, started=False) as client:
        for response in (client.get("/readyz"), client.get("/info"), client.post("/rerank", json=BODY)):
            assert response.status_code == 503
            assert response.json()["type"] == "urn:listwright:not-ready"
        assert client.get("/livez").status_code == 200
        assert "\nlistwright_ready_workers 0.0\n" in client.get("/metrics").text


def test_draining_is_announced(app, client):
    assert "\nlistwright_ready_workers 1.0\n" in client.get("/metrics").text
    app.service.readiness.draining.set()
    assert client.get("/readyz").status_code == 503
    assert "\nlistwright_ready_workers 0.0\n" in client.get("/metrics").text
    assert client.post("/rerank", json=BODY).status_code == 200


def test_a_list_of_1000_is_ranked_and_one_more_refused(client):
    rows = [[n % 17, -n / 7, None, "A5"] for n in range(1001)]
    answer = client.post("/rerank", json={"features": rows[:1000]}).json()
    assert sorted(answer["ranks"]) == list(range(1, 1001))
    assert [result["stage"] for result in answer["results"]] == ["second"] * 100 + ["first"] * 900
    assert client.post("/rerank", json={"features": rows}).status_code == 413
    assert client.post("/rerank", json={"candidates": [{}] * 1001}).status_code == 413


def test_a_bug_is_answered_counted_and_logged(client, monkeypatch, caplog):
    def broken(*_):
        raise RuntimeError("a secret of ours")

    monkeypatch.setattr(json_codec, "decode", broken)
    response = client.post("/rerank", json=BODY, headers={"X-Request-ID": "r-1"})
    assert response.status_code == 500
    assert response.headers["content-type"] == "application/problem+json"
    assert response.headers.get_list("x-request-id") == ["r-1"]
    assert response.json()["request_id"] == "r-1"
    assert "secret" not in response.text
    assert 'listwright_requests_total{path="/rerank",status="500"} 1.0' in client.get("/metrics").text
    (record,) = [record for record in caplog.records if record.name == "listwright.service" and record.exc_info]
    assert "a secret of ours" in json_lines().format(record)


def test_a_caller_that_goes_away_is_no_bug(app, client, caplog):
    sent = []

    async def receive():
        return {"type": "http.disconnect"}

    async def send(message):
        sent.append(message)

    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "POST",
        "path": "/rerank",
        "raw_path": b"/rerank",
        "query_string": b"",
        "headers": [(b"content-type", b"application/json"), (b"content-length", b"100")],
    }
    asyncio.run(app(scope, receive, send))
    assert sent[0]["status"] == 400
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def test_every_request_is_one_log_line_without_feature_values(client, caplog):
    caplog.set_level(logging.DEBUG, "listwright")
    client.post("/rerank", json=BODY, headers={"X-Request-ID": "r-2"})
    client.get("/readyz")
    client.post("/rerank", json={"features": [[1.0, 2.0]]})
    lines = [record for record in caplog.records if record.name == "listwright.requests"]
    assert [record.levelname for record in lines] == ["WARNING", "DEBUG", "INFO"]
    degraded = json.loads(json_lines().format(lines[0]))
    assert degraded["request_id"] == "r-2"
    assert degraded["version"] == "shop/7"
    assert (degraded["path"], degraded["status"], degraded["stage_reached"]) == ("/rerank", 200, "first_stage")
    assert degraded["timings_ms"]["total"] <= degraded["ms"]
    assert "1234.5" not in caplog.text
    assert json.loads(json_lines().format(lines[2]))["status"] == 409


@pytest.mark.parametrize(
    "path", ["/readyz", "/v2/health/ready", "/v2/models/shop/ready", "/v2/models/shop/versions/7/ready"]
)
def test_probes_are_logged_for_debugging_only(client, caplog, path):
    caplog.set_level(logging.DEBUG, "listwright")
    assert client.get(path).status_code == 200
    assert [r.levelname for r in caplog.records if r.name == "listwright.requests"] == ["DEBUG"]


def test_trace_context_comes_back_and_is_logged(client, caplog):
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    caplog.set_level(logging.INFO, "listwright")
    assert client.post("/rerank", json=BODY, headers={"traceparent": trace}).headers["traceparent"] == trace
    assert caplog.records[-1].facts["trace_id"] == "4bf92f3577b34da6a3ce929d0e0e4736"
    for later in (
        trace.replace("00-", "01-", 1),
        trace.replace("00-", "cc-", 1) + "-what.comes",
        trace.replace("00-", "fe-", 1) + "-",
    ):
        assert client.post("/rerank", json=BODY, headers={"traceparent": later}).headers["traceparent"] == later
        assert caplog.records[-1].facts["trace_id"] == "4bf92f3577b34da6a3ce929d0e0e4736"
    nobody = ("00-" + "0" * 32 + trace[35:], trace[:36] + "0" * 16 + trace[52:])
    for bad in ("", "00-xyz", trace.upper(), trace + "-x", "ff" + trace[2:], "01" + trace[2:] + "x", *nobody):
        answer = client.post("/rerank", json=BODY, headers={"traceparent": bad})
        assert answer.status_code == 200
        assert "traceparent" not in answer.headers


def test_odd_paths_share_one_label(client):
    for path in ("/a", "/b", "/rerank/"):
        assert client.get(path).status_code == 404
    text = client.get("/metrics").text
    assert 'listwright_requests_total{path="other",status="404"} 3.0' in text


def test_two_applications_do_not_share_metrics(settings, client):
    client.post("/rerank", json=BODY)
    with asking(create_app(settings), started=False) as other:
        assert 'path="/rerank"' not in other.get("/metrics").text


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ((), "$"),
        (("candidates", 3, "features", "price"), "$.candidates[3].features.price"),
        (("features", 0, 12), "$.features[0][12]"),
        (("a b", "it's"), "$['a b'][\"it's\"]"),
        (("x" * 1000,), "$." + "x" * 200 + "…"),
    ],
)
def test_json_path(parts, text):
    assert problems.json_path(parts) == text


def test_subclasses_stand_before_their_base():
    """The first row that fits counts."""
    kinds = list(problems.STATUS)
    assert kinds.index(EmptyListError) < kinds.index(CandidateError)
    for position, kind in enumerate(kinds):
        assert not [later for later in kinds[position + 1 :] if issubclass(later, kind)]


def test_every_status_is_documented():
    assert set(problems.STATUS.values()) == set(problems.DOCUMENTED)
    assert all(issubclass(kind, ListwrightError) for kind in problems.STATUS)
    assert problems.STATUS[SchemaMismatchError] == 409


def throttle_of(app):
    """What throttles the requests that rank nothing."""
    (outermost, *_) = app.user_middleware
    return outermost.kwargs["throttle"].__self__


def test_what_is_no_ranking_has_a_bound_of_its_own(app, client, monkeypatch):
    monkeypatch.setattr(throttle, "HOLD_S", 0.0)
    monkeypatch.setattr(throttle, "PROBE_S", 0.0)
    for kind in throttle_of(app).classes.values():
        kind.bucket = Bucket(1e-6, throttle.BURST, 0.0)  # however long the requests take
    answers = [client.get("/nothing") for _ in range(int(throttle.BURST) + 50)]
    refused = [answer for answer in answers if answer.status_code == 429]
    assert {answer.status_code for answer in answers} == {404, 429}
    assert refused[0].json()["type"] == "urn:listwright:overloaded"
    assert refused[0].headers["retry-after"] == "1"
    assert client.post("/rerank", json=BODY).status_code == 200
    assert client.get("/readyz").status_code == 200
    assert 'listwright_requests_total{path="other",status="429"}' in client.get("/metrics").text


def test_who_has_gone_before_its_turn_is_not_answered(app, client):
    for kind in throttle_of(app).classes.values():
        kind.bucket = Bucket(1e-6, 0.0, 0.0)

    async def receive():
        return {"type": "http.disconnect"}

    for path in ("/nothing", "/livez"):
        scope = {"type": "http", "method": "GET", "path": path, "headers": []}
        client.portal.call(app, scope, receive, pytest.fail)
