"""Columns with one value in all training rows become no features, unless something needs them."""

from dataclasses import replace

import lightgbm
import numpy as np
import polars as pl
import pytest

from listwright.ranking.errors import DataError, RecipeError
from listwright.training.data import load
from listwright.training.data.dataset import Remedies
from listwright.training.data.load import doubtful, dropped_note, without_constant
from listwright.training.data.memory import read_judged
from listwright.training.data.split import checked
from listwright.training.pipeline import steps
from listwright.training.recipe.config import GivenColumn, GivenModel, LambdaMart, Recipe
from listwright.training.recipe.data import TableData
from support.lists import lists

_, QUERY, _, LABELS, RNG = lists()
ROWS = len(QUERY)
NOISE = RNG.normal(size=ROWS).round(3)
HELD_OUT = QUERY >= 24
NAN = float("nan")


def splits_of(**columns):
    data = read_judged(pl.DataFrame({"price": NOISE, **columns}), LABELS, QUERY.tolist(), categorical=())
    return checked(*(data.select(np.arange(first, end)) for first, end in ((0, 24), (24, 32), (32, 40))), "here")


@pytest.mark.parametrize(
    ("values", "goes"),
    [
        (np.full(ROWS, 7.0), True),
        (np.full(ROWS, NAN), True),
        (np.where(np.arange(ROWS) % 2, 0.0, -0.0), True),
        (np.full(ROWS, "x"), True),
        (pl.Series([None] * ROWS, dtype=pl.String), True),
        (np.where(HELD_OUT, NOISE, 7.0), True),
        (np.where(HELD_OUT, "x", "y"), True),
        (np.where(HELD_OUT, 7.0, NOISE), False),
        (np.where(QUERY == 3, NAN, 7.0), False),
        (np.where(QUERY == 3, "x", "y"), False),
        (pl.Series([None if q == 3 else "x" for q in QUERY]), False),
        (np.where(np.cumsum(~HELD_OUT) == (~HELD_OUT).sum(), 1.0, 0.0), False),
    ],
)
def test_what_is_the_same_in_all_training_rows_goes(values, goes, monkeypatch):
    monkeypatch.setattr(load, "_ROWS", 10)
    before = splits_of(x=values, stops=np.arange(ROWS) % 3)
    after = without_constant(before)
    assert after.dropped == (((1, "x"),) if goes else ())
    kept = [0, 2] if goes else [0, 1, 2]
    for one, other in ((after.train, before.train), (after.valid, before.valid), (after.test, before.test)):
        assert one.schema.features == tuple(other.schema.features[column] for column in kept)
        assert np.array_equal(one.features, other.features[:, kept], equal_nan=True)
        assert one.features.flags.c_contiguous
        assert (one.qids, one.labels.tolist()) == (other.qids, other.labels.tolist())


def test_what_is_needed_stays():
    before = splits_of(a=np.zeros(ROWS), b=np.ones(ROWS), c=np.ones(ROWS))
    assert without_constant(before, {"b", "price"}).dropped == ((1, "a"), (3, "c"))
    assert without_constant(before, {"a", "b", "c"}) is before


def test_where_all_is_constant_nothing_can_be_learned():
    before = splits_of(price=np.zeros(ROWS), **{f"x{n}": np.ones(ROWS) for n in range(9)})
    said = (
        "each feature .'price', 'x0', .*'x6' and 2 more. has one value, or none, in all .* training rows: nothing tells"
    )
    with pytest.raises(DataError, match=said):
        without_constant(before)
    assert without_constant(before, {"x3"}).train.schema.names == ("x3",)


def test_the_note_names_a_few_columns_and_counts_the_others():
    one, many = (without_constant(splits_of(**{f"x{n}": np.ones(ROWS) for n in range(count)})) for count in (1, 11))
    rows = one.train.rows
    first, *_ = doubtful(one)
    assert first == dropped_note(one)
    assert first.startswith(
        f"'x0' has one value, or none, in all {rows} training rows, and is no feature of the bundle."
    )
    assert "LISTWRIGHT_UNKNOWN_FEATURES=ignore; drop_constant = false under [data]" in first
    several = dropped_note(replace(many, remedies=Remedies(keep_constant="another word")))
    assert several.startswith(
        f"'x0', 'x1', 'x2', 'x3', 'x4', 'x5', 'x6', 'x7' and 3 more have one value, or none, in all {rows}"
    )
    assert several.endswith("another word keeps them")
    assert dropped_note(splits_of()) is None
    assert doubtful(splits_of()) == []


@pytest.fixture
def read(tmp_path):
    columns = {"q": QUERY, "y": LABELS, "a": np.ones(ROWS), "price": NOISE, "b": np.ones(ROWS), "carrier": ["x"] * ROWS}
    pl.DataFrame(columns).write_parquet(tmp_path / "rows.parquet")

    def under(first_stage=None, **data):
        spec = TableData(qid="q", label="y", **data)
        recipe = Recipe(name="own", about="x", data=spec, first_stage=first_stage or LambdaMart())
        return steps.load(recipe, [str(tmp_path / "rows.parquet")])

    return under


def names(splits):
    return splits.train.schema.names


def test_a_recipe_may_keep_them(read, monkeypatch):
    assert names(read()) == ("price",)
    monkeypatch.setattr(pl, "read_parquet", lambda *_args, **_more: pytest.fail("parsed again"))
    kept = read(drop_constant=False)
    assert names(kept) == ("a", "price", "b", "carrier")
    assert kept.dropped == ()


def model_of(folder, columns):
    given = {"feature_name": columns} if columns else {}
    matrix = RNG.normal(size=(40, len(columns) or 3))
    data = lightgbm.Dataset(matrix, (matrix[:, -1] > 0).astype(int), group=[10] * 4, **given)
    params = {"objective": "lambdarank", "verbosity": -1, "min_data_in_leaf": 2}
    lightgbm.train(params, data, num_boost_round=2).save_model(folder / "model.txt")
    return GivenModel(path=str(folder / "model.txt"))


def test_what_a_given_model_looks_at_stays(read, tmp_path):
    splits = read(model_of(tmp_path, ["b", "price"]))
    assert names(splits) == ("price", "b")
    assert splits.dropped == ((0, "a"), (3, "carrier"))


def test_a_model_without_names_needs_every_column_where_it_stands(read, tmp_path):
    splits = read(model_of(tmp_path, []), ignore=("carrier",))
    assert names(splits) == ("a", "price", "b")
    assert splits.dropped == ()


def test_a_column_of_scores_stays(read):
    assert names(read(GivenColumn(column="b"))) == ("price", "b")


def test_a_default_goes_with_its_column_and_is_looked_at_before(read):
    assert names(read(defaults=(("a", 3), ("price", 1)))) == ("price",)
    assert read(defaults=(("a", 3), ("price", 1))).train.schema.features[0].default == 1.0
    with pytest.raises(RecipeError, match="feature 'carrier' is 'y', a category that training never saw; it saw x"):
        read(defaults=(("carrier", "y"),))
