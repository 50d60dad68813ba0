"""Binary formats against a live process: equal answers in every format, and the same counts."""

import io
import json
import struct

import numpy as np
import pytest

from listwright.ranking import bundle
from listwright.service.app import create_app
from listwright.service.settings import Settings
from support.http.binary_requests import IDS, INFER, MATRIX, NPY, ask, body, features, saved
from support.http.problem_bodies import check
from support.http.rerank_requests import by_name, matrix, without_timings
from support.service.asgi import asking


@pytest.mark.parametrize("options", [{}, {"raw_scores": True}, {"strategy": "srm"}, {"specialist": 1}, {"top_n": 3}])
def test_every_format_gives_the_same_answer(live, options):
    expected = without_timings(live.post("/rerank", json=by_name(**options)).json())
    columns = without_timings(live.post("/rerank", json=matrix() | options).json())
    assert columns == expected

    query = {name: str(value).lower() for name, value in options.items()}
    numpy_sent = live.post("/rerank", content=saved(MATRIX), headers=NPY, params=query).json()
    for result in expected["results"]:
        result["id"] = None  # .npy has none
    assert without_timings(numpy_sent) == expected

    scores = np.array(expected["scores"], dtype=np.float32)
    answered = live.post("/rerank", content=saved(MATRIX), headers=NPY | {"accept": NPY["content-type"]}, params=query)
    assert np.array_equal(np.load(io.BytesIO(answered.content), allow_pickle=False), scores, equal_nan=True)

    for binary in (True, False):
        found, answer = ask(
            live,
            body(
                [features(), {"name": "ids", "datatype": "BYTES", "shape": [len(IDS)], "data": IDS}],
                MATRIX.tobytes(),
                parameters={**options, "binary_data_output": binary},
            ),
        )
        assert list(found) == ["scores", "ranks", "first_stage_scores", "order", "ids"]
        assert np.array_equal(found["scores"], scores, equal_nan=True)
        assert found["ranks"].tolist() == expected["ranks"]
        assert found["order"].tolist() == [result["index"] for result in expected["results"]]
        best = [IDS[index] for index in found["order"]]
        assert found["ids"] == (b"".join(struct.pack("<I", len(i)) + i.encode() for i in best) if binary else best)
        first = {result["index"]: result["first_stage_score"] for result in expected["results"]}
        assert all(found["first_stage_scores"][index] == np.float32(score) for index, score in first.items())
        said = {**expected["route"], **expected["meta"]}
        assert said.pop("ignored") == [], "tensors have no names"
        assert answer["parameters"] == {name: value for name, value in said.items() if value is not None}
        assert (answer["model_name"], answer["model_version"]) == ("shop", "7")


def test_json_tensors_flat_and_nested_are_the_binary_ones(live):
    expected, _ = ask(live, body([features()], MATRIX.tobytes()))
    rows = [[None if np.isnan(v) else float(v) for v in row] for row in MATRIX]
    for data in (rows, [value for row in rows for value in row]):
        plain = {"name": "features", "datatype": "FP32", "shape": list(MATRIX.shape), "data": data}
        for request in ({"json": {"inputs": [plain]}}, body([plain])):
            found, _ = ask(live, request)
            assert found.keys() == expected.keys()
            assert all(np.array_equal(found[name], expected[name], equal_nan=True) for name in found)


def test_outputs_as_asked_for(live):
    asked = [{"name": "ranks", "parameters": {"binary_data": True}}, {"name": "scores"}]
    response = live.post(INFER, **body([features()], MATRIX.tobytes(), outputs=asked))
    head = int(response.headers["inference-header-content-length"])
    outputs = json.loads(response.content[:head])["outputs"]
    assert [(o["name"], "data" in o) for o in outputs] == [("ranks", False), ("scores", True)]
    assert len(response.content) - head == 8 * len(MATRIX)
    plain = live.post(INFER, **body([features()], MATRIX.tobytes(), outputs=asked[1:]))
    assert "inference-header-content-length" not in plain.headers
    assert plain.headers["content-type"] == "application/json"
    none, all_of_them = (
        live.post(INFER, **body([features()], MATRIX.tobytes(), **given)).json()["outputs"]
        for given in ({"outputs": []}, {})
    )
    assert none == all_of_them


def test_a_degraded_answer_says_so(live):
    broken = MATRIX.copy()
    broken[0, 0] = 5000.0
    _, answer = ask(live, body([features(broken)], broken.tobytes()))
    assert answer["parameters"]["status"] == "degraded"
    assert "second stage gave nan" in answer["parameters"]["reason"]
    headers = live.post("/rerank", content=saved(broken), headers=NPY | {"accept": "application/x-npy"}).headers
    assert headers["listwright-status"] == "degraded"
    assert headers["listwright-stage-reached"] == "first_stage"
    assert "second stage gave nan" in headers["listwright-reason"]


def test_headers_and_aliases(live):
    for path in ("/rerank", "/v1/rerank", "/v2/rerank"):
        answer = live.post(
            path, content=saved(MATRIX), headers=NPY | {"accept": "application/x-npy", "x-request-id": "abc"}
        )
        assert answer.headers["content-type"] == "application/x-npy"
        assert (answer.headers["listwright-model"], answer.headers["listwright-version"]) == ("shop", "7")
        assert answer.headers["listwright-status"] == "ok"
        assert answer.headers["x-request-id"] == "abc"
        assert "second_stage;dur=" in answer.headers["server-timing"]


def test_what_is_counted(live):
    ask(live, body([features()], MATRIX.tobytes()), "/v2/models/shop/versions/7/infer")
    live.post("/v2/models/other/infer", **body([features()], MATRIX.tobytes()))
    text = live.get("/metrics").text
    assert 'path="/v2/models/{name}/versions/{version}/infer",status="200"}' in text
    assert 'path="/v2/models/{name}/infer",status="404"}' in text
    assert "other/infer" not in text


def test_readiness_by_the_protocol(bundle_folder):
    loaded = bundle.load(bundle_folder)
    app = create_app(Settings(bundle=bundle_folder), models=loaded)
    paths = ("/v2/health/ready", "/v2/models/shop/ready", "/v2/models/shop/versions/7/ready")
    with asking(app, started=False) as client:
        for path in paths:
            assert check(client.get(path), 503, "not-ready")["error"]
        check(client.post("/rerank", content=saved(MATRIX), headers=NPY), 503, "not-ready")
        check(client.post(INFER, **body([features()], MATRIX.tobytes())), 503, "not-ready")
    with asking(app) as client:
        assert [client.get(path).status_code for path in paths] == [200, 200, 200]
        app.service.readiness.draining.set()
        assert [client.get(path).status_code for path in paths] == [503, 503, 503]
        assert client.get("/v2/health/live").status_code == 200
        assert client.post(INFER, **body([features()], MATRIX.tobytes())).status_code == 200, (
            "what still comes is answered"
        )
