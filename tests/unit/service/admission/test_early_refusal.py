"""Refusals at the lowest price say what dearer ones say."""

import asyncio
import json

import pytest

from listwright.ranking.errors import AbandonedError
from listwright.service.admission.gate import LOG_S, EarlyRefusal, Gate
from listwright.service.errors import OverloadedError
from listwright.service.telemetry.metrics import Telemetry


class FullGate(Gate):
    """Nobody else gets in."""

    is_full = True


class Caller:
    """Sends heads and keeps what comes back."""

    def __init__(self):
        self.telemetry, self.now = Telemetry(), 0.0
        self.passed, self.paced = [], []
        self.early_refusal = EarlyRefusal(self.answer, FullGate(1, 0), self.telemetry, self.pace, lambda: self.now)

    async def answer(self, scope, _receive, _send):
        """The application behind."""
        self.passed.append(scope["path"])

    async def pace(self, scope, _receive):
        """Requests that rank nothing: some go on."""
        self.paced.append(scope["path"])
        if scope["path"] == "/too-often":
            raise OverloadedError("more than 100 requests a second", 7)
        if scope["path"] == "/gone":
            raise AbandonedError("the caller has gone")

    def scope(self, path, method="POST", headers=()):
        return {"type": "http", "method": method, "path": path, "headers": list(headers)}

    def ask(self, path, headers=()):
        sent = []

        async def send(message):
            sent.append(message)

        asyncio.run(self.early_refusal.refuse(self.scope(path, headers=headers), send))
        head, body = sent
        return head["status"], dict(head["headers"]), json.loads(body["body"])

    def send(self, path, method="POST"):
        """The statuses of what comes back through the middleware."""
        statuses = []

        async def send(message):
            statuses.extend([message["status"]] if "status" in message else [])

        asyncio.run(self.early_refusal(self.scope(path, method), None, send))
        return statuses

    def count(self, path):
        return self.telemetry.registry.get_sample_value("listwright_requests_total", {"path": path, "status": "429"})


@pytest.fixture
def caller():
    return Caller()


@pytest.mark.parametrize(
    ("path", "label"),
    [
        ("/rerank", "/rerank"),
        ("/v1/rerank", "/v1/rerank"),
        ("/v2/models/shop/infer", "/v2/models/{name}/infer"),
        ("/v2/models/shop/versions/7/infer", "/v2/models/{name}/versions/{version}/infer"),
    ],
)
def test_a_refusal_is_a_problem_and_is_counted_under_its_route(caller, path, label):
    assert caller.early_refusal.refuses(caller.scope(path))
    trace = b"00-" + b"a" * 32 + b"-" + b"b" * 16 + b"-01"
    status, headers, body = caller.ask(path, [(b"x-request-id", b"r-1"), (b"traceparent", trace)])
    assert headers[b"traceparent"] == trace
    assert body.get("error") == (body["detail"] if "infer" in path else None)
    assert status == body["status"] == 429
    assert (headers[b"x-request-id"], headers[b"retry-after"]) == (b"r-1", b"1")
    assert headers[b"content-type"] == b"application/problem+json"
    assert (body["type"], body["request_id"], body["errors"]) == ("urn:listwright:overloaded", "r-1", [])
    with pytest.raises(OverloadedError) as dear:
        FullGate(1, 0).check()
    assert body["detail"] == str(dear.value)
    assert caller.count(label) == 1


@pytest.mark.parametrize(("path", "method"), [("/readyz", "GET"), ("/rerank", "GET"), ("/v2/models/shop", "POST")])
def test_what_is_no_ranking_goes_on(caller, path, method):
    assert not caller.early_refusal.refuses(caller.scope(path, method))
    assert not caller.early_refusal.refuses({"type": "lifespan"})


@pytest.mark.parametrize("path", ["/rerank", "/v1/rerank", "/v2/models/a b/infer", "/v2/models/a/versions/1/infer"])
def test_rankings_are_refused_by_the_gate_alone(caller, path, monkeypatch):
    assert caller.send(path) == [429]
    assert (caller.passed, caller.paced) == ([], [])
    monkeypatch.setattr(FullGate, "is_full", False)
    assert caller.send(path) == []
    assert (caller.passed, caller.paced) == ([path], [])


def test_what_ranks_nothing_is_paced_and_a_full_gate_does_not_matter(caller):
    assert [caller.send(path, "GET") for path in ("/info", "/too-often", "/gone")] == [[], [429], []]
    assert caller.paced == ["/info", "/too-often", "/gone"]
    assert caller.passed == ["/info"]
    assert caller.count("other") == 1


def test_a_request_id_that_no_header_can_hold_is_replaced(caller):
    _, headers, body = caller.ask("/rerank", [(b"x-request-id", b"a b\n")])
    assert headers[b"x-request-id"].decode() == body["request_id"]
    assert len(body["request_id"]) == 32


def test_a_flood_is_few_lines(caller, caplog):
    for caller.now in (0.0, 1.0, 2.0, LOG_S, LOG_S + 1):
        caller.ask("/rerank")
    assert [record.facts["refused"] for record in caplog.records] == [1, 3]
