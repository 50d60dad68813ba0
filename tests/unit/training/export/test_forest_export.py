"""Exported forests: the graph and scikit-learn agree."""

import numpy as np
import pytest
from sklearn.ensemble import ExtraTreesRegressor, RandomForestRegressor
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline

from listwright.ranking.scorers import OnnxScorer
from listwright.training.export.forest import forest_graph


@pytest.mark.parametrize("kind", [ExtraTreesRegressor, RandomForestRegressor])
@pytest.mark.parametrize("outputs", [1, 6])
def test_the_graph_computes_what_was_fitted(kind, outputs):
    rng = np.random.default_rng(0)
    x = np.round(rng.normal(size=(300, 4)), 1).astype(np.float32)  # many values that are thresholds too
    x[rng.random(x.shape) < 0.1] = np.nan
    y = rng.normal(size=(300, outputs)) + np.nan_to_num(x[:, :1])
    fitted = make_pipeline(SimpleImputer(strategy="median"), kind(40, max_depth=7, random_state=0)).fit(
        x, y if outputs > 1 else y.ravel()
    )
    expected = fitted.predict(x).reshape(-1, outputs)
    scorer = OnnxScorer(forest_graph(fitted, 4, outputs).SerializeToString(), 4, columns=outputs)
    assert scorer.score(x) == pytest.approx(expected, abs=1e-5)
