"""The exported forest against scikit-learn's own."""

import numpy as np
import pytest
from sklearn.ensemble import IsolationForest
from sklearn.impute import SimpleImputer

from listwright.ranking.scorers import OnnxScorer
from listwright.training.specialists.router import SAMPLES, TREES, fit_forest


@pytest.mark.parametrize("queries", [2, 5, 300])
def test_it_is_an_isolation_forest(queries):
    rng = np.random.default_rng(0)
    means = rng.normal(size=(queries, 4)).astype(np.float32)
    means[rng.random(means.shape) < 0.1] = np.nan
    means[:, 3] = np.nan
    graph, quantiles = fit_forest(means, seed=5)
    filled = SimpleImputer(strategy="median", keep_empty_features=True).fit_transform(means)
    forest = IsolationForest(n_estimators=TREES, max_samples=min(SAMPLES, queries), random_state=5).fit(filled)
    scores = OnnxScorer(graph, 4, columns=1).score(means)[:, 0]
    assert scores == pytest.approx(-forest.score_samples(filled), abs=1e-6)
    assert scores.min() - 1e-6 <= quantiles[0] <= quantiles[3] <= quantiles[-1] <= scores.max() + 1e-6


def test_a_query_far_out_is_stranger_than_any_in_training():
    means = np.random.default_rng(0).normal(size=(300, 5)).astype(np.float32)
    graph, quantiles = fit_forest(means, seed=0)
    strange = OnnxScorer(graph, 5, columns=1).score(np.full((1, 5), 30.0, dtype=np.float32))
    assert strange[0, 0] > quantiles[-1]


def test_one_training_query_is_enough_to_go_on():
    graph, _ = fit_forest(np.ones((1, 2), dtype=np.float32), seed=0)
    assert np.isfinite(OnnxScorer(graph, 2, columns=1).score(np.zeros((1, 2), dtype=np.float32))).all()
