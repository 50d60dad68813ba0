"""A graph that was brought along and cannot be a first stage is refused by name, with a remedy."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from listwright.ranking.errors import ScoringError
from listwright.ranking.first_stage import OnnxFirstStage
from listwright.training.first_stage.bring_your_own import canonical
from support.first_stages.given_graphs import DOUBLE, FLOAT, INT64, SCHEMA, model


def with_weight(change):
    given = model()
    change(given.graph.initializer[0])
    return given


def with_function():
    given = model()
    node = helper.make_node("Abs", ["a"], ["b"])
    given.functions.append(helper.make_function("own", "F", ["a"], ["b"], [node], [helper.make_opsetid("", 20)]))
    return given


def with_sparse():
    given = model()
    numbers = numpy_helper.from_array(np.ones(1, dtype=np.float32), "w")
    given.graph.sparse_initializer.append(
        helper.make_sparse_tensor(numbers, numpy_helper.from_array(np.array([0]), "at"), [3])
    )
    return given


def with_inner_graph():
    inner = helper.make_graph([], "inner", [], [])
    return model([helper.make_node("If", ["x"], ["y"], name="choice", then_branch=inner, else_branch=inner)])


def external_constant():
    tensor = TensorProto(data_type=FLOAT, dims=[3], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="secret.bin")
    nodes = [helper.make_node("Constant", [], ["v"], value=tensor), helper.make_node("MatMul", ["x", "v"], ["y"])]
    return model(nodes)


def classifier():
    """As skl2onnx and onnxmltools write them."""
    nodes = [helper.make_node("LinearClassifier", ["x"], ["label", "probabilities"], domain="ai.onnx.ml")]
    return model(nodes, outputs=[("label", ["L"], INT64), ("probabilities", ["L", 2], FLOAT)])


def maps():
    """As CatBoost writes the probabilities of a classifier."""
    given = classifier()
    element = helper.make_map_type_proto(INT64, helper.make_tensor_type_proto(FLOAT, None))
    given.graph.output[1].type.CopyFrom(helper.make_sequence_type_proto(element))
    return given


def tree_ensemble():
    """The operator of opset 5, whose attributes are tensors."""
    numbers = numpy_helper.from_array(np.ones(1, dtype=np.float32))
    return model([helper.make_node("TreeEnsemble", ["x"], ["y"], domain="ai.onnx.ml", nodes_splits=numbers)])


def constant(outputs, **attribute):
    """An Add of what a Constant holds."""
    made = helper.make_node("Constant", [], outputs)
    made.attribute.append(helper.make_attribute(*next(iter(attribute.items()))))
    return model([made, helper.make_node("Add", ["x", "c"], ["y"])])


REFUSED = {
    "a constant that is no number": (lambda: constant(["c"], value_float="abc"), "truncated or damaged"),
    "another width": (
        lambda: model(inputs=[("x", ["L", 4], FLOAT)]),
        r"input 'x' \(float32, \(\?, 4\)\) takes 4 features, the data have 3 numeric ones \(price, stars, bm25\): "
        "fit and export the model on these, in this order, without carrier.*your own codes",
    ),
    "float64": (
        lambda: model(inputs=[("x", ["L", 3], DOUBLE)]),
        r"input 'x' \(float64.*FloatTensorType\(\[None, 3\]\)",
    ),
    "whole numbers": (lambda: model(inputs=[("x", ["L", 3], INT64)]), r"input 'x' \(int64.*export it with float32"),
    "an unknown type": (lambda: model(inputs=[("x", ["L", 3], 99)]), r"input 'x' \(type 99.*export it with float32"),
    "any width": (
        lambda: model(inputs=[("x", ["L", "N"], FLOAT)]),
        r"'x'.*does not say how many features.*\[None, 3\]",
    ),
    "one row": (lambda: model(inputs=[("x", [3], FLOAT)]), r"input 'x' \(float32, \(3\)\) has not the shape \(L, F\)"),
    "a batch axis": (lambda: model(inputs=[("x", ["B", "L", 3], FLOAT)]), r"has not the shape \(L, F\)"),
    "one length": (lambda: model(inputs=[("x", [1, 3], FLOAT)]), r"'x'.*lists of 1 only.*dynamic_shapes"),
    "one length of the score": (
        lambda: model(outputs=[("y", [1], FLOAT)]),
        r"'y' \(float32, \(1\)\)\).*dynamic_shapes",
    ),
    "two inputs": (
        lambda: model(inputs=[("x", ["L", 3], FLOAT), ("z", ["L", 3], FLOAT)]),
        r"has 2 inputs \('x' .*'z'.*\), not one: export it with one float32 input",
    ),
    "no input": (lambda: model(inputs=[]), r"has 0 inputs"),
    "a classifier": (classifier, r"'label' \(int64, \(\?\)\), 'probabilities' \(float32, \(\?, 2\)\)\): .*raw scores"),
    "a classifier with maps": (maps, r"'probabilities' \(sequence\)\): this is a classifier.*--first-stage-column"),
    "a score of another type": (
        lambda: model(outputs=[("y", ["L"], DOUBLE)]),
        r"no output.*'y' \(float64.*one float32 score per candidate",
    ),
    "two scores": (
        lambda: model(
            [helper.make_node("MatMul", ["x", "w"], ["y"]), helper.make_node("MatMul", ["x", "w"], ["z"])],
            outputs=[("y", ["L"], FLOAT), ("z", ["L"], FLOAT)],
        ),
        r"2 outputs can be the score \('y'.*, 'z'.*\): export the graph with one of them",
    ),
    "no output": (lambda: model(outputs=[]), r"no output is.*\(there is none\)"),
    "an old opset": (lambda: model(opset=3), "opset 3: export it with 7 or newer"),
    "another operator": (
        lambda: model([helper.make_node("RandomNormalLike", ["x"], ["y"], name="noise")]),
        r"operator 'RandomNormalLike' \('noise'\).* is not among the operators allowed: export a graph of plain operators",
    ),
    "trees of opset 5": (tree_ensemble, "operator 'TreeEnsemble'.*export a graph"),
    "a graph in the graph": (with_inner_graph, r"operator 'If' \('choice'\)"),
    "weights elsewhere": (
        lambda: with_weight(lambda w: setattr(w, "data_location", TensorProto.EXTERNAL)),
        "tensor 'given/w' has weights in another file: export a graph of plain operators with its weights inside",
    ),
    "a constant elsewhere": (external_constant, "tensor 'given/v' has weights in another file"),
    "functions": (with_function, "the model has functions of its own"),
    "sparse weights": (with_sparse, "the graph has sparse weights"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_refused_says_so(what):
    given, says = REFUSED[what]
    with pytest.raises(ScoringError, match=says) as caught:
        canonical(given().SerializeToString(), SCHEMA)
    assert "fit a new version" not in str(caught.value), "which is the remedy for a bundle"


def test_a_constant_without_an_output_is_refused_when_the_graph_is_opened():
    made = canonical(constant([], value_float=1.0).SerializeToString(), SCHEMA)
    with pytest.raises(ScoringError):
        OnnxFirstStage(made, SCHEMA)
