"""What is refused before anything is fitted: queries that LightGBM would refuse later."""

import numpy as np
import pytest

from listwright.ranking.errors import DataError
from listwright.ranking.features import Feature, FeatureSchema
from listwright.training.data.dataset import Dataset, Splits
from listwright.training.recipe import config
from listwright.training.recipe.config import GivenColumn
from listwright.training.steps.bundle_schema import under_bundle_schema

SCHEMA = FeatureSchema(features=(Feature(name="price"),))


def part(*lengths):
    rows, offsets = sum(lengths), np.cumsum([0, *lengths])
    features = np.arange(rows, dtype=np.float32)[:, None]
    return Dataset(features, np.arange(rows, dtype=np.int32) % 2, offsets, tuple(f"q{n}" for n in lengths), SCHEMA)


@pytest.mark.parametrize(
    ("train", "valid", "says"),
    [
        ((3, 10_001, 2), (4, 5), "query q10001: 10,001 rows: "),
        ((10_003, 10_001, 2), (4, 5), "query q10003: 10,003 rows, and 1 more training queries "),
        ((3, 2), (4, 12_000), "query q12000: 12,000 rows: "),
    ],
)
def test_a_query_that_lightgbm_does_not_take_is_named(train, valid, says):
    splits = Splits(part(*train), part(*valid), part(5), "by hand")
    with pytest.raises(DataError, match=says):
        under_bundle_schema(config.load("letor"), splits)


@pytest.mark.parametrize(
    ("train", "test", "first_stage"),
    [((10_000, 2), 10_001, {}), ((10_001, 2), 3, {"first_stage": GivenColumn(column="price")})],
)
def test_as_many_rows_as_lightgbm_takes_and_more_where_it_fits_nothing(train, test, first_stage):
    splits = Splits(part(*train), part(4, 5), part(test), "by hand")
    assert under_bundle_schema(config.changed(config.load("letor"), first_stage), splits).train.rows == sum(train)
