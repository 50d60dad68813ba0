"""Names, codes, missing policy and fingerprint of a feature schema."""

import hashlib
import math

import pytest
from pydantic import ValidationError

from listwright.ranking.features import QUANTILE_LEVELS, UNKNOWN_CODE, Feature, FeatureSchema

PRICE = Feature(name="price")
RATING = Feature(name="rating", missing_in_training=True)
CARRIER = Feature(name="carrier", kind="categorical", categories=("A5", "LH"))
SCHEMA = FeatureSchema(features=(PRICE, CARRIER, RATING))


def test_columns_follow_the_features():
    assert len(SCHEMA) == 3
    assert SCHEMA.names == ("price", "carrier", "rating")
    assert SCHEMA.index == {"price": 0, "carrier": 1, "rating": 2}
    assert SCHEMA.categorical == (1,)


@pytest.mark.parametrize(("category", "code"), [("A5", 1), ("LH", 2), ("BA", UNKNOWN_CODE), ("", UNKNOWN_CODE)])
def test_codes_count_from_one_and_unknown_is_zero(category, code):
    assert CARRIER.code(category) == code


def test_only_what_training_saw_missing_may_be_left_out():
    assert SCHEMA.required == {"price"}
    assert [feature.optional for feature in SCHEMA.features] == [False, True, True]


@pytest.mark.parametrize(
    ("feature", "default", "absent"),
    [
        (PRICE, 2.5, 2.5),
        (PRICE, 3, 3.0),
        (PRICE, 0, 0.0),
        (RATING, 1.0, 1.0),
        (CARRIER, "LH", 2.0),
        (PRICE, None, None),
        (CARRIER, None, 0.0),
    ],
)
def test_a_default_makes_a_feature_optional_and_stands_for_it(feature, default, absent):
    changed = Feature.model_validate(feature.model_dump() | {"default": default})
    if absent is None:
        assert math.isnan(changed.absent)
        assert not changed.optional
    else:
        assert changed.absent == absent
        assert changed.optional
    assert FeatureSchema(features=(changed,)).fingerprint == FeatureSchema(features=(feature,)).fingerprint


@pytest.mark.parametrize(
    ("feature", "default"),
    [
        (PRICE, "dear"),
        (PRICE, math.inf),
        (PRICE, math.nan),
        (PRICE, 1e39),
        (CARRIER, "BA"),
        (CARRIER, 1.0),
        (CARRIER, ""),
    ],
)
def test_a_default_is_a_value_of_its_feature(feature, default):
    with pytest.raises(ValidationError):
        Feature.model_validate(feature.model_dump() | {"default": default})


def test_fingerprint_is_the_hash_of_the_facts():
    facts = '[["price","numeric",[],false],["carrier","categorical",["A5","LH"],false],["rating","numeric",[],true]]'
    assert SCHEMA.fingerprint == "sha256:" + hashlib.sha256(facts.encode()).hexdigest()


@pytest.mark.parametrize(
    "features",
    [
        (CARRIER, PRICE, RATING),
        (PRICE, CARRIER),
        (Feature(name="cost"), CARRIER, RATING),
        (PRICE, Feature(name="carrier"), RATING),
        (PRICE, Feature(name="carrier", kind="categorical", categories=("LH", "A5")), RATING),
        (PRICE, CARRIER, Feature(name="rating")),
    ],
    ids=["order", "width", "name", "kind", "code order", "missing policy"],
)
def test_fingerprint_changes_with_what_an_array_means(features):
    assert FeatureSchema(features=features).fingerprint != SCHEMA.fingerprint


def test_fingerprint_does_not_see_quantiles():
    """Quantiles describe the training data, not what an array means."""
    measured = Feature(name="price", quantiles=tuple(QUANTILE_LEVELS))
    assert FeatureSchema(features=(measured, CARRIER, RATING)).fingerprint == SCHEMA.fingerprint


def test_a_schema_survives_json():
    again = FeatureSchema.model_validate_json(SCHEMA.model_dump_json())
    assert again == SCHEMA
    assert again.fingerprint == SCHEMA.fingerprint


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"name": ""}, "at least 1 character"),
        ({"name": "x" * 221}, "at most 220 characters"),
        ({"name": "x", "categories": ("a",)}, "'x' is numeric and cannot have categories"),
        ({"name": "x", "kind": "categorical", "categories": ("a", "b", "a")}, "'x' lists a category twice"),
        ({"name": "x", "quantiles": (0.0, 1.0)}, f"there are {len(QUANTILE_LEVELS)} quantiles, not 2"),
        ({"name": "x", "quantiles": (0.0, 1.0, 2.0, 1.5, 3.0, 4.0, 5.0)}, "never fall"),
        ({"name": "x", "quantiles": (0.0, 1.0, 2.0, 2.5, 3.0, 4.0, float("inf"))}, "less than or equal to"),
        ({"name": "x", "quantiles": (0.0, 1.0, 2.0, 2.5, 3.0, 4.0, float("nan"))}, "less than or equal to"),
        ({"name": "x", "unit": "EUR"}, "Extra inputs are not permitted"),
    ],
)
def test_a_feature_that_contradicts_itself_is_refused(facts, message):
    with pytest.raises(ValidationError, match=message):
        Feature(**facts)


def test_repeated_names_are_refused():
    with pytest.raises(ValidationError, match="'price' appears twice"):
        FeatureSchema(features=(PRICE, CARRIER, PRICE))


def test_a_schema_without_features_is_refused():
    with pytest.raises(ValidationError, match="at least 1 item"):
        FeatureSchema(features=())
