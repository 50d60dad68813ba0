"""An ONNX graph that somebody brought along, written as the one graph that a bundle holds.

Exporters differ in names, in the shape of the scores and in what else they write. A bundle holds one form only:
``features (L, N) float32 -> scores (L,)``. So what serves stays strict, and reads no foreign graph.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import onnx
from google.protobuf.message import DecodeError, Message
from onnx import TensorProto, helper, numpy_helper

from listwright.ranking.errors import ScoringError
from listwright.ranking.features import FeatureSchema
from listwright.ranking.onnx_graph import checked
from listwright.training.first_stage.foreign_models import COLUMN

IR_VERSION = 10
"""Of what is written. Below 4 weights would have to be inputs, as CatBoost's version 3 has it."""

_OLDEST_OPSET = 7
_NEEDED_OPSET = 13

_DAMAGED = "not an ONNX graph: truncated or damaged; export it again"
_OPERATORS_REMEDY = f"export a graph of plain operators with its weights inside, or {COLUMN}"
_DYNAMIC = (
    "export it with a list axis of any length: in torch with dynamic_shapes={'x': {0: torch.export.Dim('L')}}, "
    "in onnxmltools and skl2onnx with FloatTensorType([None, N])"
)
_FLOATS = "export it with one float32 score per candidate"
_RAW_SCORES = (
    "this is a classifier, export raw scores. convert_xgboost writes one for XGBoost rankers, unless "
    "booster.set_param({'objective': 'reg:squarederror'}) is called before. For all else, " + COLUMN
)
_CATEGORIES = (
    "A graph does not say which code means which category, so it sees none: put your own codes into the data as numbers"
)


def canonical(model: bytes, schema: FeatureSchema) -> bytes:
    """The same graph under our names, with a flat score and nothing but arithmetic in it.

    Other outputs go, and so do the operators that only they need, documentation, metadata and the names of whoever made
    it. Every value gets the prefix ``given/``. Constants become weights.

    Args:
        model: a serialised ONNX model with one float32 input ``(L, N)`` and one output ``(L,)`` or ``(L, 1)``.
        schema: of the data; N is the number of its numeric features.

    Returns:
        A serialised graph ``features (L, N) float32 -> scores (L,)``, which
        :func:`listwright.ranking.onnx_graph.checked` lets through.

    Raises:
        ScoringError: if it is no such graph; names the input, output or operator, and the remedy.
    """
    given = onnx.ModelProto()
    try:
        given.ParseFromString(model)
    except DecodeError as error:
        raise ScoringError(_DAMAGED) from error
    _check_texts(given)
    graph = given.graph
    _check_input(graph, schema)
    scores = _scores(graph)
    made = onnx.ModelProto(ir_version=IR_VERSION)
    for part in ("functions", "training_info"):  # refused below, by name
        getattr(made, part).extend(getattr(given, part))
    made.opset_import.extend(_opsets(given))
    made.graph.CopyFrom(_rewritten(graph, _features(graph)[0].name, scores, len(schema.numeric)))
    return checked(made.SerializeToString(), _OPERATORS_REMEDY)


def _check_texts(message: Message) -> None:
    """Protobuf gives a name that is no UTF-8 as bytes."""
    for field, found in message.ListFields():
        if field.type not in (field.TYPE_MESSAGE, field.TYPE_STRING):
            continue  # a forest has millions of numbers
        for one in found if field.is_repeated else (found,):
            if isinstance(one, Message):
                _check_texts(one)
            elif isinstance(one, bytes):
                raise ScoringError(_DAMAGED)


def _features(graph: onnx.GraphProto) -> list[onnx.ValueInfoProto]:
    """Its inputs; old exporters list weights among them."""
    weights = {tensor.name for tensor in graph.initializer}
    return [value for value in graph.input if value.name not in weights]


def _check_input(graph: onnx.GraphProto, schema: FeatureSchema) -> None:
    inputs, width = _features(graph), len(schema.numeric)
    if len(inputs) != 1:
        raise ScoringError(
            f"the graph has {len(inputs)} inputs ({_listed(inputs)}), not one: export it with one float32 input (L, N)"
        )
    (value,) = inputs
    said = f"input {_shown(value)}"
    if _type(value) != "float32":
        raise ScoringError(
            f"{said} is not float32: export it with float32 input, e.g. FloatTensorType([None, {width}])"
        )
    shape = _shape(value)
    if shape is None or len(shape) != 2:
        raise ScoringError(f"{said} has not the shape (L, N): export it with one row per candidate and a list axis")
    if isinstance(shape[0], int):
        raise ScoringError(f"{said} takes lists of {shape[0]} only: {_DYNAMIC}")
    if not isinstance(shape[1], int):
        raise ScoringError(
            f"{said} does not say how many features it takes: export it with that number, "
            f"e.g. FloatTensorType([None, {width}])"
        )
    if shape[1] != width:
        names = [schema.names[column] for column in schema.numeric]
        categories = [schema.names[column] for column in schema.categorical]
        without = f", without {_cut(categories)}. {_CATEGORIES}" if categories else ""
        raise ScoringError(
            f"{said} takes {shape[1]} features, the data have {width} numeric ones ({_cut(names)}): fit and export the "
            f"model on these, in this order{without}"
        )


def _scores(graph: onnx.GraphProto) -> str:
    """The name of the one output that can be a score per candidate."""
    usable = [value for value in graph.output if _is_score(value)]
    if len(usable) == 1:
        return str(usable[0].name)
    if usable:
        raise ScoringError(
            f"{len(usable)} outputs can be the score ({_listed(usable)}): export the graph with one of them"
        )
    listed = _listed(graph.output) or "there is none"
    said = f"no output is a float32 score per candidate, (L,) or (L, 1), with a list axis of any length ({listed})"
    if any(_is_score(value, any_length=False) for value in graph.output):
        raise ScoringError(f"{said}: {_DYNAMIC}")
    classifies = any("Classifier" in node.op_type for node in graph.node)
    raise ScoringError(f"{said}: {_RAW_SCORES if classifies else _FLOATS}")


def _is_score(value: onnx.ValueInfoProto, *, any_length: bool = True) -> bool:
    shape = _shape(value)
    if _type(value) != "float32":
        return False
    if shape is None:  # not stated: the first list tells
        return True
    if any_length and shape and isinstance(shape[0], int):
        return False
    return len(shape) == 1 or (len(shape) == 2 and (shape[1] == 1 or not isinstance(shape[1], int)))


def _opsets(given: onnx.ModelProto) -> Iterable[onnx.OperatorSetIdProto]:
    """By domain, with one of ONNX's own for the reshape at the end."""
    versions = {("" if one.domain == "ai.onnx" else one.domain): one.version for one in given.opset_import}
    own = versions.setdefault("", _NEEDED_OPSET)
    if own < _OLDEST_OPSET:
        raise ScoringError(f"the graph is of ONNX opset {own}: export it with {_OLDEST_OPSET} or newer")
    return [helper.make_opsetid(domain, version) for domain, version in versions.items()]


def _rewritten(graph: onnx.GraphProto, features: str, scores: str, width: int) -> onnx.GraphProto:
    """The part of the graph that leads to the scores, under new names."""
    nodes, weights = _needed(graph, scores)

    def renamed(name: str) -> str:
        return "features" if name == features else name and f"given/{name}"

    made = onnx.GraphProto(name="first stage")
    made.input.append(helper.make_tensor_value_info("features", TensorProto.FLOAT, ["L", width]))
    made.output.append(helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["L"]))
    for node in nodes:
        copy = made.node.add()
        copy.CopyFrom(node)
        copy.doc_string = ""
        del copy.metadata_props[:]
        copy.input[:], copy.output[:] = map(renamed, node.input), map(renamed, node.output)
    for weight in weights:
        tensor = made.initializer.add()
        tensor.CopyFrom(weight)
        tensor.name, tensor.doc_string = renamed(weight.name), ""
        del tensor.metadata_props[:]
    made.sparse_initializer.extend(graph.sparse_initializer)  # refused by name when the graph is checked
    made.initializer.append(helper.make_tensor("flat", TensorProto.INT64, [1], [-1]))
    made.node.append(helper.make_node("Reshape", [renamed(scores), "flat"], ["scores"], name="flat"))
    return made


def _needed(graph: onnx.GraphProto, scores: str) -> tuple[list[onnx.NodeProto], list[onnx.TensorProto]]:
    """Operators and weights that the scores depend on; constants count as weights."""
    constants = {node.output[0]: tensor for node in graph.node if (tensor := _constant(node)) is not None}
    wanted, nodes = {scores}, []
    for node in reversed(graph.node):  # ONNX has them in an order in which inputs come first
        if wanted.intersection(node.output) and not constants.keys() & set(node.output):
            wanted.update(node.input)
            nodes.append(node)
    weights = [tensor for tensor in (*graph.initializer, *constants.values()) if tensor.name in wanted]
    return nodes[::-1], weights


def _constant(node: onnx.NodeProto) -> onnx.TensorProto | None:
    """What a Constant holds, where it is a tensor or numbers."""
    plain = node.op_type == "Constant" and node.domain in ("", "ai.onnx")
    if not plain or len(node.attribute) != 1 or len(node.output) != 1:
        return None
    (attribute,) = node.attribute
    tensor = onnx.TensorProto()
    match attribute.name:
        case "value":
            tensor.CopyFrom(attribute.t)
        case "value_float" | "value_floats" | "value_int" | "value_ints":
            number = "float32" if "float" in attribute.name else "int64"
            try:
                values = np.array(helper.get_attribute_value(attribute), dtype=number)
            except (TypeError, ValueError, OverflowError) as error:  # the attribute says another type than its name
                raise ScoringError(_DAMAGED) from error
            tensor.CopyFrom(numpy_helper.from_array(values))
        case _:
            return None
    tensor.name = node.output[0]
    return tensor


def _type(value: onnx.ValueInfoProto) -> str:
    """``float32`` and so on; what holds the values, where that is no tensor."""
    kind = value.type.WhichOneof("value")
    if kind != "tensor_type":
        return (kind or "unknown").removesuffix("_type")
    number = value.type.tensor_type.elem_type
    names: dict[int, str] = {known: name.lower() for name, known in TensorProto.DataType.items()}
    names |= {TensorProto.FLOAT: "float32", TensorProto.DOUBLE: "float64"}
    return names.get(number, f"type {number}")


def _shape(value: onnx.ValueInfoProto) -> list[int | None] | None:
    """The size of each axis, None where it may be any; None where the graph does not say how many axes there are."""
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        return None
    return [size if (size := axis.dim_value) > 0 else None for axis in tensor.shape.dim]


def _shown(value: onnx.ValueInfoProto) -> str:
    """E.g. ``'variable' (float32, (?, 1))``."""
    shape = _shape(value)
    axes = None if shape is None else ", ".join("?" if size is None else str(size) for size in shape)
    return f"{value.name[:60]!r} ({_type(value)}{'' if axes is None else f', ({axes})'})"


def _listed(values: Iterable[onnx.ValueInfoProto]) -> str:
    return _cut([_shown(value) for value in values])


def _cut(names: list[str]) -> str:
    return ", ".join(names[:10]) + (" …" if len(names) > 10 else "")
