"""What turns ``/readyz``: faults of the service, and nothing that a caller can bring about."""

import time

import pytest

from listwright.ranking import bundle
from listwright.ranking.errors import ScoringError
from listwright.service.app import create_app
from listwright.service.readiness import REST_S, RUN
from listwright.service.settings import Settings
from support.http.problem_bodies import check
from support.http.rerank_requests import BODY, BROKEN
from support.service.asgi import asking, serving


class Failing:
    """A second stage that fails as long as it is told to."""

    def __init__(self, app, monkeypatch):
        self.fails = True
        (served,) = app.service.current.models.current.values()
        self.scorer = served.reranker.second_pass.networks["qilcm"]
        monkeypatch.setitem(served.reranker.second_pass.networks, "qilcm", self)

    def score(self, features):
        if self.fails:
            raise ScoringError("the second stage failed")
        return self.scorer.score(features)


def test_a_run_of_degraded_answers_turns_readiness(bundle_folder, monkeypatch, caplog):
    now = [1000.0]
    with serving(bundle_folder) as client:
        monkeypatch.setattr(client.app.service.readiness.degraded, "_clock", lambda: now[0])
        stage = Failing(client.app, monkeypatch)
        for _ in range(RUN):
            assert client.get("/readyz").status_code == 200
            assert client.post("/rerank", json=BODY).json()["meta"]["status"] == "degraded"
        problem = check(client.get("/readyz"), 503, "not-ready")
        assert problem["detail"].startswith(f"the last {RUN} answers of shop were degraded")
        assert "\nlistwright_ready_workers 0.0\n" in client.get("/metrics").text
        reasons = [record for record in caplog.records if getattr(record, "facts", {}).get("reason")]
        assert len(reasons) == RUN, "each is logged"
        stage.fails = False
        assert client.post("/rerank", json=BODY).json()["meta"]["status"] == "ok", "what still comes is answered"
        assert client.get("/readyz").status_code == 200
        stage.fails = True
        for _ in range(RUN):
            client.post("/rerank", json=BODY)
        assert client.get("/readyz").status_code == 503
        now[0] += REST_S
        assert client.get("/readyz").status_code == 200


def test_callers_in_a_hurry_cannot_turn_readiness(bundle_folder):
    with serving(bundle_folder) as client:
        for _ in range(RUN + 1):
            answer = client.post("/rerank", json={**BODY, "timeout_ms": 1e-9}).json()
            assert answer["meta"]["status"] == "degraded"
        assert client.get("/readyz").status_code == 200


def test_lists_that_no_ranker_could_rank_cannot_either(bundle_folder, caplog):
    """Before it gives up the service ranks a list of its own, by the same ranker."""
    with serving(bundle_folder) as client:
        for _ in range(3 * RUN):
            assert client.post("/rerank", json=BROKEN).json()["meta"]["status"] == "degraded"
        assert client.get("/readyz").status_code == 200
    assert sum("a list of zeros is not" in record.getMessage() for record in caplog.records) == 3


class Begun:
    """Middleware: the first byte of each request came so long ago."""

    def __init__(self, app, seconds):
        self._app, self._seconds = app, seconds

    async def __call__(self, scope, receive, send):
        if scope["type"] == "http":
            scope["state"] = {"arrived": time.perf_counter() - self._seconds}
        await self._app(scope, receive, send)


@pytest.mark.parametrize(("way_s", "ready"), [(99.999, 200), (60.0, 200), (40.0, 503)])
def test_bodies_that_come_late_cannot_turn_readiness(bundle_folder, monkeypatch, way_s, ready):
    """Late answers count against the service if at least half of the time was left when the body was complete."""
    app = create_app(Settings(bundle=bundle_folder, timeout_ms=100_000), models=bundle.load(bundle_folder))
    app.add_middleware(Begun, seconds=way_s)
    with asking(app) as client:
        (served,) = app.service.current.models.current.values()
        monkeypatch.setattr(served.reranker.pace, "expected", lambda *_: 70.0)
        monkeypatch.setattr(served.reranker.pace, "_quickest", dict.fromkeys(served.reranker.pace._quickest, 70.0))
        for _ in range(RUN + 1):
            answer = client.post("/rerank", json=BODY).json()
            assert answer["meta"]["stage_reached"] == "input_order"
        assert client.get("/readyz").status_code == ready


@pytest.mark.parametrize(("timeout_ms", "stage"), [(50_000, "input_order"), (90_000, "second_stage")])
def test_the_timeout_of_a_request_counts_from_its_first_byte(bundle_folder, timeout_ms, stage):
    app = create_app(Settings(bundle=bundle_folder, timeout_ms=100_000), models=bundle.load(bundle_folder))
    app.add_middleware(Begun, seconds=60.0)
    with asking(app) as client:
        assert client.post("/rerank", json=BODY | {"timeout_ms": timeout_ms}).json()["meta"]["stage_reached"] == stage
