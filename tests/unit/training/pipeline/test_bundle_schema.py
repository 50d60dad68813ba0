"""What is refused or pointed out before anything is fitted: long queries, and categories that a given model lacks."""

import lightgbm
import numpy as np
import pandas
import polars as pl
import pytest

from listwright.ranking.errors import DataError
from listwright.ranking.features import Feature, FeatureSchema
from listwright.training.data.dataset import Dataset, Splits
from listwright.training.data.load import doubtful
from listwright.training.pipeline import steps
from listwright.training.pipeline.steps import load, with_bundle_schema
from listwright.training.recipe import config
from listwright.training.recipe.config import GivenColumn, GivenModel
from listwright.training.recipe.data import TableData

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
        with_bundle_schema(config.load("letor"), splits)


@pytest.mark.parametrize(
    ("train", "test", "first_stage"),
    [((10_000, 2), 10_001, {}), ((10_001, 2), 3, {"first_stage": GivenColumn(column="price")})],
)
def test_as_many_rows_as_lightgbm_takes_and_more_where_it_fits_nothing(train, test, first_stage):
    splits = Splits(part(*train), part(4, 5), part(test), "by hand")
    assert with_bundle_schema(config.changed(config.load("letor"), first_stage), splits).train.rows == sum(train)


def test_features_that_no_manifest_holds_are_named_before_anything_is_fitted(monkeypatch):
    splits = Splits(part(10), part(4), part(3), "by hand")
    schema = with_bundle_schema(config.load("letor"), splits).train.schema
    size = len(schema.model_dump_json(indent=1))
    monkeypatch.setattr(steps, "MAX_MANIFEST_BYTES", -(-size * 4 // 3))
    with_bundle_schema(config.load("letor"), splits)
    monkeypatch.setattr(steps, "MAX_MANIFEST_BYTES", size * 4 // 3 - 1)
    with pytest.raises(DataError, match=r"too many for a bundle's manifest of \d+ bytes: "):
        with_bundle_schema(config.load("letor"), splits)


@pytest.mark.parametrize(("spelling", "notes"), [(str, 0), (str.upper, 3)])
def test_categories_that_a_given_model_does_not_know_are_told_of(tmp_path, monkeypatch, spelling, notes):
    """In every part: they were known as long as training fixed the schema."""
    monkeypatch.setenv("LISTWRIGHT_CACHE", str(tmp_path / "cache"))
    shops, prices = np.array(["a", "b", "c"])[np.arange(60) % 3], np.arange(60.0)
    frame = pandas.DataFrame({"shop": pandas.Categorical([spelling(shop) for shop in shops]), "price": prices})
    params = {"objective": "lambdarank", "verbosity": -1, "min_data_in_leaf": 2}
    booster = lightgbm.train(params, lightgbm.Dataset(frame, np.arange(60) % 2, group=[10] * 6), num_boost_round=2)
    booster.save_model(tmp_path / "model.txt")
    table = pl.DataFrame({"q": np.arange(60) // 4, "y": np.arange(60) % 2, "shop": shops, "price": prices})
    table.write_parquet(tmp_path / "rows.parquet")
    recipe = config.changed(config.load("table"), {"data": TableData(qid="q", label="y")})
    recipe = config.changed(recipe, {"first_stage": GivenModel(path=str(tmp_path / "model.txt"))})
    said = [one for one in doubtful(load(recipe, [str(tmp_path / "rows.parquet")])) if "'shop' has " in one]
    assert len(said) == notes
