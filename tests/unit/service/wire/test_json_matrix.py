import numpy as np
import pytest

from listwright.ranking.errors import CandidateError, EmptyListError, SchemaMismatchError
from listwright.ranking.features import Feature, FeatureSchema
from listwright.service.wire.json_matrix import to_candidates
from listwright.service.wire.schemas import RerankRequest
from support.service.bundles import schema

NAN = float("nan")


def request(**body):
    return RerankRequest.model_validate(body)


def named(*rows):
    return request(candidates=[{"features": row} for row in rows])


def features(body, columns=None):
    return to_candidates(body, columns or schema()).features


ROW = {"price": 1.5, "stars": 2, "bm25": None, "carrier": "B2"}
VALUES = [1.5, 2.0, NAN, 2.0]


def test_names_in_any_order():
    backwards = dict(reversed(ROW.items()))
    np.testing.assert_array_equal(features(named(ROW, backwards)), np.array([VALUES, VALUES], dtype=np.float32))


def test_an_optional_feature_may_be_left_out_and_counts_as_missing():
    np.testing.assert_array_equal(features(named({"price": 1.5, "stars": 2})), [[1.5, 2.0, NAN, 0.0]])


def test_a_default_stands_for_what_is_left_out_and_null_does_not():
    columns = schema(defaults={"price": 2.5, "carrier": "C7"})
    for body in (named({"stars": 2}), request(feature_names=["stars"], features=[[2]])):
        np.testing.assert_array_equal(features(body, columns), [[2.5, 2.0, NAN, 3.0]])
    for body in (
        named({"stars": 2, "price": None, "carrier": None}),
        request(feature_names=["carrier", "stars", "price"], features=[[None, 2, None]]),
    ):
        np.testing.assert_array_equal(features(body, columns), [[NAN, 2.0, NAN, 0.0]])


@pytest.mark.parametrize("name", ["size", "x" * 300])
def test_unknown_features_are_ignored_where_that_is_wanted(name):
    for body in (
        named({"new": 1, **ROW, name: [1]}, ROW),
        request(feature_names=[name, *ROW, "new"], features=[[{}, *ROW.values(), "x"], [None, *ROW.values(), True]]),
    ):
        ignored = {}
        np.testing.assert_array_equal(to_candidates(body, schema(), ignored).features, np.array([VALUES, VALUES]))
        assert sorted(ignored) == sorted(["new", name])
        with pytest.raises(SchemaMismatchError, match="unknown features"):
            to_candidates(body, schema())
    with pytest.raises(SchemaMismatchError, match=r"lacks the required 'price' .* and has unknown features 'prise'"):
        to_candidates(named({"prise": 1, "stars": 2}), schema(), {})


def test_columns_in_any_order_are_rows():
    body = request(columns={name: [value, None] for name, value in reversed(ROW.items())})
    np.testing.assert_array_equal(features(body), np.array([VALUES, [NAN, NAN, NAN, 0.0]], dtype=np.float32))


def test_a_column_that_is_left_out_has_its_default_or_the_value_of_the_context():
    body = {"stars": [2, None]}
    columns = schema(defaults={"price": 2.5, "carrier": "C7"})
    expected = np.array([[2.5, 2.0, NAN, 3.0], [2.5, NAN, NAN, 3.0]])
    np.testing.assert_array_equal(features(request(columns=body), columns), expected)
    expected[:, [0, 3]] = 9.0, 2.0
    context = {"price": 9, "carrier": "B2", "stars": 7}
    np.testing.assert_array_equal(features(request(columns=body, context=context), columns), expected)
    with pytest.raises(SchemaMismatchError, match="columns lacks the required 'price'") as fault:
        features(request(columns=body))
    assert fault.value.path == ("columns",)


@pytest.mark.parametrize(
    ("columns", "path", "words"),
    [
        ({"price": [1, 2], "stars": [1]}, ("columns", "stars"), "'stars' has 1 values, column 'price' has 2"),
        ({"price": [1], "stars": [1], "bm25": []}, ("columns", "bm25"), "'bm25' has 0 values, column 'price' has 1"),
        ({"price": 1, "stars": [1]}, ("columns", "price"), "expected an array of values, found 1"),
        ({"price": [1], "stars": {"0": 1}}, ("columns", "stars"), "expected an array of values, found an object"),
        ({"price": [1, 2], "stars": [1, "x"]}, ("columns", "stars", 1), "'stars' is numeric: .* found 'x'"),
        ({"price": [1], "stars": [1], "carrier": [[]]}, ("columns", "carrier", 0), "is a category: .* found an array"),
    ],
)
def test_faults_of_columns_name_them(columns, path, words):
    with pytest.raises(CandidateError, match=words) as fault:
        features(request(columns=columns))
    assert fault.value.path == path


@pytest.mark.parametrize("columns", [{}, {"price": [], "stars": []}])
def test_columns_of_no_candidate_are_an_empty_list(columns):
    with pytest.raises(EmptyListError) as fault:
        features(request(columns=columns), schema(defaults={"price": 2.5, "carrier": "C7"}))
    assert fault.value.path == ("columns",)


def test_an_ignored_column_has_as_many_values_as_the_others_of_any_type():
    ignored = {}
    body = request(columns={"new": [{}], "price": [1.5], "stars": [2]})
    np.testing.assert_array_equal(to_candidates(body, schema(), ignored).features, [[1.5, 2.0, NAN, 0.0]])
    assert list(ignored) == ["new"]
    with pytest.raises(CandidateError, match="column 'price' has 1 values, column 'new' has 0"):
        to_candidates(request(columns={"new": [], "price": [1.5], "stars": [2]}), schema(), {})


def test_a_required_feature_may_be_null_but_not_absent():
    np.testing.assert_array_equal(features(named({**ROW, "price": None}))[0, 0], NAN)
    with pytest.raises(SchemaMismatchError, match=r"candidate 0 lacks the required 'price' \(send null"):
        features(named({"stars": 2}))


def test_each_row_may_have_its_own_form():
    body = request(candidates=[{"features": ROW}, {"features": [1.5, 2, None, "B2"]}])
    np.testing.assert_array_equal(features(body), [VALUES, VALUES])


def test_faults_of_mixed_forms_name_their_own_place():
    body = request(candidates=[{"features": ROW}, {"features": [1.5, 2, "x", "B2"]}])
    with pytest.raises(CandidateError) as fault:
        features(body)
    assert fault.value.path == ("candidates", 1, "features", 2)


@pytest.mark.parametrize(
    "names", [["price", "stars", "bm25", "carrier"], ["carrier", "bm25", "price", "stars"], ["price", "stars"]]
)
def test_matrix_columns_are_put_in_schema_order(names):
    body = request(feature_names=names, features=[[ROW[name] for name in names]])
    expected = [
        value if name in names else missing
        for name, value, missing in zip(schema().names, VALUES, [0, 0, NAN, 0], strict=True)
    ]
    np.testing.assert_array_equal(features(body), [expected])


def test_one_feature_is_a_schema_too():
    columns = FeatureSchema(features=(Feature(name="only"),))
    for body in (named({"only": 3}, {"only": 4}), request(features=[[3], [4]])):
        np.testing.assert_array_equal(features(body, columns), [[3.0], [4.0]])


def test_no_columns_are_enough_where_all_are_optional():
    columns = FeatureSchema(features=(Feature(name="a", missing_in_training=True),))
    for body in (named({}, {}), request(feature_names=[], features=[[], []])):
        np.testing.assert_array_equal(features(body, columns), [[NAN], [NAN]])


@pytest.mark.parametrize(
    ("value", "code"),
    [
        *(("A5", 1), ("7", 2), (7, 2), (7.0, 2), (-0.0, 3), (2.5, 4), ("new", 0), (None, 0), (True, 5), (False, 0)),
        *(
            ("TRUE", 5),
            (" A5\t", 1),
            ("7.0", 2),
            ("2.50", 0),
            ("01", 6),
            (1, 0),
            ("NA", 0),
            ("", 0),
            ("\N{NO-BREAK SPACE}7", 2),
        ),
        *((1e300, 0), (10**400, 0), (-(2**63), 0), (2**64 - 1, 7), (10**20, 8), (1e20, 8)),
    ],
)
def test_codes_of_categories(value, code):
    """A number is the category that is spelled like it, whole ones without a decimal point, as in training tables."""
    columns = FeatureSchema(
        features=(
            Feature(
                name="c",
                kind="categorical",
                categories=("A5", "7", "0", "2.5", "true", "01", str(2**64 - 1), str(10**20)),
            ),
        )
    )
    found = features(named({"c": value}), columns)
    np.testing.assert_array_equal(found, [[code]])
    assert np.signbit(found).tolist() == [[value in (None, "NA", "")]], "missing"


@pytest.mark.parametrize("value", [float("inf"), float("-inf")])
def test_an_infinite_category_is_refused(value):
    columns = FeatureSchema(features=(Feature(name="c", kind="categorical", categories=("inf",)),))
    with pytest.raises(CandidateError, match=r"feature 'c': expected a category, found -?inf") as fault:
        features(named({"c": value}), columns)
    assert fault.value.path == ("candidates", 0, "features", "c")


@pytest.mark.parametrize("value", [3.5e38, -3.5e38, 10**39, 10**400, float("inf")])
def test_numbers_beyond_float32_are_refused(value):
    with pytest.raises(CandidateError, match=r"'stars' does not fit float32 \(at most 3.403e\+38\)") as fault:
        features(named(ROW, {**ROW, "stars": value}))
    assert fault.value.path == ("candidates", 1, "features", "stars")


def test_the_largest_float32_passes():
    largest = float(np.finfo(np.float32).max)
    np.testing.assert_array_equal(features(named({**ROW, "price": -largest}))[0, 0], np.float32(-largest))


@pytest.mark.parametrize("value", ["1.5", False, [1.0], {"a": 1}])
def test_a_number_is_nothing_else(value):
    with pytest.raises(CandidateError, match="'price' is numeric: expected a number or null"):
        features(named({**ROW, "price": value}))


def test_a_mismatch_of_many_names_stays_readable():
    columns = FeatureSchema(features=tuple(Feature(name=f"f{n}") for n in range(136)))
    with pytest.raises(SchemaMismatchError) as fault:
        features(named({"x" * 5000: 1}), columns)
    assert "and 126 more" in str(fault.value)
    assert len(str(fault.value)) < 500
    assert fault.value.expected == columns.names
    assert fault.value.sent == ("x" * 5000,)


def test_repeated_ids_are_found_in_one_pass():
    rows = [{"id": str(n), "features": ROW} for n in range(1000)]
    rows[999]["id"] = "17"
    with pytest.raises(CandidateError, match="id '17' was used at 17 already") as fault:
        features(request(candidates=rows))
    assert fault.value.path == ("candidates", 999, "id")


LACKING = {"price": 1.5, "bm25": None}
SHARED = {"stars": 2, "carrier": "B2", "device": "phone", "age": None, "visits": 3}


def test_the_context_supplies_what_rows_by_name_lack():
    body = request(candidates=[{"features": LACKING}, {"features": {**LACKING, "stars": -1}}], context=SHARED)
    np.testing.assert_array_equal(features(body), [VALUES, [1.5, -1.0, NAN, 2.0]])


def test_a_candidates_own_null_is_its_own():
    body = request(candidates=[{"features": {**ROW, "carrier": None}}], context={"bm25": 7.0, "carrier": "A5"})
    np.testing.assert_array_equal(features(body), [[1.5, 2.0, NAN, 0.0]])


def test_a_null_in_the_context_is_a_missing_value():
    body = request(candidates=[{"features": LACKING}], context={"stars": None})
    np.testing.assert_array_equal(features(body), [[1.5, NAN, NAN, 0.0]])


@pytest.mark.parametrize("names", [["price", "bm25"], ["bm25", "price"], ["stars", "price", "bm25"]])
def test_the_context_supplies_columns_that_are_not_named(names):
    own = {**LACKING, "stars": -1}
    body = request(feature_names=names, features=[[own[name] for name in names]] * 2, context=SHARED)
    stars = -1.0 if "stars" in names else 2.0
    np.testing.assert_array_equal(features(body), [[1.5, stars, NAN, 2.0]] * 2)


def test_rows_by_position_are_complete():
    context = {"price": 9, "carrier": "A5"}
    for body in (
        request(candidates=[{"features": [1.5, 2, None, "B2"]}], context=context),
        request(features=[[1.5, 2, None, "B2"]], context=context),
    ):
        np.testing.assert_array_equal(features(body), [VALUES])
    with pytest.raises(SchemaMismatchError, match="has 3 values"):
        features(request(features=[[1.5, 2, None]], context=context))


@pytest.mark.parametrize(
    "body",
    [
        {"candidates": [{"features": ROW}]},
        {"features": [[1, 2, 3, "A5"]]},
        {"features": [[1, 2]], "feature_names": ["price", "stars"]},
    ],
)
def test_a_hook_sees_the_whole_context_and_cannot_change_it(body):
    found = to_candidates(request(**body, context=SHARED), schema()).context
    assert found == SHARED
    with pytest.raises(TypeError):
        found["device"] = "tablet"
    for empty in ({}, {"context": {}}, {"context": None}):
        assert to_candidates(request(**body, **empty), schema()).context == {}


@pytest.mark.parametrize(
    ("context", "says"),
    [
        ({"stars": True}, "feature 'stars' is numeric: expected a number or null, found true"),
        ({"device": ["phone"]}, "found an array"),
        ({"device": {}}, "found an object"),
        ({"device": float("nan")}, "expected a finite number, found nan"),
        ({"device": float("-inf")}, "expected a finite number, found -inf"),
        ({"device": 10**400}, "expected a finite number, found a huge integer"),
        ({"stars": "2"}, "feature 'stars' is numeric: expected a number or null, found '2'"),
        ({"stars": 1e39}, "feature 'stars' does not fit float32"),
        ({"carrier": []}, "feature 'carrier' is a category: expected a string, found an array"),
        ({"x" * 201: 1}, "the name has 201 characters, the limit is 200"),
    ],
)
def test_a_context_that_cannot_be_used_carries_its_path(context, says):
    """Whether or not a candidate would take the value."""
    for body in (named(ROW), request(features=[[1, 2, 3, "A5"]])):
        with pytest.raises(CandidateError) as fault:
            features(body.model_copy(update={"context": {"first": 1, **context}}))
        assert says in str(fault.value)
        assert fault.value.path == ("context", *context)


def test_numbers_of_a_context_stay_as_they_are():
    context = {"whole": 2**60 + 1, "real": 1.5, "x" * 200: 1}
    found = to_candidates(request(features=[[1, 2, 3, "A5"]], context=context), schema()).context
    assert found == context
    assert type(found["whole"]) is int


def test_booleans_of_a_context_are_spelled():
    columns = FeatureSchema(features=(Feature(name="direct", kind="categorical", categories=("false", "true")),))
    found = to_candidates(request(features=[[]], feature_names=[], context={"direct": True, "app": False}), columns)
    assert found.context == {"direct": "true", "app": "false"}
    assert found.features.tolist() == [[2]]


def test_a_feature_in_the_context_is_not_taken_for_a_column_named_twice():
    body = request(feature_names=["price", "stars", "price"], features=[[1, 2, 3]], context={"bm25": 1})
    with pytest.raises(CandidateError, match="feature 'price' is named twice") as fault:
        features(body)
    assert fault.value.path == ("feature_names", 2)
    with pytest.raises(SchemaMismatchError, match="feature_names lacks the required 'price'"):
        features(request(feature_names=["stars"], features=[[1]], context={"bm25": 1}))
