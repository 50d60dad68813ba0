"""Every error is a problem body with the right status, the place, and nothing internal."""

import json
from functools import reduce

import httpx
import pytest
from starlette.routing import Route

from support.http.problem_bodies import JSON, check
from support.service.threaded_service import serving as serving_on_a_port
from support.waiting import PATIENCE_S

ROW = {"price": 1.0, "stars": 0.5, "bm25": 3.0, "carrier": "A5"}


def candidate(**changes):
    return {"features": {**ROW, **changes}}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[1",
        b"nul",
        b'{"features": [[NaN]]}',
        b'{"features": [[Infinity]]}',
        b"\xff\xfe",
        b'{"id": "\\ud800"}',
        b"[" * 250,
        b'{"features": [[%s]]}' % (b"9" * 5000),
    ],
)
def test_undecodable_body(live, content):
    check(live.post("/rerank", content=content, headers=JSON), 400, "undecodable-body")


@pytest.mark.parametrize("body", [{"candidates": []}, {"features": []}])
def test_empty_list(live, body):
    problem = check(live.post("/rerank", json=body), 400, "empty-list")
    assert problem["errors"][0]["path"] == f"$.{next(iter(body))}"


@pytest.mark.parametrize("field", ["model", "version"])
def test_unknown_model_or_version(live, field):
    problem = check(live.post("/rerank", json={"candidates": [candidate()], field: "other"}), 404, "unknown-model")
    assert "'other' is not served here" in problem["detail"]
    assert live.post("/rerank", json={"candidates": [candidate()], "model": "shop", "version": "7"}).status_code == 200


@pytest.mark.parametrize("path", ["/nowhere", "/", "/rerank/", "/docs"])
def test_unknown_path(live, path):
    check(live.get(path), 404, "not-found")


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("GET", "/rerank", "POST"),
        ("HEAD", "/rerank", "POST"),
        ("POST", "/info", "GET, HEAD"),
        ("PUT", "/v2", "GET, HEAD"),
    ],
)
def test_wrong_method(live, method, path, allow):
    response = live.request(method, path)
    if method == "HEAD":
        assert (response.status_code, response.content) == (405, b"")
    else:
        check(response, 405, "method-not-allowed")
    assert response.headers["allow"] == allow


@pytest.fixture(scope="module")
def everything(bundle_folder, tmp_path_factory):
    """A service with every path that there is."""
    kept = tmp_path_factory.mktemp("events")
    with serving_on_a_port(bundle_folder, ui=True, explain=True, events_log=kept, admin_key="a" * 20) as served:
        yield served


def test_head_is_answered_wherever_get_is(everything):
    """RFC 9110, section 9.1: the same headers and no body, and the connection can be used on."""
    routes = [(route.path, route.methods) for route in everything.app.routes if isinstance(route, Route)]
    named = {"{name:path}": "main.js", "{name}": "shop", "{version}": "7"}
    found = []
    with httpx.Client(base_url=everything.url, timeout=PATIENCE_S) as client:
        for route, methods in routes:
            path = reduce(lambda path, name: path.replace(*name), named.items(), route)
            if "GET" not in methods:
                assert methods == {"HEAD"} or client.head(path).status_code == 405
                continue
            for asked in (path, f"{path}?nosuch=1", f"/v2{path}"):
                whole, head = client.get(asked), client.head(asked)
                assert (head.status_code, head.content) == (whole.status_code, b""), asked
                varies = {"x-request-id", "date", "content-length" if asked == "/metrics" else ""}
                assert {name: value for name, value in head.headers.items() if name not in varies} == {
                    name: value for name, value in whole.headers.items() if name not in varies
                }, asked
            found.append(path)
    assert {"/livez", "/readyz", "/info", "/metrics", "/openapi.json", "/v2", "/ui/main.js", "/ui/bundle"} <= {*found}


def test_a_path_below_v2_answers_inference_clients(live):
    for path in ("/v2/nosuch", "/v2/", "/v2/models", "/v2/repository/index", "/v2?x=1", "/v2/models/shop/nosuch"):
        problem = live.get(path).json()
        assert problem["error"] == problem["detail"] != "", path
    assert "error" not in live.get("/nosuch").json()
    assert "error" not in live.post("/v2/rerank", json={}).json(), "an alias of /rerank"


@pytest.mark.parametrize(
    "media_type",
    [
        "text/plain",
        "text/x+json",
        "application/json-seq",
        "application/octet-stream",
        "multipart/form-data; boundary=x",
        None,
    ],
)
def test_wrong_content_type(live, media_type):
    headers = {} if media_type is None else {"content-type": media_type}
    check(
        live.post("/rerank", content=json.dumps({"candidates": [candidate()]}), headers=headers),
        415,
        "unsupported-media-type",
    )


@pytest.mark.parametrize("body", ["null", "[]", '"x"', "3"])
def test_a_body_that_is_no_object_is_called_so(live, body):
    response = live.post("/rerank", content=body, headers={"Content-Type": "application/json"})
    assert response.status_code == 422
    assert response.json()["detail"] == "$: expected an object"


def test_compressed_body_is_refused(live):
    headers = {**JSON, "content-encoding": "gzip"}
    check(live.post("/rerank", content=b"\x1f\x8b", headers=headers), 415, "unsupported-media-type")


def test_schema_mismatch_names_the_difference(live):
    row = {"prise": 1.0, "stars": 0.5}
    problem = check(live.post("/rerank", json={"candidates": [candidate(), {"features": row}]}), 409, "schema-mismatch")
    assert "candidate 1 lacks the required 'price'" in problem["detail"]
    assert "unknown features 'prise'" in problem["detail"]
    assert problem["expected"] == ["price", "stars", "bm25", "carrier"]
    assert problem["sent"] == ["prise", "stars"]
    assert [fault["path"] for fault in problem["errors"]] == ["$.candidates[1].features"]
    assert problem["fingerprint"] == live.get("/info").json()["fingerprint"]


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"candidates": [{"features": [1.0, 2.0]}]}, "$.candidates[0].features"),
        ({"features": [[1.0, 2.0, 3.0]]}, "$.features[0]"),
        ({"feature_names": ["price", "colour"], "features": [[1.0, 2.0]]}, "$.feature_names"),
        ({"feature_names": ["price"], "features": [[1.0]]}, "$.feature_names"),
    ],
)
def test_other_schema(live, body, path):
    problem = check(live.post("/rerank", json=body), 409, "schema-mismatch")
    assert [fault["path"] for fault in problem["errors"]] == [path]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"specialist": 3}, "no specialist 3: use 0 to 2, see /info"),
        ({"specialist": 2**53 - 1}, "use 0 to 2"),
        ({"specialist": 0, "strategy": "qilcm"}, "strategy 'qilcm' has no specialists: use auto or srm"),
        ({"specialist": 0, "strategy": "first_stage"}, "strategy 'first_stage' has no specialists"),
    ],
)
def test_unknown_specialist(live, more, says):
    problem = check(live.post("/rerank", json={"candidates": [candidate()], **more}), 404, "unknown-specialist")
    assert says in problem["detail"]


def test_too_many_candidates(live):
    problem = check(live.post("/rerank", json={"features": [[1.0, 1.0, 1.0, "A5"]] * 51}), 413, "too-large")
    assert "51 candidates, the limit is 50" in problem["detail"]


def test_too_many_bytes_announced(live):
    check(live.post("/rerank", content=b" " * 200_001, headers=JSON), 413, "too-large")


def test_too_many_bytes_without_announcement(live):
    def drip():
        for _ in range(300):
            yield b" " * 1000

    check(live.post("/rerank", content=drip(), headers=JSON), 413, "too-large")


@pytest.mark.parametrize(
    ("body", "path", "says"),
    [
        (
            {"candidates": [candidate(), candidate(price="cheap")]},
            "$.candidates[1].features.price",
            "'price' is numeric",
        ),
        ({"candidates": [candidate(price=True)]}, "$.candidates[0].features.price", "found true"),
        ({"candidates": [candidate(price=[1])]}, "$.candidates[0].features.price", "found an array"),
        ({"candidates": [candidate(price=1e39)]}, "$.candidates[0].features.price", "float32"),
        ({"candidates": [candidate(price=-(10**400))]}, "$.candidates[0].features.price", "huge integer"),
        ({"candidates": [candidate(carrier=[])]}, "$.candidates[0].features.carrier", "is a category"),
        ({"candidates": [{"features": [1.0, 2.0, {}, "A5"]}]}, "$.candidates[0].features[2]", "found an object"),
        ({"candidates": [{"features": "all"}]}, "$.candidates[0].features", "object or an array"),
        ({"features": [[1.0, 2.0, "x", "A5"]]}, "$.features[0][2]", "'bm25' is numeric"),
        ({"features": [[1.0, 2.0, 3.0, "A5"], 4]}, "$.features[1]", "an array of values"),
        ({"feature_names": ["price", "stars"], "features": [[1.0]]}, "$.features[0]", "1 values for 2 feature_names"),
        (
            {"feature_names": ["price", "stars", "price"], "features": [[1.0, 2.0, 3.0]]},
            "$.feature_names[2]",
            "named twice",
        ),
        ({"candidates": [{"id": "a", **candidate()}, {"id": "a", **candidate()}]}, "$.candidates[1].id", "used at 0"),
        ({"candidates": [{"id": "a", **candidate()}, candidate()]}, "$.candidates[1].id", "give all or none"),
        ({"features": [[1.0, 2.0, 3.0, "A5"]] * 2, "ids": ["a", "a"]}, "$.ids[1]", "unique"),
        ({"features": [[1.0, 2.0, 3.0, "A5"]] * 2, "ids": ["a"]}, "$.ids", "1 ids for 2 candidates"),
        ({"candidates": [candidate()], "context": {"device": []}}, "$.context.device", "an array"),
        ({"candidates": [candidate()], "context": {"device": 10**400}}, "$.context.device", "a finite number"),
        ({"candidates": [candidate()], "context": {"price": "low"}}, "$.context.price", "'price' is numeric"),
        ({"candidates": [candidate()], "context": {"a b": []}}, "$.context['a b']", "found an array"),
    ],
)
def test_wrong_values_carry_their_path(live, body, path, says):
    problem = check(live.post("/rerank", content=json.dumps(body), headers=JSON), 422, "candidate")
    assert problem["errors"][0]["path"] == path
    assert says in problem["errors"][0]["message"]


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({}, "$"),
        ({"candidates": [candidate()], "features": [[1.0, 1.0, 1.0, "A5"]]}, "$"),
        ({"candidates": [candidate()], "ids": ["a"]}, "$"),
        ({"candidates": [candidate()], "topn": 3}, "$.topn"),
        ({"candidates": [candidate()], "top_n": 0}, "$.top_n"),
        ({"candidates": [candidate()], "top_n": "3"}, "$.top_n"),
        ({"candidates": [candidate()], "strategy": "best"}, "$.strategy"),
        *(({"candidates": [candidate()], "specialist": k}, "$.specialist") for k in (True, -1, 1.5, "1", [1], {})),
        *(({"candidates": [candidate()], "context": c}, "$.context") for c in (3, "x", [], True)),
        ({"candidates": [candidate()], "context": {f"x{n}": n for n in range(101)}}, "$.context"),
        ({"candidates": [{"id": 3, **candidate()}]}, "$.candidates[0].id"),
        ({"candidates": [{}]}, "$.candidates[0].features"),
        ({"candidates": 3}, "$.candidates"),
        (None, "$"),
        ([], "$"),
    ],
)
def test_wrong_envelope_carries_its_path(live, body, path):
    problem = check(live.post("/rerank", content=json.dumps(body), headers=JSON), 422, "invalid-request")
    assert path in [fault["path"] for fault in problem["errors"]]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"topn": 3}, "unknown field 'topn': did you mean top_n?"),
        ({"strategy": "qilmc"}, "unknown strategy 'qilmc': did you mean qilcm?"),
        ({"strategy": "foo"}, "unknown strategy 'foo': use one of auto, qilcm, srm, first_stage"),
        ({"top_n": "3"}, 'expected a whole number, found "3"'),
        ({"top_n": 0}, "expected greater than or equal to 1, found 0"),
        ({"timeout_ms": "20"}, 'expected a number, found "20"'),
        ({"raw_scores": "yes"}, 'expected true or false, found "yes"'),
        ({"id": 5}, "expected a valid string, found 5"),
        ({"context": []}, "expected an object"),
        ({"rules": {}}, "expected an array"),
        ({"rules": [{"id": "sku-1", "place": 1}]}, "action is required"),
        ({"rules": [{"action": "pin", "id": "sku-1"}]}, "is required"),
        (
            {"rules": [{"action": "promote"}]},
            "unknown action 'promote': use one of pin, exclude, cutoff, boost, bury, cap, diversify",
        ),
        ({"rules": [{"action": "exclude", "ids": []}] * 101}, "expected at most 100 items"),
    ],
)
def test_what_is_wrong_is_told_in_the_words_of_the_contract(live, more, message):
    problem = check(live.post("/rerank", json={"candidates": [candidate()]} | more), 422, "invalid-request")
    assert problem["errors"][0]["message"] == message
    assert problem["detail"] == f"{problem['errors'][0]['path']}: {message}"


def test_misspelled_fields_within_a_request_of_the_protocol(live):
    tensor = {"name": "features", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}
    for more, path, meant in (
        ({"parameters": {"topn": 3}}, "$.parameters.topn", "top_n"),
        ({"outputs": [{"name": "order", "params": {}}]}, "$.outputs[0].params", "parameters"),
    ):
        answer = live.post("/v2/models/shop/infer", json={"inputs": [tensor]} | more)
        (fault,) = check(answer, 422, "invalid-request")["errors"]
        assert (fault["path"], fault["message"].partition(": ")[2]) == (path, f"did you mean {meant}?")


def test_every_fault_is_listed(live):
    body = {"candidates": [candidate()], "top_n": 0, "strategy": "best", "x": 1}
    problem = check(live.post("/rerank", json=body), 422, "invalid-request")
    assert {fault["path"] for fault in problem["errors"]} == {"$.top_n", "$.strategy", "$.x"}


@pytest.mark.parametrize(
    "body",
    [
        {"candidates": [{"features": [1.0, 1.0, 1.0, "A5"], **{f"x{n}": 1 for n in range(100)}}]},
        {f"x{n}": 1 for n in range(100)},
        {"features": [[1.0, 1.0, 1.0, "A5"]], "ids": [1] * 8_000},
        {"feature_names": [1] * 8_000, "features": [[1.0]]},
    ],
)
def test_masses_of_faults_are_not_listed(live, body):
    """Otherwise a body within the limits could keep the service busy for minutes with faults alone."""
    problem = check(live.post("/rerank", json=body), 422, "invalid-request")
    assert len(problem["errors"]) == 1


def test_at_most_twenty_faults_are_listed(live):
    fields = {f"x{n}": 1 for n in range(30)}
    problem = check(live.post("/rerank", json={"candidates": [fields] * 50}), 422, "invalid-request")
    assert len(problem["errors"]) == 20
    assert "and 30 more" in problem["detail"]


def test_the_first_candidate_at_fault_is_told_with_all_its_faults(live):
    """Or a list within the limits could hold thousands of faults."""
    body = {"candidates": [candidate(), {"id": 1, "x": 1}, {}], "top_n": 0}
    problem = check(live.post("/rerank", json=body), 422, "invalid-request")
    paths = {fault["path"] for fault in problem["errors"]}
    assert paths == {"$.top_n", *(f"$.candidates[1].{name}" for name in ("id", "x", "features"))}


def test_long_words_of_the_caller_are_clipped(live):
    long = "x" * 50_000
    for body in ({long: 1}, {"candidates": [candidate(**{long: 1})]}, {"candidates": [candidate(price=long)]}):
        response = live.post("/rerank", json=body)
        assert response.status_code in (409, 422)
        assert len(response.content) < 2_000


def test_unknown_names_with_odd_characters(live):
    for name in ("\u0000", "quote'd", "ü" * 300, "$.candidates"):
        check(live.post("/rerank", json={"candidates": [candidate(**{name: 1})]}), 409, "schema-mismatch")
