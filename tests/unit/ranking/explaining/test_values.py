"""What people read, and what stands in for a value that is left out."""

import numpy as np
import pytest

from listwright.ranking.explaining.contributions import differing, references
from listwright.ranking.features import Feature, FeatureSchema
from support.service.bundles import CATEGORY

PRICE = Feature(name="price")
SCHEMA = FeatureSchema(features=(PRICE, CATEGORY))
NAN = np.nan


@pytest.mark.parametrize(
    ("feature", "number", "value"),
    [
        (PRICE, 2.5, 2.5),
        (PRICE, float(np.float32(1.6)), 1.6),
        (PRICE, NAN, None),
        (CATEGORY, 2.0, "B2"),
        (CATEGORY, 0.0, None),
        (CATEGORY, 9.0, None),
    ],
)
def test_a_value_is_read_as_it_was_sent(feature, number, value):
    assert feature.value_of(number) == value


@pytest.mark.parametrize(
    ("prices", "median"),
    [([3, 1, 2], 2), ([4, 1, 2, 3], 2), ([NAN, 5, 1, NAN, 9], 5), ([7], 7), ([0, 0, 0, 1], 0)],
)
def test_the_median_is_a_value_that_occurs(prices, median):
    features = np.array([[price, 1.0] for price in prices], dtype=np.float32)
    assert references(features, SCHEMA).tolist() == [median, 1.0]


def test_where_all_are_missing_so_is_the_reference():
    assert np.isnan(references(np.array([[NAN, 1.0], [NAN, 1.0]], dtype=np.float32), SCHEMA)[0])


@pytest.mark.parametrize(("codes", "mode"), [([1, 2, 2, 3], 2), ([3, 3, 1, 1], 1), ([0, 0, 1], 0)])
def test_the_category_is_the_most_frequent(codes, mode):
    features = np.array([[1.0, code] for code in codes], dtype=np.float32)
    assert references(features, SCHEMA)[1] == mode


def test_two_missing_values_are_the_same():
    assert differing(np.array([NAN, NAN, 1.0, 1.0]), np.array([NAN, 1.0, 1.0, 2.0])).tolist() == [
        False,
        True,
        False,
        True,
    ]
