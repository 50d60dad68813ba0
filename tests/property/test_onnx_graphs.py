"""Whatever bytes are given for a graph: a graph that is the same to every reader, or a refusal."""

import contextlib
import functools
from pathlib import Path

import onnx
import pytest
from google.protobuf.unknown_fields import UnknownFieldSet
from hypothesis import given, settings
from hypothesis import strategies as st

from listwright.ranking.errors import ScoringError
from listwright.ranking.onnx_graph import METADATA_PREFIX, OPERATORS, _model_class, check_graph
from listwright.ranking.scorers import OnnxScorer
from support.strategies import scale_examples

GOLDEN = Path(__file__).parents[1] / "golden" / "format_4" / "shop" / "1"
GRAPHS = {name: (GOLDEN / f"{name}.onnx").read_bytes() for name in ("qilcm", "srm", "router", "anomaly")}
TREES = Path(__file__).parents[2] / "models" / "demo" / "1" / "anomaly.onnx"
OURS = {message.name: message for message in _model_class().DESCRIPTOR.file.message_types_by_name.values()}
THEIRS = {
    "TypeProto.Tensor": "TensorType",
    "TensorShapeProto": "Shape",
    "TensorShapeProto.Dimension": "Dimension",
    "OperatorSetIdProto": "OperatorSet",
    "StringStringEntryProto": "Entry",
    "ValueInfoProto": "Value",
}
every = pytest.mark.parametrize("content", GRAPHS.values(), ids=list(GRAPHS))
same = functools.partial(onnx.ModelProto.SerializeToString, deterministic=True)


def messages(message):
    """A message and all that it holds."""
    yield message
    for field, value in message.ListFields():
        if field.message_type is not None:
            for one in value if field.is_repeated else [value]:
                yield from messages(one)


def let_through(content):
    """What the runtime is given, if anything is."""
    try:
        found = check_graph(content)
    except ScoringError:
        return None
    graph = onnx.ModelProto.FromString(found)
    assert same(graph) == same(onnx.ModelProto.FromString(content))
    for message in messages(graph):
        assert len(UnknownFieldSet(message)) == 0
        match message:
            case onnx.TensorProto():
                assert message.data_location == onnx.TensorProto.DEFAULT
                assert not message.external_data
            case onnx.NodeProto():
                assert message.op_type in OPERATORS[message.domain]
            case onnx.AttributeProto():
                assert {field.name for field, _ in message.ListFields()}.isdisjoint(("t", "g", "tensors", "graphs"))
            case onnx.ModelProto():
                assert not [*message.functions, *message.training_info, *message.graph.sparse_initializer]
                assert all(entry.key.startswith(METADATA_PREFIX) for entry in message.metadata_props)
    return found


def spoilt(content, data):
    """Cut, spliced, garbled or doubled."""
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(content)))
        end = data.draw(st.one_of(st.integers(start, min(len(content), start + 8)), st.just(len(content))))
        new = data.draw(st.one_of(st.binary(max_size=8), st.just(content[start:end] * 2)))
        content = content[:start] + new + content[end:]
    return content


@settings(max_examples=scale_examples(300))
@given(st.binary(max_size=200))
def test_any_bytes(content):
    let_through(content)


@every
@settings(max_examples=scale_examples(300))
@given(data=st.data())
def test_any_change_of_a_graph(content, data):
    let_through(spoilt(content, data))


@settings(max_examples=scale_examples(30))
@given(data=st.data())
def test_any_change_of_a_forest(data):
    let_through(spoilt(TREES.read_bytes(), data))


@every
@settings(max_examples=scale_examples(100))
@given(data=st.data())
def test_whoever_runs_it_gets_a_scorer_or_a_refusal(content, data):
    width = onnx.ModelProto.FromString(content).graph.input[0].type.tensor_type.shape.dim[1].dim_value
    with contextlib.suppress(ScoringError):
        OnnxScorer(spoilt(content, data), width)


@every
@settings(max_examples=scale_examples(200))
@given(data=st.data())
def test_a_field_that_is_not_known_is_refused_wherever_it_stands(content, data):
    graph = onnx.ModelProto.FromString(content)
    message = data.draw(st.sampled_from(list(messages(graph))))
    name = message.DESCRIPTOR.full_name.removeprefix("onnx.")
    known = OURS[THEIRS.get(name, name.removesuffix("Proto"))].fields_by_number
    number = data.draw(st.integers(1, 300).filter(lambda number: number not in known))
    added = data.draw(st.sampled_from([b"\0", b"\1", b"\x7f"]))
    tag = number << 3
    message.MergeFromString((bytes([tag]) if tag < 128 else bytes([tag & 0x7F | 0x80, tag >> 7])) + added)
    assert let_through(content) is not None
    assert let_through(graph.SerializeToString()) is None
