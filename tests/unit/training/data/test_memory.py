"""Arrays and frames in memory: all say the same, and a wrong value is named with its place."""

import datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import sparse
from sklearn.datasets import load_svmlight_file

from listwright.ranking.errors import DataError, SchemaMismatchError
from listwright.training.data import memory
from listwright.training.data.dataset import fit_schema
from listwright.training.data.letor.layout import Reader
from listwright.training.data.load import with_defaults
from listwright.training.data.tables.table import read
from listwright.training.recipe.data import TableData

PERIODS = pl.from_arrow(pa.table({"p": pa.array(pd.period_range("2024-01", periods=2, freq="M"))}))["p"]
NAN = float("nan")
COLUMNS = {
    "price": [3.5, None, 1.0, 2.0, 9.0],
    "stops": [1, 0, 2, 1, 1],
    "carrier": ["x", "y", None, "x", "z"],
    "direct": [True, False, True, True, False],
}
Y = [0, 2, 1, 0, 1]
QID = ["b", "a", "b", "c", "a"]

AS_FRAMES = {
    "polars": pl.DataFrame(COLUMNS),
    "pandas": pd.DataFrame(COLUMNS),
    "pandas, its own types": pd.DataFrame(COLUMNS).convert_dtypes(),
    "pandas, objects": pd.DataFrame(COLUMNS, dtype=object),
    "pandas, categories": pd.DataFrame(COLUMNS).astype({"carrier": "category"}),
    "pandas, another index": pd.DataFrame(COLUMNS, index=[9, 8, 7, 7, 5]),
}


@pytest.fixture
def as_table(tmp_path):
    path = tmp_path / "t.parquet"
    pl.DataFrame(COLUMNS | {"y": Y, "q": QID}).write_parquet(path)
    return read(TableData(qid="q", label="y", categorical=("stops",)), str(path))[0]


def same(one, other):
    return (
        np.array_equal(one.features, other.features, equal_nan=True)
        and one.labels.tolist() == other.labels.tolist()
        and (one.offsets.tolist(), one.qids, one.schema) == (other.offsets.tolist(), other.qids, other.schema)
    )


@pytest.mark.parametrize("kind", AS_FRAMES)
def test_frames_are_read_like_the_table_of_the_same_columns(kind, as_table):
    assert same(memory.read_judged(AS_FRAMES[kind], Y, QID, categorical=("stops",)), as_table)


@pytest.mark.parametrize("holder", [list, tuple, np.array, pd.Series, pl.Series, lambda v: pd.Series(v, dtype=object)])
def test_labels_and_ids_in_any_holder(holder, as_table):
    assert same(memory.read_judged(AS_FRAMES["polars"], holder(Y), holder(QID), categorical=("stops",)), as_table)


@pytest.mark.parametrize(
    "narrow", [lambda v: np.array(v)[:, None], lambda v: pd.DataFrame({"y": v}), lambda v: pl.DataFrame({"y": v})]
)
def test_labels_ids_and_weights_in_one_column(narrow, as_table):
    found = memory.read_judged(
        AS_FRAMES["pandas"], narrow(Y), narrow(QID), categorical=("stops",), sample_weight=narrow([0.5, 1, 2, 1, 1])
    )
    assert found.weights.tolist() == [0.5, 2, 1, 1, 1]
    assert same(found, as_table)


@pytest.mark.parametrize("form", [sparse.csr_matrix, sparse.csc_array, sparse.coo_matrix])
def test_a_sparse_matrix_is_the_array_that_it_stands_for(form):
    array = np.array([[0.0, 2.5], [1.0, 0.0], [0.0, 0.0]])
    found, expected = (memory.read_judged(X, [0, 1, 0], [1, 1, 2], categorical=()) for X in (form(array), array))
    assert same(found, expected)
    asked, _ = memory.read_unjudged(form(array), [1, 1, 2], found.schema, found.schema.names)
    assert asked.features.tolist() == array.tolist()


def test_a_sparse_file_of_scikit_learn_is_the_letor_text_that_it_read(tmp_path):
    path = tmp_path / "rows.txt"
    path.write_text("1 qid:3 1:0.5 3:2\n0 qid:3 2:1\n2 qid:5 3:7\n")
    X, y, qid = load_svmlight_file(str(path), query_id=True)
    assert same(memory.read_judged(X, y, qid, categorical=()), Reader().file(path))


@pytest.mark.parametrize("name", ["", "Unnamed: 0", "Unnamed: 0.1", "__index_level_0__"])
def test_a_column_without_a_name_is_no_feature(name):
    frame = pl.DataFrame({name: [7, 8], "a": [1.0, 2.0]})
    found = memory.read_judged(frame, [0, 1], [1, 1], categorical=())
    assert found.schema.names == ("a",)
    assert any(repr(name)[1:-1] in note for note in memory.notes_of(frame, [1, 1], found.schema))
    assert memory.read_unjudged(frame, [1, 1], found.schema, ("a",))[0].features.tolist() == [[1], [2]]
    assert memory.notes_of(frame.drop(name), [1, 1], found.schema) == ()


def test_ids_that_a_float_has_rounded_are_counted():
    X, large = [[1.0]] * 4, 2.0**53
    schema = memory.read_judged(X, [0, 1, 0, 1], [1, 1, 2, 2], categorical=()).schema
    (note,) = memory.notes_of(X, np.array([1.0, large, large + 2, large + 4]), schema)
    assert "2 of 4 rows" in note
    assert memory.notes_of(X, [1, 2**60, 2**60 + 1, 2], schema) == ()
    exact = memory.read_judged(
        X, [0, 1, 0, 1], pd.Series([1, 2**60, 2**60 + 1, None], dtype="Int64").fillna(1), categorical=()
    )
    assert exact.qids == ("1", str(2**60), str(2**60 + 1))


def test_text_of_digits_with_zeros_before_them_is_pointed_out():
    frame = pd.DataFrame({"zip": ["01234", "90210"], "n": ["0.5", "0"]})
    schema = memory.read_judged(frame, [0, 1], [1, 1], categorical=()).schema
    assert [feature.kind for feature in schema.features] == ["numeric", "numeric"]
    (note,) = memory.notes_of(frame, [1, 1], schema)
    assert "zip" in note
    assert "01234" in note


@pytest.mark.parametrize("array", [np.array, lambda rows: np.asfortranarray(rows, dtype=np.float16), list])
def test_columns_of_an_array_are_called_as_in_letor_text(array):
    data = memory.read_judged(array([[1.5, 2.0], [NAN, 4.0]]), [0, 1], [7, 7], categorical=("f2",))
    assert data.schema.names == ("f1", "f2")
    assert data.schema.features[1].categories == ("2", "4")
    assert np.array_equal(data.features, np.float32([[1.5, 1], [NAN, 2]]), equal_nan=True)


def test_an_array_of_objects_holds_numbers_and_text():
    data = memory.read_judged(
        np.array([[1, "b", None], [2.5, "a", None]], dtype=object), [0, 1], [1, 1], categorical=()
    )
    assert [feature.kind for feature in data.schema.features] == ["numeric", "categorical", "numeric"]
    assert np.array_equal(data.features, np.float32([[1, 2, NAN], [2.5, 1, NAN]]), equal_nan=True)


def test_masked_values_of_an_array_are_missing():
    masked = np.ma.masked_array([[1.0, -999.0], [-999.0, 4.0]], [[False, True], [True, False]])
    for array in (masked, masked.astype(int)):
        data = memory.read_judged(array, [0, 1], [7, 7], categorical=())
        assert np.array_equal(data.features, np.float32([[1.0, NAN], [NAN, 4.0]]), equal_nan=True)


@pytest.mark.parametrize(
    ("column", "names"),
    [
        *(
            (pd.Series([0.1, None], dtype=kind), ("0.1",))
            for kind in ("Float32", "float[pyarrow]", "halffloat[pyarrow]")
        ),
        (pd.Series(np.array([0.1, 1.1], np.float32)).astype("category"), ("0.1", "1.1")),
        (pd.Series(pd.to_datetime(["2024-01-01"])).astype("category"), ("2024-01-01 00:00:00",)),
        (pd.Series([np.float32(0.1), None], dtype=object), ("0.1",)),
        ([Decimal("12345678901234567"), Decimal("12345678901234568")], ("12345678901234567", "12345678901234568")),
        (pd.Series([2**60, 2**60 + 1, 1.0], dtype=object), ("1", str(2**60), str(2**60 + 1))),
        ([2**130 + 1, 2**130 + 2], (str(2**130 + 1), str(2**130 + 2))),
        (pd.Series(["01", None], dtype=pd.ArrowDtype(pa.dictionary(pa.int32(), pa.string()))), ("01",)),
    ],
)
def test_categories_of_numbers_have_the_digits_of_their_type(column, names):
    frame = pd.DataFrame({"c": column})
    data = memory.read_judged(frame, [0] * len(frame), [1] * len(frame), categorical=("c",))
    assert data.schema.features[0].categories == names


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        ([2, 10, 2], ("2", "10")),
        ([2.0, 10.5, 2.0], ("2", "10.5")),
        ([2, "2", 2.0], ("2",)),
        ([("u", 1), ("u", 2), ("u", 1)], ("('u', 1)", "('u', 2)")),
        (np.array(["2020-01-02", "2020-01-03", "2020-01-02"], "datetime64[D]"), ("2020-01-02", "2020-01-03")),
    ],
)
def test_ids_of_any_type_and_in_any_order(ids, expected):
    data = memory.read_judged([[1.0], [2.0], [3.0]], [0, 1, 2], ids, categorical=())
    assert data.qids == expected
    assert data.labels.tolist() == ([0, 2, 1] if len(expected) == 2 else [0, 1, 2])


@pytest.mark.parametrize(
    ("X", "y", "qid", "says"),
    [
        ([[1.0], [2.0]], [0, -1], [1, 1], "y, row 1: expected a relevance label, a whole number from 0 to 30; found -1"),
        ([[1.0], [2.0]], [0, 0.5], [1, 1], "y, row 1: .* found 0.5"),
        ([[1.0], [2.0]], [0, None], [1, 1], "y, row 1: .* found None"),
        ([[1.0], [2.0]], ["good", "1"], [1, 1], "y, row 0: .* found 'good'"),
        ([[1.0], [2.0]], [[0, 1]], [1, 1], "column y: found"),
        ([[1.0], [2.0]], np.zeros((2, 2)), [1, 1], "y: expected one value per row; found 2 columns"),
        ([[1.0], [2.0]], None, [1, 1], "y: is not given"),
        ([[1.0], [2.0]], [0], [1, 1], "y: has 1 values, X has 2 rows"),
        ([[1.0], [2.0]], [0, 1], [1, 1, 1], "qid: has 3 values, X has 2 rows"),
        ([[1.0], [2.0]], [0, 1], [1, None], "qid, row 1: the query id is missing"),
        ([[1.0], [2.0]], [0, 1], pd.Series(["a", pd.NA], dtype="string"), "qid, row 1: the query id is missing"),
        ([[1.0], [2.0]], [0, 1], np.zeros((2, 2)), "qid: expected one value per row; found 2 columns"),
        ([[1.0], [np.inf]], [0, 1], [1, 1], "X, row 1, column f1: expected a number that fits float32; found inf"),
        ([[1.0], [1e39]], [0, 1], [1, 1], "X, row 1, column f1: .* found 1e[+]39"),
        ([1.0, 2.0], [0, 1], [1, 1], "X: expected a frame or an array of two dimensions; found list with 1"),
        (np.empty((0, 3)), [], [], "X: has 0 rows and 3 columns"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), [0], [1], "X: column 'a' is named twice"),
        (pd.DataFrame({"a": [[1], [2]]}), [0, 1], [1, 1], r"column a: found \[1\]: give one number or one text per row"),
        (pl.DataFrame({"a": [[1], [2]]}), [0, 1], [1, 1], "X, column a: holds List.*: leave it out of X"),
        (pl.DataFrame({"a": PERIODS}), [0, 1], [1, 1], "X, column a: holds Extension.*: leave it out of X"),
        ([[1.0], [2.0]], [0, 1], PERIODS, "qid: holds Extension"),
        ([[1.0], [2.0]], [0, 1], pl.Series([[1], [2]]), "qid: holds List"),
        ([[1j], [2.0]], [0, 1], [1, 1], "column f1: found 1j"),
        (np.array([[1j], [2.0]], np.complex64), [0, 1], [1, 1], "column f1: found np.complex64"),
        (np.ma.masked_array([["2024-01-01"]], [[False]], "M8[ns]"), [0], [1], "X, column f1: holds Datetime"),
        ([[1.0], [2.0]], np.ma.masked_array([[1], [3]], [[False], [True]]), [1, 1], "y, row 1: .* found None"),
        ([[1.0], [2.0]], {0: 0, 1: 1}, [1, 1], "y: expected one value per row, in order; found dict"),
        ([[1.0], [2.0]], 1.0, [1, 1], "y: expected one value per row, in order; found float"),
        (pd.DataFrame({"d": pd.to_datetime(["2020-01-01"])}), [0], [1], "X, column d: holds Datetime.*make it a number"),
        (np.array([["2020-01-01"]], "datetime64[ns]"), [0], [1], "X, column f1: holds Datetime"),
        (pl.DataFrame({"d": [datetime.date(2020, 1, 1)]}), [0], [1], "X, column d: holds Date"),
        (pd.DataFrame({"d": ["2020-01-01", None]}), [0, 1], [1, 1], "d: holds text that reads as dates .*, or leave it out of X$"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_named_with_its_place(X, y, qid, says):
    with pytest.raises(DataError, match=says):
        memory.read_judged(X, y, qid, categorical=())


def test_dates_that_pandas_calls_categories_are_categories():
    frame = pd.DataFrame({"d": pd.Categorical(["2020-01-02", None, "2020-01-01"])})
    assert memory.read_judged(frame, [0, 1, 1], [1, 1, 1], categorical=()).schema.features[0].categories == (
        "2020-01-01",
        "2020-01-02",
    )


def test_a_category_that_is_no_column_is_refused():
    with pytest.raises(DataError, match="categorical: no column 'b' in X; it has f1"):
        memory.read_judged([[1.0]], [0], [1], categorical=("b",))


@pytest.mark.parametrize("column", [pl.Series([[1], [2]]), pl.Series([b"x", b"\xff"]), PERIODS])
def test_a_question_of_no_cells_is_named(column):
    fitted = memory.read_judged(pl.DataFrame({"c": ["x", "y"]}), [0, 1], [1, 1], categorical=())
    with pytest.raises(DataError, match="X, column c: holds"):
        memory.read_unjudged(pl.DataFrame({"c": column}), [1, 1], fitted.schema, fitted.schema.names)


def test_questions_are_read_under_the_fitted_schema():
    fitted = memory.read_judged(AS_FRAMES["pandas"], Y, QID, categorical=("stops",))
    columns = ["direct", "carrier", "price", "stops"]
    frame = pd.DataFrame([[False, "new", 1.0, 2], [True, "z", NAN, 7]], columns=columns)
    data, order = memory.read_unjudged(frame, ["q2", "q1"], fitted.schema, fitted.schema.names)
    assert order.tolist() == [0, 1]
    assert np.array_equal(data.features, np.float32([[1.0, 3, 0, 1], [NAN, 0, 3, 2]]), equal_nan=True)


@pytest.mark.parametrize(
    ("X", "says"),
    [
        (pl.DataFrame({"a": [1.0]}), "X lacks b: give the columns that were fitted"),
        (pl.DataFrame({"a": [1.0], "b": [1.0], "c": [1]}), "X has also c"),
        (
            pl.DataFrame({"a": [1.0], "b": ["high"]}),
            "X, row 0, column b: expected numbers, as were fitted; found 'high'",
        ),
        (np.ones((1, 3)), "X has 3 columns, 2 were fitted"),
    ],
)
def test_other_columns_than_were_fitted_are_refused(X, says):
    fitted = memory.read_judged(pl.DataFrame({"a": [1.0, 2.0], "b": [1.0, 2.0]}), [0, 1], [1, 1], categorical=())
    with pytest.raises(SchemaMismatchError, match=says):
        memory.read_unjudged(X, [1], fitted.schema, fitted.schema.names)


def test_a_frame_may_lack_what_has_a_default_or_was_missing_in_training():
    columns = {"a": [1.0, 2.0], "b": [3.0, 4.0], "c": ["x", "y"], "gap": [None, 1.0], "hole": ["z", None]}
    fitted = fit_schema(memory.read_judged(pl.DataFrame(columns), [0, 1], [1, 1], categorical=()))
    schema = with_defaults(fitted, (("b", 0.1), ("c", "y")))
    data, _ = memory.read_unjudged(pd.DataFrame({"a": [5.0, 6.0]}), [1, 2], schema, schema.names)
    assert np.array_equal(data.features, np.float32([[5.0, 0.1, 2, NAN, 0], [6.0, 0.1, 2, NAN, 0]]), equal_nan=True)
    sent, _ = memory.read_unjudged(
        pd.DataFrame({"a": [5.0], "b": [None], "c": [None], "hole": ["z"]}), [1], schema, schema.names
    )
    assert np.array_equal(sent.features, np.float32([[5.0, NAN, 0, NAN, 1]]), equal_nan=True), "a null is missing"


@pytest.mark.parametrize(
    ("defaults", "frame", "says"),
    [
        ((), {"a": [1.0]}, "X lacks b, c: give"),
        ((("b", 0.1),), {"a": [1.0]}, "X lacks c: give"),
        ((("a", 0.1), ("c", "y")), {"b": [1.0], "d": [1.0]}, "X has also d: give"),
    ],
)
def test_a_frame_lacks_nothing_else(defaults, frame, says):
    columns = {"a": [1.0, 2.0], "b": [3.0, 4.0], "c": ["x", "y"], "gap": [None, 1.0]}
    fitted = fit_schema(memory.read_judged(pl.DataFrame(columns), [0, 1], [1, 1], categorical=()))
    with pytest.raises(SchemaMismatchError, match=says):
        memory.read_unjudged(pl.DataFrame(frame), [1], with_defaults(fitted, defaults), fitted.names)
