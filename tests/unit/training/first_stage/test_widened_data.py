"""List-relative columns of training data: which there are, which are kept, and data with them."""

import dataclasses

import numpy as np
import pytest

from listwright.ranking.errors import DataError
from listwright.ranking.features import Feature, FeatureSchema
from listwright.ranking.first_stage import read_booster
from listwright.ranking.relative import KINDS, NUMBER_KINDS, RelativeColumns
from listwright.training.data.dataset import Splits, fit_schema
from listwright.training.first_stage import fit as first_stage
from listwright.training.first_stage import lambdamart, relative
from listwright.training.recipe.config import LambdaMart
from support.training.planted import ranking_data

SPEC = LambdaMart(trials=1, max_trees=30, patience=10, folds=3)


def fit_both(splits, state):
    specs = [SPEC.model_copy(update={"relative": kinds}) for kinds in ("none", KINDS)]
    return [first_stage.fit(spec, splits, seed=0, state=state) for spec in specs]


@pytest.fixture(scope="module")
def splits():
    """The first feature says which candidate is best, but only beside the others of its list."""
    rng = np.random.default_rng(0)
    parts = []
    for queries in (120, 60, 60):
        data = ranking_data(rng, queries=queries)
        features = data.features.copy()
        for n in range(queries):
            features[data.slice(n), 0] = features[data.slice(n), 0] * rng.lognormal() + 10 * rng.normal()
        parts.append(dataclasses.replace(data, features=features))
    schema = fit_schema(parts[0])
    return Splits(*(part.with_schema(schema) for part in parts), how="shifted").described_by(schema)


def test_numeric_features_that_vary_have_columns_of_every_kind(splits):
    columns = relative.candidates(splits.train.schema, KINDS)
    names = [f"{f} ({k} in list)" for f in ("utility", "noise") for k in NUMBER_KINDS]
    assert [column.name for column in columns if column.kind in NUMBER_KINDS] == names
    low, high = np.quantile(splits.train.features[:, 0], [0.01, 0.99])
    assert columns[0].scale == pytest.approx(high - low)


def test_categories_have_columns_and_so_have_numbers_within_them_few_categories_first():
    quantiles = (0.0, 0.1, 0.2, 0.5, 0.8, 0.9, 1.0)
    numbers = tuple(Feature(name=f"n{n}", quantiles=quantiles) for n in range(20))
    kinds = {"many": 30, "few": 3, "constant": 1}
    categories = tuple(
        Feature(name=name, kind="categorical", categories=tuple(map(str, range(count))))
        for name, count in kinds.items()
    )
    columns = relative.candidates(FeatureSchema(features=(*numbers, *categories)), KINDS)
    assert {column.feature for column in columns if column.kind == "count"} == {"many", "few"}
    pairs = [(column.within, column.feature) for column in columns if column.kind == "rank_within"]
    assert pairs == [*(("few", f"n{n}") for n in range(20)), *(("many", f"n{n}") for n in range(4))]
    assert [column.name for column in relative.candidates(FeatureSchema(features=categories), ("share",))] == [
        *("many (share in list)", "few (share in list)")
    ]


def test_pairs_whose_names_are_too_long_or_taken_have_no_columns():
    quantiles = (0.0, 0.1, 0.2, 0.5, 0.8, 0.9, 1.0)
    long = Feature(name="n" * 117, quantiles=quantiles)
    named = Feature(name="n" * 117 + " (rank within b)", quantiles=quantiles)
    groups = [Feature(name=name, kind="categorical", categories=("x", "y")) for name in ("c" * 105, "b")]
    columns = relative.candidates(FeatureSchema(features=(long, named, *groups)), KINDS)
    within = [(column.kind, column.within) for column in columns if column.feature == long.name and column.within]
    assert within == [("above_lowest_within", "b")]


def test_counts_of_a_category_are_found_where_they_decide(tmp_path):
    """The best candidate is the only one of its kind, which no candidate alone tells."""
    rng, parts = np.random.default_rng(1), []
    for queries in (300, 100, 100):
        data = ranking_data(rng, queries=queries)
        best = np.array([n + rng.integers(data.lengths[0]) for n in data.offsets[:-1]])
        labels = np.zeros(data.rows, dtype=np.int32)
        labels[best] = 1
        kinds = np.repeat(rng.integers(1, 3, queries), data.lengths)
        features = data.features.copy()
        features[:, 2] = np.where(labels, 3 - kinds, kinds)
        parts.append(dataclasses.replace(data, features=features, labels=labels))
    schema = fit_schema(parts[0])
    splits = Splits(*(part.with_schema(schema) for part in parts), how="kinds").described_by(schema)
    plain, wide = fit_both(splits, tmp_path)
    ndcg = [lambdamart.query_ndcg(splits.test, one.scores_of(splits.test), 10).mean() for one in (plain, wide)]
    assert ndcg[1] > 0.99 > ndcg[0] + 0.1
    assert {column.feature for column in wide.relative} == {"kind"}


def test_a_constant_feature_has_none():
    quantiles = (2.0,) * 7
    schema = FeatureSchema(features=(Feature(name="flat", quantiles=quantiles), Feature(name="missing")))
    assert relative.candidates(schema, KINDS) == ()


@pytest.mark.parametrize(("name", "said"), [("a", "is a column already"), ("x" * 210, "longer than 220")])
def test_a_name_that_cannot_be_is_refused_with_a_remedy(name, said):
    quantiles = (0.0, 0.1, 0.2, 0.5, 0.8, 0.9, 1.0)
    features = tuple(Feature(name=n, quantiles=quantiles) for n in (name, "a (z in list)"))
    with pytest.raises(DataError, match=said) as refused:
        relative.candidates(FeatureSchema(features=features), KINDS)
    assert 'relative = "none"' in str(refused.value)


def test_every_list_is_widened_by_itself(splits):
    columns = relative.candidates(splits.train.schema, KINDS)
    wide = relative.widened(splits, columns)
    one_list = RelativeColumns(columns, splits.train.schema)
    for part, whole in ((splits.valid, wide.valid), (splits.test, wide.test)):
        assert whole.schema.names[: len(part.schema)] == part.schema.names
        for n in (0, 7, len(part) - 1):
            np.testing.assert_array_equal(whole.features[part.slice(n)], one_list.widened(part.features[part.slice(n)]))


def test_a_forest_keeps_the_columns_that_it_uses(splits, tmp_path):
    fitted = first_stage.fit(SPEC.model_copy(update={"relative": KINDS}), splits, seed=0, state=tmp_path)
    names = [column.name for column in fitted.relative]
    assert {"utility (z in list)", "utility (rank in list)"} <= set(names)
    assert fitted.entry.relative
    assert fitted.facts["relative"] == names
    assert all(len(column.quantiles) == 7 for column in fitted.relative)
    wide = relative.widened(splits, fitted.relative)
    gains = np.asarray(read_booster(fitted.model).feature_importance("gain"))
    assert (gains[len(splits.train.schema) :] > 0).mean() > 0.5, "nearly no column is computed for nothing"
    assert len(fitted.train_scores) == wide.train.rows


def test_with_them_a_shifted_feature_is_worth_more(splits, tmp_path):
    plain, wide = fit_both(splits, tmp_path)
    ndcg = [lambdamart.query_ndcg(splits.test, one.scores_of(splits.test), 10).mean() for one in (plain, wide)]
    assert ndcg[1] > ndcg[0] + 0.1
    assert not plain.relative


def test_a_finished_one_is_read_back(splits, tmp_path, monkeypatch):
    spec = SPEC.model_copy(update={"relative": ("rank",)})
    fitted = first_stage.fit(spec, splits, seed=0, state=tmp_path)
    monkeypatch.setattr("listwright.training.first_stage.lambdamart.tune", None)
    again = first_stage.fit(spec, splits, seed=0, state=tmp_path)
    assert (again.model, again.relative) == (fitted.model, fitted.relative)
    np.testing.assert_array_equal(again.train_scores, fitted.train_scores)
    assert {column.kind for column in again.relative} == {"rank"}
