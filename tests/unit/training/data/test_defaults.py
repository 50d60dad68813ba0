"""Defaults of features: read from a recipe and a command line, checked against what training saw."""

import lightgbm
import numpy as np
import pandas as pd
import polars as pl
import pytest

from listwright.ranking.errors import DataError, RecipeError
from listwright.ranking.features import Feature, FeatureSchema
from listwright.training.commands import fit, tune
from listwright.training.console.command import repeatable
from listwright.training.data.load import describe, with_defaults
from listwright.training.pipeline import steps
from listwright.training.recipe import config
from listwright.training.recipe.config import GivenModel, Recipe
from listwright.training.recipe.data import LetorData, SyntheticData, TableData
from listwright.training.recipe.options import recipe_for, recipe_from, with_data_options
from listwright_lab import experiment
from support.lists import lists

SCHEMA = FeatureSchema(
    features=(
        Feature(name="price", missing_in_training=True),
        Feature(name="stops", kind="categorical", categories=("0", "1", "2")),
        Feature(name="direct", kind="categorical", categories=("false", "true")),
        Feature(name="carrier", kind="categorical", categories=("A5", "B/6")),
    )
)
RECIPE = 'name = "own"\nabout = "x"\n[data]\nkind = "{kind}"\n[data.defaults]\n{defaults}\n'


def written(tmp_path, kind, defaults):
    path = tmp_path / "own.toml"
    path.write_text(RECIPE.format(kind=kind, defaults=defaults))
    return str(path)


@pytest.mark.parametrize(
    ("name", "given", "default"),
    [
        ("price", 3, 3.0),
        ("price", -0.5, -0.5),
        ("price", "1e3", 1000.0),
        ("price", 3.4e38, 3.4e38),
        ("stops", 2, "2"),
        ("stops", 2.0, "2"),
        ("stops", "2", "2"),
        ("direct", True, "true"),
        ("direct", "false", "false"),
        ("carrier", "B/6", "B/6"),
    ],
)
def test_a_default_is_a_number_or_a_category_as_a_request_spells_it(name, given, default):
    schema = with_defaults(SCHEMA, ((name, given),))
    assert {f.name: f.default for f in schema.features if f.default is not None} == {name: default}
    assert schema.fingerprint == SCHEMA.fingerprint


@pytest.mark.parametrize(
    ("name", "given", "says"),
    [
        ("prise", 1.0, "the default prise = 1.0: 'prise' is no feature; did you mean 'price'.* price, stops, direct"),
        ("price", "cheap", "default of feature 'price' is 'cheap': expected a number"),
        ("price", "1_000", "'1_000': expected a number"),
        ("price", "", "'': expected a number"),
        ("price", True, "True: expected a number"),
        ("price", float("nan"), "nan: expected a number"),
        ("price", 3.5e38, r"3.5e\+38: expected a number from -3.403e\+38 to 3.403e\+38"),
        ("price", 10**400, "expected a number from"),
        ("price", "inf", "'inf': expected a number"),
        ("stops", 3, "feature 'stops' is 3, a category that training never saw; it saw 0, 1, 2"),
        ("carrier", "a5", "feature 'carrier' is 'a5', a category that training never saw; it saw A5, B/6"),
    ],
)
def test_what_cannot_be_a_default_is_named_with_what_can(name, given, says):
    with pytest.raises(RecipeError, match=says):
        with_defaults(SCHEMA, (("direct", "true"), (name, given)))


def test_a_recipe_keeps_its_defaults_through_toml_and_json(tmp_path):
    recipe = config.load(written(tmp_path, "letor", 'price = 0.0\nstops = 2\ndirect = true\ncarrier = "A5"'))
    assert recipe.data.defaults == (("price", 0.0), ("stops", 2), ("direct", True), ("carrier", "A5"))
    plain = recipe.model_dump(mode="json")
    assert plain["data"]["defaults"] == {"price": 0.0, "stops": 2, "direct": True, "carrier": "A5"}
    assert config.of(plain, "again") == recipe
    assert hash(recipe) == hash(config.of(plain, "again"))


@pytest.mark.parametrize("value", ["[1]", "2024-05-31", "{a = 1}"])
def test_a_recipe_with_another_kind_of_value_is_told_where(tmp_path, value):
    with pytest.raises(RecipeError, match=r"data\.defaults: price = .*: expected a number, text, true or false"):
        config.load(written(tmp_path, "table", f"price = {value}"))


@pytest.mark.parametrize("data", [["--data", "rows.csv"], ["--data", "rows.txt"], ["demo"]])
@pytest.mark.parametrize("program", [fit, tune])
def test_the_command_line_takes_defaults_for_every_kind_of_data(program, data):
    options = program._parser().parse_args([*data, "--default", "f1=0.5", "--default", "c1=a=b"])
    assert recipe_from(options).data.defaults == (("f1", "0.5"), ("c1", "a=b"))


def test_a_suite_takes_them_too():
    options = experiment._parser().parse_args(["table2", "--data", "rows.txt", "--default", "f1=0.5"])
    assert with_data_options(recipe_for(None, options.data), options).data.defaults == (("f1", "0.5"),)


def test_the_command_line_comes_before_the_recipe(tmp_path):
    recipe = written(tmp_path, "letor", "f1 = 1\nf2 = 2")
    options = fit._parser().parse_args([recipe, "--data", "rows.txt", "--default", "f2=3", "--default", "f3="])
    assert dict(recipe_from(options).data.defaults) == {"f1": 1, "f2": "3", "f3": ""}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["price"], "--default price: expected NAME=VALUE"),
        (["=3"], "--default =3: expected NAME=VALUE"),
        (["price=1", "price=2"], "--default price=2: 'price' has '1' already"),
    ],
)
def test_a_default_that_is_not_spelled_as_one(given, says):
    options = fit._parser().parse_args([word for text in given for word in ("--default", text)])
    with pytest.raises(RecipeError, match=says):
        recipe_from(options)


def test_a_category_is_no_path_in_the_command_of_a_report():
    given = ["--default", "carrier=A/5", "--default=airport=B/6", "--data", "x/rows.csv"]
    assert repeatable("fit", given) == ("listwright fit --default carrier=A/5 --default=airport=B/6 --data rows.csv")


def letor(folder):
    _, query, place, labels, rng = lists()
    numbers = rng.normal(size=len(query))
    path = folder / "rows.txt"
    path.write_text(
        "".join(f"{y} qid:{q} 1:{x:.3f} 3:{p}\n" for q, y, x, p in zip(query, labels, numbers, place, strict=True))
    )
    return LetorData(defaults=(("f3", 7),)), [str(path)]


def table(folder):
    _, query, _, labels, rng = lists()
    path = folder / "rows.csv"
    carriers = rng.choice(["A5", "B6"], len(query))
    columns = {"q": query, "y": labels, "price": rng.normal(size=len(query)), "carrier": carriers}
    pl.DataFrame(columns).write_csv(path)
    return TableData(qid="q", label="y", defaults=(("carrier", "B6"),)), [str(path)]


def synthetic(_folder):
    return SyntheticData(queries=30, categorical=1, defaults=(("n2", "0.25"), ("c1", "v3"))), []


@pytest.mark.parametrize(
    ("source", "defaults"),
    [(letor, {"f3": 7.0}), (table, {"carrier": "B6"}), (synthetic, {"n2": 0.25, "c1": "v3"})],
)
def test_every_source_brings_them_into_the_schema_and_nowhere_else(tmp_path, source, defaults):
    data, sources = source(tmp_path)
    with_them, without = (
        steps.load(Recipe(name="own", about="x", data=spec), sources)
        for spec in (data, data.model_copy(update={"defaults": ()}))
    )
    for part in (with_them.train, with_them.valid, with_them.test):
        assert {f.name: f.default for f in part.schema.features if f.default is not None} == defaults
    assert np.array_equal(with_them.train.features, without.train.features, equal_nan=True)
    assert with_them.train.schema.fingerprint == without.train.schema.fingerprint
    assert with_them.how == without.how
    shown = ", ".join(f"{name} = {value}" for name, value in defaults.items())
    assert describe(with_them.train.schema) == f"{describe(without.train.schema)}, defaults {shown}"
    wrong = data.model_copy(update={"defaults": (("nowhere", 1),)})
    with pytest.raises(RecipeError, match="'nowhere' is no feature"):
        steps.load(Recipe(name="own", about="x", data=wrong), sources)


def test_other_defaults_find_the_same_table_in_the_cache(tmp_path, monkeypatch):
    data, sources = table(tmp_path)
    steps.load(Recipe(name="own", about="x", data=data), sources)
    monkeypatch.setattr(pl, "read_csv", lambda *_args, **_more: pytest.fail("parsed again"))
    other = data.model_copy(update={"defaults": (("price", 1.5),)})
    splits = steps.load(Recipe(name="own", about="x", data=other), sources)
    assert splits.train.schema.features[0].default == 1.5
    with pytest.raises(DataError):
        steps.load(Recipe(name="own", about="x", data=other), ["elsewhere.csv"])


def test_categories_of_a_given_model_may_be_defaults(tmp_path):
    """The model knows values that these training rows do not have."""
    data, sources = table(tmp_path)
    given = pd.DataFrame({"carrier": pd.Categorical(["C7", "B6"] * 20, categories=["C7", "B6", "A5"])})
    trained = lightgbm.Dataset(given, [0, 1] * 20, group=[10] * 4)
    params = {"objective": "lambdarank", "verbosity": -1, "min_data_in_leaf": 2}
    lightgbm.train(params, trained, num_boost_round=2).save_model(tmp_path / "model.txt")
    first_stage = GivenModel(path=str(tmp_path / "model.txt"))
    recipe = Recipe(name="own", about="x", data=data, first_stage=first_stage)
    for category in ("B6", "C7"):
        known = recipe.model_copy(update={"data": data.model_copy(update={"defaults": (("carrier", category),)})})
        feature = steps.load(known, sources).train.schema.features[1]
        assert (feature.categories, feature.default) == (("C7", "B6", "A5"), category)
