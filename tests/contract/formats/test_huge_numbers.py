"""Whole numbers of thousands of digits, in every format: Python reads and writes only so many of them at once."""

import json
import sys
from urllib.parse import urlencode

import numpy as np
import pytest

from listwright.service.problems import DOCUMENTED
from listwright.service.wire.schemas import MAX_WHOLE
from support.http.binary_requests import INFER, MATRIX, NPY, saved
from support.http.problem_bodies import JSON, check
from support.service.asgi import serving

ADMIN = {"Authorization": "Bearer " + "a" * 20}
PLACE = "a number stands here"
ROW = [1, 2, 3, "A5"]
ROWS = {"candidates": [{"features": ROW}, {"features": {"price": 1, "stars": 2}}]}
INPUT = {"name": "features", "datatype": "FP64", "shape": [2, 4], "data": [1, 2, 3, 1] * 2}
IDS = {"name": "ids", "datatype": "BYTES", "shape": [2], "data": ["a", "b"]}
BEHIND = {"name": "features", "datatype": "FP64", "shape": [2, 4], "parameters": {"binary_data_size": PLACE}}

WHOLE = {
    "top_n": ("/rerank", ROWS | {"top_n": PLACE}),
    "specialist": ("/rerank", ROWS | {"specialist": PLACE}),
    "tensors, top_n": (INFER, {"inputs": [INPUT], "parameters": {"top_n": PLACE}}),
    "tensors, specialist": (INFER, {"inputs": [INPUT], "parameters": {"specialist": PLACE}}),
    "tensors, length": (INFER, {"inputs": [INPUT | {"shape": [PLACE, 4]}]}),
    "tensors, width": (INFER, {"inputs": [INPUT | {"shape": [2, PLACE]}]}),
    "tensors, bytes": (INFER, {"inputs": [BEHIND]}),
    "tensors, bytes of ids": (INFER, {"inputs": [INPUT, IDS | BEHIND | {"name": "ids", "shape": [2]}]}),
}
"""Where the contract has a whole number."""

OTHER = {
    "timeout_ms": ("/rerank", ROWS | {"timeout_ms": PLACE}),
    "raw_scores": ("/rerank", ROWS | {"raw_scores": PLACE}),
    "strategy": ("/rerank", ROWS | {"strategy": PLACE}),
    "id": ("/rerank", ROWS | {"id": PLACE}),
    "model": ("/rerank", ROWS | {"model": PLACE}),
    "context": ("/rerank", ROWS | {"context": {"stars": PLACE}}),
    "context of a category": ("/rerank", ROWS | {"context": {"carrier": PLACE}}),
    "context for a hook": ("/rerank", ROWS | {"context": {"device": PLACE}}),
    "row": ("/rerank", {"candidates": [{"features": [PLACE, *ROW[1:]]}]}),
    "category": ("/rerank", {"candidates": [{"features": [*ROW[:3], PLACE]}]}),
    "name": ("/rerank", {"candidates": [{"features": {"price": PLACE, "stars": 2}}]}),
    "candidate": ("/rerank", {"candidates": [PLACE]}),
    "matrix": ("/rerank", {"features": [[PLACE, *ROW[1:]]]}),
    "row of a matrix": ("/rerank", {"features": [PLACE]}),
    "all": ("/rerank", PLACE),
    "unknown": ("/rerank", ROWS | {"x": PLACE}),
    "tensors, data": (INFER, {"inputs": [INPUT | {"data": [PLACE, 2, 3, 1] * 2}]}),
    "tensors, datatype": (INFER, {"inputs": [INPUT | {"datatype": PLACE}]}),
    "tensors, ids": (INFER, {"inputs": [INPUT, IDS | {"data": ["a", PLACE]}]}),
    "tensors, output": (INFER, {"inputs": [INPUT], "outputs": [{"name": PLACE}]}),
    "tensors, timeout_ms": (INFER, {"inputs": [INPUT], "parameters": {"timeout_ms": PLACE}}),
    "tensors, context": (INFER, {"inputs": [INPUT], "parameters": {"context": {"stars": PLACE}}}),
    "tensors, all": (INFER, {"inputs": PLACE}),
}
DIGITS = ["9" * 4301, "9" * 4300, "-" + "9" * 4300, "9" * 4299, "9" * 641, "9" * 400, "1" + "0" * 4290 + ".5"]
"""Python reads 4,300 digits, and writes no more of what two such numbers add up to."""


@pytest.fixture(scope="module")
def open_app(bundle_folder):
    with serving(bundle_folder, max_candidates=50, admin_key="a" * 20) as client:
        yield client


@pytest.fixture(params=[4300, 640], ids=["Python's own limit", "the lowest"])
def limit(request):
    """``PYTHONINTMAXSTRDIGITS`` of whoever runs the service."""
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(request.param)
    yield
    sys.set_int_max_str_digits(before)


def asked(client, path, body, digits):
    text = json.dumps(body).replace(json.dumps(PLACE), digits)
    head = {"Inference-Header-Content-Length": str(len(text))} if '"binary_data_size"' in text else {}
    return client.post(path, content=text, headers=JSON | head)


def refused(response):
    assert response.status_code in DOCUMENTED, response.text
    assert response.status_code < 500, response.text
    check(response, response.status_code, response.json()["type"].removeprefix("urn:listwright:"))
    assert len(response.content) < 10_000


@pytest.mark.parametrize("name", {**WHOLE, **OTHER})
def test_a_body_with_a_huge_number_is_ranked_or_refused(open_app, limit, name):
    for digits in DIGITS:
        response = asked(open_app, *{**WHOLE, **OTHER}[name], digits)
        if response.status_code == 200:
            assert name in ("context", "context of a category", "context for a hook", "category"), "it may be unknown"
        else:
            refused(response)


def test_whole_numbers_have_a_bound(open_app):
    for path, body in WHOLE.values():
        for digits in (str(MAX_WHOLE + 1), str(2**63), str(2**64), "9" * 4300):
            check(asked(open_app, path, body, digits), 422, "invalid-request")


@pytest.mark.parametrize(("name", "status"), [("top_n", 200), ("specialist", 404), ("tensors, length", 413)])
def test_the_bound_is_the_largest_that_every_reader_has_exactly(open_app, name, status):
    assert asked(open_app, *WHOLE[name], str(MAX_WHOLE)).status_code == status


@pytest.mark.parametrize("digits", DIGITS, ids=lambda digits: f"{digits[:2]}, {len(digits)}")
def test_queries_headers_and_paths(open_app, limit, digits):
    content = saved(MATRIX)
    for name in ("top_n", "specialist", "timeout_ms", "raw_scores", "strategy"):
        refused(open_app.post(f"/rerank?{urlencode({name: digits})}", content=content, headers=NPY))
    for name in ("model", "version"):
        refused(open_app.get("/info", params={name: digits}))
    refused(open_app.get(f"/v2/models/{digits}"))
    refused(open_app.post("/admin/rollback", params={"model": digits}, content=digits, headers=ADMIN))
    refused(open_app.post("/admin/reload", content=digits, headers=ADMIN))
    inference = json.dumps({"inputs": [INPUT]})
    refused(open_app.post(INFER, content=inference, headers={"Inference-Header-Content-Length": digits}))
    for name in ("X-Request-ID", "traceparent", "tracestate"):
        response = open_app.post("/rerank", json=ROWS, headers={name: digits})
        assert response.status_code == 200
        assert len(response.headers["x-request-id"]) <= 128


@pytest.mark.parametrize("shape", ["({},4)", "(7,{})", "({},)", "(7,4,{})"])
def test_npy_headers(open_app, limit, shape):
    for digits in ("9" * 18, "9" * 19, "9" * 641, "9" * 900):
        header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape.format(digits)}, }}".encode()
        content = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + np.zeros(28, "<f4").tobytes()
        refused(open_app.post("/rerank", content=content, headers=NPY))
