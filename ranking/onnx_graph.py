"""Checks on a bundle's ONNX graph, before ONNX Runtime is given any of it.

ONNX lets a graph take its weights from other files and carry functions and graphs within graphs. No exporter of ours
writes these. ONNX Runtime is given the graph as it was read here, written out again: what was checked is what it sees,
whatever repeated or unknown fields the file had.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from google.protobuf.message import DecodeError, EncodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from listwright.ranking.errors import ScoringError
from listwright.ranking.protobuf import compile_messages, fields_of

_OPERATORS = """
Abs Add And Cast Clip Concat Div Elu Equal Exp Expand GRU Gather GatherElements GatherND Gemm Greater GreaterOrEqual
IsNaN LSTM LayerNormalization Less LessOrEqual Log MatMul Max Min Mul Neg Not Or Pow Range Reciprocal ReduceMean
ReduceSum Relu Reshape ScatterElements Shape Sigmoid Sign Slice Softmax Split Sqrt Squeeze Sub Tanh Transpose Unsqueeze
Where
"""
_GIVEN_OPERATORS = """
BatchNormalization Celu Erf Gelu HardSigmoid HardSwish Identity IsInf LeakyRelu Mish PRelu ReduceMax ReduceMin Selu
Softplus
"""
OPERATORS = {
    "": frozenset(_OPERATORS.split() + _GIVEN_OPERATORS.split()),
    "ai.onnx.ml": frozenset(["Imputer", "LinearRegressor", "Scaler", "TreeEnsembleRegressor"]),
}
"""By domain: what the exporters in ``training`` write, what bundles of earlier releases hold, and what the exporters of
torch, XGBoost, CatBoost and scikit-learn write of rankers that are brought along. All only compute on their inputs."""

MOST_PARTS = 100_000
"""Fields of a graph and of its nodes, tensors and so on, counted before it is parsed. The largest that is exported has
some thousands."""

METADATA_PREFIX = "listwright."
"""What the graph says of itself is said under names of ours: ONNX Runtime looks for settings of its own there."""

REMEDY = "listwright writes no such graph; fit a new version, with the libraries that constraints.txt names"

# The messages of onnx.proto, each with the fields that may be there. Strings are read as bytes: a name that is no UTF-8
# is ONNX Runtime's to refuse.
_SCHEMA = {
    "Model": "1 int64 ir_version, 2 bytes producer_name, 3 bytes producer_version, 4 bytes domain, "
    "5 int64 model_version, 6 bytes doc_string, 7 Graph graph, 8 OperatorSet* opset_import, 14 Entry* metadata_props",
    "Graph": "1 Node* node, 2 bytes name, 5 Tensor* initializer, 10 bytes doc_string, 11 Value* input, "
    "12 Value* output, 13 Value* value_info, 16 Entry* metadata_props",
    "Node": "1 bytes* input, 2 bytes* output, 3 bytes name, 4 bytes op_type, 5 Attribute* attribute, "
    "6 bytes doc_string, 7 bytes domain, 9 Entry* metadata_props",
    "Attribute": "1 bytes name, 2 float f, 3 int64 i, 4 bytes s, 7 float* floats, 8 int64* ints, 9 bytes* strings, "
    "13 bytes doc_string, 20 int32 type",
    "Tensor": "1 int64* dims, 2 int32 data_type, 4 float* float_data, 5 int32* int32_data, 7 int64* int64_data, "
    "8 bytes name, 9 bytes raw_data, 10 double* double_data, 12 bytes doc_string, 14 int32 data_location, "
    "16 Entry* metadata_props",
    "Value": "1 bytes name, 2 Type type, 3 bytes doc_string, 4 Entry* metadata_props",
    "Type": "1 TensorType tensor_type, 6 bytes denotation",
    "TensorType": "1 int32 elem_type, 2 Shape shape",
    "Shape": "1 Dimension* dim",
    "Dimension": "1 int64 dim_value, 2 bytes dim_param, 3 bytes denotation",
    "OperatorSet": "1 bytes domain, 2 int64 version",
    "Entry": "1 bytes key, 2 bytes value",
}
_ONE_OF = {"Dimension": ("dim_value", "dim_param")}
_PLAIN_ATTRIBUTES = (1, 2, 3, 6, 7, 8)  # float, int, string, and many of each

_INSIDE = {
    message: {number: (kind, many, name) for number, kind, many, name in fields_of(fields) if kind in _SCHEMA}
    for message, fields in _SCHEMA.items()
}
"""By message, the fields that hold messages."""

# What fields are called that ONNX knows and that may not be there; other numbers are named as such.
_REFUSED = {
    ("Model", 20): "training information",
    ("Model", 25): "functions of its own",
    ("Graph", 15): "sparse weights",
    ("Attribute", 5): "a tensor",
    ("Attribute", 6): "a graph within the graph",
    ("Attribute", 10): "tensors",
    ("Attribute", 11): "graphs within the graph",
    ("Attribute", 22): "a sparse tensor",
    ("Attribute", 23): "sparse tensors",
    ("Tensor", 13): "weights in another file",
}


def check_graph(model: bytes, remedy: str = REMEDY) -> bytes:
    """Check a graph and serialise it anew, so that it holds only what was checked.

    Args:
        model: Serialised ONNX model.
        remedy: Advice for a model that is refused; the default is for one of a bundle.

    Returns:
        The model, serialised anew, for ONNX Runtime.

    Raises:
        ScoringError: if it is no ONNX model, if it uses an operator outside :data:`OPERATORS`, or if anything in it is
            external, sparse, a function, a graph within the graph or unknown; names it and says what to do.
    """
    if model[4:8] == b"ORTM":
        raise ScoringError("is in ONNX Runtime's own format, not in ONNX: " + remedy)
    try:
        for count, _ in enumerate(_fields(model, "Model", 0, len(model))):  # parsing takes up to 60 times the bytes
            if count >= MOST_PARTS:
                raise ScoringError(f"the graph has more than {MOST_PARTS:,} parts: {remedy}")
        message = _model_class()()
        message.ParseFromString(model)
    except DecodeError as error:
        raise ScoringError("not an ONNX graph: truncated or damaged; copy the bundle again") from error
    if not message.HasField("graph"):
        raise ScoringError("not an ONNX graph: it holds none; copy the bundle again, or fit a new version")
    for part in _parts(message, "Model", "the model"):
        _check(*part, remedy)
    try:
        return bytes(message.SerializeToString())
    except EncodeError as error:
        raise ScoringError("the graph is larger than 2 GiB: fit a smaller model") from error


def _fields(data: bytes, kind: str, at: int, end: int) -> Iterator[None]:
    """Yield once for each field of a serialised message and of the messages in it."""
    while at < end:
        yield
        tag, at = _varint(data, at)
        match tag & 7:
            case 0:
                _, at = _varint(data, at)
            case 1 | 5 as wire:
                at += 8 if wire == 1 else 4
            case 2:
                size, at = _varint(data, at)
                inner = _INSIDE[kind].get(tag >> 3)
                if inner is not None and inner[0] != "Attribute":  # whose fields are one part
                    yield from _fields(data, inner[0], at, at + size)
                at += size
            case _:
                raise DecodeError("a group, which ONNX does not know")
    if at > end:
        raise DecodeError("a field that is longer than its message")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a number and the place behind it."""
    value = 0
    for n, byte in enumerate(data[at : at + 10]):
        value |= (byte & 0x7F) << 7 * n
        if byte < 0x80:
            return value, at + n + 1
    raise DecodeError("a number that does not end")


def _parts(message: Any, kind: str, place: str) -> Iterator[tuple[Any, str, str]]:
    """Yield a message and all that it holds, outermost first: as deep as :data:`_SCHEMA`, which has no cycle."""
    yield message, kind, place
    for inner, many, name in _INSIDE[kind].values():
        if many or message.HasField(name):
            for part in getattr(message, name) if many else (getattr(message, name),):
                yield from _parts(part, inner, _name_of(part, inner) or place)


def _name_of(part: Any, kind: str) -> str | None:
    """Return the name of a message for errors; None for an unnamed part of another one."""
    match kind:
        case "Node":
            return f"operator {_quoted(part.op_type)} ({_quoted(part.name)})"
        case "Tensor" | "Value":
            return f"tensor {_quoted(part.name)}"
        case "Graph":
            return "the graph"
        case _:
            return None


def _check(part: Any, kind: str, place: str, remedy: str) -> None:
    for field in UnknownFieldSet(part):
        what = _REFUSED.get((kind, field.field_number), f"field {field.field_number} of {kind}")
        raise ScoringError(f"{place} has {what}: {remedy}")
    match kind:
        case "Node" if part.op_type.decode(errors="replace") not in OPERATORS.get(
            part.domain.decode(errors="replace"), ()
        ):
            raise ScoringError(f"{place} of domain {_quoted(part.domain)} is not among the operators allowed: {remedy}")
        case "Tensor" if part.data_location:
            raise ScoringError(f"{place} has {_REFUSED['Tensor', 13]}: {remedy}")
        case "Attribute" if part.type not in _PLAIN_ATTRIBUTES:
            raise ScoringError(f"{place} has an attribute {_quoted(part.name)} of type {part.type}: {remedy}")
        case "Model":
            for entry in part.metadata_props:
                if not entry.key.startswith(METADATA_PREFIX.encode()):
                    raise ScoringError(f"{place} has metadata {_quoted(entry.key)}: {remedy}")


def _quoted(name: bytes) -> str:
    return repr(name[:60].decode(errors="replace"))


@cache
def _model_class() -> Any:
    """Return the message class of a model."""
    return compile_messages("listwright", _SCHEMA, _ONE_OF)["Model"]
