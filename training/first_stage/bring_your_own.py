"""A first stage that was fitted elsewhere: a LightGBM model, an ONNX graph, or scores in a column of the data.

Exporters of ONNX differ in names, in the shape of the scores and in what else they write. A bundle holds one form only:
``features (L, F) float32 -> scores (L,)``. So what serves stays strict, and reads no foreign graph.
"""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
from google.protobuf.message import DecodeError, Message
from jaxtyping import Float
from onnx import TensorProto, helper, numpy_helper

from listwright.ranking.errors import DataError, RecipeError, SchemaMismatchError, ScoringError
from listwright.ranking.features import Feature, FeatureSchema, spelled
from listwright.ranking.first_stage import OnnxFirstStage, model_columns, read_booster
from listwright.ranking.onnx_graph import check_graph
from listwright.ranking.plain_file import to_text
from listwright.training.data.dataset import Dataset
from listwright.training.first_stage.boosting import silence_lightgbm
from listwright.training.first_stage.foreign_models import COLUMN, HEAD_BYTES, is_onnx, recognised

WARNING = (
    "scores of a model that was fitted on the training queries look better there than they will on new ones, and "
    "the reranker learns to trust them too much. Unless that model has never seen these queries, fit the reranker on "
    "queries from after its training period, or let Listwright fit the first stage (it scores training queries "
    "out-of-fold). The same holds for the test figures below: they mean something only for queries it has not seen."
)
"""Printed whenever first-stage scores are not out-of-fold."""

NO_MISSING = (
    "the given model has no score for a candidate with a missing value (it gives NaN). A request with a null in it is "
    "then answered in input order. Replace missing values inside the graph, or send every number"
)
"""Printed where a graph does not score missing values."""

_FAILED = (
    "the graph has to give one finite score per candidate for lists of any length; a missing value reaches it as NaN, "
    "which it has to replace or to know"
)

IR_VERSION = 10
"""IR version of written graphs. Below 4 weights would have to be inputs, as in CatBoost's version 3."""

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


def read_model(path: Path, schema: FeatureSchema) -> str | bytes:
    """Read a model file by its content: the text of a LightGBM model, or an ONNX graph as a bundle stores it.

    Args:
        path: Path of the file.
        schema: Schema of the data; an ONNX graph takes its numeric features.

    Raises:
        RecipeError: if the file cannot be read, is neither of them, or is a graph that cannot score these features;
            says what else it looks like.
    """
    silence_lightgbm()
    try:
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES).removeprefix(BOM_UTF8)
        if is_onnx(head):
            return canonical(path.read_bytes(), schema)
        foreign = recognised(head)
        if foreign is not None:
            raise RecipeError(f"--first-stage {path}: {foreign}")
        text = to_text(path.read_bytes()).replace("\r\n", "\n")
        read_booster(text)
    except (OSError, ScoringError) as error:
        raise RecipeError(f"--first-stage {path}: {error}") from error
    except ValueError as error:
        raise RecipeError(f"--first-stage {path}: not a LightGBM text model: {error}") from error
    return text


def with_model_categories(model: str, schema: FeatureSchema) -> FeatureSchema:
    """Return the schema with categories in the order of the model's own pandas categories, so that its codes mean the
    same.

    Raises:
        SchemaMismatchError: if the model's features are not in the schema, it knows another number of categorical
            columns than the schema, or a column's categories do not belong to what the model says of its feature; names
            them.
    """
    booster = read_booster(model)
    columns = model_columns(booster, schema) or list(range(len(schema)))
    categorical = [column for column in columns if column in schema.categorical]
    known = booster.pandas_categorical or []
    if len(known) != len(categorical):
        names = ", ".join(repr(schema.names[column]) for column in categorical) or "none"
        fault: str | None = (
            f"the LightGBM model stores categories of {len(known)} columns, the data have {len(categorical)} "
            f"categorical columns ({names}): name the same columns with --categorical as in the model's training frame "
            "(columns that the model was given as plain integers stay numeric here; write those that it was given as "
            "booleans as 0 and 1)"
        )
    else:
        infos = dict(zip(columns, _infos(model), strict=True))
        fault = _kind_fault(infos, dict(zip(categorical, known, strict=True)), schema)
    if fault is not None:
        raise SchemaMismatchError(fault, expected=tuple(booster.feature_name()), sent=schema.names)
    features = list(schema.features)
    # pandas_categorical follows the column order of the training frame, which is the model's feature order
    for column, categories in zip(categorical, known, strict=True):
        features[column] = Feature(
            name=features[column].name,
            kind="categorical",
            categories=tuple(str(spelled(category)) for category in categories),
            missing_in_training=features[column].missing_in_training,
        )
    return FeatureSchema(features=tuple(features))


def _infos(model: str) -> list[str]:
    """Return each feature's training values: ``[lowest:highest]``, ``0:2:1`` of codes, ``none`` of a single value."""
    begin = model.index("\nfeature_infos=") + len("\nfeature_infos=")
    return model[begin : model.index("\n", begin)].split()


def _is_coded(info: str) -> bool:
    return info != "none" and not info.startswith("[")


def _kind_fault(infos: Mapping[int, str], known: Mapping[int, Sequence[object]], schema: FeatureSchema) -> str | None:
    """Return why a model's stored categories do not match the columns that they would apply to; None if they do."""
    others = [schema.names[column] for column, info in infos.items() if _is_coded(info) and column not in known]
    for column, categories in known.items():
        name, info = schema.names[column], infos[column]
        if others and not _is_coded(info):
            coded = ", ".join(map(repr, others))
            return (
                f"in the LightGBM model {coded} is categorical and {name!r} is not ({info}), in the data {name!r} is "
                f"and {coded} is not: name the columns with --categorical that were categories in the model's training "
                "frame, and give the others as numbers"
            )
        values = [] if info == "none" else [float(value) for value in info.strip("[]").split(":")]
        if values and (min(values) < -1 or max(values) >= len(categories)):
            return (
                f"the LightGBM model stores {len(categories)} categories where the data have {name!r}, whose training "
                f"values are {info[:100]}, and no codes of them: the categories are of another column; name those with "
                "--categorical that were categories in the model's training frame"
            )
        if (missing := next((c for c in categories if spelled(c) is None), None)) is not None:
            return (
                f"the LightGBM model stores a category {missing!r} of {name!r}, which stands for a missing value here: "
                "rename the category before training, such as 'Namibia' for 'NA'"
            )
        if len({spelled(category) for category in categories}) < len(categories):
            return (
                f"the LightGBM model stores two categories of {name!r} that are spelled alike: {list(categories)[:20]}"
            )
    return None


def columns_of(model: str | bytes, schema: FeatureSchema) -> frozenset[str]:
    """Return the columns that a model reads: all, where its features have no names; all numeric ones of ONNX.

    Raises:
        SchemaMismatchError: if the model's features are not in the schema.
    """
    if isinstance(model, bytes):
        return frozenset(schema.names[column] for column in schema.numeric)
    columns = model_columns(read_booster(model), schema)
    return frozenset(schema.names if columns is None else (schema.names[column] for column in columns))


def knows_missing(graph: bytes, schema: FeatureSchema) -> bool:
    """Return whether an ONNX graph scores candidates all of whose values are missing."""
    stage = OnnxFirstStage(graph, schema)
    try:
        stage.score(np.full((2, len(schema)), np.nan, dtype=np.float32))
    except ScoringError:
        return False
    return True


def graph_scores(graph: bytes, data: Dataset, path: Path) -> Float[np.ndarray, " R"]:
    """Return ``(R,)`` scores of an ONNX graph for every row, by the serving code: it scores one list at a time.

    Args:
        graph: Graph as :func:`read_model` returns it.
        data: Lists under the schema that the graph was read for.
        path: File of the graph, for error messages.

    Raises:
        RecipeError: if the graph does not run, or fails on a list; names the query.
    """
    place, scores = str(path), np.empty(data.rows)
    try:
        stage = OnnxFirstStage(graph, data.schema)
        for n, qid in enumerate(data.qids):
            place, rows = f"{path}, query {qid}", data.slice(n)
            scores[rows] = stage.score(data.features[rows])
    except ScoringError as error:
        raise RecipeError(f"--first-stage {place}: {error}; {_FAILED}") from error
    return scores


def column_scores(column: str, data: Dataset) -> Float[np.ndarray, " R"]:
    """Return ``(R,)`` scores from a feature column.

    Raises:
        RecipeError: if there is no such numeric column.
        DataError: if a score is missing; names the query.
    """
    index = data.schema.index.get(column)
    if index is None or index in data.schema.categorical:
        names = ", ".join(data.schema.names[d] for d in data.schema.numeric)
        raise RecipeError(f"--first-stage-column {column!r} is no numeric column of the data; there are: {names}")
    scores = data.features[:, index].astype(np.float64)
    missing = np.flatnonzero(np.isnan(scores))
    if len(missing):
        query = int(np.searchsorted(data.offsets, missing[0], side="right")) - 1
        raise DataError(
            f"query {data.qids[query]}",
            f"{len(missing)} rows have no score, the first stands in this query: give every candidate one",
            column=column,
        )
    return scores


def canonical(model: bytes, schema: FeatureSchema) -> bytes:
    """Return the same graph under our names, with a flat score and only arithmetic operators.

    Other outputs go, and so do operators that only they need, documentation, metadata and the names of its producer.
    Every value gets the prefix ``given/``. Constants become weights.

    Args:
        model: Serialised ONNX model with one float32 input ``(L, F)`` and one output ``(L,)`` or ``(L, 1)``.
        schema: Schema of the data; F is the number of its numeric features.

    Returns:
        A serialised graph ``features (L, F) float32 -> scores (L,)``, which
        :func:`listwright.ranking.onnx_graph.check_graph` lets through.

    Raises:
        ScoringError: if it is no such graph; names the input, output or operator, and the remedy.
    """
    original = onnx.ModelProto()
    try:
        original.ParseFromString(model)
    except DecodeError as error:
        raise ScoringError(_DAMAGED) from error
    _check_texts(original)
    graph = original.graph
    _check_input(graph, schema)
    scores = _scores(graph)
    written = onnx.ModelProto(ir_version=IR_VERSION)
    for part in ("functions", "training_info"):  # refused below, by name
        getattr(written, part).extend(getattr(original, part))
    written.opset_import.extend(_opsets(original))
    written.graph.CopyFrom(_rewritten(graph, _features(graph)[0].name, scores, len(schema.numeric)))
    return check_graph(written.SerializeToString(), _OPERATORS_REMEDY)


def _check_texts(message: Message) -> None:
    """Raise ScoringError for text that is no UTF-8: protobuf returns it as bytes."""
    for field, value in message.ListFields():
        if field.type not in (field.TYPE_MESSAGE, field.TYPE_STRING):
            continue  # a forest has millions of numbers
        for item in value if field.is_repeated else (value,):
            if isinstance(item, Message):
                _check_texts(item)
            elif isinstance(item, bytes):
                raise ScoringError(_DAMAGED)


def _features(graph: onnx.GraphProto) -> list[onnx.ValueInfoProto]:
    """Return the graph's inputs without weights, which old exporters list among them."""
    weights = {tensor.name for tensor in graph.initializer}
    return [value for value in graph.input if value.name not in weights]


def _check_input(graph: onnx.GraphProto, schema: FeatureSchema) -> None:
    inputs, width = _features(graph), len(schema.numeric)
    if len(inputs) != 1:
        raise ScoringError(
            f"the graph has {len(inputs)} inputs ({_listed(inputs)}), not one: export it with one float32 input (L, F)"
        )
    (value,) = inputs
    what = f"input {_describe_value(value)}"
    if _type(value) != "float32":
        raise ScoringError(
            f"{what} is not float32: export it with float32 input, e.g. FloatTensorType([None, {width}])"
        )
    shape = _shape(value)
    if shape is None or len(shape) != 2:
        raise ScoringError(f"{what} has not the shape (L, F): export it with one row per candidate and a list axis")
    if isinstance(shape[0], int):
        raise ScoringError(f"{what} takes lists of {shape[0]} only: {_DYNAMIC}")
    if not isinstance(shape[1], int):
        raise ScoringError(
            f"{what} does not say how many features it takes: export it with that number, "
            f"e.g. FloatTensorType([None, {width}])"
        )
    if shape[1] != width:
        names = [schema.names[column] for column in schema.numeric]
        categories = [schema.names[column] for column in schema.categorical]
        without = f", without {_cut(categories)}. {_CATEGORIES}" if categories else ""
        raise ScoringError(
            f"{what} takes {shape[1]} features, the data have {width} numeric ones ({_cut(names)}): fit and export the "
            f"model on these, in this order{without}"
        )


def _scores(graph: onnx.GraphProto) -> str:
    """Return the name of the only output that can be a score per candidate."""
    usable = [value for value in graph.output if _is_score(value)]
    if len(usable) == 1:
        return str(usable[0].name)
    if usable:
        raise ScoringError(
            f"{len(usable)} outputs can be the score ({_listed(usable)}): export the graph with one of them"
        )
    listed = _listed(graph.output) or "there is none"
    fault = f"no output is a float32 score per candidate, (L,) or (L, 1), with a list axis of any length ({listed})"
    if any(_is_score(value, any_length=False) for value in graph.output):
        raise ScoringError(f"{fault}: {_DYNAMIC}")
    classifies = any("Classifier" in node.op_type for node in graph.node)
    raise ScoringError(f"{fault}: {_RAW_SCORES if classifies else _FLOATS}")


def _is_score(value: onnx.ValueInfoProto, *, any_length: bool = True) -> bool:
    shape = _shape(value)
    if _type(value) != "float32":
        return False
    if shape is None:  # not stated: the first list tells
        return True
    if any_length and shape and isinstance(shape[0], int):
        return False
    return len(shape) == 1 or (len(shape) == 2 and (shape[1] == 1 or not isinstance(shape[1], int)))


def _opsets(model: onnx.ModelProto) -> Iterable[onnx.OperatorSetIdProto]:
    """Return the operator sets by domain, with one of ONNX's own for the final reshape."""
    versions = {("" if opset.domain == "ai.onnx" else opset.domain): opset.version for opset in model.opset_import}
    own = versions.setdefault("", _NEEDED_OPSET)
    if own < _OLDEST_OPSET:
        raise ScoringError(f"the graph is of ONNX opset {own}: export it with {_OLDEST_OPSET} or newer")
    return [helper.make_opsetid(domain, version) for domain, version in versions.items()]


def _rewritten(graph: onnx.GraphProto, features: str, scores: str, width: int) -> onnx.GraphProto:
    """Return the part of the graph that leads to the scores, under new names."""
    nodes, weights = _find_dependencies(graph, scores)

    def renamed(name: str) -> str:
        return "features" if name == features else name and f"given/{name}"

    graph_out = onnx.GraphProto(name="first stage")
    graph_out.input.append(helper.make_tensor_value_info("features", TensorProto.FLOAT, ["L", width]))
    graph_out.output.append(helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["L"]))
    for node in nodes:
        copy = graph_out.node.add()
        copy.CopyFrom(node)
        copy.doc_string = ""
        del copy.metadata_props[:]
        copy.input[:], copy.output[:] = map(renamed, node.input), map(renamed, node.output)
    for weight in weights:
        tensor = graph_out.initializer.add()
        tensor.CopyFrom(weight)
        tensor.name, tensor.doc_string = renamed(weight.name), ""
        del tensor.metadata_props[:]
    graph_out.sparse_initializer.extend(graph.sparse_initializer)  # refused by name when the graph is checked
    graph_out.initializer.append(helper.make_tensor("flat", TensorProto.INT64, [1], [-1]))
    graph_out.node.append(helper.make_node("Reshape", [renamed(scores), "flat"], ["scores"], name="flat"))
    return graph_out


def _find_dependencies(graph: onnx.GraphProto, scores: str) -> tuple[list[onnx.NodeProto], list[onnx.TensorProto]]:
    """Return the operators and weights that the scores depend on; constants count as weights."""
    constants = {node.output[0]: tensor for node in graph.node if (tensor := _constant(node)) is not None}
    names, nodes = {scores}, []
    for node in reversed(graph.node):  # ONNX has them in an order in which inputs come first
        if names.intersection(node.output) and not constants.keys() & set(node.output):
            names.update(node.input)
            nodes.append(node)
    weights = [tensor for tensor in (*graph.initializer, *constants.values()) if tensor.name in names]
    return nodes[::-1], weights


def _constant(node: onnx.NodeProto) -> onnx.TensorProto | None:
    """Return the tensor or numbers of a Constant; None for other values."""
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
            except (TypeError, ValueError, OverflowError) as error:  # the attribute's type is not that of its name
                raise ScoringError(_DAMAGED) from error
            tensor.CopyFrom(numpy_helper.from_array(values))
        case _:
            return None
    tensor.name = node.output[0]
    return tensor


def _type(value: onnx.ValueInfoProto) -> str:
    """Return the type's name, such as ``float32``; the kind of a value that is no tensor."""
    kind = value.type.WhichOneof("value")
    if kind != "tensor_type":
        return (kind or "unknown").removesuffix("_type")
    number = value.type.tensor_type.elem_type
    names: dict[int, str] = {known: name.lower() for name, known in TensorProto.DataType.items()}
    names |= {TensorProto.FLOAT: "float32", TensorProto.DOUBLE: "float64"}
    return names.get(number, f"type {number}")


def _shape(value: onnx.ValueInfoProto) -> list[int | None] | None:
    """Return the size of each axis, None where it may be any; None where the graph does not state the axes."""
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        return None
    return [size if (size := axis.dim_value) > 0 else None for axis in tensor.shape.dim]


def _describe_value(value: onnx.ValueInfoProto) -> str:
    """Format a value's name, type and shape: ``'variable' (float32, (?, 1))``."""
    shape = _shape(value)
    axes = None if shape is None else ", ".join("?" if size is None else str(size) for size in shape)
    return f"{value.name[:60]!r} ({_type(value)}{'' if axes is None else f', ({axes})'})"


def _listed(values: Iterable[onnx.ValueInfoProto]) -> str:
    return _cut([_describe_value(value) for value in values])


def _cut(names: list[str]) -> str:
    return ", ".join(names[:10]) + (" …" if len(names) > 10 else "")
