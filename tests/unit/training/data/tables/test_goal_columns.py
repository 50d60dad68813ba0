"""Columns of goals besides the label: where they are read, what is refused, and that values stay with their rows."""

import argparse
import math

import numpy as np
import polars as pl
import pytest

from listwright.ranking.errors import DataError, RecipeError
from listwright.training.data.load import load
from listwright.training.data.split import merged
from listwright.training.data.tables import table
from listwright.training.pipeline.workspace import digest_of
from listwright.training.recipe import config
from listwright.training.recipe.config import Goals
from listwright.training.recipe.options import add_recipe_options, recipe_from, with_goals

QUERIES = 20


def rows(**changes):
    """Rows of lists of three, those of a query together: the margin of each row is 10 times its feature."""
    a = np.arange(3.0 * QUERIES)
    return {"q": np.arange(3 * QUERIES) // 3, "y": np.tile([0, 1, 0], QUERIES), "a": a, "margin": 10.0 * a} | changes


def recipe(*texts, cost=None, data="rows.csv"):
    parser = argparse.ArgumentParser()
    add_recipe_options(parser)
    labels = ["--qid", "q", "--label", "y"] if data.endswith("csv") else []
    return with_goals(recipe_from(parser.parse_args(["--data", data, *labels])), texts, cost)


def read(tmp_path, columns, *texts, shards="never"):
    path = tmp_path / "rows.csv"
    pl.DataFrame(columns).write_csv(path)
    return load(recipe(*texts), [str(path)], shards=shards)


@pytest.mark.parametrize("shards", ["never", "always"])
def test_values_stay_with_their_rows(tmp_path, shards):
    for _ in ("read", "from the cache"):
        splits = read(tmp_path, rows(eco=np.arange(60) % 7), "margin", "eco", shards=shards)
        assert splits.train.schema.names == ("a",)
        for part in (splits.train, splits.valid, splits.test):
            assert list(part.goals) == ["margin", "eco"]
            assert part.goals["margin"].tolist() == (10.0 * part.features[:, 0]).tolist()
            assert part.goals["eco"].tolist() == (part.features[:, 0] % 7).tolist()
    valid = splits.valid
    assert valid.select([2, 0]).goals["margin"].tolist() == [*valid.goals["margin"][6:9], *valid.goals["margin"][:3]]
    assert merged([valid, valid]).goals["eco"].tolist() == [*valid.goals["eco"], *valid.goals["eco"]]


def test_three_tables_and_rows_apart(tmp_path):
    files = []
    for name, shift in (("train", 0), ("valid", 100), ("test", 200)):
        columns = pl.DataFrame(rows(q=np.tile(np.arange(QUERIES), 3) + shift))
        columns.write_parquet(tmp_path / f"{name}.parquet")
        files.append(f"{name}={tmp_path / name}.parquet")
    spec = recipe("margin")
    splits = load(spec, files)
    assert splits.test.goals["margin"].tolist() == (10.0 * splits.test.features[:, 0]).tolist()
    assert splits.test.goals["margin"][:3].tolist() == [0.0, 200.0, 400.0]


def test_a_resumed_run_needs_the_same_values(tmp_path):
    first = read(tmp_path, rows(), "margin")
    other = read(tmp_path, rows(margin=10.0 * np.arange(60) + (np.arange(60) == 7)), "margin")
    assert digest_of(first) != digest_of(other)


@pytest.mark.parametrize("value", ["-1", "inf", "many", ""])
def test_a_value_that_is_none_is_named(tmp_path, value):
    margin = ["1"] * 60
    margin[4] = value
    with pytest.raises(DataError, match="value of a goal") as caught:
        read(tmp_path, rows(margin=margin), "margin")
    assert (caught.value.line, caught.value.column) == (6, "margin")


@pytest.mark.parametrize("margin", [np.zeros(60), np.ones(60), np.arange(60) // 3])
def test_values_that_order_nothing_are_refused(tmp_path, margin):
    with pytest.raises(DataError, match="training query") as caught:
        read(tmp_path, rows(margin=margin), "margin")
    assert caught.value.column == "margin"


@pytest.mark.parametrize(
    ("name", "fault"),
    [("q", "--goal.*q"), ("y", "goals.*label"), ("nothing", "--goal.*nothing"), ("y<=1", "WEIGHT"), ("y=x", "WEIGHT")],
)
def test_a_goal_is_a_column_of_its_own(tmp_path, name, fault):
    with pytest.raises(RecipeError, match=fault):
        read(tmp_path, rows(), name)


def test_a_goal_is_not_named_by_another_option(tmp_path):
    path = tmp_path / "rows.csv"
    pl.DataFrame(rows()).write_csv(path)
    spec = recipe("margin").data
    for changes in (
        {"weight": "margin"},
        {"ignore": ("margin",)},
        {"categorical": ("margin",)},
        {"goals": ("margin", "margin")},
    ):
        with pytest.raises(RecipeError, match="--goal margin"):
            table.read(spec.model_copy(update=changes), str(path))


def test_options_and_a_recipe_say_the_same():
    asked = recipe("margin>=1.05", "eco=0.2", "a=b", cost=0.01)
    assert asked.data.goals == ("margin", "eco", "a=b")
    assert asked.goals == Goals(weights={"eco": 0.2}, ratios={"margin": 1.05}, cost=0.01)
    values = asked.model_dump(mode="json")
    assert values["goals"] == {"weights": {"eco": 0.2}, "ratios": {"margin": 1.05}, "cost": 0.01}
    assert config.of(values, "") == asked
    again = with_goals(asked, ["margin=2", "eco"], None)
    assert again.goals == Goals(weights={"margin": 2.0}, cost=0.01)
    hash(again)
    with pytest.raises(RecipeError, match=r"margin.*twice"):
        recipe("margin", "margin=0.3")


def test_a_recipe_without_goals_is_written_as_before():
    values = recipe().model_dump(mode="json")
    assert "goals" not in values
    assert "goals" not in values["data"]


@pytest.mark.parametrize(
    ("texts", "cost", "fault"),
    [
        (["a=-1"], None, "--goal a=-1: .*WEIGHT from 0"),
        (["a=0.3x"], None, "--goal a=0.3x: .*WEIGHT from 0"),
        (["a>=0"], None, "--goal a>=0: .*RATIO above 0"),
        (["a>=1e400"], None, "--goal a>=1e400: .*RATIO above 0"),
        (["a"], 2.0, "--cost 2: expected"),
        (["a"], math.nan, "--cost nan: expected"),
        ([], 0.1, "--goal"),
        (list("abcde"), None, "--goal: 5 .* at most 4"),
        ([""], None, "data.goals"),
    ],
)
def test_what_is_no_goal_is_refused(texts, cost, fault):
    with pytest.raises(RecipeError, match=fault):
        recipe(*texts, cost=cost)


def test_text_without_columns_has_no_goals():
    with pytest.raises(RecipeError, match="reads no table"):
        recipe("margin", data="rows.txt")
    values = recipe("margin").model_dump()
    with pytest.raises(RecipeError, match="'eco' is no goal"):
        config.of(values | {"goals": {"weights": {"eco": 1.0}}}, "")
    with pytest.raises(RecipeError, match="leave one out"):
        config.of(values | {"goals": {"weights": {"margin": 1.0}, "ratios": {"margin": 1.0}}}, "")
