"""Calls of the Open Inference Protocol over gRPC, by NVIDIA's client and its messages."""

from contextlib import contextmanager

import grpc
import numpy as np
import tritonclient.grpc as triton
from tritonclient.grpc import service_pb2

from support.http.binary_requests import IDS, MATRIX
from support.waiting import PATIENCE_S

SERVICE = "/inference.GRPCInferenceService/"
HEALTH = "/grpc.health.v1.Health/"
SERVING, NOT_SERVING, SERVICE_UNKNOWN = (bytes((8, state)) for state in (1, 2, 3))
"""Messages of the health service, as its protocol has them: field 1, a number."""


def tensor(kind, array=MATRIX, datatype=None):
    """Features, by either client of NVIDIA's: ``kind`` is its InferInput."""
    datatype = datatype or {"float16": "FP16", "float32": "FP32", "float64": "FP64"}[array.dtype.name]
    features = kind("features", list(array.shape), datatype)
    features.set_data_from_numpy(array)
    return features


def ids(kind, names=IDS):
    tensor = kind("ids", [len(names)], "BYTES")
    tensor.set_data_from_numpy(np.array(names, dtype=np.object_))
    return tensor


def typed(array=MATRIX, **more):
    """A request whose values stand in ``contents``."""
    request = service_pb2.ModelInferRequest(model_name="shop", **more)
    features = request.inputs.add(name="features", datatype="FP32", shape=array.shape)
    features.contents.fp32_contents.extend(array.ravel().tolist())
    return request


def raw(content, shape=MATRIX.shape, datatype="FP32", name="features", model="shop"):
    """A request whose values stand in ``raw_input_contents``."""
    request = service_pb2.ModelInferRequest(model_name=model, raw_input_contents=[content])
    request.inputs.add(name=name, datatype=datatype, shape=shape)
    return request


def values(response, name):
    """An output of a message, wherever it stands; NVIDIA's client reads no numbers in ``contents``."""
    if response.raw_output_contents:
        return triton.InferResult(response).as_numpy(name)
    (output,) = [output for output in response.outputs if output.name == name]
    field, kind = {
        "FP32": ("fp32_contents", np.float32),
        "INT64": ("int64_contents", np.int64),
        "BYTES": ("bytes_contents", np.object_),
    }[output.datatype]
    return np.array(getattr(output.contents, field), dtype=kind)


def health_request(name):
    return bytes((10, len(name))) + name.encode() if name else b""


class Calls:
    """A channel to a server, and calls of it by bytes or messages."""

    def __init__(self, port, credentials=None):
        address, options = f"localhost:{port}", [("grpc.use_local_subchannel_pool", 1)]  # a connection of its own
        self.channel = (
            grpc.secure_channel(address, credentials, options)
            if credentials
            else grpc.insecure_channel(address, options)
        )

    def begin(self, request, method="ModelInfer", metadata=(), timeout=PATIENCE_S, **options):
        call = self.channel.unary_unary(
            SERVICE + method,
            lambda message: message if isinstance(message, bytes) else message.SerializeToString(),
            getattr(service_pb2, f"{method}Response", service_pb2.ModelInferResponse).FromString,
        )
        return call.future(request, metadata=metadata, timeout=timeout, **options)

    def ask(self, request=None, method="ModelInfer", **options):
        request = getattr(service_pb2, f"{method}Request")() if request is None else request
        return self.begin(request, method, **options).result()

    def check(self, name="", **options):
        """What the health service says of a name."""
        return self.channel.unary_unary(HEALTH + "Check")(health_request(name), timeout=PATIENCE_S, **options)

    def watch(self, name=""):
        """What it says at once, and at each change."""
        return self.channel.unary_stream(HEALTH + "Watch")(health_request(name), timeout=PATIENCE_S)

    def refused(self, request=None, method="ModelInfer", **options):
        """Code, words and trailing metadata of an error."""
        try:
            answered = self.ask(request, method, **options)
        except grpc.RpcError as error:
            return error.code().name, error.details(), dict(error.trailing_metadata())
        raise AssertionError(answered)


@contextmanager
def calling(served, credentials=None):
    """Calls of a service in this process, or of a port."""
    port = served if isinstance(served, int) else served._server.grpc.port
    calls = Calls(port, credentials)
    with calls.channel:
        yield calls
