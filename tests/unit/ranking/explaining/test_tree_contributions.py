"""Tree SHAP of the first stage against the definition, computed by hand from LightGBM's own dump."""

import lightgbm
import numpy as np
import pytest

from listwright.ranking import bundle
from listwright.ranking.candidates import CandidateList, lightgbm_input
from listwright.ranking.errors import BundleError
from listwright.ranking.explaining.contributions import TreeContributions, _tree_contributions
from listwright.ranking.explaining.explain import explain
from listwright.ranking.features import Feature, FeatureSchema
from support.explained import NEVER, contribution_values, ends_after, forest_by_hand
from support.service import computed_by_hand
from support.service.bundles import make_bundle, rows


@pytest.fixture(params=[False, True], ids=["plain", "relative"])
def served(request, tmp_path):
    return bundle.load(make_bundle(tmp_path / "some" / "1", relative=request.param))


def seen(served, features):
    """What the model sees, and the schema of it."""
    relative = served.reranker.relative
    if relative is None:
        return lightgbm_input(features, served.manifest.feature_schema), served.manifest.feature_schema
    return lightgbm_input(relative.widened(features), relative.schema), relative.schema


def test_contributions_are_exact(served):
    """Every list: categories, missing values, list-relative columns."""
    features = rows(np.random.default_rng(1), 5)
    assert np.isnan(features).any()
    booster = lightgbm.Booster(model_str=(served.path / "first_stage.txt").read_text())
    matrix, schema = seen(served, features)
    by_hand = np.array([forest_by_hand(booster, row)[0] for row in matrix])
    for candidate in range(5):
        found = explain(served.reranker, CandidateList(features), candidate).first_stage
        expected = by_hand[candidate] - by_hand.mean(axis=0)
        assert contribution_values(found) == pytest.approx(dict(zip(schema.names, expected, strict=True)), abs=1e-6)
        assert (found.exact, found.ranker, found.evaluations) == (True, "lightgbm", 0)
        assert np.abs(expected).max() > 0.01


def test_values_are_those_that_a_request_would_send(served):
    features = np.array([[1.5, 2.0, np.nan, 2.0], [1.0, 0.0, 3.0, 0.0], [0.0, 0.0, 0.0, 3.0]], dtype=np.float32)
    values = [
        {
            one.feature: one.value
            for one in explain(served.reranker, CandidateList(features), n).first_stage.contributions
        }
        for n in range(2)
    ]
    assert [values[0][name] for name in ("price", "stars", "bm25", "carrier")] == [1.5, 2.0, None, "B2"]
    assert values[1]["carrier"] is None, "an unknown category"


def test_a_feature_that_alone_was_planted_has_all_of_the_contribution():
    rng = np.random.default_rng(0)
    features = rng.normal(size=(500, 3)).astype(np.float32)
    data = lightgbm.Dataset(features, (features[:, 1] > 0).astype(int), group=[10] * 50, feature_name=list("abc"))
    model = lightgbm.train({"objective": "lambdarank", "num_leaves": 2, "verbosity": -1}, data, num_boost_round=5)
    schema = FeatureSchema(features=tuple(Feature(name=name) for name in "cab"))  # the model's own, in another order
    shuffled = features[:20, [2, 0, 1]]
    found = TreeContributions(model.model_to_string(), schema).of(shuffled, NEVER)
    assert np.abs(found[:, :2]).max() == 0.0
    scores = model.predict(features[:20], raw_score=True)
    assert found[:, 2] - found[:, 2].mean() == pytest.approx(scores - scores.mean(), abs=1e-6)
    assert np.ptp(scores) > 0.1


def test_a_bundle_that_is_another_by_now_is_refused(served):
    (served.path / "first_stage.txt").write_text("tree\n")
    with pytest.raises(BundleError, match=r"first_stage\.txt: has 5 bytes"):
        explain(served.reranker, CandidateList(rows(np.random.default_rng(1), 3)), 0)


@pytest.mark.parametrize(("looks", "whole"), [(0, False), (2, False), (3, True)])
def test_a_long_list_is_looked_at_in_parts_between_which_the_time_may_end(served, looks, whole):
    schema = served.manifest.feature_schema
    stage = served.manifest.first_stage
    trees = _tree_contributions(served.reranker, stage.file, relative=stage.relative)
    features = rows(np.random.default_rng(2), 120)
    seen = features if len(trees.schema) == len(schema) else served.reranker.relative.widened(features)
    found = trees.of(seen, ends_after(looks))
    assert (found is not None) is whole
    if whole:
        assert found == pytest.approx(np.concatenate([trees.of(seen[n : n + 1], NEVER) for n in range(120)]))


def test_linear_leaves_are_sampled():
    """LightGBM computes no contributions of them."""
    rng = np.random.default_rng(0)
    features = rng.normal(size=(200, 2))
    settings = {"objective": "regression", "linear_tree": True, "num_leaves": 4, "verbosity": -1}
    model = lightgbm.train(settings, lightgbm.Dataset(features, features @ [1.0, 2.0]), num_boost_round=2)
    made = computed_by_hand.reranker(computed_by_hand.Column(0), computed_by_hand.Column(1))
    made.read_file = lambda name: model.model_to_string().encode()
    assert _tree_contributions(made, "first_stage.txt", relative=False) is None
    found = explain(made, computed_by_hand.FOUR, 0).first_stage
    assert contribution_values(found) == {"price": 1.0 - 2.0, "stars": 0.0}
    assert found.reference_score == 2.0, "of the list's medians, no mean over the list"
