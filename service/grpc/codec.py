"""The messages of the Open Inference Protocol over gRPC and of gRPC's health service, and the codec of ``ModelInfer``.

A request may say what one of :mod:`listwright.service.wire.open_inference` may. A tensor stands in ``contents``, by its
type, or as raw little-endian bytes in ``raw_input_contents``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from google.protobuf.message import DecodeError
from starlette.datastructures import State

from listwright.ranking.candidates import Ranking
from listwright.ranking.errors import CandidateError
from listwright.ranking.protobuf import compile_messages
from listwright.service.bundles.models import Models
from listwright.service.errors import UndecodableBodyError
from listwright.service.wire import open_inference as tensors
from listwright.service.wire.json_codec import Bounds, EncodedAnswer, RankingRequest
from listwright.service.wire.json_codec import decode as decode_json
from listwright.service.wire.schemas import MAX_FIELDS

MEDIA_TYPE = "application/grpc+proto"

# The messages of the protocol, with the fields that are read or written. Parts of which a request may repeat many are
# bytes: they are counted before they are decoded. A map is its entries, an enumeration its numbers.
MESSAGES = compile_messages(
    "inference",
    {
        "ServerLiveResponse": "1 bool live",
        "ServerReadyResponse": "1 bool ready",
        "ModelReadyRequest": "1 string name, 2 string version",
        "ModelReadyResponse": "1 bool ready",
        "ServerMetadataResponse": "1 string name, 2 string version, 3 string* extensions",
        "ModelMetadataResponse": "1 string name, 2 string* versions, 3 string platform, 4 TensorMetadata* inputs, "
        "5 TensorMetadata* outputs",
        "TensorMetadata": "1 string name, 2 string datatype, 3 int64* shape",
        "ModelInferRequest": "1 string model_name, 2 string model_version, 3 string id, 4 bytes* parameters, "
        "5 bytes* inputs, 6 bytes* outputs, 7 bytes* raw_input_contents",
        "InferRequestedOutputTensor": "1 string name, 2 bytes* parameters",
        "ModelInferResponse": "1 string model_name, 2 string model_version, 3 string id, 4 Entry* parameters, "
        "5 Tensor* outputs, 6 bytes* raw_output_contents",
        "Tensor": "1 string name, 2 string datatype, 3 int64* shape, 4 bytes* parameters, "
        "5 InferTensorContents contents",
        "InferTensorContents": "3 int64* int64_contents, 6 float* fp32_contents, 7 double* fp64_contents, "
        "8 bytes* bytes_contents",
        "Entry": "1 string key, 2 InferParameter value",
        "InferParameter": "1 bool bool_param, 2 int64 int64_param, 3 string string_param, 4 double double_param, "
        "5 uint64 uint64_param",
    },
    {"InferParameter": ("bool_param", "int64_param", "string_param", "double_param", "uint64_param")},
    syntax="proto3",
) | compile_messages(
    "grpc.health.v1",
    {
        "HealthCheckRequest": "1 string service",
        "HealthCheckResponse": "1 int32 status",
        "HealthListResponse": "1 HealthListEntry* statuses",
        "HealthListEntry": "1 string key, 2 HealthCheckResponse value",
    },
    syntax="proto3",
)

_FIELDS = {"FP32": "fp32_contents", "FP64": "fp64_contents", "INT64": "int64_contents", "BYTES": "bytes_contents"}
_MOST_AXES = 8


def decode(name: str, content: bytes) -> Any:
    """Decode a message of :data:`MESSAGES`.

    Raises:
        UndecodableBodyError: if it is damaged, or another one.
    """
    try:
        return MESSAGES[name].FromString(content)
    except DecodeError:
        raise UndecodableBodyError(f"the bytes are no message {MESSAGES[name].DESCRIPTOR.full_name}") from None


class InferCodec:
    """Codec of ``ModelInferRequest`` and ``ModelInferResponse``.

    Args:
        bounds: Bounds of requests to any served bundle.
        models: Served models.
        most: Largest number of candidates.
        outer_options: Options that were sent beside the message.
        left_ms: Milliseconds until the call's deadline, from its arrival; None where it has none.
        state: State of the request; it gets the fingerprint of the bundle that answers.
    """

    def __init__(
        self,
        bounds: Bounds,
        models: Models,
        most: int,
        outer_options: Mapping[str, Any],
        left_ms: float | None,
        state: State,
    ) -> None:
        self._bounds, self._models, self._most = bounds, models, most
        self._outer_options, self._left_ms, self._state = outer_options, left_ms, state
        self.limit = tensors.body_limit(bounds)

    def decode(self, body: bytes) -> RankingRequest:
        """Decode a message; raw features are a view of it."""
        message = decode("ModelInferRequest", body)
        raws = message.raw_input_contents
        self._is_raw = bool(raws)
        request = tensors.read_request(self._content(message), self._outer_options)
        version = request.model_version
        bundle = self._models.choose(request.model_name, version)
        self._state.fingerprint = bundle.manifest.fingerprint
        if raws and len(raws) != len(request.inputs):
            raise CandidateError(
                f"{len(raws)} of {len(request.inputs)} inputs: send all or none", ("raw_input_contents",)
            )
        for position, tensor in enumerate(() if raws else request.inputs):
            if not tensor.data and tensor.datatype in tensors.DATATYPES and 0 not in tensor.shape:
                raise CandidateError("has no values: send raw_input_contents", ("inputs", position))
        schema = bundle.reranker.schema
        self._inference = tensors.read_tensors(request, raws or [None] * len(request.inputs), schema, self._most)
        options = tensors.options_of(request)
        if self._left_ms is not None:
            sooner = min(self._left_ms, options.timeout_ms or self._left_ms)
            options = options.model_copy(update={"timeout_ms": sooner})
        return RankingRequest(
            self._inference.candidates,
            options,
            bundle,
            id=request.id,
            pinned=version is not None,
            scores_only=not tensors.has_order(request),
        )

    def _content(self, message: Any) -> dict[str, Any]:
        """Return the request as the JSON object of the protocol, without raw data."""
        parameters = _parameters(message.parameters)
        for name in ("context", "weights"):
            if isinstance(text := parameters.get(name), str):
                try:
                    parameters[name] = decode_json(text.encode(), self._bounds)
                except UndecodableBodyError as error:
                    fault = f"expected a JSON object as text: {error.message}"
                    raise CandidateError(fault, ("parameters", name)) from None
        most_inputs, most_outputs = 2, len(tensors.OUTPUTS)
        content = {
            "id": message.id or None,
            "model_name": message.model_name or None,
            "model_version": message.model_version or None,
            "parameters": parameters,
            "inputs": [self._input(place, tensor) for place, tensor in enumerate(message.inputs[: most_inputs + 1])],
        }
        if message.outputs:
            outputs = [decode("InferRequestedOutputTensor", output) for output in message.outputs[: most_outputs + 1]]
            content["outputs"] = [
                {"name": output.name, "parameters": _parameters(output.parameters)} for output in outputs
            ]
        return content

    def _input(self, position: int, content: bytes) -> dict[str, Any]:
        sent = decode("Tensor", content)
        shape, parameters = sent.shape[: _MOST_AXES + 1], _parameters(sent.parameters)
        tensor = {"name": sent.name, "datatype": sent.datatype, "shape": shape, "parameters": parameters}
        if self._is_raw:
            if sent.HasField("contents"):
                raise CandidateError("has contents beside raw_input_contents: send either", ("inputs", position))
            return tensor
        data = list(getattr(sent.contents, _FIELDS.get(sent.datatype, "bytes_contents")))
        if sent.datatype == "BYTES":
            try:
                data = [text.decode() for text in data]
            except UnicodeDecodeError:
                raise CandidateError("the BYTES are not UTF-8", ("inputs", position, "contents")) from None
        return {**tensor, "data": data}

    def encode(self, request: RankingRequest, ranking: Ranking, milliseconds: Mapping[str, float]) -> EncodedAnswer:  # noqa: ARG002
        """Encode the requested outputs: as raw bytes where the inputs were, or one is asked for so."""
        answer = MESSAGES["ModelInferResponse"](
            id=request.id or "", model_name=request.bundle.manifest.name, model_version=request.bundle.manifest.version
        )
        for key, value in tensors.response_parameters(ranking, request.part).items():
            kind = {str: "string_param", int: "int64_param", float: "double_param"}[type(value)]
            answer.parameters.add(key=key, value={kind: value})
        options = self._inference.request.parameters
        by_default = options.binary_data_output if "binary_data_output" in options.model_fields_set else self._is_raw
        raw_by_name = tensors.binary_outputs(self._inference, by_default=by_default)
        is_raw = any(raw_by_name.values())  # the protocol has all of them raw, or none
        for name in raw_by_name:
            values = tensors.output_values(name, ranking, self._inference, request.part)
            datatype = tensors.OUTPUTS[name]
            output = answer.outputs.add(name=name, datatype=datatype, shape=[len(values)])
            if is_raw:
                answer.raw_output_contents.append(tensors.raw_bytes(values))
            else:
                plain = [value.encode() for value in values] if isinstance(values, list) else values.tolist()
                getattr(output.contents, _FIELDS[datatype]).extend(plain)
        return EncodedAnswer(answer.SerializeToString(), MEDIA_TYPE, {})


def _parameters(entries: Iterable[bytes]) -> dict[str, Any]:
    """Decode the entries of a map of parameters; more than an object may have are cut off, and refused as too many."""
    parameters = {}
    for _, content in zip(range(MAX_FIELDS + 1), entries, strict=False):
        entry = decode("Entry", content)
        kind = entry.value.WhichOneof("value")
        parameters[entry.key] = None if kind is None else getattr(entry.value, kind)
    return parameters
