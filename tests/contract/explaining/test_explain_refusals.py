"""What ``POST /explain`` refuses: bodies that are wrong, with their paths; keys; and all that ``/rerank`` refuses."""

import json

import pytest

from support.http.problem_bodies import JSON, check
from support.http.rerank_requests import ROWS, by_name, matrix
from support.service.asgi import serving

PATH = "/explain"
RANKS, POSTS = "r" * 20, "e" * 20


@pytest.mark.parametrize(
    ("more", "path"),
    [
        ({}, "$"),
        ({"candidate": None}, "$"),
        ({"candidate": 0, "explain_top_n": 2}, "$"),
        ({"explain_top_n": 2, "against": 0}, "$"),
        *(({"candidate": wrong}, "$.candidate") for wrong in (-1, 1.5, True, [], {}, [0], 2**60, 1e300, "x" * 513)),
        *(({"candidate": 0, "against": wrong}, "$.against") for wrong in (-1, False, [1], {"index": 1})),
        *(({"explain_top_n": wrong}, "$.explain_top_n") for wrong in (0, 6, "3", 1.5, True, -1)),
        *(({"candidate": 0, "explain_budget": wrong}, "$.explain_budget") for wrong in (0, "9", 10**9, 1.5)),
        ({"candidate": 0, "candidates_to_explain": 1}, "$.candidates_to_explain"),
        ({"candidate": 0, "top_n": 0}, "$.top_n"),
    ],
)
def test_wrong_words_carry_their_path(client, more, path):
    problem = check(client.post(PATH, json=matrix() | more), 422, "invalid-request")
    assert [fault["path"] for fault in problem["errors"]] == [path]


@pytest.mark.parametrize(
    ("more", "path", "says"),
    [
        ({"candidate": 7}, "$.candidate", "no candidate 7: the list has 7"),
        ({"candidate": "sku-7"}, "$.candidate", "no candidate has the id 'sku-7'"),
        ({"candidate": ""}, "$.candidate", "no candidate has the id ''"),
        ({"candidate": 0, "against": 99}, "$.against", "no candidate 99"),
        ({"candidate": 0, "against": 0}, "$.against", "the explained candidate itself"),
        ({"candidate": 0, "against": "sku-0"}, "$.against", "the explained candidate itself"),
        ({"candidate": 0, "explain_budget": 20_001}, "$.explain_budget", "above the limit, 20000"),
        ({"candidate": 0, "expect_candidates": 6}, "$", "expect_candidates is 6, and 7 arrived"),
        ({"candidate": 0, "expect_candidates": 8}, "$", "expect_candidates is 8, and 7 arrived"),
    ],
)
def test_what_is_not_in_the_list_carries_its_path(client, more, path, says):
    problem = check(client.post(PATH, json=matrix() | more), 422, "candidate")
    assert [fault["path"] for fault in problem["errors"]] == [path]
    assert says in problem["detail"]


def test_words_of_the_query_string_count(client):
    body = matrix()
    by_query = client.post(f"{PATH}?candidate=1&against=sku-2&top_n=2&strategy=first_stage", json=body).json()
    in_body = {**body, "candidate": 1, "against": "sku-2", "top_n": 2, "strategy": "first_stage"}
    by_body = client.post(PATH, json=in_body).json()
    for answer in (by_query, by_body):
        assert [result["rank"] for result in answer["ranking"]["results"]] == [1, 2]
        assert answer["ranking"]["route"]["strategy"] == "first_stage"
        assert (answer["explanations"][0]["candidate"]["index"], answer["explanations"][0]["against"]["index"]) == (
            1,
            2,
        )


@pytest.mark.parametrize(
    ("query", "more", "path"),
    [
        ("nosuch=1", {"candidate": 0}, "?nosuch"),
        ("candidate=0&candidate=0", {}, "?candidate"),
        ("candidate=0", {"candidate": 1}, "?candidate"),
        ("explain_top_n=2", {"candidate": 1}, "$"),
        ("explain_top_n=6", {}, "?explain_top_n"),
        ("explain_budget=no", {"candidate": 0}, "?explain_budget"),
        ("model=other", {"candidate": 0, "model": "shop"}, "?model"),
    ],
)
def test_a_query_that_is_wrong_or_says_something_else_is_refused(client, query, more, path):
    problem = check(client.post(f"{PATH}?{query}", json=matrix() | more), 422, "invalid-request")
    assert [fault["path"] for fault in problem["errors"]] == [path]


def test_null_of_an_optional_word_is_as_good_as_absent(client):
    nothing = dict.fromkeys(("against", "explain_top_n", "explain_budget", "strategy", "raw_scores", "top_n"))
    assert client.post(PATH, json=matrix() | nothing | {"candidate": 0}).status_code == 200


def test_an_id_needs_ids(client):
    body = {"features": [[1.0, 2.0, 3.0, "A5"]], "candidate": "a"}
    assert "have no ids" in check(client.post(PATH, json=body), 422, "candidate")["detail"]


@pytest.mark.parametrize(
    ("body", "status", "kind", "path"),
    [
        (by_name([]), 400, "empty-list", "$.candidates"),
        (by_name([ROWS[0] | {"price": "low"}]), 422, "candidate", "$.candidates[0].features.price"),
        (by_name([ROWS[0] | {"prise": 1.0}]), 409, "schema-mismatch", "$.candidates[0].features"),
        (by_name([{"price": 1.0}]), 409, "schema-mismatch", "$.candidates[0].features"),
        ({"features": [[1.0]]}, 409, "schema-mismatch", "$.features[0]"),
        (by_name(model="other"), 404, "unknown-model", None),
        (by_name(specialist=9), 404, "unknown-specialist", None),
        (by_name(strategy="dlcm"), 404, "unknown-strategy", None),
        (by_name(ROWS * 200), 413, "too-large", None),
    ],
)
def test_what_rerank_refuses_is_refused_in_the_same_words(client, body, status, kind, path):
    problem = check(client.post(PATH, json=body | {"candidate": 0}), status, kind)
    ranked = check(client.post("/rerank", json=body), status, kind)
    assert problem["detail"] == ranked["detail"]
    assert problem["errors"] == ranked["errors"]
    assert path is None or [fault["path"] for fault in problem["errors"]] == [path]


@pytest.mark.parametrize(
    ("content", "headers", "status", "kind"),
    [
        (b"", {}, 400, "undecodable-body"),
        (b"{", {}, 400, "undecodable-body"),
        (b"null", {}, 422, "invalid-request"),
        (b'{"features": [[NaN]], "candidate": 0}', {}, 400, "undecodable-body"),
        (b'{"candidate": "\\ud800", "features": [[1, 2, 3, 1]]}', {}, 400, "undecodable-body"),
        (b'{"candidate": 0, "candidate": 1, "features": [[1, 2, 3, 1]]}', {}, 422, "repeated-name"),
        (b"[" * 250, {}, 400, "undecodable-body"),
        (b'{"candidate": ' + b"9" * 5000 + b"}", {}, 400, "undecodable-body"),
        (b"{}", {"content-type": "text/plain"}, 415, "unsupported-media-type"),
        (b"{}", {"content-type": "application/x-npy"}, 415, "unsupported-media-type"),
        (b"{}", {"content-encoding": "gzip"}, 415, "unsupported-media-type"),
        (b'{"id": "' + b"a" * 17 * 2**20 + b'"}', {}, 413, "too-large"),
    ],
)
def test_hostile_bodies(client, content, headers, status, kind):
    check(client.post(PATH, content=content, headers=JSON | headers), status, kind)
    assert client.post(PATH, json=matrix() | {"candidate": 0}).status_code == 200, "it goes on"


def test_hostile_names_are_told_as_they_are(client):
    names = ["<img src=x onerror=alert(1)>", "\u202egnp", "\u0000", "a" * 512]
    rows = [{"id": name, "features": ROWS[n]} for n, name in enumerate(names)]
    for name in names:
        found = client.post(PATH, json={"candidates": rows, "candidate": name}).json()["explanations"]
        assert [one["candidate"]["id"] for one in found] == [name]
    problem = check(client.post(PATH, json={"candidates": rows, "candidate": "</script>" * 50}), 422, "candidate")
    assert len(json.dumps(problem)) < 3000


@pytest.mark.parametrize(("key", "status"), [(RANKS, 200), (POSTS, 403), ("x" * 20, 401), (None, 401)])
def test_it_wants_a_key_that_may_rank(explained_folder, key, status):
    keys = f"web:{RANKS},shop:{POSTS} scope=events"
    with serving(explained_folder, explain=True, explain_timeout_ms=600_000, keys=keys) as client:
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        assert client.post(PATH, json=matrix() | {"candidate": 0}, headers=headers).status_code == status


def test_wrong_method(client):
    assert client.get(PATH).status_code == 405
