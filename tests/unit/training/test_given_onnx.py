"""A graph that was brought along becomes the one form that a bundle holds, or is refused by name with a remedy."""

import contextlib

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from foreign_rankers import kept_rows
from ranking.errors import ScoringError
from ranking.features import Feature, FeatureSchema
from ranking.onnx_first_stage import OnnxFirstStage
from training.given_onnx import canonical

SCHEMA = FeatureSchema(
    features=(
        Feature(name="price"),
        Feature(name="carrier", kind="categorical", categories=("a", "b")),
        Feature(name="stars"),
        Feature(name="bm25"),
    )
)
WEIGHTS = np.array([1.0, 10.0, 100.0], dtype=np.float32)
ROWS = np.array([[1, 2, 3, 4], [5, 0, 6, 7]], dtype=np.float32)
SCORES = [1 + 30 + 400, 5 + 60 + 700]
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


def scores(given):
    return OnnxFirstStage(canonical(given.SerializeToString(), SCHEMA), SCHEMA).score(ROWS).tolist()


def column_matrix():
    """``(L, 1)``."""
    return model(outputs=[("y", ["L", 1], FLOAT)], weights={"w": WEIGHTS[:, None]})


def weights_as_inputs():
    return model(inputs=[("w", [3], FLOAT), ("x", ["L", 3], FLOAT)], ir_version=3)


def names_that_we_use():
    nodes = [
        helper.make_node("Identity", ["x"], ["scores"]),
        helper.make_node("MatMul", ["scores", "flat"], ["features"]),
    ]
    return model(nodes, outputs=[("features", ["L"], FLOAT)], weights={"flat": WEIGHTS})


def scores_as_input():
    nodes = [helper.make_node("MatMul", ["scores", "w"], ["features"])]
    return model(nodes, inputs=[("scores", ["L", 3], FLOAT)], outputs=[("features", ["L"], FLOAT)])


def constants():
    nodes = [
        helper.make_node("Constant", [], ["w2"], value=numpy_helper.from_array(WEIGHTS * 2, "w2")),
        helper.make_node("Constant", [], ["half"], value_float=0.5),
        helper.make_node("Constant", [], ["axis"], value_ints=[1]),
        helper.make_node("Mul", ["x", "w2"], ["product"]),
        helper.make_node("ReduceSum", ["product", "axis"], ["sum"], keepdims=0),
        helper.make_node("Mul", ["sum", "half"], ["y"]),
    ]
    return model(nodes)


def a_label_beside_the_score():
    """What leads to the label only is left out, whatever it is."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["y"]),
        helper.make_node("ArgMax", ["x"], ["label"], axis=1, keepdims=0),
    ]
    return model(nodes, outputs=[("label", ["L"], INT64), ("y", ["L"], FLOAT)])


def no_shape_of_the_score():
    made = model()
    made.graph.output[0].type.tensor_type.ClearField("shape")
    return made


def sizes_that_are_none():
    """Old exporters write 0 or -1 for any length."""
    made = model()
    made.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 0
    made.graph.output[0].type.tensor_type.shape.dim[0].dim_value = -1
    return made


def machine_learning_operators_only():
    """CatBoost names no opset of ONNX's own."""
    made = model([helper.make_node("LinearRegressor", ["x"], ["y"], domain="ai.onnx.ml", coefficients=WEIGHTS)])
    made.opset_import[0].CopyFrom(helper.make_opsetid("ai.onnx.ml", 1))
    return made


@pytest.mark.parametrize(
    "given",
    [
        model,
        column_matrix,
        weights_as_inputs,
        names_that_we_use,
        scores_as_input,
        constants,
        a_label_beside_the_score,
        no_shape_of_the_score,
        sizes_that_are_none,
        machine_learning_operators_only,
    ],
)
def test_it_scores_the_numeric_features_as_given(given):
    assert scores(given()) == SCORES


def test_a_graph_that_looks_at_the_list_sees_all_of_it():
    nodes = [
        helper.make_node("ReduceMean", ["x", "list_axis"], ["mean"], keepdims=1),
        helper.make_node("Sub", ["x", "mean"], ["centred"]),
        helper.make_node("MatMul", ["centred", "w"], ["y"]),
    ]
    given = model(nodes, weights={"list_axis": np.array([0])})
    assert scores(given) == [score - np.mean(SCORES) for score in SCORES]


def test_nothing_of_its_maker_stays():
    given = model(producer_name="secret", producer_version="secret", domain="secret", doc_string="secret")
    given.metadata_props.add(key="secret", value="secret")
    given.graph.doc_string = given.graph.node[0].doc_string = given.graph.initializer[0].doc_string = "secret"
    given.graph.node[0].metadata_props.add(key="secret", value="secret")
    given.graph.value_info.append(value("secret", [1]))
    given.graph.input[0].doc_string = "secret"
    made = canonical(given.SerializeToString(), SCHEMA)
    assert b"secret" not in made
    onnx.checker.check_model(made, full_check=True)


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


REFUSED = {
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
    "one row": (lambda: model(inputs=[("x", [3], FLOAT)]), r"input 'x' \(float32, \(3\)\) has not the shape \(L, N\)"),
    "a batch axis": (lambda: model(inputs=[("x", ["B", "L", 3], FLOAT)]), r"has not the shape \(L, N\)"),
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
def test_what_is_refused(what):
    given, says = REFUSED[what]
    with pytest.raises(ScoringError, match=says) as caught:
        canonical(given().SerializeToString(), SCHEMA)
    assert "fit a new version" not in str(caught.value), "which is the remedy for a bundle"


def test_a_tree_that_asks_for_a_feature_beyond_the_last_is_refused_when_it_runs():
    graph = onnx.ModelProto.FromString(kept_rows("xgboost")[0])
    narrow = FeatureSchema(features=SCHEMA.features[:1])
    graph.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 1
    made = canonical(graph.SerializeToString(), narrow)
    with pytest.raises(ScoringError, match=r"first stage failed: .*feature"):
        OnnxFirstStage(made, narrow).score(np.zeros((2, 1), dtype=np.float32))


def test_a_name_that_is_no_text_is_refused():
    content = model().SerializeToString().replace(b"product", b"\xffroduct")
    with pytest.raises(ScoringError, match="truncated or damaged; export it again"):
        canonical(content, SCHEMA)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_truncated_graph_is_refused(share):
    content = kept_rows("xgboost")[0]
    with pytest.raises(ScoringError, match="truncated or damaged; export it again"):
        canonical(content[: int(share * len(content))], SCHEMA)


@given(data=st.data())
def test_whatever_stands_in_the_file_it_is_a_scorer_or_a_refusal(data):
    content = data.draw(st.sampled_from([model, constants, a_label_beside_the_score, maps]))().SerializeToString()
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(content)))
        end = data.draw(st.integers(start, min(len(content), start + 8)))
        content = content[:start] + data.draw(st.binary(max_size=8)) + content[end:]
    with contextlib.suppress(ScoringError):
        assert OnnxFirstStage(canonical(content, SCHEMA), SCHEMA).score(ROWS).shape == (2,)
