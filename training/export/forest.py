"""Forests of scikit-learn as ONNX graphs that the kernel can run: ``features (n, E) -> scores (n, K)``."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import onnx
import skl2onnx
from onnx import TensorProto, helper
from skl2onnx.common.data_types import FloatTensorType
from sklearn.pipeline import Pipeline

from listwright.ranking.compiled.forest import METADATA, PackedForest
from listwright.ranking.compiled.lightgbm_trees import NODE, float32_below

OPSET = {"": 20, "ai.onnx.ml": 3}

UNUSED = ("nodes_hitrates", "nodes_missing_value_tracks_true")
"""Attributes of the converter to drop: visits of a node, and the branch of missing values, which the imputer fills."""


def forest_graph(model: Pipeline, width: int, columns: int) -> onnx.ModelProto:
    """Return the graph of an imputer and a regression forest.

    Args:
        model: Fitted pipeline.
        width: E, columns of its input; NaN = missing.
        columns: Number of columns of its output.
    """
    inputs = [("features", FloatTensorType([None, width]))]
    graph: onnx.ModelProto = skl2onnx.convert_sklearn(
        model,
        "forest",  # by default a random name: no two runs would give the same file
        initial_types=inputs,
        target_opset=OPSET,
    )
    (output,) = graph.graph.output
    for node in graph.graph.node:
        attributes = [attribute for attribute in node.attribute if attribute.name not in UNUSED]
        del node.attribute[:]
        node.attribute.extend(attributes)
        for place, name in enumerate(node.output):
            if name == output.name:
                node.output[place] = "scores"
    del graph.graph.output[:]
    # the converter declares one column whatever the model has, and the runtime would warn of it at every call
    graph.graph.output.append(helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["rows", columns]))
    onnx.checker.check_model(graph)
    return graph


def attach(graph: onnx.ModelProto, model: Pipeline, *, power: float | None = None) -> None:
    """Attach the same forest to the graph's metadata, packed for the compiled traversal.

    Args:
        graph: Graph of :func:`forest_graph`, perhaps with ``2^(power m)`` after it.
        model: Pipeline that the graph was made of.
        power: Factor in the exponent of that; None without it.
    """
    imputer, forest = model[0], model[-1]
    nodes: list[tuple[float, int, int]] = []
    roots: list[int] = []
    leaves: list[int] = []
    values: list[np.ndarray] = []
    for estimator in forest.estimators_:
        roots.append(len(nodes))
        for threshold, column, child, value in _breadth_first(estimator.tree_):
            nodes.append((threshold, column, child))
            leaves.append(len(values) if value is not None else 0)
            if value is not None:
                values.append(value)
    forest = PackedForest(
        fills=imputer.statistics_.astype(np.float32),
        nodes=np.array(nodes, dtype=NODE),
        roots=np.array(roots, dtype=np.int32),
        leaves=np.array(leaves, dtype=np.uint32),
        values=np.ascontiguousarray(values, dtype=np.float32),
        power=np.array([] if power is None else [power]),
    )
    helper.set_model_props(graph, {METADATA: forest.to_text()})


def _breadth_first(tree: Any) -> list[tuple[float, int, int, np.ndarray | None]]:
    """Return threshold, column, left child and a leaf's values of every node, breadth first; siblings side by side."""
    result: list[tuple[float, int, int, np.ndarray | None]] = []
    waiting, following = deque([0]), 1
    below = float32_below(tree.threshold).tolist()
    while waiting:
        node = waiting.popleft()
        left, right = tree.children_left[node], tree.children_right[node]
        if left < 0:
            result.append((np.inf, 0, len(result), tree.value[node, :, 0]))
            continue
        result.append((below[node], tree.feature[node], following, None))
        waiting += [left, right]
        following += 2
    return result
