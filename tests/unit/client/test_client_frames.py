"""A pandas or polars frame becomes the body that its rows would be, in the fastest form that says the same."""

import datetime
import json
import math
import uuid
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest

from listwright_client import frames, numerals
from listwright_client.body import encode

NAN = math.nan
DAY = datetime.date(2026, 1, 2)
LARGE = 2**53 + 1


@pytest.fixture(params=[True, False], ids=["orjson", "json"], autouse=True)
def encoder(request, monkeypatch):
    monkeypatch.setattr(numerals, "FAST", request.param)


def sent(features, **options):
    text, count = encode(features, **options)
    values = json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    assert count == len(values["features"])
    return values


def column(values):
    """A frame of one column beside one of text, and the column as it is sent."""
    frame = values.to_frame("a") if isinstance(values, pd.Series) else pl.DataFrame({"a": values})
    beside = frame.assign(b="x") if isinstance(frame, pd.DataFrame) else frame.with_columns(pl.lit("x").alias("b"))
    rows = sent(beside)["features"]
    assert [row[1] for row in rows] == ["x"] * len(rows)
    return [row[0] for row in rows]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (pd.Series([1.5, NAN, None]), [1.5, None, None]),
        (pd.Series([0.1, NAN], dtype="float32"), [0.1, None]),
        (pd.Series([0.5, NAN], dtype="float16"), [0.5, None]),
        (pd.Series([0.1, None], dtype="Float32"), [0.1, None]),
        (pd.Series([1.5, None], dtype="Float64"), [1.5, None]),
        (pd.Series([0.5, 2.0], dtype=np.longdouble), [0.5, 2]),
        (pd.Series([1, -2], dtype="int8"), [1, -2]),
        (pd.Series([1, LARGE]), [1, LARGE]),
        (pd.Series([2**64 - 1], dtype="uint64"), [2**64 - 1]),
        (pd.Series([1, None], dtype="Int64"), [1, None]),
        (pd.Series([LARGE, None], dtype="Int64"), [LARGE, None]),
        (pd.Series([True, False]), ["true", "false"]),
        (pd.Series([True, None, False], dtype="boolean"), ["true", None, "false"]),
        (pd.Series([True, None, np.bool_(False)], dtype=object), ["true", None, "false"]),
        (pd.Series(["x", None, NAN]), ["x", None, None]),
        (pd.Series(["x", pd.NA], dtype="string"), ["x", None]),
        (pd.Series(["x", None], dtype="category"), ["x", None]),
        (pd.Series([3, None], dtype="category"), [3, None]),
        (pd.Series([True, None], dtype="category"), ["true", None]),
        (pd.Series([1, "x", np.int8(2), np.float32(0.1), np.str_("y"), NAN, pd.NA, pd.NaT, None], dtype=object),
         [1, "x", 2, 0.1, "y", None, None, None, None]),
        (pd.Series([Decimal("1.5"), Decimal("NaN"), None], dtype=object), [1.5, None, None]),
        (pd.Series([pd.NaT, None]), [None, None]),
        (pd.Series([pd.NaT], dtype="timedelta64[ns]"), [None]),
        (pd.Series([np.datetime64("NaT")], dtype=object), [None]),
        (pd.Series([2**70], dtype=object), [2**70]),
        (pd.Series(["\ud800"], dtype=object), ["\ud800"]),
        (pd.Series(pd.arrays.SparseArray([1.0, NAN])), [1, None]),
        (pl.Series([1.5, None, NAN]), [1.5, None, None]),
        (pl.Series([0.1, None], dtype=pl.Float32), [0.1, None]),
        (pl.Series([1, None]), [1, None]),
        (pl.Series([LARGE, None]), [LARGE, None]),
        (pl.Series([2**64 - 1], dtype=pl.UInt64), [2**64 - 1]),
        (pl.Series([2**70], dtype=pl.Int128), [2**70]),
        (pl.Series([True, None, False]), ["true", None, "false"]),
        (pl.Series(["x", None]), ["x", None]),
        (pl.Series(["x", None], dtype=pl.Categorical), ["x", None]),
        (pl.Series(["x", None], dtype=pl.Enum(["x"])), ["x", None]),
        (pl.Series([None, None]), [None, None]),
        (pl.Series([None], dtype=pl.Datetime), [None]),
        (pl.Series([Decimal("1.5"), None]), [1.5, None]),
    ],
    ids=lambda values: str(getattr(values, "dtype", "")) or None,
)  # fmt: skip
def test_a_column_is_sent_as_training_spells_it(values, expected):
    assert column(values) == expected
    assert all(
        type(one) is type(two) or isinstance(one, float) for one, two in zip(column(values), expected, strict=True)
    )


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (pd.Series([pd.Timestamp("2026-01-02"), pd.NaT]), "Timestamp"),
        (pd.Series([pd.NaT, pd.Timestamp("2026-01-02", tz="UTC")]), "Timestamp"),
        (pd.Series([pd.Timedelta("1s")]), "Timedelta"),
        (pd.Series([DAY], dtype=object), "date"),
        (pd.Series([np.datetime64("2026-01-02")], dtype=object), "datetime64"),
        (pd.Series(pd.period_range("2026-01", periods=2, freq="M")), "Period"),
        (pd.Series([1j]), "complex"),
        (pd.Series([[1, 2]]), "list"),
        (pd.Series([b"x"]), "bytes"),
        (pd.Series([uuid.UUID(int=1)], dtype=object), "UUID"),
        (pl.Series([DAY]), "date"),
        (pl.Series([datetime.datetime(2026, 1, 2)]), "datetime"),
        (pl.Series([datetime.timedelta(1)]), "timedelta"),
        (pl.Series([datetime.time(1)]), "time"),
        (pl.Series([[1]]), "list|Series"),
        (pl.Series([[1, 2]], dtype=pl.Array(pl.Int64, 2)), "list|Series"),
        (pl.Series([{"a": 1}]), "dict"),
        (pl.Series([b"x"]), "bytes"),
    ],
    ids=lambda values: str(getattr(values, "dtype", values)),
)
def test_what_cannot_be_sent_is_named_with_the_remedy(values, kind):
    with pytest.raises(TypeError, match=rf"features\['a'\]\[\d\] is a ({kind}): make the column numbers or text"):
        column(values)


@pytest.mark.parametrize("library", [pd, pl])
@pytest.mark.parametrize("values", [[0.5, -math.inf], ["x", math.inf], [None, Decimal("inf")]])
def test_an_infinite_number_is_named(library, values):
    frame = library.DataFrame({"a": ["x", "y"], "price": pd.Series(values, dtype=object).tolist()}, **(
        {"schema_overrides": {"price": pl.Object}} if library is pl and values[0] != 0.5 else {}
    ))  # fmt: skip
    with pytest.raises(ValueError, match=r"features\['price'\]\[1\] is -?inf: give NaN or None"):
        sent(frame)
    with pytest.raises(ValueError, match=r"features\['price'\]\[1\] is -?inf"):
        sent(frame[["price"]])


@pytest.mark.parametrize("values", [[1, 10**5000], ["x", -(10**5000)]])
def test_a_number_of_thousands_of_digits_is_named(values):
    with pytest.raises(
        ValueError, match=r"features\['price'\]\[1\] is a whole number of 16610 bits: give at most 1024"
    ):
        sent(pd.DataFrame({"price": pd.Series(values, dtype=object)}))


def plain(columns):
    """Rows of what JSON reads back."""
    return [
        [None if np.isnan(value) else json.loads(str(value)) for value in row]
        for row in zip(*columns.values(), strict=True)
    ]


@pytest.mark.parametrize("library", [pd, pl])
@pytest.mark.parametrize(
    ("columns", "kind"),
    [
        ({"a": np.float32([0.1, NAN]), "b": np.float32([1, 2])}, np.float32),
        ({"a": np.float32([0.1, NAN]), "b": np.array([1, 2**24])}, np.float32),
        ({"a": np.float32([0.1, NAN]), "b": np.array([1, 2**24 + 1])}, np.float64),
        ({"a": np.float64([0.1, NAN]), "b": np.array([1, -(2**53)])}, np.float64),
        ({"a": np.float64([0.1, NAN]), "b": np.float32([0.1, 0.2])}, np.float64),
        ({"a": np.array([1, 2]), "b": np.array([LARGE, -(2**62)])}, np.int64),
        ({"a": np.uint8([1, 2]), "b": np.int8([-1, 2])}, np.int16),
    ],
)
def test_a_frame_of_numbers_is_one_matrix(library, columns, kind):
    """Which orjson writes many times faster than rows."""
    frame = library.DataFrame(columns)
    names, matrix = frames.read(frame)
    assert names == ["a", "b"]
    assert matrix.dtype == kind
    assert sent(frame)["features"] == plain(columns)


def test_gaps_between_whole_numbers_and_missing_columns_keep_the_matrix():
    numbers = pd.DataFrame({"a": pd.array([1, None], dtype="Int64"), "b": np.float32([0.5, NAN]), "c": [None, None]})
    assert frames.read(numbers)[1].dtype == np.float64
    assert sent(numbers)["features"] == [[1, 0.5, None], [None, None, None]]
    numbers = pl.DataFrame({"a": [1, None], "c": [Decimal("0.5"), None]})
    assert frames.read(numbers)[1].dtype == np.float64


@pytest.mark.parametrize("library", [pd, pl])
def test_numbers_that_one_type_cannot_hold_stay_exact(library):
    for columns in ({"a": [0.5, NAN], "b": [1, LARGE]}, {"a": [1, -1], "b": np.uint64([1, 2**64 - 1])}):
        frame = library.DataFrame(columns)
        assert isinstance(frames.read(frame)[1], list)
        assert sent(frame)["features"] == plain(columns)


@pytest.mark.parametrize("library", [pd, pl])
def test_names_ids_and_the_rest_go_along(library):
    frame = library.DataFrame({"sku": ["a", "b"], "price": [1.5, None], "carrier": ["A5", None]})
    columns = frame[["price", "carrier"]]
    assert sent(columns, ids=frame["sku"], envelope={"top_n": 1}) == {
        "top_n": 1,
        "feature_names": ["price", "carrier"],
        "ids": ["a", "b"],
        "features": [[1.5, "A5"], [None, None]],
    }
    with pytest.raises(ValueError, match="1 ids for 2 candidates"):
        encode(columns, ids=["a"])
    with pytest.raises(ValueError, match="a frame's columns have their own"):
        encode(columns, feature_names=["price", "carrier"])


def test_an_index_is_not_looked_at_and_any_name_is_text():
    frame = pd.DataFrame([[1, 2], [3, 4]], index=["z", "a"], columns=[0, ("a", "b")])
    assert sent(frame) == {"feature_names": ["0", "('a', 'b')"], "features": [[1, 2], [3, 4]]}
    twice = pd.DataFrame([[1, 2]], columns=["price", "price"])
    with pytest.raises(ValueError, match="two columns of the frame are called 'price': rename one"):
        encode(twice)


@pytest.mark.parametrize("library", [pd, pl])
def test_a_frame_without_rows_is_an_empty_list(library):
    for frame in (library.DataFrame({"a": [], "b": []}), library.DataFrame({"a": ["x"], "b": [1]})[:0]):
        assert sent(frame) == {"feature_names": ["a", "b"], "features": []}


def test_nothing_else_is_a_frame():
    for other in (np.ones((2, 2)), [[1.0]], [{"a": 1.0}], pd.Series([1.0]), pl.Series([1.0]), {"columns": 1}):
        assert not frames.is_frame(other)


def test_neither_library_is_named_in_an_import():
    text = Path(frames.__file__).read_text(encoding="utf-8")
    assert "import pandas" not in text
    assert "import polars" not in text
