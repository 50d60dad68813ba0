"""The Open Inference Protocol (version 2, HTTP) with its binary tensor extension: its schemas, requests and answers.

One list per request: ``features`` (L, D) and, if the caller likes, ``ids`` (L,) in; per candidate or best first, the
tensors of :data:`OUTPUTS` out. A tensor stands in the JSON object, or as raw little-endian bytes behind it.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Real
from pydantic import BaseModel, ConfigDict, FailFast, Field, WithJsonSchema, model_validator
from pydantic_core import to_json

from listwright.ranking.bundle import Bundle
from listwright.ranking.candidates import CandidateList, Ranking
from listwright.ranking.errors import CandidateError
from listwright.ranking.features import FeatureSchema
from listwright.ranking.manifest import Manifest
from listwright.service.admission.body import Limit
from listwright.service.errors import UndecodableBodyError
from listwright.service.participation import Participation
from listwright.service.wire.json_codec import Bounds, answer_probabilities, answer_scores, nullable
from listwright.service.wire.json_codec import decode as decode_json
from listwright.service.wire.raw_matrix import check_shape, to_candidates, value_bytes
from listwright.service.wire.schemas import (
    LIST,
    MAX_ID,
    Envelope,
    Id,
    Name,
    Number,
    Options,
    Strict,
    merge_options,
    validate,
)

OUTPUTS = {
    "scores": "FP32",
    "ranks": "INT64",
    "first_stage_scores": "FP32",
    "order": "INT64",
    "ids": "BYTES",
    "probabilities": "FP32",
}
"""``order`` holds positions, best first, at most ``top_n`` of them; ``ids`` the ids there, if the caller sent any."""

OutputName = Literal["scores", "ranks", "first_stage_scores", "order", "ids", "probabilities"]

_DATA = {
    "anyOf": [{"type": "array", "items": {}}, {"type": "null"}],
    "description": "row by row, flat or nested; numbers, null for a missing one; ids: strings",
}


class TensorParameters(BaseModel):
    """Of an input."""

    model_config = ConfigDict(strict=True)

    binary_data_size: Annotated[Number | None, Field(description="bytes behind the JSON object, instead of data")] = (
        None
    )

    @model_validator(mode="before")
    @classmethod
    def _without_shared_memory(cls, value: Any) -> Any:
        if isinstance(value, dict) and any(name.startswith("shared_memory") for name in value):
            raise ValueError("shared memory is not read: send the values in the request")
        return value


class InputTensor(Strict):
    """``features`` or ``ids``."""

    name: Literal["features", "ids"]
    shape: Annotated[list[Number], Field(max_length=8, description="[L, D] for features, [L] for ids")]
    datatype: Annotated[str, Field(max_length=20, description="FP32, FP64, FP16 or BF16 for features, BYTES for ids")]
    parameters: TensorParameters = TensorParameters()
    data: Annotated[Any, WithJsonSchema(_DATA)] = None


class OutputParameters(Strict):
    """Of a requested output."""

    binary_data: Annotated[bool | None, Field(description="raw bytes; default: binary_data_output")] = None


class RequestedOutput(Strict):
    """One tensor that the caller wants."""

    name: OutputName
    parameters: OutputParameters = OutputParameters()


class InferParameters(Options):
    """How to rank, and what to answer."""

    place: ClassVar[tuple[str, ...]] = ("parameters",)

    binary_data_output: Annotated[bool, Field(description="outputs as raw bytes behind the JSON object")] = False


class InferEnvelope(Envelope, InferParameters):
    """All of a request that may stand beside its body."""


class InferRequest(Strict):
    """One query's candidates, as tensors."""

    id: Annotated[Id | None, Field(description="echoed")] = None
    model_name: Annotated[
        Name | None, Field(description="name or alias of the bundle, as KServe's client sends it; that of the path")
    ] = None
    model_version: Annotated[
        Name | None, Field(description="version of the bundle; that of the path, where the path names one")
    ] = None
    parameters: InferParameters = InferParameters()
    inputs: Annotated[
        list[InputTensor],
        FailFast(),
        Field(max_length=2, description="features, and ids if the caller likes, each once", json_schema_extra=LIST),
    ]
    outputs: Annotated[
        list[RequestedOutput] | None,
        FailFast(),
        Field(
            max_length=len(OUTPUTS),
            description="each once; default: all, ids only if they were sent, probabilities only by their parameter",
        ),
    ] = None


class OutputTensor(BaseModel):
    """An answered tensor."""

    name: str
    datatype: str
    shape: list[int]
    data: Annotated[list[Any] | None, Field(description="in JSON; null for a number that is missing")] = None
    parameters: TensorParameters | None = None


class InferResponse(BaseModel):
    """The order, as tensors."""

    model_name: str
    model_version: str
    id: str | None = None
    parameters: Annotated[dict[str, str | int | float], Field(description="route and meta of /rerank, without nulls")]
    outputs: list[OutputTensor]


class ServerMetadata(BaseModel):
    """The server."""

    name: str
    version: str
    extensions: list[str]


class ServerHealth(BaseModel):
    """State of the server. Clients of either question read the member that it is named for."""

    live: Literal[True]
    ready: bool


class ModelReady(BaseModel):
    """State of a bundle."""

    name: str
    ready: Literal[True]


class TensorInfo(BaseModel):
    """A tensor of the bundle's."""

    name: str
    datatype: str
    shape: Annotated[list[int], Field(description="-1 where the request decides")]


class ColumnInfo(BaseModel):
    """One column of features."""

    name: str
    kind: Literal["numeric", "categorical"]
    categories: Annotated[
        list[str],
        Field(description="what the codes 1, 2, ... of a categorical column stand for; 0 is a value not among them"),
    ]


class ModelMetadata(BaseModel):
    """A bundle, in the fields of the protocol; /info has more."""

    name: str
    versions: list[str]
    platform: str
    inputs: Annotated[list[TensorInfo], Field(description="required ones; ids, BYTES of [L], may be sent beside them")]
    outputs: list[TensorInfo]
    columns: Annotated[list[ColumnInfo], Field(description="of features, in order")]
    fingerprint: Annotated[str, Field(description="of the columns; equal ones take the same matrices")]


def describe(bundle: Bundle) -> ModelMetadata:
    """Describe a bundle for clients of the protocol."""
    manifest, features = bundle.manifest, bundle.manifest.feature_schema.features
    names = [name for name in OUTPUTS if name != "probabilities" or bundle.reranker.calibration is not None]
    return ModelMetadata(
        name=manifest.name,
        versions=[manifest.version],
        platform="listwright",
        inputs=[TensorInfo(name="features", datatype="FP32", shape=[-1, len(features)])],
        outputs=[TensorInfo(name=name, datatype=OUTPUTS[name], shape=[-1]) for name in names],
        columns=[ColumnInfo(name=f.name, kind=f.kind, categories=list(f.categories)) for f in features],
        fingerprint=manifest.fingerprint,
    )


DATATYPES = {t: np.dtype(k) for t, k in (("FP32", "<f4"), ("FP64", "<f8"), ("FP16", "<f2"), ("BF16", "<u2"))}
"""Types of raw features. BF16 is the higher half of a float32."""

LENGTH_BYTES, UTF8_BYTES = 4, 4
"""Bytes of the length before each raw string, and of a character at most."""

_NUMBER_TYPES = frozenset((float, int, type(None)))

Path = tuple[str | int, ...]


class Inference(NamedTuple):
    """Decoded request."""

    request: InferRequest
    candidates: CandidateList


@lru_cache
def body_limit(bounds: Bounds) -> Limit:
    """Return the limit of a body: the largest JSON object, and raw features and ids behind it."""
    ids = bounds.candidates * (LENGTH_BYTES + UTF8_BYTES * MAX_ID)
    return Limit(bounds.size + value_bytes(bounds.candidates, bounds.features) + ids, bounds.why)


def decode_head(
    body: bytes, head_length: str | None, bounds: Bounds, outer_options: Mapping[str, Any]
) -> tuple[InferRequest, int]:
    """Decode the JSON object of a body, and return it with its bytes; raw tensors are not read.

    Args:
        body: Body of the request.
        head_length: Value of ``Inference-Header-Content-Length``; None where all of the body is JSON.
        bounds: Bounds of the JSON object.
        outer_options: Options that were sent beside the body.

    Raises:
        UndecodableBodyError: if it begins with no JSON object of that length.
        RequestValidationError: if the object is not the protocol's.
    """
    size = len(body)
    if head_length is not None:
        if not (head_length.isascii() and head_length.isdecimal() and len(head_length) <= len(str(size))):
            raise UndecodableBodyError("Inference-Header-Content-Length is not a number of bytes within the body")
        size = int(head_length)
    return read_request(decode_json(body[:size], bounds), outer_options), size


def read_request(content: Any, outer_options: Mapping[str, Any]) -> InferRequest:
    """Validate a request, merged with the options beside it; data of tensors are not read.

    Raises:
        RequestValidationError: if it is not the protocol's.
    """
    if outer_options and isinstance(content, dict):
        options = {name: value for name, value in outer_options.items() if name in InferParameters.model_fields}
        content = merge_options(content, {name: outer_options[name] for name in ("id",) if name in outer_options})
        content["parameters"] = merge_options(content.get("parameters") or {}, options)
    return validate(InferRequest, content)


def decode(body: bytes, request: InferRequest, size: int, schema: FeatureSchema, limit: int) -> Inference:
    """Decode a body; features of the schema's type are a view of it where they are aligned.

    Args:
        body: Body of the request.
        request, size: JSON object of the body and its bytes, as :func:`decode_head` returns them.
        schema: Schema that the features must fit.
        limit: Largest number of candidates.

    Raises:
        UndecodableBodyError: if there are not as many bytes behind its JSON object as its tensors need.
        CandidateError: if a tensor cannot be used; with its JSON path, or its row and column.
        EmptyListError, TooLargeError, SchemaMismatchError: if its shape does not fit; the data is not looked at.
    """
    raws: list[memoryview | None] = []
    end = size
    for position, tensor in enumerate(request.inputs):
        raw_size = tensor.parameters.binary_data_size
        if (raw_size is None) == (tensor.data is None):
            raise CandidateError("has no data, or twice: send either binary_data_size or data", ("inputs", position))
        raws.append(None if raw_size is None else memoryview(body)[end : end + raw_size])
        end += raw_size or 0
    if end != len(body):
        raise UndecodableBodyError(f"the JSON object and its tensors take {end} bytes, the body has {len(body)}")
    return read_tensors(request, raws, schema, limit)


def read_tensors(
    request: InferRequest, raws: Sequence[memoryview | bytes | None], schema: FeatureSchema, limit: int
) -> Inference:
    """Decode the tensors of a request; raw features of the schema's type are a view where they are aligned.

    Args:
        request: Request, with the data of the tensors that are not raw.
        raws: Bytes of each input; None where its data are in the request.
        schema: Schema that the features must fit.
        limit: Largest number of candidates.

    Raises:
        CandidateError: if a tensor cannot be used; with its path in the request, or its row and column.
        EmptyListError, TooLargeError, SchemaMismatchError: if its shape does not fit; the data is not looked at.
    """
    inputs: dict[str, tuple[int, InputTensor, memoryview | bytes | None]] = {}
    for position, (tensor, raw) in enumerate(zip(request.inputs, raws, strict=True)):
        if tensor.name in inputs:
            raise CandidateError(f"{tensor.name!r} is repeated", ("inputs", position, "name"))
        inputs[tensor.name] = (position, tensor, raw)
    if "features" not in inputs:
        raise CandidateError("there is no input named 'features'", ("inputs",))
    matrix = _features(*inputs["features"], schema, limit)
    ids = _ids(*inputs["ids"], len(matrix)) if "ids" in inputs else None
    output_names = [output.name for output in request.outputs or ()]
    for position, name in enumerate(output_names):
        if name in output_names[:position]:
            raise CandidateError(f"{name!r} is asked for twice", ("outputs", position, "name"))
        if name == "ids" and ids is None:
            raise CandidateError("ids are asked for, but were not sent", ("outputs", position, "name"))
    return Inference(request, to_candidates(matrix, schema, ids, request.parameters.context))


def _features(
    position: int, tensor: InputTensor, raw: memoryview | bytes | None, schema: FeatureSchema, limit: int
) -> Float[np.ndarray, "L D"]:
    kind = DATATYPES.get(tensor.datatype)
    if kind is None:
        raise CandidateError(
            f"features are FP32, FP64, FP16 or BF16, found {tensor.datatype!r}", ("inputs", position, "datatype")
        )
    if len(tensor.shape) != 2:
        raise CandidateError(
            f"expected [L, D], found {tensor.shape}: one list a request, without a batch axis",
            ("inputs", position, "shape"),
        )
    length, width = tensor.shape
    check_shape(length, width, schema, limit)
    if raw is None:
        return _parse_numbers(tensor.data, length, width, ("inputs", position, "data"))
    if len(raw) != length * width * kind.itemsize:
        announced = tensor.parameters.binary_data_size is not None
        place = ("inputs", position, *(("parameters", "binary_data_size") if announced else ()))
        raise CandidateError(
            f"it has {len(raw)} bytes, {tensor.datatype} of shape {tensor.shape} takes "
            f"{length * width * kind.itemsize}",
            place,
        )
    values = np.frombuffer(raw, kind).reshape(length, width)
    return (values.astype(np.uint32) << 16).view(np.float32) if tensor.datatype == "BF16" else values


def _parse_numbers(data: Any, length: int, width: int, path: Path) -> Float[np.ndarray, "L D"]:
    """Convert JSON numbers, flat or a list of rows."""
    if isinstance(data, list) and len(data) == length and all(type(row) is list and len(row) == width for row in data):
        data = list(chain.from_iterable(data))
    if not isinstance(data, list) or len(data) != length * width:
        raise CandidateError(f"expected {length * width} values, or {length} rows of {width}", path)
    if not set(map(type, data)) <= _NUMBER_TYPES:
        raise CandidateError("expected numbers, or null for a missing one", path)
    try:
        return np.array(data, dtype=np.float64).reshape(length, width)
    except OverflowError:
        raise CandidateError("a number does not fit float32", path) from None


def _ids(position: int, tensor: InputTensor, raw: memoryview | bytes | None, length: int) -> tuple[str, ...]:
    if tensor.datatype != "BYTES" or tensor.shape != [length]:
        raise CandidateError(
            f"expected BYTES of shape [{length}], one for each candidate, found {tensor.datatype!r} of {tensor.shape}",
            ("inputs", position),
        )
    ids = tensor.data if raw is None else _strings(bytes(raw), length, ("inputs", position))
    if type(ids) is not list or len(ids) != length or not all(type(i) is str and len(i) <= MAX_ID for i in ids):
        raise CandidateError(f"expected {length} strings of at most {MAX_ID} characters", ("inputs", position, "data"))
    return tuple(ids)


def _strings(raw: bytes, count: int, path: Path) -> list[str]:
    """Decode UTF-8 strings, each behind its length in four bytes."""
    strings, at = [], 0
    try:
        for _ in range(count):
            (size,) = struct.unpack_from("<I", raw, at)
            at += 4 + size
            strings.append(raw[at - size : at].decode())
    except (struct.error, UnicodeDecodeError):
        raise CandidateError("the BYTES are not UTF-8 strings, each behind its length in four bytes", path) from None
    if at != len(raw):
        raise CandidateError(f"the BYTES of {count} strings take {at} bytes, found {len(raw)}", path)
    return strings


def options_of(request: InferRequest) -> InferParameters:
    """Return the options of a request: its parameters, and probabilities where they are among the outputs."""
    if any(output.name == "probabilities" for output in request.outputs or ()):
        return request.parameters.model_copy(update={"probabilities": True})
    return request.parameters


def has_order(request: InferRequest) -> bool:
    """Return whether the requested outputs include the order, not only scores."""
    return not request.outputs or any(output.name in ("order", "ranks", "ids") for output in request.outputs)


def encode(
    ranking: Ranking, inference: Inference, manifest: Manifest, part: Participation | None = None
) -> tuple[bytes, int | None]:
    """Encode an answer; return its body, and how many bytes of it are JSON if raw tensors follow, else None."""
    request = inference.request
    binary = binary_outputs(inference, by_default=request.parameters.binary_data_output)
    tensors, raws = [], []
    for name, is_binary in binary.items():
        values = output_values(name, ranking, inference, part)
        tensor = {"name": name, "datatype": OUTPUTS[name], "shape": [len(values)]}
        if is_binary:
            raws.append(raw_bytes(values))
            tensors.append({**tensor, "parameters": {"binary_data_size": len(raws[-1])}})
        else:
            tensors.append({**tensor, "data": values if isinstance(values, list) else nullable(values)})
    head = {
        "model_name": manifest.name,
        "model_version": manifest.version,
        **({} if request.id is None else {"id": request.id}),
        "parameters": response_parameters(ranking, part),
        "outputs": tensors,
    }
    text = to_json(head)
    return (b"".join([text, *raws]), len(text)) if any(binary.values()) else (text, None)


def binary_outputs(inference: Inference, *, by_default: bool) -> dict[str, bool]:
    """Return the names of the outputs, in order, each with whether it is sent as raw bytes."""
    if not inference.request.outputs:
        omitted = set() if inference.candidates.ids else {"ids"}
        if not inference.request.parameters.probabilities:
            omitted.add("probabilities")
        return dict.fromkeys((name for name in OUTPUTS if name not in omitted), by_default)
    outputs = ((output.name, output.parameters.binary_data) for output in inference.request.outputs)
    return {name: by_default if own is None else own for name, own in outputs}


def output_values(
    name: str, ranking: Ranking, inference: Inference, part: Participation | None
) -> list[str] | Real[np.ndarray, " K"]:
    """Return the values of an output, little-endian; ids as text."""
    best = ranking.results[: inference.request.parameters.top_n]
    if name == "ids":
        assert inference.candidates.ids is not None
        return [inference.candidates.ids[index] for index in best]
    if name == "order":
        return best.astype("<i8")
    if name == "ranks":
        ranks = ranking.ranks.astype("<i8")
        ranks[ranking.exclusions] = 0
        return ranks
    if name == "probabilities":
        return answer_probabilities(ranking).astype("<f4")
    if name == "first_stage_scores":
        return ranking.first_stage_scores.astype("<f4")
    return answer_scores(ranking, inference.request.parameters, part, "<f4")


def raw_bytes(values: list[str] | Real[np.ndarray, " K"]) -> bytes:
    """Encode the values of an output as raw bytes."""
    if not isinstance(values, list):
        return values.tobytes()
    texts = [text.encode() for text in values]
    return b"".join(struct.pack("<I", len(text)) + text for text in texts)


def response_parameters(ranking: Ranking, part: Participation | None = None) -> dict[str, str | int | float]:
    """Return the parameters of an answer: status, route and experiment, without nulls."""
    route = ranking.route
    facts = {
        "status": "degraded" if ranking.degraded else "ok",
        "stage_reached": ranking.stage_reached,
        "reason": ranking.reason,
        "strategy": route.strategy,
        "specialist": route.specialist,
        "confidence": route.confidence,
        "decided_by": route.decided_by,
        "weights": None if ranking.weights is None else json.dumps(ranking.weights),
    }
    if part is not None and part.is_visible:
        facts |= {"experiment": part.experiment, "experiment_kind": part.kind, "arm": part.arm}
    return {name: value for name, value in facts.items() if value is not None}
