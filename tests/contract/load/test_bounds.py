"""What happens when there is too much, too late, too slow, or nobody there any more. In process, with a ranking that waits."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from listwright.ranking.deadline import NO_DEADLINE
from listwright.service import pipeline
from support.http.problem_bodies import check
from support.http.rerank_requests import BODY, BROKEN
from support.service.asgi import serving
from support.waiting import PATIENCE_S, until


class Held:
    """Rankings that wait until they are let go."""

    def __init__(self, monkeypatch):
        self.started, self.go, self.count = threading.Semaphore(0), threading.Event(), 0
        rank = pipeline.rank

        def waiting(*arguments, **options):
            self.count += 1
            self.started.release()
            assert self.go.wait(PATIENCE_S)
            return rank(*arguments, **options)

        monkeypatch.setattr(pipeline, "rank", waiting)


@pytest.fixture
def held(monkeypatch):
    return Held(monkeypatch)


@pytest.fixture
def pool():
    with ThreadPoolExecutor(8) as pool:
        yield pool


def test_beyond_the_queue_a_request_is_refused_at_once(bundle_folder, held, pool):
    with serving(bundle_folder, threads=1, queue=1, queue_ms=600_000) as client:
        working = pool.submit(client.post, "/rerank", json=BODY)
        assert held.started.acquire(timeout=PATIENCE_S)
        waiting = pool.submit(client.post, "/rerank", json=BODY)
        until(lambda: client.app.service.gate.waiting == 1)
        refused = client.post("/rerank", content=b"unread", headers={"content-type": "application/json"})
        problem = check(refused, 429, "overloaded")
        assert refused.headers["retry-after"] == "1"
        assert problem["detail"] == "1 requests are in work and 1 wait: ask again in 1 s"
        sent = []

        async def send(message):
            sent.append(message)

        client.portal.call(client.app, scope(), pytest.fail, send)
        assert sent[0]["status"] == 429, "and nothing was received"
        text = client.get("/metrics").text
        assert "listwright_waiting_requests 1.0" in text
        assert "listwright_working_requests 1.0" in text
        assert client.get("/readyz").status_code == 200, "a full queue is no reason to send traffic elsewhere"
        held.go.set()
        for answer in (working.result(), waiting.result()):
            assert answer.status_code == 200
            assert "queue;dur=" in answer.headers["server-timing"]
        assert waiting.result().json()["meta"]["timings_ms"]["queue"] > 0
        assert client.app.service.bodies.held == 0


@pytest.mark.nightly
def test_a_turn_that_does_not_come_in_time_is_refused(bundle_folder, held, pool):
    with serving(bundle_folder, threads=1, timeout_ms=200, queue_ms=60_000) as client:
        working = pool.submit(client.post, "/rerank", json=BODY)
        assert held.started.acquire(timeout=PATIENCE_S)
        late = client.post("/rerank", json=BODY)
        assert "did not come in time" in check(late, 429, "overloaded")["detail"]
        assert int(late.headers["retry-after"]) >= 1
        held.go.set()
        assert working.result().json()["meta"]["stage_reached"] == "input_order", "what it waited for, it lacks now"
    assert held.count == 1


def test_bodies_have_room_together(bundle_folder, held, pool):
    large = {**BODY, "id": "x" * 500, "context": {"note": "y" * 1000}}
    with serving(bundle_folder, threads=1, max_payload_bytes=2048, max_buffered_bytes=2048) as client:
        working = pool.submit(client.post, "/rerank", json=large)
        assert held.started.acquire(timeout=PATIENCE_S)
        assert 1500 < client.app.service.bodies.held < 2048
        assert "bytes of other bodies" in check(client.post("/rerank", json=large), 429, "overloaded")["detail"]
        held.go.set()
        assert working.result().status_code == 200
        assert client.app.service.bodies.held == 0
        assert client.post("/rerank", json=large).status_code == 200


def scope(path="/rerank", media_type=b"application/json", **headers):
    return {
        "type": "http",
        "http_version": "1.1",
        "method": "POST",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(b"content-type", media_type), *((name.encode(), value) for name, value in headers.items())],
    }


TARGETS = (
    ("/rerank", b"application/json"),
    ("/rerank", b"application/x-npy"),
    ("/v2/models/shop/infer", b"application/octet-stream"),
)


@pytest.mark.parametrize("announced", [True, False])
@pytest.mark.parametrize("target", TARGETS)
def test_no_more_is_read_than_the_longest_list_takes(bundle_folder, target, announced):
    """Far below what the settings allow."""
    sent, arrived = [], 0
    lengths = {"content-length": b"8388608"} if announced else {}

    async def receive():
        nonlocal arrived
        assert not announced
        arrived += 2**16
        return {"type": "http.request", "body": b" " * 2**16, "more_body": True}

    async def send(message):
        sent.append(message)

    with serving(bundle_folder) as client:
        client.portal.call(client.app, scope(*target, **lengths), receive, send)
        assert client.app.service.bodies.held == 0
    assert sent[0]["status"] == 413
    assert b"candidates (LISTWRIGHT_MAX_CANDIDATES) with 4 features" in sent[1]["body"]
    assert arrived <= 4 * 2**20


def test_a_caller_that_goes_while_it_waits_is_not_worked_for(bundle_folder, held, pool):
    content, sent = b'{"features": [[1, 2, 3, "A5"]]}', []
    gone = threading.Event()
    messages = iter([{"type": "http.request", "body": content, "more_body": False}])

    async def receive():
        message = next(messages, None)
        if message is None:
            await asyncio.to_thread(gone.wait)
        return message or {"type": "http.disconnect"}

    async def send(message):
        sent.append(message)

    with serving(bundle_folder, threads=1) as client:
        working = pool.submit(client.post, "/rerank", json=BODY)
        assert held.started.acquire(timeout=PATIENCE_S)
        waiting = client.portal.start_task_soon(client.app, scope(), receive, send)
        until(lambda: client.app.service.gate.waiting == 1)
        gone.set()
        waiting.result(10)
        assert sent[0]["status"] == 400
        assert client.app.service.gate.waiting == 0
        held.go.set()
        assert working.result().status_code == 200
    assert held.count == 1


@pytest.mark.parametrize("timeout_ms", [0.001, 1e-300, 1])
def test_too_little_time_gets_the_input_order(bundle_folder, monkeypatch, timeout_ms):
    """With a first stage that takes an hour."""
    with serving(bundle_folder) as client:
        for _ in range(8):
            client.app.service.current.models.choose(None, None).reranker.pace.note("first_stage", 2, 3600.0)
        answer = client.post("/rerank", json={**BODY, "timeout_ms": timeout_ms}).json()
        assert answer["meta"]["status"] == "degraded"
        assert answer["meta"]["stage_reached"] == "input_order"
        assert answer["meta"]["reason"] == "the first stage was not started: it would have missed the deadline"
        assert answer["ranks"] == [1, 2]
        assert answer["scores"] == [-1.0, -2.0]
        assert {result["stage"] for result in answer["results"]} == {"input"}
        assert 'degraded_total{cause="deadline",stage_reached="input_order"} 1.0' in client.get("/metrics").text


def test_time_for_the_first_stage_only_gets_its_order(bundle_folder):
    with serving(bundle_folder) as client:
        expected = client.post("/rerank", json={**BODY, "strategy": "first_stage"}).json()
        for _ in range(8):
            client.app.service.current.models.choose(None, None).reranker.pace.note("qilcm", 2, 3600.0)
        answer = client.post("/rerank", json={**BODY, "timeout_ms": 5000}).json()
        assert (answer["meta"]["status"], answer["meta"]["stage_reached"]) == ("degraded", "first_stage")
        assert answer["ranks"] == expected["ranks"]


def test_a_request_cannot_ask_for_more_than_the_settings_give(bundle_folder):
    with serving(bundle_folder, timeout_ms=50_000) as client:
        for _ in range(8):
            client.app.service.current.models.choose(None, None).reranker.pace.note("qilcm", 2, 60.0)
        for timeout_ms in (50_001, 10**9, None):
            answer = client.post("/rerank", json={**BODY, "timeout_ms": timeout_ms}).json()
            assert answer["meta"]["stage_reached"] == "first_stage"
        assert client.get("/info").json()["limits"]["timeout_ms"] == 50_000


@pytest.mark.parametrize("timeout_ms", [0, -1, "20", True, [], 10**400])
def test_a_timeout_is_a_time(live, timeout_ms):
    problem = check(live.post("/rerank", json={**BODY, "timeout_ms": timeout_ms}), 422, "invalid-request")
    assert problem["errors"][0]["path"] == "$.timeout_ms"


def test_where_no_degraded_answer_is_wanted_there_is_an_error(bundle_folder):
    with serving(bundle_folder, on_failure="error") as client:
        assert client.post("/rerank", json=BODY).status_code == 200
        failed = check(client.post("/rerank", json=BROKEN), 504, "degraded")
        assert "the second stage gave nan" in failed["detail"]
        late = check(client.post("/rerank", json={**BODY, "timeout_ms": 1e-9}), 504, "degraded")
        assert "would have missed the deadline" in late["detail"]
        text = client.get("/metrics").text
        assert 'degraded_total{cause="failure",stage_reached="first_stage"} 1.0' in text
        assert 'degraded_total{cause="deadline",stage_reached="input_order"} 1.0' in text


def test_answers_after_their_deadline_are_counted(bundle_folder, monkeypatch):
    with serving(bundle_folder) as client:
        rank = pipeline.rank
        monkeypatch.setattr(
            pipeline,
            "rank",
            lambda asked, by, **more: (until(lambda: by.left_s < 0), rank(asked, NO_DEADLINE, **more))[1],
        )
        assert client.post("/rerank", json={**BODY, "timeout_ms": 20}).json()["meta"]["status"] == "ok"
        monkeypatch.setattr(pipeline, "rank", rank)
        assert client.post("/rerank", json=BODY | {"timeout_ms": 50_000}).json()["meta"]["status"] == "ok"
        text = client.get("/metrics").text
        assert 'listwright_late_answers_total{stage_reached="second_stage"} 1.0' in text


@pytest.mark.parametrize(
    ("content", "status", "kind", "path"),
    [
        (b'{"top_n": 1, "top_n": 2, "features": [[1, 1, 1, "A5"]]}', 422, "repeated-name", "$.top_n"),
        (b'{"features": [[1, 1, NaN, "A5"]]}', 400, "undecodable-body", "$.features[0][2]"),
        (b'{"features": [[1, 1, 1, "\\ud83d"]]}', 400, "undecodable-body", "$.features[0][3]"),
        (b'{"features": [[1, 1, 1, ' + b"[" * 180 + b"]" * 182 + b"}", 422, "candidate", "$.features[0][3]"),
        (b'{"features": [' + b"[]," * 60_000 + b"[]]}", 413, "too-large", "$"),
        (b"[" * 190_000, 413, "too-large", "$"),
        (b'{"features": [' + b"[1]," * 60 + b"[1]]}", 413, "too-large", "$.features"),
        (b'{"a": 1,}', 400, "undecodable-body", "$"),
    ],
)
def test_odd_bodies_are_refused_with_a_path(live, content, status, kind, path):
    problem = check(live.post("/rerank", content=content, headers={"content-type": "application/json"}), status, kind)
    assert [fault["path"] for fault in problem["errors"]] == [path]
