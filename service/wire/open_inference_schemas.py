"""The Open Inference Protocol's words (version 2, HTTP), with its binary tensor extension.

One list per request: ``features`` (L, D) and, if the caller likes, ``ids`` (L,) in; per candidate or best first, the
tensors of :data:`OUTPUTS` out. A tensor stands in the JSON object, or as raw little-endian bytes behind it.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, FailFast, Field, WithJsonSchema
from pydantic.config import JsonDict

from listwright.ranking.manifest import Manifest
from listwright.service.wire.schemas import FLOAT32, MAX_ID, Envelope, Id, Name, Number, Options, Strict

OUTPUTS = {"scores": "FP32", "ranks": "INT64", "first_stage_scores": "FP32", "order": "INT64", "ids": "BYTES"}
"""``order`` holds positions, best first, at most ``top_n`` of them; ``ids`` the ids there, if the caller sent any."""

OutputName = Literal["scores", "ranks", "first_stage_scores", "order", "ids"]

_DATA = {
    "type": ["array", "null"],
    "description": "row by row, flat or nested; numbers, null for a missing one; ids: strings",
}

# What a tensor must say, each kind in either place. The sizes are checked with the bytes and the schema at hand, so
# pydantic does not check them.
_NUMBERS: JsonDict = {"type": "array", "minItems": 1, "items": {"type": ["number", "null"], **FLOAT32}}
_ROWS: JsonDict = {"type": "array", "minItems": 1, "items": _NUMBERS}
_STRINGS: JsonDict = {
    "type": "array",
    "minItems": 1,
    "uniqueItems": True,
    "items": {"type": "string", "maxLength": MAX_ID},
}
_KINDS: dict[str, tuple[list[str], int, JsonDict]] = {
    "features": (["FP32", "FP64"], 2, {"anyOf": [_NUMBERS, _ROWS]}),
    "ids": (["BYTES"], 1, _STRINGS),
}
_IN_JSON: JsonDict = {"parameters": {"properties": {"binary_data_size": {"type": "null"}}}}
_BEHIND: JsonDict = {
    "data": {"type": "null"},
    "parameters": {
        "required": ["binary_data_size"],
        "properties": {"binary_data_size": {"type": "integer", "minimum": 1}},
    },
}


def _tensor(name: str, *, in_json: bool) -> JsonDict:
    """What a tensor of this name says if its data stand there."""
    datatypes, axes, data = _KINDS[name]
    place: JsonDict = {"data": data, **_IN_JSON} if in_json else _BEHIND
    return {
        "title": f"{name}, {'in the JSON object' if in_json else 'as bytes behind it'}",
        "required": ["data" if in_json else "parameters"],
        "properties": {
            "name": {"const": name},
            "datatype": {"enum": list(datatypes)},
            "shape": {"minItems": axes, "maxItems": axes, "items": {"minimum": 1}},
            **place,
        },
    }


_TENSORS: JsonDict = {"oneOf": [_tensor(name, in_json=in_json) for name in _KINDS for in_json in (True, False)]}
_FEATURES: JsonDict = {  # each name once: of two, the other one is ids
    "minItems": 1,
    "contains": {"required": ["name"], "properties": {"name": {"const": "features"}}},
    "maxContains": 1,
}
_ONCE: JsonDict = {"uniqueItems": True}


class TensorParameters(BaseModel):
    """Of an input."""

    model_config = ConfigDict(strict=True)

    binary_data_size: Annotated[Number | None, Field(description="bytes behind the JSON object, instead of data")] = (
        None
    )


class InputTensor(Strict):
    """``features`` or ``ids``."""

    model_config = ConfigDict(json_schema_extra=_TENSORS)

    name: Literal["features", "ids"]
    shape: Annotated[list[Number], Field(max_length=8, description="[L, D] for features, [L] for ids")]
    datatype: Annotated[str, Field(max_length=20, description="FP32 or FP64 for features, BYTES for ids")]
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

    binary_data_output: Annotated[bool, Field(description="outputs as raw bytes behind the JSON object")] = False


class InferWords(Envelope, InferParameters):
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
        Field(max_length=2, description="features, and ids if the caller likes", json_schema_extra=_FEATURES),
    ]
    outputs: Annotated[
        list[RequestedOutput] | None,
        FailFast(),
        Field(
            max_length=len(OUTPUTS),
            description="each once; default: all, ids only if they were sent",
            json_schema_extra=_ONCE,
        ),
    ] = None


class OutputTensor(BaseModel):
    """An answered tensor."""

    name: str
    datatype: str
    shape: list[int]
    data: Annotated[list[Any] | None, Field(description="in JSON; null for a candidate without a score")] = None
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


def describe(manifest: Manifest) -> ModelMetadata:
    """What the protocol's clients need to know of a bundle."""
    features = manifest.feature_schema.features
    return ModelMetadata(
        name=manifest.name,
        versions=[manifest.version],
        platform="listwright",
        inputs=[TensorInfo(name="features", datatype="FP32", shape=[-1, len(features)])],
        outputs=[TensorInfo(name=name, datatype=datatype, shape=[-1]) for name, datatype in OUTPUTS.items()],
        columns=[ColumnInfo(name=f.name, kind=f.kind, categories=list(f.categories)) for f in features],
        fingerprint=manifest.fingerprint,
    )
