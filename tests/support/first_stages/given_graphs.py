"""Small graphs as somebody may bring them along, made by hand."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from listwright.ranking.features import Feature, FeatureSchema

SCHEMA = FeatureSchema(
    features=(
        Feature(name="price"),
        Feature(name="carrier", kind="categorical", categories=("a", "b")),
        Feature(name="stars"),
        Feature(name="bm25"),
    )
)
WEIGHTS = np.array([1.0, 10.0, 100.0], dtype=np.float32)
FLOAT, DOUBLE, INT64 = TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT64


def value(name, shape, kind=FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


def model(
    nodes=None,
    *,
    inputs=(("x", ["L", 3], FLOAT),),
    outputs=(("y", ["L"], FLOAT),),
    weights=None,
    opset=20,
    ir_version=10,
    **more,
):
    """By default the weighted sum of three features."""
    made = helper.make_graph(
        nodes or [helper.make_node("MatMul", ["x", "w"], ["y"], name="product")],
        "graph",
        [value(*one) for one in inputs],
        [value(*one) for one in outputs],
        [
            numpy_helper.from_array(np.asarray(array), name)
            for name, array in ({"w": WEIGHTS} | (weights or {})).items()
        ],
    )
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir_version, **more)
