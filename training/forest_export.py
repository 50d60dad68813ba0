"""Forests of scikit-learn as ONNX graphs that the kernel can run: ``features (n, E) -> scores (n, K)``."""

from __future__ import annotations

from typing import Any

import onnx
import skl2onnx
from onnx import TensorProto, helper
from skl2onnx.common.data_types import FloatTensorType

OPSET = {"": 20, "ai.onnx.ml": 3}


def forest_graph(model: Any, width: int, columns: int) -> onnx.ModelProto:
    """The graph of a regression forest, or of a pipeline that ends in one.

    Args:
        model: fitted.
        width: E, columns of its input; NaN only where an imputer comes first.
        columns: K, columns of its output.
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
        for place, name in enumerate(node.output):
            if name == output.name:
                node.output[place] = "scores"
    del graph.graph.output[:]
    # the converter declares one column whatever the model has, and the runtime would warn of it at every call
    graph.graph.output.append(helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["rows", columns]))
    onnx.checker.check_model(graph)
    return graph
