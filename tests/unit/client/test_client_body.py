"""NumPy and rows become JSON that says the same, with and without orjson."""

import json
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from listwright_client import numerals
from listwright_client.body import encode


@pytest.fixture(params=[True, False], ids=["orjson", "json"], autouse=True)
def encoder(request, monkeypatch):
    assert numerals.FAST, "the tests run with the extra [fast]"
    monkeypatch.setattr(numerals, "FAST", request.param)


def sent(features, **options):
    text, count = encode(features, **options)
    values = json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    assert count == len(values.get("features", values.get("candidates")))
    return values


def read_back(matrix):
    """What the service makes of it: float64, then float32."""
    return np.array(sent(matrix)["features"], dtype=np.float64)


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_missing_values_become_null(kind):
    assert sent(np.array([[1.5, np.nan], [np.nan, -2.0]], dtype=kind)) == {"features": [[1.5, None], [None, -2.0]]}


FINITE = st.floats(width=32, allow_infinity=False)
SHAPES = npst.array_shapes(min_dims=2, max_dims=2, max_side=6)


@pytest.mark.parametrize("fast", [True, False])
@given(matrix=npst.arrays(np.float32, SHAPES, elements=FINITE))
def test_float32_reads_back_to_the_bit(fast, matrix):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(numerals, "FAST", fast)
        np.testing.assert_array_equal(read_back(matrix).astype(np.float32), matrix)


@pytest.mark.parametrize("fast", [True, False])
@given(matrix=npst.arrays(np.float64, SHAPES, elements=st.floats(allow_infinity=False)))
def test_float64_reads_back_to_the_bit(fast, matrix):
    """All of it, though the service computes in float32: a category may be a large number."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(numerals, "FAST", fast)
        np.testing.assert_array_equal(read_back(matrix), matrix)


@pytest.mark.parametrize(
    "matrix",
    [
        np.arange(12, dtype=np.float64).reshape(3, 4)[:, ::2],
        np.asfortranarray(np.arange(12.0).reshape(3, 4)),
        np.arange(6, dtype=">f4").reshape(2, 3),
        np.arange(6, dtype=">i8").reshape(2, 3),
        np.arange(6, dtype=np.uint8).reshape(2, 3),
        np.array([[2**53 + 1, -(2**62)]]),
        np.arange(6, dtype=np.longdouble).reshape(2, 3),
        np.zeros((0, 3)),
    ],
)
def test_any_layout_and_number_type(matrix):
    assert sent(matrix) == {"features": matrix.astype(object).tolist()}


@pytest.mark.parametrize(
    "features",
    [
        np.array([[1.5, "A5", None], [np.float32(0.5), np.nan, np.int64(3)]], dtype=object),
        [[1.5, "A5", None], [0.5, math.nan, 3]],
        ([1.5, "A5", np.float64("nan")], (0.5, None, 3)),
    ],
)
def test_categories_stand_beside_numbers(features):
    assert sent(features) == {"features": [[1.5, "A5", None], [0.5, None, 3]]}


def test_rows_by_name():
    rows = [{"price": np.float32(0.5), "carrier": "NaN"}, {"carrier": None, "price": np.nan, "bm25": np.int32(3)}]
    assert sent(rows, ids=("a", "b")) == {
        "candidates": [
            {"id": "a", "features": {"price": 0.5, "carrier": "NaN"}},
            {"id": "b", "features": {"carrier": None, "price": None, "bm25": 3}},
        ]
    }
    assert sent(rows[:1]) == {"candidates": [{"features": {"price": 0.5, "carrier": "NaN"}}]}


def test_names_ids_and_envelope_go_along():
    names, ids = np.array(["price", 'a "quoted" NaN']), np.array(["x", "ü"])
    envelope = {"context": {"device": "NaN", "age": np.float64("nan")}, "top_n": np.int64(3), "raw_scores": True}
    assert sent(np.ones((2, 2)), ids=ids, feature_names=names, envelope=envelope) == {
        "context": {"device": "NaN", "age": None},
        "top_n": 3,
        "raw_scores": True,
        "feature_names": ["price", 'a "quoted" NaN'],
        "ids": ["x", "ü"],
        "features": [[1.0, 1.0], [1.0, 1.0]],
    }


@pytest.mark.parametrize(
    ("features", "options", "says"),
    [
        (np.zeros(3), {}, r"features have shape \(3,\)"),
        (np.zeros((1, 2, 3)), {}, r"shape \(1, 2, 3\)"),
        ([[1.0, 2.0], [3.0]], {}, r"shape \(2,\)|inhomogeneous"),
        ([], {}, r"shape \(0,\)"),
        (np.array([[1.0, 2.0], [3.0, -np.inf]]), {}, r"features\[1\]\[1\] is -inf: send NaN"),
        ([["A5", math.inf]], {}, r"features\[0\]\[1\] is inf"),
        ([{"price": math.inf}], {}, r"candidates\[0\].features.price is inf"),
        (np.ones((1, 1)), {"envelope": {"context": {"age": math.inf}}}, "context.age is inf"),
        ([["A5", 10**5000]], {}, r"features\[0\]\[1\] is a whole number of 16610 bits"),
        ([{"price": -(10**5000)}], {}, r"candidates\[0\].features.price is a whole number of 16610 bits"),
        (np.ones((1, 1)), {"envelope": {"top_n": 10**5000}}, "top_n is a whole number of 16610 bits"),
        (np.ones((2, 3)), {"ids": ["a"]}, "1 ids for 2 candidates"),
        ([{"price": 1.0}], {"ids": []}, "0 ids for 1 candidates"),
        (np.ones((2, 3)), {"feature_names": ["a"]}, "1 feature_names for 3 columns"),
        ([{"price": 1.0}], {"feature_names": ["price"]}, "feature_names go with a matrix"),
        ([{1: 2.0, "1": 3.0}], {}, r"candidates\[0\].features has two names that are written alike"),
    ],
)
def test_what_does_not_fit_is_refused_before_it_is_sent(features, options, says):
    with pytest.raises(ValueError, match=says):
        encode(features, **options)


@pytest.mark.parametrize("unit", ["D", "s", "ns"])
@pytest.mark.parametrize("kind", ["M8", "m8"])
def test_times_are_no_numbers(kind, unit):
    moment = np.array([[5]], f"{kind}[{unit}]")
    for features in (moment, np.ma.masked_array(moment, [[False]]), [[moment[0, 0]]], [{"t": moment[0, 0]}]):
        with pytest.raises(TypeError, match="send a number, a string or None"):
            encode(features)


def test_masked_values_are_missing():
    mask = [[False, True]]
    assert sent(np.ma.masked_array([[1.5, -999.0]], mask))["features"] == [[1.5, None]]
    assert sent(np.ma.masked_array([[2**60 + 1, -999]], mask))["features"] == [[2**60 + 1, None]]


def test_a_float32_has_its_own_digits_wherever_it_stands():
    number = np.float32(0.1)
    assert sent([{"c": number}])["candidates"] == [{"features": {"c": 0.1}}]
    assert sent([["a", number]], envelope={"context": {"c": number}}) == {
        "context": {"c": 0.1},
        "features": [["a", 0.1]],
    }


@pytest.mark.parametrize("kind", ["float[pyarrow]", "Float32", "category"])
def test_so_has_a_column_of_pandas(kind):
    column = pd.Series([0.1, None], dtype="float32").astype(kind)
    assert sent(pd.DataFrame({"c": column}))["features"] == [[0.1], [None]]


def test_what_json_does_not_have_is_named():
    with pytest.raises(TypeError, match=r"features\[0\]\[1\] is a complex: send a number, a string or None"):
        encode([["A5", 1j]])


@pytest.mark.parametrize("name", [None, b"price", 1.5, True, ("a", "b"), math.nan])
def test_a_name_that_is_no_text_is_refused(name):
    with pytest.raises(TypeError, match="give text or a whole number"):
        encode([{name: 1.0}])
    with pytest.raises(TypeError, match="give text or a whole number"):
        encode([[1.0]], envelope={"context": {name: 1.0}})
    with pytest.raises(TypeError, match="give text or a whole number"):
        encode([[1.0]], feature_names=[name])


@pytest.mark.parametrize("names", ["ab", {"a", "b"}, frozenset("ab"), {"a": 1, "b": 2}, b"ab"])
def test_names_without_an_order_are_refused(names):
    with pytest.raises(TypeError, match=r"feature_names is a (str|set|frozenset|dict|bytes): give a list"):
        encode([[1.0, 2.0]], feature_names=names)


def test_a_whole_number_is_a_name():
    assert sent([{1: 2.0, np.int64(2): 3.0}])["candidates"] == [{"features": {"1": 2.0, "2": 3.0}}]
    assert sent([[1.0, 2.0]], feature_names=range(2))["feature_names"] == ["0", "1"]


@pytest.mark.parametrize(
    "envelope",
    [
        {"rules": [{"action": "exclude", "where": {"price": {"max": math.nan}}}]},
        {"rules": [{"action": "boost", "ids": ["a"], "factor": np.float32("nan")}]},
        {"top_n": math.nan},
    ],
)
def test_nan_is_no_missing_part_of_a_rule_or_an_option(envelope):
    with pytest.raises(ValueError, match="is nan: give a number, or leave it out"):
        encode([[1.0]], envelope=envelope)


def test_rows_may_be_masked_one_by_one():
    rows = [np.ma.masked_array([1.5, -999.0], [False, True]), np.ma.masked_array([2.5, 3.5], [False, False])]
    assert sent(rows) == sent(tuple(rows)) == {"features": [[1.5, None], [2.5, 3.5]]}
