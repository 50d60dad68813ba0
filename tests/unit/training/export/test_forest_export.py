"""Exported forests: the graph, the packed form beside it, and scikit-learn agree."""

import numpy as np
import pytest
from sklearn.ensemble import ExtraTreesRegressor, RandomForestRegressor
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline

from listwright.ranking.compiled.first_stage import tree_traversal
from listwright.ranking.compiled.forest import METADATA, ForestScorer, PackedForest, open_forest
from listwright.ranking.scorers import OnnxScorer
from listwright.training.export.forest import attach, forest_graph


@pytest.mark.skipif(
    tree_traversal is None, reason="ranking.compiled.tree_traversal is not built: there was no C compiler"
)
@pytest.mark.parametrize("kind", [ExtraTreesRegressor, RandomForestRegressor])
@pytest.mark.parametrize("outputs", [1, 6])
def test_graph_and_packed_forest_compute_what_was_fitted(kind, outputs):
    rng = np.random.default_rng(0)
    x = np.round(rng.normal(size=(300, 4)), 1).astype(np.float32)  # many values that are thresholds too
    x[rng.random(x.shape) < 0.1] = np.nan
    y = rng.normal(size=(300, outputs)) + np.nan_to_num(x[:, :1])
    fitted = make_pipeline(SimpleImputer(strategy="median"), kind(40, max_depth=7, random_state=0)).fit(
        x, y if outputs > 1 else y.ravel()
    )
    graph = forest_graph(fitted, 4, outputs)
    attach(graph, fitted)
    expected = fitted.predict(x).reshape(-1, outputs)
    model = graph.SerializeToString()
    onnx = OnnxScorer(model, 4, columns=outputs)
    packed = ForestScorer(PackedForest.from_text(onnx.metadata[METADATA]))
    for scorer in (onnx, packed, open_forest(model, 4, outputs, "forest")):
        assert scorer.score(x) == pytest.approx(expected, abs=1e-5)
    assert packed.score(x) == pytest.approx(expected, abs=1e-6)
