"""Words that stand beside a body count alike for every kind of body, and none is dropped."""

import re

import numpy as np
import pytest

from listwright.service.app import create_app
from listwright.service.bundles import folder
from listwright.service.settings import Settings
from listwright.service.wire.schemas import Envelope
from support.http import binary_requests
from support.http.binary_requests import INFER, MATRIX, NPY, features, saved
from support.http.problem_bodies import check
from support.http.rerank_requests import by_column, by_name, by_position, matrix, without_timings
from support.service.asgi import asking

BODIES = {
    "rows by name": ("/rerank", {"json": by_name()}),
    "rows by position": ("/v1/rerank", {"json": by_position()}),
    "matrix": ("/v2/rerank", {"json": matrix()}),
    "columns": ("/rerank", {"json": by_column()}),
    "the general way": ("/rerank", {"json": {**matrix(), "top_n": None, "strategy": None, "context": None}}),
    "npy": ("/rerank", {"content": saved(MATRIX), "headers": NPY}),
    "raw tensors": (INFER, binary_requests.body([features()], MATRIX.tobytes())),
    "tensors, a version in the path": (
        "/v2/models/shop/versions/7/infer",
        binary_requests.body([features()], MATRIX.tobytes()),
    ),
    "tensors in JSON": (
        INFER,
        {"json": {"inputs": [features(np.nan_to_num(MATRIX), parameters=None, data=np.nan_to_num(MATRIX).tolist())]}},
    ),
}


@pytest.fixture(params=BODIES)
def post(request, live):
    """Sends one kind of body with a query."""
    path, sent = BODIES[request.param]

    def ask(query="", **more):
        headers = {**sent.get("headers", {}), **more}
        return live.post(f"{path}{'?' if query else ''}{query}", **{**sent, "headers": headers})

    return ask


def order_of(answer):
    """Positions, best first: of either protocol's answer."""
    if "results" in answer:
        return [result["index"] for result in answer["results"]]
    return next(output["data"] for output in answer["outputs"] if output["name"] == "order")


def test_words_of_the_query_string_count(post):
    whole, cut = post().json(), post("top_n=2").json()
    assert (len(order_of(whole)), order_of(cut)) == (7, order_of(whole)[:2])
    route = {"strategy": "srm", "specialist": 2, "decided_by": "caller"}
    named = post("strategy=srm&specialist=2&id=q-7&model=shop&version=7&timeout_ms=600000&query_id=x&unit=u").json()
    assert named["id"] == "q-7"
    assert {**named.get("route", {}), **named.get("parameters", {})}.items() >= route.items()
    scores = post("raw_scores=true&strategy=first_stage").json()
    found = scores.get("scores") or next(o["data"] for o in scores["outputs"] if o["name"] == "scores")
    assert not np.isclose(sum(found), 1.0), "logits"


@pytest.mark.parametrize(
    ("query", "status", "kind", "path"),
    [
        ("topn=3", 422, "invalid-request", "?topn"),
        ("timeout=3", 422, "invalid-request", "?timeout"),
        ("top_n=0", 422, "invalid-request", "?top_n"),
        ("top_n=", 422, "invalid-request", "?top_n"),
        ("top_n=three", 422, "invalid-request", "?top_n"),
        ("top_n=2&top_n=2", 422, "invalid-request", "?top_n"),
        ("top_n=" + "9" * 5000, 422, "invalid-request", "?top_n"),
        ("strategy=best", 422, "invalid-request", "?strategy"),
        ("specialist=-1", 422, "invalid-request", "?specialist"),
        ("raw_scores=maybe", 422, "invalid-request", "?raw_scores"),
        ("timeout_ms=nan", 422, "invalid-request", "?timeout_ms"),
        ("context=x", 422, "invalid-request", "?context"),
        ("features=x", 422, "invalid-request", "?features"),
        ("unit=", 422, "invalid-request", "?unit"),
        ("expect_candidates=0", 422, "invalid-request", "?expect_candidates"),
        ("expect_candidates=8", 422, "candidate", "$"),
        ("id=%ff", 422, "invalid-request", "?"),
        ("%ff=1", 422, "invalid-request", "?"),
        ("specialist=3", 404, "unknown-specialist", None),
    ],
)
def test_words_that_are_refused_beside_any_body(post, query, status, kind, path):
    problem = check(post(query), status, kind)
    assert path is None or [fault["path"] for fault in problem["errors"]] == [path]


@pytest.mark.parametrize("query", ["model=nosuch", "version=8"])
def test_another_bundle_is_refused_beside_any_body(post, query):
    """Where the path names one, it contradicts it."""
    assert post(query).status_code in (404, 422)


OF_OTHER_BUNDLES = {"probabilities", "min_probability", "weights"}
"""Options that this bundle refuses, see test_probabilities_over_http.py."""


@pytest.mark.parametrize("word", sorted(Envelope.model_fields.keys() - {"context"} - OF_OTHER_BUNDLES))
def test_a_word_of_the_body_is_not_contradicted(live, word):
    said = {
        "raw_scores": True,
        "finite_scores": True,
        "strategy": "srm",
        "specialist": 1,
        "model": "shop",
        "version": "7",
    }
    said |= {"top_n": 2, "timeout_ms": 600_000, "expect_candidates": 7}
    value = said.get(word, "x-1")
    other = {
        "raw_scores": "false",
        "finite_scores": "false",
        "strategy": "auto",
        "specialist": "0",
        "model": "other",
        "version": "8",
    }
    other |= {"top_n": "3", "timeout_ms": "600001", "expect_candidates": "8"}
    for body in (by_name(), {**matrix(), "context": None}):
        sent = {**body, word: value}
        assert live.post("/rerank", params={word: str(value).lower()}, json=sent).status_code == 200
        problem = check(live.post("/rerank", params={word: other.get(word, "x-2")}, json=sent), 422, "invalid-request")
        assert problem["errors"][0]["path"] == f"?{word}"


@pytest.mark.parametrize("sent", ["1", "6", "8", "9007199254740991"])
def test_a_list_of_another_length_than_was_sent_is_refused_in_any_body(post, sent):
    for answer in (post(f"expect_candidates={sent}"), post(**{"Listwright-Expect-Candidates": sent})):
        detail = check(answer, 422, "candidate")["detail"]
        assert {"7", sent} <= set(re.findall(r"\d+", detail))


def test_the_length_that_was_sent_changes_no_answer(post):
    def facts(answer):
        answer = answer.json()
        return without_timings(answer) if "meta" in answer else answer

    plain = facts(post())
    assert facts(post("expect_candidates=7")) == plain
    assert facts(post("expect_candidates=7", **{"Listwright-Expect-Candidates": "7"})) == plain
    check(post("expect_candidates=7", **{"Listwright-Expect-Candidates": "8"}), 422, "invalid-request")
    for wrong in ("", "0", "-1", "7.5", "seven", b"\xe9"):
        problem = check(post(**{"Listwright-Expect-Candidates": wrong}), 422, "invalid-request")
        assert [fault["path"] for fault in problem["errors"]] == ["Listwright-Expect-Candidates"]


def sent_with(body, number):
    """The request with the length that was sent in its body."""
    path, request = BODIES[body]
    if "json" in request:
        place = (
            {"parameters": {"expect_candidates": number}} if path.startswith("/v2/m") else {"expect_candidates": number}
        )
        return path, {**request, "json": {**request["json"], **place}}
    tensors = binary_requests.body([features()], MATRIX.tobytes(), parameters={"expect_candidates": number})
    return path, tensors


@pytest.mark.parametrize("body", sorted(BODIES.keys() - {"npy"}))
def test_the_length_that_was_sent_may_stand_in_the_body(live, body):
    for number, status in ((6, 422), (7, 200), (7.0, 200), (8, 422), (0, 422), ("7", 422), (True, 422), (None, 200)):
        path, request = sent_with(body, number)
        assert live.post(path, **request).status_code == status, number


def test_the_header_of_the_unit_counts_beside_any_body(post):
    assert post("", **{"Listwright-Unit": "u-1"}).status_code == 200
    assert post("unit=u-1", **{"Listwright-Unit": "u-1"}).status_code == 200
    assert post("unit=%C3%A9", **{"Listwright-Unit": "é".encode()}).status_code == 200
    check(post("unit=u-2", **{"Listwright-Unit": "u-1"}), 422, "invalid-request")
    for wrong in ("u" * 201, b"\xe9"):
        problem = check(post("", **{"Listwright-Unit": wrong}), 422, "invalid-request")
        assert [fault["path"] for fault in problem["errors"]] == ["Listwright-Unit"]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/info?modle=shop"),
        ("GET", "/info?model=shop&model=shop"),
        ("GET", "/metrics?name[]=up"),
        ("GET", "/openapi.json?version=3"),
        ("GET", "/v2?x=1"),
        ("GET", "/v2/models/shop?model=other"),
        ("GET", "/v2/models/shop/versions/7/ready?at=6"),
    ],
)
def test_no_other_path_drops_a_parameter(live, method, path):
    name = path.partition("?")[2].partition("=")[0]
    problem = check(live.request(method, path), 422, "invalid-request")
    assert {fault["path"] for fault in problem["errors"]} == {f"?{name}"}


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/v2/health/live", "/v2/health/ready"])
def test_a_probe_of_health_may_append_what_it_likes(live, path):
    assert live.get(path, params={"t": "17"}).status_code == 200


@pytest.mark.parametrize(
    ("path", "words"),
    [
        (INFER, {"model_name": "shop"}),
        (INFER, {"model_name": "shop", "model_version": "7", "id": None, "outputs": None, "parameters": None}),
        ("/v2/models/shop/versions/7/infer", {"model_name": "shop", "model_version": "7"}),
        (INFER, {"model_name": None, "model_version": None, "parameters": {"top_n": None, "strategy": None}}),
        (INFER, {"parameters": {"raw_scores": None, "binary_data_output": None, "context": None, "unit": None}}),
        (INFER, {"outputs": [{"name": "order", "parameters": None}, {"name": "ranks", "parameters": {}}]}),
        (INFER, {"outputs": [{"name": "order", "parameters": {"binary_data": None}}]}),
    ],
)
def test_null_of_an_optional_member_is_as_good_as_absent(live, path, words):
    numbers = np.nan_to_num(MATRIX)
    tensor = features(numbers, parameters=None, data=numbers.tolist())
    bare = {name: value for name, value in tensor.items() if name != "parameters"}
    found = live.post(path, json={"inputs": [tensor], **words})
    assert found.status_code == 200, found.text
    assert order_of(found.json()) == order_of(live.post(INFER, json={"inputs": [bare]}).json())
    with_size = features(numbers, parameters={"binary_data_size": None}, data=numbers.tolist())
    assert live.post(path, json={"inputs": [with_size], **words}).status_code == 200


def test_null_in_plain_json_is_as_good_as_absent(live):
    nothing = dict.fromkeys((*Envelope.model_fields, "candidates", "feature_names", "ids"))
    bare = {"features": matrix()["features"]}
    assert order_of(live.post("/rerank", json={**nothing, **bare}).json()) == order_of(
        live.post("/rerank", json=bare).json()
    )
    rows = [{"id": None, **candidate} for candidate in ({"features": row} for row in bare["features"])]
    assert live.post("/rerank", json={"candidates": rows, "features": None}).status_code == 200
    check(live.post("/rerank", json={**bare, "nosuch": None}), 422, "invalid-request")
    check(live.post(INFER, json={"inputs": None}), 422, "invalid-request")


@pytest.mark.parametrize(
    ("path", "words", "place"),
    [
        (INFER, {"model_name": "other"}, "$.model_name"),
        (INFER, {"model_name": ""}, "$.model_name"),
        (f"{INFER}?model=shop", {"model_name": "other"}, "$.model_name"),
        (f"{INFER}?model=other", {}, "?model"),
        ("/v2/models/shop/versions/7/infer", {"model_version": "8"}, "$.model_version"),
        ("/v2/models/shop/versions/7/infer?version=8", {}, "?version"),
        (f"{INFER}?version=7", {"model_version": "8"}, "$.model_version"),
        (f"{INFER}?top_n=2", {"parameters": {"top_n": 3}}, "?top_n"),
        (f"{INFER}?id=a", {"id": "b"}, "?id"),
    ],
)
def test_a_path_and_a_query_are_not_contradicted(live, path, words, place):
    problem = check(
        live.post(path, json={"inputs": [features(parameters=None, data=np.nan_to_num(MATRIX).tolist())], **words}),
        422,
        "invalid-request",
    )
    assert problem["errors"][0]["path"] == place


def test_a_version_in_the_body_is_the_one_that_answers(models):
    """Where the path names none."""
    tensor = {"inputs": [features(parameters=None, data=np.nan_to_num(MATRIX).tolist())]}
    with asking(create_app(Settings(models=models, admin_key="a" * 20, poll_s=0))) as client:
        folder.point(models, "shop", "2")
        assert client.post("/admin/reload", headers={"Authorization": "Bearer " + "a" * 20}).status_code == 200
        for version in ("1", "2"):
            for asked in (
                {"json": {**tensor, "model_version": version}},
                {"json": tensor, "params": {"version": version}},
            ):
                assert client.post(INFER, **asked).json()["model_version"] == version
        assert client.post(INFER, json=tensor).json()["model_version"] == "2"
        assert client.post(INFER, json={**tensor, "model_version": "3"}).status_code == 404


def test_both_questions_of_health_are_answered_at_either_path(live):
    """KServe's client reads ``ready`` at one and ``live`` at the other."""
    for path in ("/v2/health/live", "/v2/health/ready"):
        assert live.get(path).json() == {"live": True, "ready": True}
