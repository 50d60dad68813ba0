"""What binary formats refuse, with which status, kind and path."""

import numpy as np
import pytest

from support.http.binary_requests import IDS, INFER, MATRIX, NPY, body, features, saved
from support.http.problem_bodies import check

WIDE, LONG = np.zeros((3, 5), dtype=np.float32), np.zeros((51, 4), dtype=np.float32)


def spoiled(row, column, value, dtype=np.float32):
    array = MATRIX.astype(dtype)
    array[row, column] = value
    return array


@pytest.mark.parametrize(
    ("array", "status", "kind", "path"),
    [
        (np.zeros((0, 4), dtype=np.float32), 400, "empty-list", "$.features"),
        (WIDE, 409, "schema-mismatch", "$.features"),
        (LONG, 413, "too-large", None),
        (spoiled(2, 1, np.inf), 422, "candidate", "$.features[2][1]"),
        (spoiled(2, 0, -1e39, np.float64), 422, "candidate", "$.features[2][0]"),
        (spoiled(1, 3, 4), 422, "candidate", "$.features[1][3]"),
        (spoiled(1, 3, 0.5), 422, "candidate", "$.features[1][3]"),
        (spoiled(1, 3, -1), 422, "candidate", "$.features[1][3]"),
        (spoiled(1, 3, np.inf), 422, "candidate", "$.features[1][3]"),
    ],
)
def test_lists_that_are_refused_in_both_formats(live, array, status, kind, path):
    for response in (
        live.post("/rerank", content=saved(array), headers=NPY),
        live.post(INFER, **body([features(array)], array.tobytes())),
    ):
        problem = check(response, status, kind)
        assert path is None or problem["errors"][0]["path"] == path


def test_a_number_beyond_float32_is_told_as_it_was_sent(live):
    problem = check(
        live.post("/rerank", content=saved(spoiled(2, 0, -1e39, np.float64)), headers=NPY), 422, "candidate"
    )
    assert "does not fit float32 (at most 3.403e+38), found -1e+39" in problem["errors"][0]["message"]


@pytest.mark.parametrize(
    ("content", "status", "kind"),
    [
        (b"", 400, "undecodable-body"),
        (b"{}", 400, "undecodable-body"),
        (saved(MATRIX)[:-1], 400, "undecodable-body"),
        (saved(MATRIX)[:20], 400, "undecodable-body"),
        (saved(MATRIX) + b"x", 400, "undecodable-body"),
        (saved(np.nan_to_num(MATRIX).astype(np.int32)), 422, "candidate"),
        (saved(MATRIX.astype(object)), 422, "candidate"),
        (saved(np.asfortranarray(MATRIX)), 422, "candidate"),
        (saved(MATRIX[None]), 422, "candidate"),
        (b" " * 200_001, 413, "too-large"),
    ],
)
def test_npy_that_is_refused(live, content, status, kind):
    check(live.post("/rerank", content=content, headers=NPY), status, kind)


@pytest.mark.parametrize("query", ["model=other", "version=8"])
def test_a_bundle_that_is_not_served_is_refused(live, query):
    check(live.post(f"/rerank?{query}", content=saved(MATRIX), headers=NPY), 404, "unknown-model")


RAW = MATRIX.tobytes()
SHORT_IDS = b"\x01\0\0\0a" * 6


def ids(**changes):
    return {"name": "ids", "datatype": "BYTES", "shape": [7], "data": IDS} | changes


def raw_ids(raw):
    return body(
        [features(), {"name": "ids", "datatype": "BYTES", "shape": [7], "parameters": {"binary_data_size": len(raw)}}],
        RAW + raw,
    )


def in_json(data, shape=(7, 4)):
    return body([{"name": "features", "datatype": "FP32", "shape": list(shape), "data": data}])


@pytest.mark.parametrize(
    ("request_", "status", "kind", "path"),
    [
        ({"content": b""}, 400, "undecodable-body", None),
        ({"content": b"[1"}, 400, "undecodable-body", None),
        (body([features()], RAW[:-1]), 400, "undecodable-body", None),
        (body([features()], RAW + b"x"), 400, "undecodable-body", None),
        (body([features(parameters={"binary_data_size": 2**53 - 1})], RAW), 400, "undecodable-body", None),
        (in_json([[float("nan")] * 4] * 7), 400, "undecodable-body", None),
        ({**body([features()], RAW), "headers": {}}, 400, "undecodable-body", None),
        (body([]), 422, "candidate", "$.inputs"),
        (body([ids()]), 422, "candidate", "$.inputs"),
        (body([features(), features()], RAW * 2), 422, "candidate", "$.inputs[1].name"),
        (body([features(parameters={})]), 422, "candidate", "$.inputs[0]"),
        (
            body([features(parameters={"shared_memory_region": "x"})]),
            422,
            "invalid-request",
            "$.inputs[0].parameters",
        ),
        (
            body([features(parameters={"binary_data_size": MATRIX.nbytes, "shared_memory_offset": 4})], RAW),
            422,
            "invalid-request",
            "$.inputs[0].parameters",
        ),
        (body([features(data=[])], RAW), 422, "candidate", "$.inputs[0]"),
        (body([features(datatype="INT32")], RAW), 422, "candidate", "$.inputs[0].datatype"),
        (body([features(datatype="fp32")], RAW), 422, "candidate", "$.inputs[0].datatype"),
        (body([features(shape=[1, 7, 4])], RAW), 422, "candidate", "$.inputs[0].shape"),
        (body([features(shape=[28])], RAW), 422, "candidate", "$.inputs[0].shape"),
        (body([features(shape=[6, 4])], RAW), 422, "candidate", "$.inputs[0].parameters.binary_data_size"),
        (in_json([1.0] * 27), 422, "candidate", "$.inputs[0].data"),
        (in_json([[1.0] * 4] * 6), 422, "candidate", "$.inputs[0].data"),
        (in_json([[1.0] * 4] * 6 + [[1.0] * 3]), 422, "candidate", "$.inputs[0].data"),
        (in_json("x"), 422, "candidate", "$.inputs[0].data"),
        (in_json([["1.0"] * 4] * 7), 422, "candidate", "$.inputs[0].data"),
        (in_json([[True] * 4] * 7), 422, "candidate", "$.inputs[0].data"),
        (in_json([[10**400] * 4] * 7), 422, "candidate", "$.inputs[0].data"),
        (in_json([1.0] * 28, (10**15, 10**15)), 413, "too-large", None),
        (in_json([1.0] * 28, (7, 10**15)), 409, "schema-mismatch", None),
        (body([features(), ids(shape=[6])], RAW), 422, "candidate", "$.inputs[1]"),
        (body([features(), ids(datatype="FP32")], RAW), 422, "candidate", "$.inputs[1]"),
        (body([features(), ids(data=IDS[:6])], RAW), 422, "candidate", "$.inputs[1].data"),
        (body([features(), ids(data=[1] * 7)], RAW), 422, "candidate", "$.inputs[1].data"),
        (body([features(), ids(data=["x" * 513] * 7)], RAW), 422, "candidate", "$.inputs[1].data"),
        (body([features(), ids(data=["x"] * 7)], RAW), 422, "candidate", "$.ids[1]"),
        (raw_ids(b""), 422, "candidate", "$.inputs[1]"),
        (raw_ids(SHORT_IDS), 422, "candidate", "$.inputs[1]"),
        (raw_ids(SHORT_IDS + b"\xff\xff\xff\xffb"), 422, "candidate", "$.inputs[1]"),
        (raw_ids(SHORT_IDS + b"\x01\0\0\0\xff"), 422, "candidate", "$.inputs[1]"),
        (raw_ids(SHORT_IDS + b"\x01\0\0\0b!"), 422, "candidate", "$.inputs[1]"),
        (body([features()], RAW, outputs=[{"name": "ids"}]), 422, "candidate", "$.outputs[0].name"),
        (body([features()], RAW, outputs=[{"name": "scores"}] * 2), 422, "candidate", "$.outputs[1].name"),
        (body([features()], RAW, outputs=[{"name": "scores"}] * 7), 422, "invalid-request", "$.outputs"),
        (body([features()], RAW, outputs=[{"name": "x"}]), 422, "invalid-request", "$.outputs[0].name"),
        (
            body([features()], RAW, outputs=[{"name": "scores", "parameters": {"classification": 3}}]),
            422,
            "invalid-request",
            "$.outputs[0].parameters.classification",
        ),
        (body([features(name="x")], RAW), 422, "invalid-request", "$.inputs[0].name"),
        (body([features()] * 3, RAW), 422, "invalid-request", "$.inputs"),
        (body([features(shape=[7, -4])], RAW), 422, "invalid-request", "$.inputs[0].shape[1]"),
        (body([features(parameters={"binary_data_size": -1})], RAW), 422, "invalid-request", None),
        (body([features()], RAW, parameters={"top": 3}), 422, "invalid-request", "$.parameters.top"),
        (body([features()], RAW, parameters={"model": "x"}), 422, "invalid-request", "$.parameters.model"),
        (body([features()], RAW, parameters={"priority": 1}), 422, "invalid-request", "$.parameters.priority"),
        (body([features()], RAW, parameters={"context": {"price": "x"}}), 422, "candidate", "$.context.price"),
        (body([features()], RAW, x=1), 422, "invalid-request", "$.x"),
        ({"content": b"[]"}, 422, "invalid-request", "$"),
        ({"content": b" " * 200_001}, 413, "too-large", None),
        ({**body([features()], RAW), "headers": {"content-type": "text/plain"}}, 415, "unsupported-media-type", None),
        ({**body([features()], RAW), "headers": {"content-encoding": "gzip"}}, 415, "unsupported-media-type", None),
        (body([features()], RAW, parameters={"specialist": 3}), 404, "unknown-specialist", None),
    ],
)
def test_inferences_that_are_refused(live, request_, status, kind, path):
    problem = check(live.post(INFER, **request_), status, kind)
    assert problem["error"] == problem["detail"], "where the protocol's clients look"
    assert path is None or path in [fault["path"] for fault in problem["errors"]]


@pytest.mark.parametrize("length", ["", "x", "-1", "1.5", "²", "0x10", "9" * 30, "9" * 5000, "3", "100000"])
def test_wrong_lengths_of_the_json(live, length):
    request = body([features()], RAW)
    request["headers"]["inference-header-content-length"] = length.encode()
    check(live.post(INFER, **request), 400, "undecodable-body")


def test_a_slash_in_a_name_is_spelled_as_it_is(live):
    assert live.get("/v2/models/shop%2f/versions/7").status_code == 400


@pytest.mark.parametrize("path", ["/v2/models/other", "/v2/models/shop/versions/8", "/v2/models/shop%20/versions/7"])
def test_what_is_not_served(live, path):
    for found in (live.get(path), live.get(f"{path}/ready"), live.post(f"{path}/infer", **body([features()], RAW))):
        assert found.status_code == 404
        assert found.json()["error"]


def test_the_other_methods(live):
    response = live.get("/rerank", headers=NPY)
    check(response, 405, "method-not-allowed")
    assert response.headers["allow"] == "POST"
    assert check(live.get(INFER), 405, "method-not-allowed")["error"]


def test_npy_elsewhere_is_another_media_type(live):
    check(live.post(INFER, content=saved(MATRIX), headers=NPY), 415, "unsupported-media-type")
