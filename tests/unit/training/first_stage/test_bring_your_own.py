"""Somebody's own LightGBM model keeps its scores to the bit, or is refused by name."""

import lightgbm
import numpy as np
import pandas
import pytest

from listwright.ranking.errors import DataError, RecipeError, SchemaMismatchError
from listwright.ranking.features import Feature, FeatureSchema
from listwright.ranking.first_stage import LightGbmFirstStage
from listwright.training.data.dataset import Dataset, Splits
from listwright.training.data.letor.text import letor_schema
from listwright.training.first_stage import bring_your_own
from listwright.training.first_stage import fit as first_stage
from listwright.training.first_stage.lambdamart import scores_of
from listwright.training.recipe.config import GivenModel

PARAMS = {"objective": "lambdarank", "verbosity": -1, "min_data_in_leaf": 2, "num_leaves": 8}
ROWS = 200


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(0)
    return pandas.DataFrame(
        {
            "price": rng.normal(size=ROWS).astype(np.float32),
            "carrier": pandas.Categorical(
                rng.choice(["zulu", "alpha", "mike"], ROWS), categories=["zulu", "mike", "alpha"]
            ),
            "star rating": rng.normal(size=ROWS).astype(np.float32),
        }
    )


def fit(frame, **more):
    label = (frame.iloc[:, 0].to_numpy() > 0).astype(int)
    return lightgbm.train(PARAMS, lightgbm.Dataset(frame, label, group=[10] * (ROWS // 10), **more), num_boost_round=10)


def dataset(frame, order):
    """The same rows as Listwright reads them: other column order, categories sorted by name."""
    carriers = ("alpha", "mike", "zulu")
    columns = {
        "price": frame["price"].to_numpy(),
        "carrier": frame["carrier"].map({c: code for code, c in enumerate(carriers, 1)}).to_numpy(dtype=np.float32),
        "star rating": frame["star rating"].to_numpy(),
    }
    kinds = {"carrier": {"kind": "categorical", "categories": carriers}}
    schema = FeatureSchema(features=tuple(Feature(name=name, **kinds.get(name, {})) for name in order))
    features = np.column_stack([columns[name] for name in order]).astype(np.float32)
    offsets = np.arange(0, ROWS + 1, 10)
    return Dataset(features, np.zeros(ROWS, np.int32), offsets, tuple(map(str, range(ROWS // 10))), schema)


@pytest.mark.parametrize("engine", ["compiled", "lightgbm"])
def test_the_recipe_names_the_engine_of_the_bundle(frame, tmp_path, engine):
    path = tmp_path / "model.txt"
    fit(frame).save_model(path)
    data = dataset(frame, ["price", "carrier", "star rating"])
    spec = GivenModel(path=str(path), engine=engine)
    assert first_stage.fit(spec, Splits(data, data, data, "all"), seed=0, state=tmp_path).entry.engine == engine


def test_pandas_model_keeps_its_scores(frame):
    booster = fit(frame)
    data = dataset(frame, ["star rating", "carrier", "price"])
    model = booster.model_to_string()
    schema = bring_your_own.with_model_categories(model, data.schema)
    assert schema.features[1].categories == ("zulu", "mike", "alpha")
    assert scores_of(model, data.with_schema(schema)).tolist() == booster.predict(frame, raw_score=True).tolist()


def test_feature_that_the_data_lack_is_named(frame):
    booster = fit(frame[["price", "star rating"]].rename(columns={"price": "total_price"}))
    with pytest.raises(SchemaMismatchError, match="'total_price'"):
        bring_your_own.with_model_categories(booster.model_to_string(), dataset(frame, ["price", "star rating"]).schema)


def test_unnamed_features_are_matched_by_position(frame):
    numbers = frame[["price", "star rating"]]
    booster = fit(pandas.DataFrame(numbers.to_numpy(), columns=["Column_0", "Column_1"]))
    data = dataset(frame, ["price", "star rating"])
    assert (
        scores_of(booster.model_to_string(), data).tolist()
        == booster.predict(numbers.to_numpy(), raw_score=True).tolist()
    )
    with pytest.raises(SchemaMismatchError, match="2 unnamed features, the data have 3"):
        scores_of(booster.model_to_string(), dataset(frame, ["price", "star rating", "carrier"]))


def test_categorical_columns_must_agree(frame):
    booster = fit(frame[["price", "star rating"]])
    data = dataset(frame, ["price", "star rating", "carrier"])
    schema = bring_your_own.with_model_categories(booster.model_to_string(), data.schema)
    assert schema == data.schema, "a model may use fewer columns than the data have"
    numeric = FeatureSchema(features=tuple(Feature(name=name) for name in frame.columns))
    with pytest.raises(SchemaMismatchError, match="categories of 1 columns, the data have 0"):
        bring_your_own.with_model_categories(fit(frame).model_to_string(), numeric)


ORDER = ["star rating", "star_rating", "price"]


@pytest.mark.parametrize("order", [ORDER, ORDER[::-1], ["price", "star rating"]])
def test_a_feature_is_the_column_of_its_name_before_one_that_is_written_alike(frame, order):
    numbers = frame[["price", "star rating"]]
    booster = fit(numbers.rename(columns={"star rating": "star_rating"}))
    values = {"star rating": -frame["star rating"], "star_rating": frame["star rating"], "price": frame["price"]}
    if "star_rating" not in order:
        values["star rating"] = values.pop("star_rating")  # LightGBM's writing of the one that is there
    schema = FeatureSchema(features=tuple(Feature(name=name) for name in order))
    features = np.column_stack([values[name] for name in order])
    found = LightGbmFirstStage(booster.model_to_string(), schema).score(features)
    assert found.tolist() == booster.predict(numbers.to_numpy(), raw_score=True).tolist()


def test_a_feature_that_may_be_two_columns_is_refused(frame):
    model = fit(frame[["price", "star rating"]]).model_to_string()
    schema = FeatureSchema(features=tuple(Feature(name=name) for name in ("price", "star rating", "star\trating")))
    with pytest.raises(SchemaMismatchError, match=r"'star rating', 'star\\trating'"):
        bring_your_own.columns_of(model, schema)


def test_default_names_that_the_data_have_are_names(frame):
    """Whoever wrote the frame of such a model with its names may have written them in another order."""
    numbers = frame[["price", "star rating"]].to_numpy()
    booster = fit(pandas.DataFrame(numbers, columns=["Column_0", "Column_1"]))
    schema = FeatureSchema(features=tuple(Feature(name=name) for name in ("Column_1", "x", "Column_0")))
    found = LightGbmFirstStage(booster.model_to_string(), schema).score(numbers[:, [1, 0, 0]])
    assert found.tolist() == booster.predict(numbers, raw_score=True).tolist()


def coded(frame, sizes=(10, 20, 30)):
    """A model whose categories belong to ``size``, which reads as a number, while ``shop`` was a number to it."""
    size = pandas.Categorical(np.arange(ROWS) % len(sizes), categories=range(len(sizes))).rename_categories(sizes)
    return fit(frame.assign(shop=np.arange(ROWS) % 4, size=size)[["price", "shop", "size"]]).model_to_string()


def schema_of(**categories):
    kinds = {name: {"kind": "categorical", "categories": values} for name, values in categories.items()}
    return FeatureSchema(features=tuple(Feature(name=n, **kinds.get(n, {})) for n in ("price", "shop", "size")))


def test_categories_belong_to_the_columns_that_the_model_split_as_categories(frame):
    model = coded(frame)
    with pytest.raises(SchemaMismatchError, match=r"'size' is categorical and 'shop' is not"):
        bring_your_own.with_model_categories(model, schema_of(shop=("a", "b", "c", "d")))
    found = bring_your_own.with_model_categories(model, schema_of(size=("10", "20")))
    assert found.features[2].categories == ("10", "20", "30")


def test_more_codes_than_categories_are_those_of_another_column(frame):
    """Both columns were categories to the model, one of them as plain numbers, which store no list."""
    size = pandas.Categorical(np.arange(ROWS) % 3)
    table = frame.assign(shop=np.arange(ROWS) % 4, size=size)[["price", "shop", "size"]]
    label = (table["price"].to_numpy() > 0).astype(int)
    data = lightgbm.Dataset(table, label, group=[10] * (ROWS // 10), categorical_feature=["shop", "size"])
    model = lightgbm.train(PARAMS, data, num_boost_round=5).model_to_string()
    with pytest.raises(SchemaMismatchError, match=r"stores 3 categories where the data have 'shop'"):
        bring_your_own.with_model_categories(model, schema_of(shop=("a", "b", "c", "d")))
    assert bring_your_own.with_model_categories(model, schema_of(size=("0",))).features[2].categories == (
        "0",
        "1",
        "2",
    )


def test_categories_with_an_order_are_numbers_to_lightgbm(frame):
    """pandas hands them over as codes, and the model stores their list all the same."""
    ordered = frame.assign(carrier=frame["carrier"].cat.as_ordered())
    booster = fit(ordered)
    data = dataset(frame, ["star rating", "carrier", "price"])
    schema = bring_your_own.with_model_categories(booster.model_to_string(), data.schema)
    assert schema.features[1].categories == ("zulu", "mike", "alpha")
    found = scores_of(booster.model_to_string(), data.with_schema(schema))
    assert found.tolist() == booster.predict(ordered, raw_score=True).tolist()


def test_file_that_is_no_model_is_refused(tmp_path):
    path = tmp_path / "model.txt"
    path.write_text("tree\nnot really")
    with pytest.raises(RecipeError, match="not a LightGBM text model"):
        bring_your_own.read_model(path, letor_schema(3))
    with pytest.raises(RecipeError, match="absent"):
        bring_your_own.read_model(tmp_path / "absent.txt", letor_schema(3))


def test_column_scores(frame):
    data = dataset(frame, ["price", "carrier"])
    assert bring_your_own.column_scores("price", data).tolist() == data.features[:, 0].tolist()
    for column in ("carrier", "bm25"):
        with pytest.raises(RecipeError, match="there are: price"):
            bring_your_own.column_scores(column, data)
    data.features[25, 0] = np.nan
    with pytest.raises(DataError, match="query 2, column price: 1 rows"):
        bring_your_own.column_scores("price", data)


def test_boolean_categories_are_spelled_as_in_a_table(frame):
    flags = frame.assign(carrier=pandas.Categorical(frame["price"] > 0.3, categories=[True, False]))
    schema = FeatureSchema(
        features=(
            Feature(name="price"),
            Feature(name="carrier", kind="categorical", categories=("false", "true")),
            Feature(name="star rating"),
        )
    )
    found = bring_your_own.with_model_categories(fit(flags).model_to_string(), schema)
    assert found.features[1].categories == ("true", "false")


def test_a_category_that_stands_for_a_missing_value_is_refused(frame):
    named = frame.assign(carrier=pandas.Categorical(frame["price"] > 0.3).rename_categories(["EU", "NA"]))
    schema = FeatureSchema(
        features=(
            Feature(name="price"),
            Feature(name="carrier", kind="categorical", categories=("EU",)),
            Feature(name="star rating"),
        )
    )
    with pytest.raises(SchemaMismatchError, match="a category 'NA' of 'carrier'"):
        bring_your_own.with_model_categories(fit(named).model_to_string(), schema)


@pytest.mark.parametrize("share", [0.001, 0.05, 0.3, 0.6, 0.9, 0.99])
def test_a_truncated_model_is_refused(frame, tmp_path, share):
    """LightGBM itself would crash the process."""
    whole = fit(frame).model_to_string()
    path = tmp_path / "model.txt"
    path.write_text(whole)
    assert bring_your_own.read_model(path, letor_schema(3)) == whole
    path.write_text(whole[: int(share * whole.index("end of trees"))])
    with pytest.raises(RecipeError, match=r"model\.txt: .*truncated"):
        bring_your_own.read_model(path, letor_schema(3))


def test_a_byte_order_mark_before_a_model_says_nothing(frame, tmp_path):
    whole = fit(frame).model_to_string()
    path = tmp_path / "model.txt"
    path.write_bytes(b"\xef\xbb\xbf" + whole.replace("\n", "\r\n").encode())
    assert bring_your_own.read_model(path, letor_schema(3)) == whole
    path.write_bytes(b'\xef\xbb\xbf{"learner": {"gradient_booster": {}}, "version": [3, 0, 0]}')
    with pytest.raises(RecipeError, match="looks like"):
        bring_your_own.read_model(path, letor_schema(3))
    path.write_bytes(whole.encode("utf-16"))
    with pytest.raises(RecipeError, match=r"model\.txt: not a LightGBM text model: it is UTF-16"):
        bring_your_own.read_model(path, letor_schema(3))


@pytest.mark.parametrize(
    ("was", "becomes", "says"),
    [
        ("split_gain=", "split_gain=0 ", "does not have the size that it states"),
        ("pandas_categorical:[", "pandas_categorical:[[1,", "not a LightGBM text model"),
        ("tree\nversion", "bush\nversion", "not a LightGBM text model"),
    ],
)
def test_an_edited_model_is_refused(frame, tmp_path, was, becomes, says):
    path = tmp_path / "model.txt"
    path.write_text(fit(frame).model_to_string().replace(was, becomes, 1))
    with pytest.raises(RecipeError, match=says):
        bring_your_own.read_model(path, letor_schema(3))


def test_a_model_that_lightgbm_fitted_to_a_letor_file(tmp_path):
    """It counts columns from 0, LETOR from 1: one column more, that no row fills."""
    rng = np.random.default_rng(0)
    features = rng.normal(size=(ROWS, 3)).astype(np.float32).astype(np.float64)
    lines = (f"{int(row[1] > 0)} " + " ".join(f"{d}:{v!r}" for d, v in enumerate(row.tolist(), 1)) for row in features)
    (tmp_path / "train.txt").write_text("\n".join(lines) + "\n")
    (tmp_path / "train.txt.query").write_text("10\n" * (ROWS // 10))
    booster = lightgbm.train(PARAMS, lightgbm.Dataset(str(tmp_path / "train.txt")), num_boost_round=5)
    assert booster.num_feature() == 4
    letor = Dataset(
        features.astype(np.float32),
        np.zeros(ROWS, np.int32),
        np.arange(0, ROWS + 1, 10),
        tuple(map(str, range(ROWS // 10))),
        letor_schema(3),
    )
    expected = booster.predict(np.column_stack([np.zeros(ROWS), features]), raw_score=True)
    assert scores_of(booster.model_to_string(), letor).tolist() == expected.tolist()
