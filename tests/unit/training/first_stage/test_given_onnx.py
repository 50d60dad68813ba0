"""A graph that was brought along becomes the one form that a bundle holds, or is refused by name with a remedy."""

import contextlib

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from listwright.ranking.errors import ScoringError
from listwright.ranking.features import FeatureSchema
from listwright.ranking.first_stage import OnnxFirstStage
from listwright.training.first_stage.bring_your_own import canonical
from support.first_stages.foreign_rankers import kept_rows
from support.first_stages.given_graphs import FLOAT, INT64, SCHEMA, WEIGHTS, model, value

ROWS = np.array([[1, 2, 3, 4], [5, 0, 6, 7]], dtype=np.float32)
SCORES = [1 + 30 + 400, 5 + 60 + 700]


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
    content = data.draw(st.sampled_from([model, constants, a_label_beside_the_score]))().SerializeToString()
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(content)))
        end = data.draw(st.integers(start, min(len(content), start + 8)))
        content = content[:start] + data.draw(st.binary(max_size=8)) + content[end:]
    with contextlib.suppress(ScoringError):
        assert OnnxFirstStage(canonical(content, SCHEMA), SCHEMA).score(ROWS).shape == (2,)
