"""What is no good answer becomes the right error, with all that is known."""

import enum
import json
import math
import pickle
import re
from pathlib import Path

import httpx
import numpy as np
import pandas as pd
import polars as pl
import pytest

import listwright_client
from listwright_client import errors
from listwright_client.exchange import Reply
from listwright_client.refusals import reply_error, retry_after
from support.http.scripted import answer, answering, breaking, good, problem

MATRIX = np.ones((2, 3))


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, errors.RequestError),
        (401, errors.RequestError),
        (404, errors.RequestError),
        (409, errors.RequestError),
        (422, errors.RequestError),
        (429, errors.OverloadedError),
        (500, errors.ServerError),
        (502, errors.ServerError),
        (503, errors.UnavailableError),
        (504, errors.DeadlineExceededError),
        (301, errors.UnexpectedAnswerError),
        (204, errors.UnexpectedAnswerError),
        (799, errors.UnexpectedAnswerError),
    ],
)
def test_status_decides_the_class(client, server, status, kind):
    server.says(problem(status, "some-kind", headers={}))
    with pytest.raises(errors.ListwrightError) as caught:
        client.rerank(MATRIX)
    assert type(caught.value) is kind
    assert (caught.value.status, caught.value.kind, caught.value.detail) == (status, "some-kind", "no")
    assert caught.value.request_id == "r-1"


def test_a_redirect_says_where_to(client, server):
    server.says(lambda request: httpx.Response(308, headers={"location": "https://shop.test/rerank"}))
    with pytest.raises(errors.UnexpectedAnswerError, match=r"https://shop\.test/rerank"):
        client.rerank(MATRIX)


def test_faults_and_names_come_along(client, server):
    faults = [{"path": "$.top_n", "message": "too small"}, {"path": "$.x", "message": "unknown"}]
    server.says(problem(409, "schema-mismatch", {}, errors=faults, expected=["a"], sent=["b"], fingerprint="sha256:1"))
    with pytest.raises(errors.RequestError) as caught:
        client.rerank(MATRIX)
    assert caught.value.errors == (errors.Fault("$.top_n", "too small"), errors.Fault("$.x", "unknown"))
    known = caught.value.problem
    assert (known.expected, known.sent, known.fingerprint) == (("a",), ("b",), "sha256:1")
    assert str(caught.value) == "409 schema-mismatch: no (1 attempt, request r-1)"


@pytest.mark.parametrize(
    ("content", "detail"),
    [
        (b"<html>bad gateway</html>", "Bad Gateway: '<html>bad gateway</html>'"),
        (b"[1]", "Bad Gateway: '[1]'"),
        (b"[" * 100_000, "Bad Gateway: '" + "[" * 200 + "'"),
        (b"9" * 5000, "Bad Gateway: '" + "9" * 200 + "'"),
        (b"\xff" * 500, "Bad Gateway: '" + "\ufffd" * 200 + "'"),
        (b'{"type": 3, "errors": [4], "expected": 5}', 'Bad Gateway: \'{"type": 3, "errors": [4], "expected": 5}\''),
    ],
)
def test_words_of_a_proxy_are_shown_clipped(client, server, content, detail):
    server.says(lambda request: httpx.Response(502, content=content))
    with pytest.raises(errors.ServerError) as caught:
        client.rerank(MATRIX, request_id="mine-1")
    assert caught.value.detail == detail
    assert (caught.value.kind, caught.value.errors, caught.value.request_id) == (None, (), "mine-1")
    server.says(lambda request: httpx.Response(502, content=content, headers={"x-request-id": "theirs-1"}))
    with pytest.raises(errors.ServerError) as caught:
        client.rerank(MATRIX, request_id="mine-1")
    assert caught.value.request_id == "theirs-1"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"<html>",
        b"[]",
        b"null",
        b"[" * 100_000,
        b'{"scores": [%s, 2]}' % (b"9" * 5000),
        b'{"scores": [1, 2]}',
        answer(length=3),
        answer(ranks=[1]),
        answer(scores=[1.0]),
        answer(ranks=[1, 10**30]),
        answer(scores=["a", "b"]),
        answer(results=[{}]),
        answer(probabilities=[0.5]),
        answer(probabilities=["a", "b"]),
        answer(meta={**answer()["meta"], "weights": {"margin": "1"}}),
        answer(scores=["0.5", "0.25"]),
        answer(scores=[0.25, 0.75]),
        answer(scores=[True, False]),
        answer(meta={"status": "fine", "stage_reached": "-", "reason": None, "timings_ms": {}}),
        answer(route=None),
        answer(results=5),
        answer(results={"0": answer()["results"][0]}),
        answer(results="ab"),
        answer(results=[{**answer()["results"][0], "index": 999}, answer()["results"][1]]),
        answer(results=[{**answer()["results"][0], "index": -2}, answer()["results"][1]]),
        answer(results=[{**answer()["results"][0], "index": 0.0}, answer()["results"][1]]),
        answer(results=[{**answer()["results"][0], "index": False}, answer()["results"][1]]),
        answer(results=[{**answer()["results"][0], "rank": True}, answer()["results"][1]]),
        answer(results=[{**answer()["results"][0], "relevance_score": "1"}, answer()["results"][1]]),
        answer(results=[{**answer()["results"][0], "rules": "ab"}, answer()["results"][1]]),
        answer(results=answer()["results"][:1] * 2),
        answer(ranks=[True, 2]),
        answer(ranks="12"),
        answer(scores="12"),
        answer(scores={"0": 1.0, "1": 0.5}),
        json.dumps(answer(scores=[math.inf, 0.5])).encode(),
        answer(model=3),
        answer(version=["7"]),
        answer(route={"strategy": 5, "specialist": None, "confidence": None, "decided_by": "bundle"}),
        answer(meta={"status": "ok", "stage_reached": "-", "reason": 5, "timings_ms": {}}),
        answer(meta={"status": "ok", "stage_reached": "-", "reason": None, "timings_ms": {}, "ignored": "price"}),
        answer(meta={"status": "ok", "stage_reached": "-", "reason": None, "timings_ms": 3}),
    ],
)
def test_a_200_in_other_words_is_no_answer(client, server, content):
    given = {"content": content} if isinstance(content, bytes) else {"json": content}
    server.says(lambda request: httpx.Response(200, **given))
    with pytest.raises(errors.UnexpectedAnswerError):
        client.rerank(MATRIX)
    assert len(server.requests) == 1


IDS = ["a", "b"]
FRAME = pd.DataFrame({"price": [1.0, 2.0]})


@pytest.mark.parametrize("features", [MATRIX, MATRIX.tolist(), [{"price": 1.0}, {"price": 2.0}], FRAME])
@pytest.mark.parametrize(
    ("sent", "said"),
    [
        ({"ids": IDS}, answer(ids=["a", "x"])),
        ({"ids": IDS}, answer(ids=["b", "a"])),
        ({"ids": IDS}, answer()),
        ({}, answer(ids=IDS)),
        ({"id": "q"}, answer(id="r")),
        ({"id": "q"}, answer()),
        ({}, answer(id="q")),
        ({"version": "8"}, answer()),
        ({"top_n": 1}, answer()),
        ({}, answer(results=answer()["results"][:1])),
        ({"top_n": 2}, answer(results=answer()["results"][:1] * 2)),
        ({"top_n": 1}, answer(results=answer(length=3)["results"][2:])),
        ({}, answer(length=3)),
        ({}, answer(length=1)),
        ({}, answer(ranks=[2, 1])),
        ({}, answer(ranks=[1, 1])),
        ({}, answer(ranks=[1.5, 2.5])),
        ({}, answer(results=answer()["results"][::-1])),
        ({"top_n": 1}, answer(results=[{**answer()["results"][0], "rank": 2}])),
        ({"top_n": 1}, answer(results=answer()["results"][:1], ranks=[1, 7])),
    ],
)
def test_an_answer_to_another_list_is_an_error(client, server, features, sent, said):
    server.says(answering(said))
    with pytest.raises(errors.UnexpectedAnswerError):
        client.rerank(features, **sent)
    assert len(server.requests) == 1


@pytest.mark.parametrize("top_n", [1, 2, 3, None])
def test_ids_and_count_of_what_was_sent_are_an_answer(client, server, top_n):
    server.says(answering(answer(ids=IDS, results=answer(ids=IDS)["results"][:top_n], id="q")))
    for ids in (IDS, tuple(IDS), np.array(IDS), pd.Series(IDS, index=[7, 9])):
        ranking = client.rerank(MATRIX, ids=ids, id="q", version="7", top_n=top_n)
        assert [result.id for result in ranking.results] == IDS[:top_n]


@pytest.mark.parametrize(
    ("ids", "own", "wire"),
    [
        ([123, 45], [123, 45], ["123", "45"]),
        ((7, "b"), [7, "b"], ["7", "b"]),
        (np.array([123, 45]), [123, 45], ["123", "45"]),
        (np.array([123, 45], dtype=np.uint8), [123, 45], ["123", "45"]),
        (pd.Series([123, 45], index=["x", "y"]), [123, 45], ["123", "45"]),
        (pd.Series([123, 45], dtype="Int64"), [123, 45], ["123", "45"]),
        (pl.Series([123, 45]), [123, 45], ["123", "45"]),
        (range(2), [0, 1], ["0", "1"]),
        ([-(2**70), 2**70], [-(2**70), 2**70], [str(-(2**70)), str(2**70)]),
        (np.array(["a", "b"]), ["a", "b"], ["a", "b"]),
        ({123: 9.5, "b": 7.0}.keys(), [123, "b"], ["123", "b"]),
        (list(enum.Enum("Text", {"ONE": "a", "TWO": "b"}, type=str)), ["a", "b"], ["a", "b"]),
        (list(enum.IntEnum("Number", ["ONE", "TWO"])), [1, 2], ["1", "2"]),
    ],
)
def test_ids_come_back_as_they_were_sent(client, server, ids, own, wire):
    server.says(answering(answer(ids=wire)))
    for features in (MATRIX, [{"price": 1.0}, {"price": 2.0}], FRAME):
        found = [result.id for result in client.rerank(features, ids=ids).results]
        assert found == own
        assert [type(one) for one in found] == [type(one) for one in own]
        body = server.bodies()[-1]
        assert body.get("ids", [one.get("id") for one in body.get("candidates", ())]) == wire


def test_ids_may_stand_in_the_rows_as_in_http(client, server):
    server.says(answering(answer(ids=["123", "45"])))
    rows = [{"id": 123, "features": {"price": 1.0}}, {"id": 45, "features": {"price": 2.0}}]
    assert [result.id for result in client.rerank(rows).results] == [123, 45]
    sent = [{"id": "123", "features": {"price": 1.0}}, {"id": "45", "features": {"price": 2.0}}]
    assert server.bodies() == [{"candidates": sent}]


@pytest.mark.parametrize("wire", [[123, 45], ["45", "123"], ["123", None], ["123.0", "45"]])
def test_an_answer_with_other_ids_than_the_digits_sent_is_none(client, server, wire):
    server.says(answering(answer(ids=wire)))
    with pytest.raises(errors.UnexpectedAnswerError):
        client.rerank(MATRIX, ids=[123, 45])


@pytest.mark.parametrize(
    ("ids", "says"),
    [
        ([1.0, 2.0], r"ids\[0\] is a float"),
        (["a", None], r"ids\[1\] is a NoneType"),
        ([True, False], r"ids\[0\] is a bool"),
        ([b"a", b"b"], r"ids\[0\] is a bytes"),
        (pd.Series([1, None]), r"ids\[0\] is a float"),
        (pd.Series([1, None], dtype="Int64"), r"ids\[1\] is a NAType"),
        ("ab", "ids is a str"),
        ({"a", "b"}, "ids is a set"),
        ({"a": 1, "b": 2}, "ids is a dict"),
    ],
)
def test_ids_that_could_not_come_back_are_refused(client, server, ids, says):
    with pytest.raises(TypeError, match=says):
        client.rerank(MATRIX, ids=ids)
    assert server.requests == []


INFO = {
    **dict.fromkeys(("model", "version", "fingerprint", "default_strategy"), "x"),
    "features": [{"name": "price", "kind": "numeric", "required": False}],
    "limits": {"max_candidates": 10, "max_payload_bytes": 100},
    "strategies": ["auto"],
}


@pytest.mark.parametrize(
    "changes",
    [
        {"features": 5},
        {"features": [{"name": 5, "kind": "numeric", "required": False}]},
        {"features": [{"name": "price", "kind": "numeric"}]},
        {"features": ["price"]},
        {"strategies": "auto"},
        {"limits": {"max_candidates": "10", "max_payload_bytes": 100}},
        {"model": None},
    ],
)
def test_what_is_served_is_checked(client, server, changes):
    server.says(answering(INFO))
    assert client.info().feature_names == ("price",)
    server.says(answering({**INFO, **changes}))
    with pytest.raises(errors.UnexpectedAnswerError):
        client.info()


HOSTILE = "\x1b[2J\x07\u202e\r\n\u2028\x9b1m"
SHOWN = r"\x1b[2J\x07\u202e\r\n\u2028\x9b1m"


def test_control_characters_of_a_server_do_not_reach_a_terminal(client, server):
    faults = [{"path": HOSTILE, "message": HOSTILE}]
    more = {"detail": HOSTILE, "errors": faults, "expected": [HOSTILE], "sent": [HOSTILE], "fingerprint": HOSTILE}
    server.says(problem(422, HOSTILE, {}, request_id=HOSTILE, **more))
    with pytest.raises(errors.RequestError) as caught:
        client.rerank(MATRIX)
    known = caught.value.problem
    texts = [known.kind, known.detail, known.request_id, *known.expected, *known.sent, known.fingerprint]
    assert {*texts, known.errors[0].path, known.errors[0].message} == {SHOWN}
    assert str(caught.value) == f"422 {SHOWN}: {SHOWN} (1 attempt, request {SHOWN})"
    for line in (
        answering(answer(version=HOSTILE)),
        answering({**answer(), HOSTILE: 1, "results": [{HOSTILE: HOSTILE}]}),
        lambda request: httpx.Response(500, content=HOSTILE.encode(), headers={"location": "\x1b[2J"}),
        answering(answer(), **{"x-request-id": "\x1b[2J"}),
        breaking(lambda *values, **options: httpx.ConnectError(HOSTILE)),
    ):
        server.says(line)
        with pytest.raises(errors.ListwrightError) as caught:
            client.rerank(MATRIX, version="7")
        assert (str(caught.value) + caught.value.detail).isprintable()


OTHER = {"x-request-id": "somebody-else"}


@pytest.mark.parametrize(
    "line",
    [
        answering(answer(), **OTHER),
        problem(404, "unknown-model", OTHER),
        problem(422, "invalid-request", OTHER),
        problem(504, "degraded", OTHER),
        problem(500, "internal-error", OTHER),
    ],
)
def test_an_answer_to_another_request_is_an_error(client, server, line):
    server.says(line)
    with pytest.raises(errors.UnexpectedAnswerError, match="somebody-else") as caught:
        client.rerank(MATRIX, request_id="mine-1")
    assert (caught.value.request_id, len(server.requests)) == ("mine-1", 1)
    for ask in (client.info, client.ready, lambda: client.explain(MATRIX, candidate=0)):
        with pytest.raises(errors.UnexpectedAnswerError, match="somebody-else"):
            ask()


def test_an_answer_without_a_request_id_counts_by_its_list(client, server):
    """A proxy may drop the header, or send one of its own beside it."""
    server.says(lambda request: httpx.Response(200, json=answer(ids=IDS)))
    assert client.rerank(MATRIX, ids=IDS).attempts == 1
    with pytest.raises(errors.UnexpectedAnswerError):
        client.rerank(MATRIX, ids=["a", "x"])
    for values in (["proxy-1", "mine,1"], ["proxy-1, mine-1"], ["mine-1,proxy-1"]):
        both = [("x-request-id", value) for value in values]
        server.says(lambda request, both=both: httpx.Response(200, json=answer(), headers=both))
        assert client.rerank(MATRIX, request_id="mine,1" if "mine,1" in values else "mine-1").attempts == 1


def test_a_refusal_that_passes_is_asked_again_whosever_it_is(client, server):
    server.says(problem(429, "overloaded", OTHER), problem(503, "too-many-connections", OTHER), good())
    assert client.rerank(MATRIX).attempts == 3
    server.says(problem(408, "malformed-http", OTHER))
    with pytest.raises(errors.RequestError):
        client.rerank(MATRIX)


DATE = "Wed, 21 Oct 2026 07:28:00 GMT"


@pytest.mark.parametrize(
    ("value", "date", "seconds"),
    [
        ("0", None, 0.0),
        (" 120 ", None, 120.0),
        ("1.5", None, 1.5),
        ("Wed, 21 Oct 2026 07:28:30 GMT", DATE, 30.0),
        ("Wed, 21 Oct 2026 07:27:00 GMT", DATE, 0.0),
        ("Wed, 21 Oct 1998 07:27:00 GMT", None, 0.0),
        ("-3", None, None),
        ("nan", None, None),
        ("1e9", None, None),
        ("9" * 400, None, 1e8),
        ("soon", DATE, None),
        ("", None, None),
        (None, DATE, None),
    ],
)
def test_retry_after(value, date, seconds):
    assert retry_after(value, date) == seconds


def test_an_error_survives_pickling():
    reply = Reply(429, httpx.Headers({"retry-after": "3"}), b"")
    error = reply_error(reply, "r-1", 2)
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), copy.problem, copy.attempts, str(copy)) == (type(error), error.problem, 2, str(error))
    assert copy.retry_after == 3.0
    assert "(2 attempts, request r-1)" in str(copy)


def test_the_tree_is_the_one_that_is_drawn():
    drawn = set(re.findall(r"[├└]── (\w+)", errors.__doc__))
    assert drawn == {kind.__name__ for kind in errors.ListwrightError.__subclasses__()}
    page = (Path(listwright_client.__file__).parents[2] / "docs" / "client.md").read_text(encoding="utf-8")
    assert drawn == set(re.findall(r"^\| `(\w+Error)` \|", page, re.M))
