"""Whatever bytes arrive in a binary format, the answer is a documented one; equal lists get equal answers."""

import json
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from listwright.ranking.order import rank_by_score, ranks_of
from listwright.service.problems import DOCUMENTED
from support.http.binary_requests import INFER, NPY, saved
from support.service.asgi import serving
from support.service.bundles import make_bundle
from support.strategies import scale_examples

STATUSES = {200, *DOCUMENTED} - {503}
NAMES = ("price", "stars", "bm25", "carrier")
CATEGORIES = (None, "A5", "B2", "C7")


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    folder = make_bundle(
        tmp_path_factory.mktemp("models") / "shop" / "7",
        cutoff=5,
        graph="nan",
        specialists=3,
        margin=0.25,
        probability="relevance",
        goals={"margin": 0.0},
    )
    with serving(folder, max_candidates=20) as client:
        yield client


def check(response):
    assert response.status_code in STATUSES, response.text
    if response.status_code != 200:
        assert response.headers["content-type"] == "application/problem+json"
        answer = response.json()
        assert answer["status"] == response.status_code
        assert answer["detail"]
    return response


def garbled(data, content):
    """Some of the content replaced by other bytes."""
    start = data.draw(st.integers(0, len(content)))
    end = data.draw(st.integers(start, len(content)))
    return content[:start] + data.draw(st.binary(max_size=4)) + content[end:]


VALUES = st.floats(width=32) | st.integers(-1, 5).map(float)
SIDES = st.integers(0, 5) | st.just(4) | st.just(21)
DTYPES = st.sampled_from(["<f4", "<f4", "<f8", ">f4", "<i4", "<f2", "?", "S3"])


@st.composite
def arrays(draw):
    shape = draw(st.lists(SIDES, min_size=2, max_size=2) | st.lists(SIDES, max_size=3))
    count = int(np.prod(shape, dtype=int))
    values = np.array(draw(st.lists(VALUES, min_size=1, max_size=8)), dtype=np.float64)
    with np.errstate(all="ignore"):
        return np.resize(values, count).reshape(shape).astype(draw(DTYPES))


LITERALS = st.sampled_from(
    [
        "'<f4'",
        "'|O'",
        "False",
        "True",
        "None",
        "(1, 4)",
        "(4,)",
        "(99999999999, 4)",
        "(1, 1e9)",
        "[]",
        "{}",
        "'",
        "(" * 99,
    ]
)
KEYS = st.sampled_from(["descr", "fortran_order", "shape", "other", ""])
HEADERS = st.lists(st.tuples(KEYS, LITERALS), max_size=4).map(
    lambda entries: "{" + ", ".join(f"'{key}': {value}" for key, value in entries) + ", }\n"
) | st.text(st.characters(codec="latin-1"), max_size=60)


@settings(max_examples=scale_examples(150))
@given(array=arrays(), data=st.data())
def test_any_array_gets_a_documented_answer(client, array, data):
    content = saved(array)
    check(client.post("/rerank", content=content, headers=NPY))
    check(client.post("/rerank", content=garbled(data, content), headers=NPY))


@settings(max_examples=scale_examples(150))
@given(
    header=HEADERS,
    version=st.integers(0, 4),
    length=st.none() | st.integers(0, 2**16 - 1),
    content=st.binary(max_size=20),
)
def test_any_header_gets_a_documented_answer(client, header, version, length, content):
    text = header.encode("latin-1")
    size = (len(text) if length is None else length).to_bytes(2 if version == 1 else 4, "little")
    body = b"\x93NUMPY" + bytes([version, 0]) + size + text + content
    check(client.post("/rerank", content=body, headers=NPY))


WORDS = st.text(st.characters(codec="ascii", exclude_categories=["Cc"]), max_size=6)
OPTIONS = (
    "id",
    "model",
    "version",
    "top_n",
    "strategy",
    "specialist",
    "raw_scores",
    "context",
    "features",
    "x",
    "expect_candidates",
    "probabilities",
    "min_probability",
    "weights",
)
TEXTS = st.sampled_from(["true", "0.5", '{"margin":1}', '{"margin":-1}', '{"booked":0,"margin":0}', '{"a":{}}'])


@given(query=st.dictionaries(st.sampled_from(OPTIONS) | WORDS, WORDS | TEXTS | st.integers(-2, 4).map(str), max_size=4))
def test_any_query_gets_a_documented_answer(client, query):
    body = saved(np.ones((3, 4), dtype=np.float32))
    for accept in ("*/*", "application/x-npy"):
        check(client.post("/rerank", content=body, headers={**NPY, "accept": accept}, params=query))


FINITE_HALVES = st.integers(0, 2**16 - 1).filter(lambda bits: bits & 0x7C00 != 0x7C00)  # finite in FP16 and in BF16


@settings(max_examples=scale_examples(100))
@given(rows=st.lists(st.lists(FINITE_HALVES, min_size=3, max_size=3), min_size=1, max_size=8))
def test_half_precision_in_any_form_is_the_same_matrix_in_float32(client, rows):
    halves = np.array([[*row, 0] for row in rows], np.uint16)
    wide = {"FP16": halves.view("<f2").astype("<f4"), "BF16": (halves.astype("<u4") << 16).view("<f4")}
    for datatype, array in wide.items():
        expected = check(client.post(INFER, **sent(array, "FP32"))).json()["outputs"]
        assert check(client.post(INFER, **sent(halves, datatype))).json()["outputs"] == expected
        feature = {"name": "features", "datatype": datatype, "shape": array.shape, "data": array.ravel().tolist()}
        assert check(client.post(INFER, json={"inputs": [feature]})).json()["outputs"] == expected
    answers = [
        check(client.post("/rerank", content=saved(array), headers=NPY)).json()["scores"]
        for array in (wide["FP16"], halves.view("<f2"))
    ]
    assert answers[0] == answers[1]


def sent(array, datatype):
    feature = {"name": "features", "datatype": datatype, "shape": array.shape}
    head = json.dumps({"inputs": [feature | {"parameters": {"binary_data_size": array.nbytes}}]}).encode()
    return {"content": head + array.tobytes(), "headers": head_length(len(head))}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4) | st.just(10**400),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
)
SHAPES = st.lists(SIDES | st.sampled_from([2**31, 2**64, -1]), max_size=3)
TENSORS = st.fixed_dictionaries(
    {},
    optional={
        "name": st.sampled_from(["features", "ids"]) | JSON,
        "datatype": st.sampled_from(["FP32", "FP64", "FP16", "BF16", "BYTES", "INT32"]) | JSON,
        "shape": SHAPES | JSON,
        "parameters": st.fixed_dictionaries({}, optional={"binary_data_size": st.integers(0, 90) | JSON, "x": JSON}),
        "data": st.lists(VALUES | st.none() | st.text(max_size=2), max_size=20) | JSON,
    },
)
REQUESTS = st.fixed_dictionaries(
    {"inputs": st.lists(TENSORS, max_size=3) | JSON},
    optional={
        "id": JSON,
        "parameters": st.dictionaries(st.sampled_from([*OPTIONS, "binary_data_output"]), JSON, max_size=3) | JSON,
        "outputs": st.lists(
            st.fixed_dictionaries({"name": st.sampled_from(["scores", "ids", "probabilities"])}), max_size=3
        )
        | JSON,
    },
)


def head_length(length):
    return {"inference-header-content-length": str(length)}


@settings(max_examples=scale_examples(300))
@given(request_=REQUESTS | JSON, raw=st.binary(max_size=100), off=st.sampled_from([0, 0, 0, -1, 1, 10**9]))
def test_any_inference_gets_a_documented_answer(client, request_, raw, off):
    head = json.dumps(request_).encode()
    headers = head_length(len(head) + off) if raw else {}
    check(client.post(INFER, content=head + raw, headers=headers))


def inference(array, ids=None, **more):
    """A sound request of the protocol."""
    inputs = [
        {
            "name": "features",
            "datatype": "FP32",
            "shape": list(array.shape),
            "parameters": {"binary_data_size": array.nbytes},
        }
    ]
    if ids is not None:
        inputs.append({"name": "ids", "datatype": "BYTES", "shape": [len(ids)], "data": ids})
    return json.dumps({"inputs": inputs, **more}).encode(), array.tobytes()


@settings(max_examples=scale_examples(150))
@given(length=st.integers(1, 6), data=st.data())
def test_any_garbled_inference_gets_a_documented_answer(client, length, data):
    head, raw = inference(np.ones((length, 4), dtype=np.float32), [f"é{n}" for n in range(length)])
    check(client.post(INFER, content=garbled(data, head + raw), headers=head_length(len(head))))
    check(client.post(INFER, content=garbled(data, head) + raw, headers=head_length(len(head))))


NUMBERS = st.just(float("nan")) | st.floats(-1e6, 1e6, width=32)
ROWS = st.tuples(NUMBERS, NUMBERS, NUMBERS, st.integers(0, 3)).map(list)
OPTIONS = ("raw_scores", "finite_scores")


@settings(max_examples=scale_examples(100))
@given(
    rows=st.lists(ROWS, min_size=1, max_size=12), options=st.fixed_dictionaries(dict.fromkeys(OPTIONS, st.booleans()))
)
def test_every_format_gives_the_same_answer(client, rows, options):
    array = np.array(rows, dtype=np.float32)
    spelled = [[None if np.isnan(v) else v for v in row[:3]] + [CATEGORIES[row[3]]] for row in rows]
    expected = check(client.post("/rerank", json={"features": spelled, **options})).json()
    by_npy = check(client.post("/rerank", content=saved(array), headers=NPY, params=options)).json()
    for answer in (expected, by_npy):
        del answer["meta"]["timings_ms"]
    assert by_npy == expected
    head, raw = inference(array, parameters={**options, "binary_data_output": True})
    found = check(client.post(INFER, content=head + raw, headers=head_length(len(head))))
    start = int(found.headers["inference-header-content-length"])
    scores = np.frombuffer(found.content, "<f4", len(rows), start)
    np.testing.assert_allclose(scores, np.array(expected["scores"], dtype=np.float32), rtol=1e-6, atol=1e-40)
    assert np.frombuffer(found.content, "<i8", len(rows), start + scores.nbytes).tolist() == expected["ranks"]
    assert not options["finite_scores"] or ranks_of(rank_by_score(scores)).tolist() == expected["ranks"]


@settings(max_examples=scale_examples(100))
@given(
    rows=st.lists(ROWS, min_size=1, max_size=12),
    sent=st.integers(1, 14) | st.integers(1, 2**53 - 1),
    same=st.booleans(),
)
def test_in_every_format_a_list_has_the_length_that_was_sent_or_is_refused(client, rows, sent, same):
    sent = len(rows) if same else sent
    array = np.array(rows, dtype=np.float32)
    spelled = [[None if np.isnan(v) else v for v in row[:3]] + [CATEGORIES[row[3]]] for row in rows]
    columns = {name: list(column) for name, column in zip(NAMES, zip(*spelled, strict=True), strict=True)}
    named = [{"features": dict(zip(NAMES, row, strict=True))} for row in spelled]
    for place in ({"params": {"expect_candidates": sent}}, {"headers": {"listwright-expect-candidates": str(sent)}}):
        for body in ({"candidates": named}, {"features": spelled}, {"columns": columns}):
            expected = client.post("/rerank", json=body).json()
            for request in ({"json": body | {"expect_candidates": sent}}, {"json": body, **place}):
                check_sent_length(client.post("/rerank", **request), len(rows), sent, expected)
        headers = NPY | {"accept": NPY["content-type"]}
        plain = client.post("/rerank", content=saved(array), headers=headers).content
        request = place | {"headers": headers | place.get("headers", {})}
        check_sent_length(client.post("/rerank", content=saved(array), **request), len(rows), sent, plain)
    head, raw = inference(array)
    expected = client.post(INFER, content=head + raw, headers=head_length(len(head))).json()
    head, raw = inference(array, parameters={"expect_candidates": sent})
    check_sent_length(client.post(INFER, content=head + raw, headers=head_length(len(head))), len(rows), sent, expected)


def check_sent_length(response, length, sent, expected):
    if length != sent:
        assert (response.status_code, check(response).json()["type"]) == (422, "urn:listwright:candidate")
    elif isinstance(expected, bytes):
        assert response.content == expected
    else:
        found = response.json()
        for answer in (found, expected):
            answer.get("meta", {}).pop("timings_ms", None)
        assert found == expected


def test_a_shape_bomb_costs_no_memory(client):
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (20, 4), }\n"
    bombs = [header.replace(b"(20, 4)", shape) for shape in (b"(20, 999999999)", b"(999999999, 4)", b"(20, 4)")]
    bodies = [b"\x93NUMPY\x01\x00" + len(bomb).to_bytes(2, "little") + bomb for bomb in bombs]
    for body in bodies:
        check(client.post("/rerank", content=body, headers=NPY))
    tracemalloc.start()
    for body in bodies:
        assert client.post("/rerank", content=body, headers=NPY).status_code in (400, 409, 413)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2_000_000
