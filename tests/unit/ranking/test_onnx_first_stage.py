"""A bundle whose first stage is an ONNX graph: what the graph sees, and what is refused."""

import numpy as np
import onnx
import pytest

from listwright.ranking import bundle
from listwright.ranking.candidates import CandidateList
from listwright.ranking.errors import BundleError, ScoringError
from listwright.ranking.first_stage import OnnxFirstStage
from support.service.bundles import NUMERIC, _linear, make_bundle, rows, schema

WEIGHTS = np.array([1.0, 10.0, 100.0], dtype=np.float32)
FEATURES = np.array([[1, 2, 3, 1], [4, 5, 6, 0]], dtype=np.float32)
"""Price, stars, bm25 and the code of a carrier."""


def test_it_sees_the_numeric_features_in_order():
    stage = OnnxFirstStage(_linear(WEIGHTS, "linear"), schema())
    assert stage.engine == "onnx"
    assert stage.score(FEATURES).tolist() == [321.0, 654.0]
    assert stage.score(FEATURES).dtype == np.float64
    assert OnnxFirstStage(_linear(WEIGHTS, "linear"), schema(categorical=False)).score(FEATURES[:, :3]).tolist() == [
        321.0,
        654.0,
    ]


def test_a_missing_value_reaches_it_as_nan():
    """Also of a feature in which training had none."""
    features = FEATURES.copy()
    features[1, 0] = np.nan
    graph = onnx.ModelProto.FromString(_linear(WEIGHTS, "linear"))
    assert OnnxFirstStage(graph.SerializeToString(), schema()).score(features).tolist() == [321.0, 650.0]
    product = next(node for node in graph.graph.node if node.op_type == "MatMul")
    product.input[0] = "features"  # instead of what has 0 for NaN
    with pytest.raises(ScoringError, match="first stage gave nan for candidate 1"):
        OnnxFirstStage(graph.SerializeToString(), schema()).score(features)


@pytest.mark.parametrize(
    ("weights", "says"),
    [(WEIGHTS[:2], r"not features \(C, 3\)"), (np.ones((3, 2), dtype=np.float32), r"scores of shape \(2, 2\) for 2")],
)
def test_another_shape_is_refused(weights, says):
    with pytest.raises(ScoringError, match=says):
        OnnxFirstStage(_linear(weights, "linear"), schema()).score(FEATURES)


@pytest.mark.parametrize("categorical", [True, False])
def test_a_bundle_loads_and_ranks(tmp_path, categorical):
    path = make_bundle(tmp_path / "shop" / "1", first_stage="onnx", categorical=categorical)
    assert (path / "first_stage.onnx").exists()
    assert not (path / "first_stage.txt").exists()
    loaded = bundle.load(path)
    assert loaded.manifest.first_stage.kind == "onnx"
    candidates = CandidateList(rows(np.random.default_rng(0), 9, categorical=categorical))
    answer = loaded.reranker.rerank(candidates)
    assert (answer.stage_reached, answer.reason) == ("second_stage", None)
    again = OnnxFirstStage((path / "first_stage.onnx").read_bytes(), loaded.manifest.feature_schema)
    assert np.array_equal(answer.first_stage_scores, again.score(candidates.features))


def test_a_graph_that_does_not_fit_is_named(tmp_path):
    path = make_bundle(tmp_path / "shop" / "1", first_stage="onnx")
    manifest = bundle.load(path).manifest
    (path / "first_stage.onnx").write_bytes(_linear(np.ones(len(NUMERIC) + 1, dtype=np.float32), "wide"))
    with pytest.raises(BundleError, match=r"first_stage\.onnx: the graph maps .* not features \(C, 3\) to scores"):
        bundle.open_unsealed(path, manifest)
    (path / "first_stage.onnx").write_bytes(b"tree\n")
    with pytest.raises(BundleError, match=r"first_stage\.onnx: not an ONNX graph"):
        bundle.open_unsealed(path, manifest)
