"""``training.Qilcm`` before it is fitted: scikit-learn's conventions, parameters, imports."""

import inspect
import subprocess
import sys
import warnings
from functools import partial

import numpy as np
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils import estimator_checks

from listwright import training
from listwright.ranking import bundle
from listwright.ranking.errors import DataError, RecipeError
from listwright.training.recipe.config import LambdaMart
from listwright.training.recipe.data import AnyData, Split
from listwright.training.recipe.model import MODEL_NAMES
from listwright.training.recipe.model import QilcmSpec as Spec
from support.annotated import ENABLED
from support.service.bundles import CATEGORY, NUMERIC, make_bundle

# of check_estimator, those that do not fit: the others know no query ids
CHECKS = (
    "check_do_not_raise_errors_in_init_or_set_params",
    "check_estimator_cloneable",
    "check_estimator_repr",
    "check_estimator_tags_renamed",
    "check_get_params_invariance",
    "check_mixin_order",
    "check_no_attributes_set_in_init",
    "check_parameters_default_constructible",
    "check_set_params",
    "check_valid_tag_types",
)


@pytest.mark.parametrize("check", CHECKS)
def test_scikit_learns_own_checks(check):
    getattr(estimator_checks, check)("Qilcm", training.Qilcm())


def test_defaults_are_the_recipes():
    fields = AnyData.model_fields | Split.model_fields | LambdaMart.model_fields | Spec.model_fields
    own = {
        "model": "qilcm",
        "categorical": (),
        "defaults": None,
        "monotone": None,
        "relative": "auto",
        "minutes": 0.0,
        "seed": 0,
        "device": "auto",
        "verbose": False,
    }
    for name, parameter in inspect.signature(training.Qilcm).parameters.items():
        assert parameter.default == (own[name] if name in own else fields[name].default), name


def test_every_parameter_of_the_model_is_one_of_the_estimators():
    assert set(Spec.model_fields) - {"kind", "variant"} <= set(training.Qilcm().get_params())


def test_parameters_reach_the_recipe():
    recipe = training.Qilcm(model="qilcm-v2", hidden=(7,), folds=3, max_trees=9, parts=4, seed=5, ndcg_at=3)._recipe()
    assert (recipe.model.variant, recipe.model.hidden, recipe.model.ndcg_at) == ("V2", (7,), 3)
    assert (recipe.first_stage.folds, recipe.first_stage.max_trees, recipe.first_stage.ndcg_at) == (3, 9, 3)
    assert (recipe.data.split.parts, recipe.seed) == (4, 5)
    assert training.Qilcm(drop_constant=False)._recipe().data.drop_constant is False


@pytest.mark.parametrize("name", MODEL_NAMES)
def test_every_model_can_be_named(name):
    assert training.Qilcm(model=name)._recipe().model.kind == name.split("-")[0]


@pytest.mark.parametrize(
    ("parameters", "says"),
    [
        ({"model": "bm25"}, "no model 'bm25': use one of qilcm"),
        ({"learning_rate": -1}, r"training.Qilcm: model.*learning_rate: Input should be greater than 0 \(got -1\)"),
        ({"parts": 2}, r"training.Qilcm: data.*parts: Input should be greater than or equal to 3 \(got 2\)"),
        ({"folds": 1}, r"folds: .* \(got 1\)"),
        ({"defaults": {"price": None}}, "defaults: price = None: expected a number, text, true or false"),
    ],
)
def test_a_wrong_parameter_is_named_before_anything_is_read(parameters, says):
    with pytest.raises(RecipeError, match=says):
        training.Qilcm(**parameters).fit(None, None, None)


def test_what_is_not_fitted_says_so(tmp_path):
    model = clone(training.Qilcm(cutoff=7))
    assert model.cutoff == 7
    for question in (
        partial(model.predict, [[1.0]], [1]),
        partial(model.score, [[1.0]], [1], [1]),
        partial(model.save, tmp_path / "shop" / "1"),
    ):
        with pytest.raises(NotFittedError, match="not fitted yet"):
            question()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({}, []),
        ({"carrier": [None, None, "A5", None]}, []),
        ({"carrier": ["a5", "b2 ", "A5", None]}, ["'carrier' has 2 unknown categories in 3 values"]),
        (
            {"price": [1_700_000_000.0, 1_700_000_001.0, 1_700_000_002.0, 3.0]},
            ["'price' has 4 different values in 4 rows"],
        ),
    ],
)
def test_a_prediction_warns_of_columns_that_changed(tmp_path, changes, says):
    model = training.Qilcm()._read(bundle.load(make_bundle(tmp_path / "shop" / "1")))
    columns = {name: [1.0, 2.0, 3.0, 4.0] for name in NUMERIC} | {CATEGORY.name: ["A5"] * 4} | changes
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        model.predict(pl.DataFrame(columns), [1, 1, 2, 2])
    assert len(found) == len(says)
    assert all(text in str(one.message) for one, text in zip(found, says, strict=True))
    assert ENABLED or {one.filename for one in found} <= {__file__}, "checked annotations stand between"


def test_importing_the_package_is_cheap():
    code = "import sys, training; print(sorted({'numpy', 'sklearn', 'torch', 'lightgbm', 'polars'} & set(sys.modules)))"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"
    with pytest.raises(AttributeError, match="no attribute 'Nonesuch'"):
        training.Nonesuch  # noqa: B018


@pytest.mark.nightly
def test_the_estimator_itself_loads_no_torch():
    code = "import sys, training; training.Qilcm(); print('torch' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "False"


def test_numbers_of_numpy_are_numbers():
    assert training.Qilcm(seed=np.int64(3))._recipe().seed == 3
    defaults = {"price": np.float32(0.5), "stops": np.int64(2), "direct": np.bool_(True), "carrier": np.str_("A5")}
    kept = training.Qilcm(defaults=defaults)._recipe().model_dump(mode="json")["data"]["defaults"]
    assert kept == {"price": 0.5, "stops": 2, "direct": True, "carrier": "A5"}


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("group_weight", "say with sample_weight how much each row counts"),
        ("group", "say with qid which query each row belongs to"),
        ("groups", "say with qid"),
        ("group_id", "say with qid"),
        ("eval_set", "parts="),
        ("eval_group", "parts="),
        ("eval_sample_weight", "parts="),
        ("base_margin", "as a column of X"),
        ("categorical_feature", "with categorical="),
        ("callbacks", "patience="),
    ],
)
@pytest.mark.parametrize("method", ["fit", "score"])
def test_a_word_of_another_ranker_is_refused_by_name(method, word, says):
    with pytest.raises(RecipeError, match=f"Qilcm.{method} does not take {word}: .*{says}"):
        getattr(training.Qilcm(), method)([[1.0]], [1], **{word: [1]})


def test_any_other_word_is_pythons_error():
    with pytest.raises(TypeError, match=r"Qilcm.fit\(\) got an unexpected keyword argument 'quid'"):
        training.Qilcm().fit([[1.0]], [1], quid=[1])


def test_a_fit_without_query_ids_says_so():
    with pytest.raises(DataError, match="qid: is not given: say which query each row belongs to"):
        training.Qilcm().fit([[1.0]], [1])


def test_only_query_ids_and_weights_are_metadata():
    """What is refused must not be asked for by scikit-learn."""
    requests = training.Qilcm().get_metadata_routing()
    assert list(requests.fit.requests) == ["qid", "sample_weight"]
    assert list(requests.score.requests) == ["qid", "sample_weight", "metric"]
    assert list(requests.predict.requests) == ["qid"]
