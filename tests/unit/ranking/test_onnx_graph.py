"""No graph reaches ONNX Runtime that reads files, or holds what no exporter of ours writes."""

import struct
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from listwright.ranking import onnx_graph
from listwright.ranking.errors import ScoringError
from listwright.ranking.onnx_graph import check_graph
from listwright.ranking.scorers import OnnxScorer

ROOT = Path(__file__).resolve().parents[3]
KEPT = sorted([*ROOT.glob("models/demo/*/*.onnx"), *ROOT.glob("tests/golden/*/*/*/*.onnx")])


def tensor(name="w", values=(1.0, 2.0, 3.0)):
    return numpy_helper.from_array(np.array(values, dtype=np.float32), name)


def external(name="w", kind=TensorProto.FLOAT):
    """A tensor whose numbers stand in another file."""
    made = TensorProto(name=name, data_type=kind, dims=[3], data_location=TensorProto.EXTERNAL)
    made.external_data.add(key="location", value="secret.bin")
    return made


def graph(nodes=None, weights=None):
    return helper.make_graph(
        nodes if nodes is not None else [helper.make_node("MatMul", ["features", "w"], ["scores"], name="product")],
        "graph",
        [helper.make_tensor_value_info("features", TensorProto.FLOAT, ["C", 3])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["C"])],
        [tensor()] if weights is None else weights,
    )


def model(nodes=None, weights=None, **more):
    return helper.make_model(graph(nodes, weights), opset_imports=[helper.make_opsetid("", 20)], ir_version=10, **more)


def node(op_type, domain="", **attributes):
    return [helper.make_node(op_type, ["features"], ["scores"], name="odd", domain=domain, **attributes)]


def changed(change):
    made = model()
    change(made)
    return made


def sparse():
    return helper.make_sparse_tensor(tensor("w", [1.0]), numpy_helper.from_array(np.array([0]), "at"), [3])


def function():
    return helper.make_function(
        "own", "F", ["x"], ["y"], [helper.make_node("Abs", ["x"], ["y"])], [helper.make_opsetid("", 20)]
    )


def inner(tensor_of):
    """A graph in an attribute of If, whose weights are these."""
    return helper.make_node("If", ["features"], ["scores"], name="odd", then_branch=graph(weights=[tensor_of]))


BAD = {
    "external weights": (model(weights=[external()]), "tensor 'w' has weights in another file"),
    "an external location alone": (
        changed(lambda m: m.graph.initializer[0].external_data.add(key="location", value="x")),
        "tensor 'w' has weights in another file",
    ),
    "the word external alone": (
        changed(lambda m: setattr(m.graph.initializer[0], "data_location", TensorProto.EXTERNAL)),
        "tensor 'w' has weights in another file",
    ),
    "a segment": (
        changed(lambda m: setattr(m.graph.initializer[0].segment, "begin", 0)),
        "tensor 'w' has field 3 of Tensor",
    ),
    "an external constant": (model(node("Constant", value=external())), "operator 'Constant'"),
    "an external attribute": (model(node("Abs", value=external())), r"operator 'Abs' \('odd'\) has a tensor"),
    "external attributes": (model(node("Abs", value=[external()])), r"operator 'Abs' \('odd'\) has tensors"),
    "an attribute without a type": (
        changed(lambda m: m.graph.node[0].attribute.add(name="axis", i=1)),
        "has an attribute 'axis' of type 0",
    ),
    "a graph in an operator": (model([inner(external())]), "operator 'If'"),
    "a graph in an operator that is allowed": (
        model(node("Abs", body=graph())),
        r"operator 'Abs' \('odd'\) has a graph within the graph",
    ),
    "graphs in an operator": (model(node("Abs", body=[graph()])), "has graphs within the graph"),
    "a loop": (model(node("Loop", body=graph())), "operator 'Loop'"),
    "sparse weights": (
        changed(lambda m: m.graph.sparse_initializer.append(sparse())),
        "the graph has sparse weights",
    ),
    "a sparse attribute": (model(node("Abs", value=sparse())), "has a sparse tensor"),
    "sparse attributes": (model(node("Abs", value=[sparse()])), "has sparse tensors"),
    "a sparse type": (
        changed(lambda m: setattr(m.graph.input[0].type.sparse_tensor_type, "elem_type", 1)),
        "tensor 'features' has field 8 of Type",
    ),
    "functions": (model(functions=[function()]), "the model has functions of its own"),
    "training information": (changed(lambda m: m.training_info.add()), "the model has training information"),
    "settings for the runtime": (
        changed(lambda m: m.metadata_props.add(key="ort_config", value="{}")),
        "the model has metadata 'ort_config'",
    ),
    "an operator of another domain": (
        model(node("EPContext", domain="com.microsoft", embed_mode=0)),
        r"operator 'EPContext' \('odd'\) of domain 'com.microsoft' is not among the operators",
    ),
    "an operator in the wrong domain": (model(node("Imputer")), "operator 'Imputer'"),
    "an operator that is not used": (model(node("RandomNormalLike")), "operator 'RandomNormalLike'"),
    "an overload": (
        changed(lambda m: setattr(m.graph.node[0], "overload", "x")),
        "operator 'MatMul'.* has field 8 of Node",
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_what_is_refused(what):
    bad, says = BAD[what]
    with pytest.raises(ScoringError, match=says) as caught:
        OnnxScorer(bad.SerializeToString(), 3)
    assert "fit a new version" in str(caught.value)


@pytest.mark.parametrize("path", KEPT, ids=[f"{path.parts[-4]}/{path.name}" for path in KEPT])
def test_what_is_let_through_is_the_same_graph(path):
    assert onnx.ModelProto.FromString(check_graph(path.read_bytes())) == onnx.load(path)


def test_a_file_beside_the_graph_is_not_read(tmp_path, monkeypatch):
    """With the check taken away ONNX Runtime reads it: relative to the working directory, which may be ``/``."""
    (tmp_path / "secret.bin").write_bytes(bytes([1, 10, 100]))
    monkeypatch.chdir(tmp_path)
    product = helper.make_node("MatMul", ["features", "f"], ["scores"])
    nodes = [helper.make_node("Cast", ["w"], ["f"], to=TensorProto.FLOAT), product]
    bad = model(nodes, [external(kind=TensorProto.UINT8)]).SerializeToString()
    with pytest.raises(ScoringError, match="weights in another file"):
        OnnxScorer(bad, 3)
    monkeypatch.setattr("listwright.ranking.scorers.check_graph", lambda model: model)
    assert OnnxScorer(bad, 3).score(np.ones((1, 3), dtype=np.float32)).tolist() == [111.0]


def test_the_runtimes_own_format_is_refused(tmp_path, monkeypatch):
    """Also if the check let it through: the session takes ONNX only."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "model.ort")
    options.add_session_config_entry("session.save_model_format", "ORT")
    onnxruntime.InferenceSession(model().SerializeToString(), options, providers=["CPUExecutionProvider"])
    content = (tmp_path / "model.ort").read_bytes()
    assert content[4:8] == b"ORTM"
    with pytest.raises(ScoringError, match="ONNX Runtime's own format"):
        OnnxScorer(content, 3)
    monkeypatch.setattr("listwright.ranking.scorers.check_graph", lambda model: model)
    with pytest.raises(ScoringError, match="not an ONNX graph that can run here"):
        OnnxScorer(content, 3)


@pytest.mark.parametrize("content", [b"", b"\0", b"no graph", b"\x08\x0a", b"\x3a\x05\x0a"])
def test_what_is_no_graph_is_refused(content):
    with pytest.raises(ScoringError, match="not an ONNX graph: "):
        OnnxScorer(content, 3)


def field(number, content):
    """A field of bytes, as it goes over the wire."""
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(value):
    return bytes([value]) if value < 128 else bytes([value & 0x7F | 0x80]) + _varint(value >> 7)


GRAPH, NODE, WEIGHT = 7, 1, 5


def test_a_graph_that_comes_in_two_pieces_is_merged_before_it_is_looked_at():
    """Protobuf merges what is there twice: the second piece adds a tensor to the first one's graph."""
    more = field(GRAPH, field(WEIGHT, external("more").SerializeToString()))
    good = model().SerializeToString()
    assert onnx.ModelProto.FromString(good + more).graph.initializer[1].name == "more"
    for content in (good + more, more + good):
        with pytest.raises(ScoringError, match="tensor 'more' has weights in another file"):
            check_graph(content)


@pytest.mark.parametrize(("first", "second", "taken"), [("If", "Abs", True), ("Abs", "If", False)])
def test_of_a_field_that_is_there_twice_the_last_counts_and_no_other_is_passed_on(first, second, taken):
    twice = field(
        NODE, field(1, b"features") + field(2, b"scores") + field(4, first.encode()) + field(4, second.encode())
    )
    content = model([]).SerializeToString() + field(GRAPH, twice)
    if taken:
        assert b"If" not in check_graph(content)
        assert b"Abs" in check_graph(content)
    else:
        with pytest.raises(ScoringError, match="operator 'If'"):
            check_graph(content)


def test_a_location_that_is_taken_back_is_not_passed_on():
    default = tensor().SerializeToString() + b"\x70\x01" + b"\x70\x00"  # data_location: EXTERNAL, DEFAULT
    found = check_graph(model(weights=[]).SerializeToString() + field(GRAPH, field(WEIGHT, default)))
    assert b"\x70\x01" not in found


def test_a_location_of_another_wire_type_is_refused():
    """Where the schema has a number and the file bytes, protobuf puts the field aside."""
    odd = tensor().SerializeToString() + field(14, b"\x01")
    with pytest.raises(ScoringError, match="tensor 'w' has field 14 of Tensor"):
        check_graph(model(weights=[]).SerializeToString() + field(GRAPH, field(WEIGHT, odd)))


def test_names_that_are_no_text_are_shown_and_cut():
    bad = model(weights=[]).SerializeToString() + field(
        GRAPH, field(WEIGHT, field(8, b"\xff" + b"x" * 5000) + b"\x70\x01")
    )
    with pytest.raises(ScoringError, match=r"tensor '\ufffdx{59}' has") as caught:
        check_graph(bad)
    assert len(str(caught.value)) < 200


def test_masses_of_parts_are_refused():
    content = model().SerializeToString() + field(GRAPH, field(NODE, b"") * 8000) * 50
    with pytest.raises(ScoringError, match="more than 100,000 parts"):
        check_graph(content)
    with pytest.raises(ScoringError, match="more than 100,000 parts"):
        check_graph(model().SerializeToString() + field(GRAPH, field(13, b"") * 8000) * 50)


def test_as_many_parts_as_the_limit_are_parsed(monkeypatch):
    content = model().SerializeToString()
    count = sum(1 for _ in onnx_graph._fields(content, "Model", 0, len(content)))
    monkeypatch.setattr(onnx_graph, "MOST_PARTS", count)
    assert check_graph(content)
    monkeypatch.setattr(onnx_graph, "_model_class", lambda: pytest.fail("parsed"))
    for many in (content + field(8, b""), content + b"\x28\x00"):
        with pytest.raises(ScoringError, match=f"more than {count} parts"):
            check_graph(many)


@pytest.mark.parametrize("depth", [50, 100_000])
def test_depth_is_no_way_in(depth):
    """Groups within groups, which protobuf skips, and graphs within graphs."""
    nested = b"\x0b" * depth + b"\x0c" * depth
    with pytest.raises(ScoringError):
        check_graph(model().SerializeToString() + nested)
    inner = b""
    for _ in range(min(depth, 1000)):
        inner = field(GRAPH, field(NODE, field(5, field(6, inner[:4000]))))
    with pytest.raises(ScoringError):
        check_graph(model().SerializeToString() + inner)


def test_numbers_keep_their_last_bit():
    values = list(struct.unpack("<100f", np.random.default_rng(0).bytes(400)))
    packed = helper.make_tensor("w", TensorProto.FLOAT, [100], values)
    sent = model(weights=[packed])
    assert onnx.ModelProto.FromString(check_graph(sent.SerializeToString())).graph.initializer[0].float_data[
        :
    ] == pytest.approx(packed.float_data[:], nan_ok=True, abs=0)


def test_every_field_is_onnx_own():
    """Each message, number, kind and name of the schema stands in onnx.proto."""
    theirs = {
        "Model": onnx.ModelProto,
        "Graph": onnx.GraphProto,
        "Node": onnx.NodeProto,
        "Attribute": onnx.AttributeProto,
        "Tensor": onnx.TensorProto,
        "Value": onnx.ValueInfoProto,
        "Type": onnx.TypeProto,
        "TensorType": onnx.TypeProto.Tensor,
        "Shape": onnx.TensorShapeProto,
        "Dimension": onnx.TensorShapeProto.Dimension,
        "OperatorSet": onnx.OperatorSetIdProto,
        "Entry": onnx.StringStringEntryProto,
    }
    ours = onnx_graph._model_class().DESCRIPTOR.file.message_types_by_name
    assert set(ours) == set(theirs)
    same = {"bytes": {"bytes", "string"}, "int32": {"int32", "enum"}}
    names = {kind.DESCRIPTOR.full_name: name for name, kind in theirs.items()}
    words = {1: "double", 2: "float", 3: "int64", 5: "int32", 9: "string", 11: "message", 12: "bytes", 14: "enum"}
    for name, message in ours.items():
        for one in message.fields:
            other = theirs[name].DESCRIPTOR.fields_by_number[one.number]
            assert (one.name, one.is_repeated) == (other.name, other.is_repeated)
            assert words[other.type] in same.get(words[one.type], {words[one.type]}), f"{name}.{one.name}"
            if one.message_type is not None:
                assert names[other.message_type.full_name] == one.message_type.name
            if one.containing_oneof is not None or name == "Dimension":
                assert (one.containing_oneof is None) == (other.containing_oneof is None)
