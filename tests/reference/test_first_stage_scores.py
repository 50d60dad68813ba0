"""Graphs that XGBoost and CatBoost exported score like the libraries that fitted them, at thresholds and without values.

The graphs and scores are those of ``tests/support/first_stages/foreign_rankers.py``; ``tests/parity/test_foreign_rankers.py`` makes new ones.
"""

import numpy as np
import pytest

from listwright.ranking.features import Feature, FeatureSchema
from listwright.ranking.first_stage import OnnxFirstStage
from listwright.training.first_stage.bring_your_own import canonical
from support.first_stages.foreign_rankers import WIDTH, kept_rows

SCHEMA = FeatureSchema(features=tuple(Feature(name=f"f{d}") for d in range(1, WIDTH + 1)))


@pytest.mark.parametrize("name", ["xgboost", "xgboost_categories", "catboost"])
def test_a_given_graph_scores_as_its_library_does(name):
    graph, rows, expected = kept_rows(name)
    assert len(rows) > 100
    assert np.isnan(rows).any(axis=0).all(), "every feature is missing somewhere"
    assert len(np.unique(expected)) > 40
    stage = OnnxFirstStage(canonical(graph, SCHEMA), SCHEMA)
    assert np.abs(stage.score(rows) - expected).max() < 1e-5
    alone = np.concatenate([stage.score(rows[n : n + 1]) for n in range(len(rows))])
    assert np.abs(alone - expected).max() < 1e-5
