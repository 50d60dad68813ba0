"""Rankers that XGBoost and CatBoost fit here and now, by their own exporters; skipped where these are not installed.

``tests/reference/test_first_stage_scores.py`` holds the same to graphs and scores that are kept.
"""

import numpy as np
import pytest

from listwright.ranking.errors import ScoringError
from listwright.ranking.features import Feature, FeatureSchema
from listwright.ranking.first_stage import OnnxFirstStage
from listwright.training.first_stage.bring_your_own import canonical
from support.first_stages import foreign_rankers
from support.first_stages.foreign_rankers import CODES, WIDTH, hard_rows

SCHEMA = FeatureSchema(features=tuple(Feature(name=f"f{d}") for d in range(1, WIDTH + 1)))


def scores(graph, rows):
    return OnnxFirstStage(canonical(graph, SCHEMA), SCHEMA).score(rows)


@pytest.fixture
def xgboost():
    pytest.importorskip("onnxmltools")
    return pytest.importorskip("xgboost")


@pytest.fixture
def catboost():
    return pytest.importorskip("catboost")


@pytest.mark.parametrize("categories", [False, True])
@pytest.mark.parametrize("objective", ["rank:ndcg", "rank:pairwise", "reg:squarederror"])
def test_xgboost(xgboost, objective, categories):
    booster = foreign_rankers.xgboost_booster(objective, categories=categories)
    graph = foreign_rankers.xgboost_graph(booster.copy())
    rows = hard_rows(graph, categories=categories)
    expected = foreign_rankers.xgboost_scores(booster, rows, categories=categories)
    assert np.abs(scores(graph, rows) - expected).max() < 1e-5


def test_an_xgboost_ranker_as_it_is_becomes_a_classifier_and_is_refused(xgboost):
    import onnxmltools
    from onnxmltools.convert.common.data_types import FloatTensorType

    features = [("features", FloatTensorType([None, WIDTH]))]
    with np.errstate(invalid="ignore"):  # it takes the logarithm of what it believes to be a probability
        graph = onnxmltools.convert_xgboost(foreign_rankers.xgboost_booster(), initial_types=features)
    with pytest.raises(ScoringError, match=r"'label' \(int64.*classifier, export raw scores.*reg:squarederror"):
        canonical(graph.SerializeToString(), SCHEMA)


def test_the_trees_after_the_best_are_exported_unless_they_are_cut_off(xgboost):
    """What the how-to says of early stopping: predict of a ranker leaves them out, the exporter does not."""
    booster = foreign_rankers.xgboost_booster()
    graph = foreign_rankers.xgboost_graph(booster[:5])
    rows = hard_rows(graph)
    assert np.abs(scores(graph, rows) - foreign_rankers.xgboost_scores(booster[:5], rows)).max() < 1e-5
    assert np.abs(scores(graph, rows) - foreign_rankers.xgboost_scores(booster, rows)).max() > 0.1


@pytest.mark.parametrize("missing", ["Min", "Max"])
@pytest.mark.parametrize("loss", ["YetiRank", "QueryRMSE", "RMSE"])
def test_catboost(catboost, tmp_path, loss, missing):
    model = foreign_rankers.catboost_model(loss, nan_mode=missing)
    graph = foreign_rankers.catboost_graph(model, tmp_path)
    rows = hard_rows(graph)
    assert np.abs(scores(graph, rows) - model.predict(rows)).max() < 1e-5


def test_catboost_exports_no_categories_and_no_asymmetric_trees(catboost, tmp_path):
    """Which the how-to says."""
    features, labels, queries = foreign_rankers.data()
    words = np.column_stack([features[:, :CODES], np.nan_to_num(features[:, CODES]).astype(int)]).astype(object)
    words[:, CODES] = words[:, CODES].astype(int)
    pool = catboost.Pool(words, labels, group_id=queries, cat_features=[CODES])
    model = catboost.CatBoost(
        {"loss_function": "YetiRank", "iterations": 3, "verbose": False, "allow_writing_files": False}
    )
    with pytest.raises(catboost.CatBoostError, match="categorical"):
        foreign_rankers.catboost_graph(model.fit(pool), tmp_path)
    with pytest.raises(catboost.CatBoostError, match="non symmetric"):
        foreign_rankers.catboost_graph(foreign_rankers.catboost_model(grow_policy="Lossguide"), tmp_path)
