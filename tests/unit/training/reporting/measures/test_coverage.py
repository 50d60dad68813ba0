"""How test rows differ from training rows, on rows small enough to check by hand."""

from dataclasses import replace

import numpy as np
import pytest

from listwright.ranking.features import Feature, FeatureSchema
from listwright.training.data.dataset import Dataset, fit_schema
from listwright.training.reporting import sentences
from listwright.training.reporting.measures.coverage import MOST_FEATURES, measure_coverage


def dataset(features, schema=None):
    features = np.array(features, dtype=np.float32)
    schema = schema or FeatureSchema(features=(Feature(name="price"), Feature(name="stars")))
    rows = len(features)
    return Dataset(features, np.zeros(rows, dtype=np.int32), np.array([0, rows]), ("q",), schema)


def test_coverage_counts_missing_clipped_and_unknown():
    named = FeatureSchema(
        features=(Feature(name="price"), Feature(name="carrier", kind="categorical", categories=("A", "B")))
    )
    train = dataset([[1, 1], [2, 2], [3, 1], [np.nan, 2]], named)
    train = replace(train, schema=fit_schema(train))
    test = dataset([[2, 1], [10, 0], [-5, 2], [np.nan, 0], [np.nan, 1]], train.schema)
    found = measure_coverage(train, test)
    rows = {row[0]: dict(zip(found["columns"], row, strict=True)) for row in found["rows"]}
    assert rows["price"]["missing_in_training"] == 0.25
    assert rows["price"]["missing"] == 0.4
    assert rows["price"]["beyond_training_quantiles"] == pytest.approx(2 / 3, abs=1e-6), "of the values that are there"
    assert rows["carrier"]["unknown"] == 0.4
    assert rows["carrier"]["missing"] is None
    assert sentences.coverage_sentence(found) == (
        "Of 2 features, 1 has missing values more often than in training, 1 has more than 1 % of values beyond the "
        "training quantiles and 1 has unknown categories in the test rows"
    )
    as_often = measure_coverage(train, dataset([[2, 1], [1, 1], [3, 2], [np.nan, 1]], train.schema))
    assert as_often["missing"] == 0


def test_coverage_of_very_many_features_lists_the_most_striking():
    count = MOST_FEATURES + 30
    train = dataset(np.zeros((5, count)), FeatureSchema(features=[Feature(name=f"f{d}") for d in range(count)]))
    train = replace(train, schema=fit_schema(train))
    nothing = measure_coverage(train, dataset(np.zeros((4, count)), train.schema))
    assert (nothing["features"], nothing["rows"]) == (count, [])
    assert "look like training rows in all" in sentences.coverage_sentence(nothing)
    rows = np.ones((4, count))
    rows[:2, :-1] = 0.0
    found = measure_coverage(train, dataset(rows, train.schema))
    assert (found["features"], found["listed"]) == (count, count)
    assert len(found["rows"]) == MOST_FEATURES
    assert found["rows"][0][0] == f"f{count - 1}"
