"""The compiled traversal against LightGBM: every bit of every score, or LightGBM itself."""

import logging
import re
from contextlib import suppress

import lightgbm
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from listwright.ranking import first_stage
from listwright.ranking.candidates import lightgbm_input
from listwright.ranking.compiled import first_stage as compiled_first_stage
from listwright.ranking.compiled import lightgbm_trees as forest
from listwright.ranking.compiled.first_stage import open_first_stage, probes
from listwright.ranking.errors import ScoringError
from listwright.ranking.features import Feature, FeatureSchema
from listwright.ranking.first_stage import LightGbmFirstStage

pytestmark = pytest.mark.skipif(
    compiled_first_stage.tree_traversal is None,
    reason="ranking.compiled.tree_traversal is not built: there was no C compiler",
)

NUMBERS = FeatureSchema(features=tuple(Feature(name=f"n{d}") for d in range(5)))
MANY = tuple(f"v{n}" for n in range(90))  # more than two words of a set
MIXED = FeatureSchema(
    features=(
        *NUMBERS.features[:3],
        Feature(name="shop", kind="categorical", categories=MANY),
        Feature(name="carrier", kind="categorical", categories=("A", "B", "C")),
    )
)


def rows(count, schema=NUMBERS, *, seed=0, holes=0.2):
    rng = np.random.default_rng(seed)
    found = rng.normal(size=(count, len(schema)))
    found[:, 1] = np.round(found[:, 1])  # zeros, and ties with thresholds
    found[:, 2] *= 10.0 ** rng.integers(-30, 30, count)
    found[rng.random(found.shape) < holes] = np.nan
    for column in schema.categorical:
        found[:, column] = rng.integers(0, len(schema.features[column].categories) + 1, count)
    return found.astype(np.float32)


def fitted(schema=NUMBERS, *, count=2000, trees=25, names=None, **params):
    features = rows(count, schema, holes=params.pop("holes", 0.2))
    rng = np.random.default_rng(1)
    labels = np.nansum(features[:, :2], axis=1) + features[:, -1] % 3 + rng.normal(size=count)
    data = lightgbm.Dataset(
        lightgbm_input(features, schema),
        np.nan_to_num(labels),
        feature_name=names or list(schema.names),
        categorical_feature=list(schema.categorical),
        params={"min_data_per_group": 5, "cat_smooth": 1.0},
    )
    settings = {"objective": "regression", "num_leaves": 31, "min_data_in_leaf": 5, "verbosity": -1, "num_threads": 1}
    return lightgbm.train(settings | params, data, trees).model_to_string()


VARIANTS = {
    "missing values of their own": (NUMBERS, {}),
    "no missing values in training": (NUMBERS, {"holes": 0.0}),
    "missing values as zeros": (NUMBERS, {"use_missing": False}),
    "zeros as missing values": (NUMBERS, {"zero_as_missing": True}),
    "categories": (MIXED, {}),
    "categories without missing values": (MIXED, {"holes": 0.0}),
    "one category against the rest": (MIXED, {"max_cat_to_onehot": 100}),
    "deep and narrow": (NUMBERS, {"num_leaves": 200, "min_data_in_leaf": 1, "trees": 4}),
    "single leaves": (NUMBERS, {"min_data_in_leaf": 5000}),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_equal_to_the_last_bit(variant):
    schema, params = VARIANTS[variant]
    model = fitted(schema, **params)
    compiled, reference = open_first_stage(model, schema, "compiled"), LightGbmFirstStage(model, schema)
    assert compiled.engine == "compiled"
    for count in (1, 2, 15, 16, 17, 100):
        asked = rows(count, schema, seed=count)
        assert np.array_equal(compiled.score(asked), reference.score(asked))
    hard = probes(forest.read_forest(model), None, schema)
    assert np.array_equal(compiled.score(hard), reference.score(hard))


def fitted_to_codes():
    """A model that was given a column of whole numbers as categories, 0 among them; the schema has it as a number."""
    features = rows(2000)
    codes = np.random.default_rng(2).integers(0, 40, len(features))
    features[:, 3] = codes
    data = lightgbm.Dataset(
        features,
        (codes * 7 % 5 + np.nan_to_num(features[:, 0])),
        categorical_feature=[3],
        params={"min_data_per_group": 5, "cat_smooth": 1.0},
    )
    params = {"objective": "regression", "num_leaves": 15, "min_data_in_leaf": 5, "verbosity": -1, "num_threads": 1}
    return lightgbm.train(params, data, 10).model_to_string()


CODES = fitted_to_codes()
OPENED = (open_first_stage(CODES, NUMBERS, "compiled"), LightGbmFirstStage(CODES, NUMBERS))
FRACTIONS = [
    -0.5,
    -1e-3,
    -1e-36,
    np.nextafter(np.float32(-1), np.float32(0)),
    -1.0,
    -1.5,
    0.5,
    38.999,
    39.5,
    40.0,
    63.5,
]


@given(st.lists(st.floats(width=32, allow_infinity=False) | st.floats(-3, 70, width=32), min_size=1, max_size=40))
def test_a_column_of_codes_holds_any_number(values):
    asked = rows(len(values) + len(FRACTIONS) + 4)
    asked[:, 3] = [*values, *FRACTIONS, np.nan, 2.0**31, -(2.0**31), 2.0**32]
    compiled, reference = OPENED
    assert compiled.engine == "compiled"
    assert np.array_equal(compiled.score(asked), reference.score(asked))


def test_the_probes_ask_for_fractions_and_negative_codes():
    asked = probes(forest.read_forest(CODES), None, NUMBERS)[:, 3]
    assert {-0.5, 0.5} <= set(asked.tolist())
    assert ((asked > -1) & (asked < 0)).any()
    assert (asked < -1).any()
    assert (asked >= 2.0**31).any()


def test_columns_may_stand_in_another_order():
    model = fitted(names=list(reversed(NUMBERS.names)))
    compiled, reference = open_first_stage(model, NUMBERS, "compiled"), LightGbmFirstStage(model, NUMBERS)
    assert reference.columns == [4, 3, 2, 1, 0]
    assert compiled.engine == "compiled"
    assert np.array_equal(compiled.score(rows(50)), reference.score(rows(50)))


def test_the_bundle_may_ask_for_lightgbm():
    assert open_first_stage(fitted(trees=2), NUMBERS, "lightgbm").engine == "lightgbm"


@pytest.mark.parametrize(
    ("params", "reason"),
    [
        ({"linear_tree": True}, "linear models"),
        ({"boosting": "rf", "bagging_freq": 1, "bagging_fraction": 0.5}, "average"),
    ],
)
def test_what_is_not_supported_is_scored_by_lightgbm_and_said(params, reason, caplog):
    model = fitted(trees=3, **params)
    with caplog.at_level(logging.WARNING):
        stage = open_first_stage(model, NUMBERS, "compiled")
    assert stage.engine == "lightgbm"
    assert reason in caplog.text
    assert np.isfinite(stage.score(rows(3))).all()


def test_where_nothing_was_compiled_lightgbm_scores_and_it_is_said(monkeypatch, caplog):
    monkeypatch.setattr(compiled_first_stage, "tree_traversal", None)
    assert open_first_stage(fitted(trees=2), NUMBERS, "compiled").engine == "lightgbm"
    assert "C compiler" in caplog.text


def test_a_single_wrong_threshold_is_noticed(monkeypatch, caplog):
    def spoiled(model):
        found = read(model)
        size = np.abs(found.nodes["threshold"])
        first = np.flatnonzero((size > 1e-3) & (size < 1e3))[0]
        found.nodes["threshold"][first] = np.nextafter(found.nodes["threshold"][first], np.float32(np.inf))
        return found

    read = compiled_first_stage.read_forest
    monkeypatch.setattr(compiled_first_stage, "read_forest", spoiled)
    assert open_first_stage(fitted(trees=3), NUMBERS, "compiled").engine == "lightgbm"
    assert "differs from it" in caplog.text


@pytest.mark.parametrize("threshold", [0.1, -0.1, 1e-45, 3e38, 1e300, np.inf, -1e300, 16777217.0, 0.0])
def test_a_float32_is_above_the_rounded_threshold_exactly_if_above_the_threshold(threshold):
    below = forest.float32_below(np.array(threshold))
    with np.errstate(over="ignore"):
        near = np.float32(threshold)
    for value in (near, np.nextafter(near, np.float32(np.inf)), np.nextafter(near, np.float32(-np.inf))):
        if np.isfinite(value):
            assert (float(value) > threshold) == (value > np.float32(below))


MODELS = [fitted(schema, trees=2, num_leaves=6) for schema in (NUMBERS, MIXED)]


def with_sizes(model):
    """A text whose trees have the sizes that it states."""
    trees = model[model.index("\nTree=0\n") + 1 : model.index("\nend of trees\n") + 1]
    sizes = " ".join(str(len(tree)) for tree in re.split(r"^(?=Tree=)", trees, flags=re.MULTILINE)[1:])
    return re.sub(r"^tree_sizes=.*$", f"tree_sizes={sizes}", model, flags=re.MULTILINE)


ALTERED = {
    "leads back into itself": (r"^left_child=\S+", "left_child=0"),
    "leads nowhere": (r"^right_child=\S+", "right_child=1000"),
    "a leaf twice": (r"^(right_child=.*)-\d+$", r"\1-1"),
    "no leaf": (r"^num_leaves=\d+", "num_leaves=0"),
    "a leaf more": (r"^num_leaves=6", "num_leaves=7"),
    "leaves without end": (r"^num_leaves=\d+", "num_leaves=2000000000"),
    "a feature more": (r"^split_feature=\S+", "split_feature={width}"),
    "a feature less": (r"^split_feature=\S+", "split_feature=-1"),
    "a number more": (r"^split_gain=", "split_gain=1 "),
    "words for numbers": (r"^threshold=", "threshold=x "),
    "numbers that only Python reads": (r"^leaf_value=\S+", "leaf_value=1_0"),
    "categories without end": (r"^num_cat=\d+", "num_cat=500000000"),
    "categories that nobody gives": (r"^cat_boundaries=0 \d+", "cat_boundaries=0 99999"),
    "no tree in turn": (r"^num_tree_per_iteration=1", "num_tree_per_iteration=0"),
    "more trees in turn than there are": (r"^num_tree_per_iteration=1", "num_tree_per_iteration=3"),
    "outputs without end": (r"^num_class=1", "num_class=100000000"),
    "outputs behind a sign": (r"^num_class=1", "num_class=1\n=num_class=100000000"),
    "no features": (r"^max_feature_idx=\d+", "max_feature_idx=-2"),
    "features that only Python counts": (r"^max_feature_idx=(\d+)", r"max_feature_idx=1_0"),
    "a place that only Python reads": (r"^left_child=1", "left_child=10e-1"),
    "a kind that only Python reads": (r"^decision_type=\d+", "decision_type=10e0"),
    "two answers to a question": (r"^(left_child=.*)$", "left_child=99999999 1 1 1 1\n" + r"\1"),
    "a line that ends the tree for LightGBM": (r"^shrinkage", "\rx=0\nshrinkage"),
    "more lines than LightGBM reads": (r"^shrinkage", "".join(f"x{n}=0\n" for n in range(22)) + "shrinkage"),
    "trees in the head": (r"^tree_sizes=(.*)$", r"tree_sizes=\1\nTree=1\nnum_leaves=1\n"),
}


@pytest.mark.parametrize("engine", ["compiled", "lightgbm"])
@pytest.mark.parametrize("how", ALTERED)
def test_numbers_that_do_not_fit_together_never_reach_lightgbm(how, engine, monkeypatch):
    """Many of them would end the process."""
    old, new = ALTERED[how]
    model = re.sub(old, new.replace("{width}", str(len(MIXED))), MODELS[1], count=1, flags=re.MULTILINE)
    assert model != MODELS[1]
    assert open_first_stage(with_sizes(MODELS[1]), MIXED, engine).engine == engine
    monkeypatch.setattr(lightgbm, "Booster", lambda **_: pytest.fail("reached"))
    with pytest.raises(ScoringError, match="not a LightGBM text model"):
        open_first_stage(with_sizes(model), MIXED, engine)


@pytest.mark.parametrize(
    "params", [{"linear_tree": True}, {"boosting": "rf", "bagging_freq": 1, "bagging_fraction": 0.5}]
)
def test_models_that_only_lightgbm_scores_are_checked_and_read(params):
    model = fitted(trees=2, **params)
    assert open_first_stage(model, NUMBERS, "compiled").engine == "lightgbm"
    with pytest.raises(ScoringError, match="tree 0 is damaged"):
        open_first_stage(with_sizes(re.sub("num_leaves=", "num_leaves=1", model, count=1)), NUMBERS, "compiled")


def test_a_linear_tree_of_one_leaf_has_its_numbers():
    tree = (
        "num_leaves=1\nnum_cat=0\nsplit_feature=\nthreshold=\ndecision_type=\nleft_child=\nright_child=\nleaf_value=1\n"
    )
    linear = "is_linear=1\nleaf_const=\nnum_features=1\nleaf_features=0\nleaf_coeff=1\nshrinkage=1\n"
    model = re.sub(r"^(Tree=0\n)[^=](.|\n)*?\n\n\n", rf"\1{tree}{linear}\n\n", MODELS[0], count=1, flags=re.MULTILINE)
    first_stage.read_booster(with_sizes(model.replace("is_linear=1\nleaf_const=\n", "is_linear=1\nleaf_const=2\n")))
    with pytest.raises(ScoringError, match="tree 0 is damaged"):  # LightGBM would end the process
        first_stage.read_booster(with_sizes(model))


def test_a_tree_may_be_as_large_as_the_limit(monkeypatch):
    sizes = list(map(int, re.search(r"^tree_sizes=(.*)$", MODELS[0], re.MULTILINE)[1].split()))
    monkeypatch.setattr(first_stage, "_MOST_TREE_BYTES", max(sizes))
    first_stage.read_booster(MODELS[0])
    monkeypatch.setattr(first_stage, "_MOST_TREE_BYTES", max(sizes) - 1)
    with pytest.raises(ScoringError, match=f"more than {max(sizes) - 1} bytes"):
        first_stage.read_booster(MODELS[0])


def test_the_categories_of_pandas_are_counted_before_they_are_parsed(monkeypatch):
    model = MODELS[0][: MODELS[0].rindex("pandas_categorical:")] + "pandas_categorical:" + "[[1],[2]]\n"
    marks = sum(map(model[model.index("\nend of trees\n") :].count, ",[{"))
    monkeypatch.setattr(first_stage, "MOST_JSON_VALUES", marks)
    assert first_stage.read_booster(model).pandas_categorical == [[1], [2]]
    with pytest.raises(ScoringError, match=f"more than {marks} values"):
        first_stage.read_booster(model.replace("[[1],[2]]", "[[1],[2,3]]"))


SECTIONS = ("split_feature", "threshold", "decision_type", "left_child", "right_child", "leaf_value", "cat_boundaries")


@given(
    st.integers(0, 1),
    st.sampled_from(SECTIONS),
    st.integers(0, 10),
    st.sampled_from(["-7", "99999", "1e400", "nan", "x", ""]),
)
def test_altered_trees_are_refused_or_walked_through_without_harm(which, section, place, value):
    schema = (NUMBERS, MIXED)[which]
    lines = MODELS[which].splitlines()
    for number, line in enumerate(lines):
        if line.startswith(section + "="):
            values = line.split("=")[1].split(" ")
            values[place % len(values)] = value
            lines[number] = section + "=" + " ".join(values)
    with suppress(ScoringError):
        open_first_stage(with_sizes("\n".join(lines) + "\n"), schema, "compiled").score(rows(20, schema))
