"""Whatever message arrives over gRPC, the answer has a code of the page, and the service answers the next one."""

import math
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tritonclient.grpc import service_pb2

from support.http.grpc_calls import calling, raw, typed
from support.service.bundles import make_bundle
from support.service.threaded_service import serving
from support.strategies import scale_examples

REFUSALS = {"INVALID_ARGUMENT", "NOT_FOUND", "FAILED_PRECONDITION"}
LIST = raw(bytes(4 * 2 * 4), shape=[2, 4])


@pytest.fixture(scope="module")
def calls(tmp_path_factory):
    folder = make_bundle(
        tmp_path_factory.mktemp("models") / "shop" / "7",
        cutoff=5,
        graph="nan",
        specialists=3,
        probability="relevance",
        goals={"margin": 0.3},
    )
    with serving(folder, grpc_port=0, max_candidates=20) as served, calling(served) as calls:
        yield calls
        calls.ask(LIST)


def check(calls, content, method="ModelInfer"):
    """The code of the answer, which is one of the page."""
    error = calls.begin(content, method).exception()
    if error is None:
        return "OK"
    assert error.code().name in REFUSALS, error
    assert error.details()
    return error.code().name


def test_each_message_cut_short(calls):
    request = typed(id="a", model_version="7")
    request.parameters["top_n"].int64_param = 1
    request.outputs.add(name="scores")
    content = request.SerializeToString(deterministic=True)
    assert check(calls, content) == "OK"
    codes = {check(calls, content[:size]) for size in range(len(content))}
    assert codes <= {"OK", *REFUSALS}
    codes = {check(calls, content[:at] + bytes([content[at] ^ 0xFF]) + content[at + 1 :]) for at in range(60)}
    assert "INVALID_ARGUMENT" in codes


@settings(max_examples=scale_examples(100))
@given(content=st.binary(max_size=80), method=st.sampled_from(["ModelInfer", "ModelReady", "ModelMetadata"]))
def test_any_bytes(calls, content, method):
    check(calls, content, method)


SIDES = st.integers(-1, 5) | st.sampled_from([21, 2**31, 2**53, 2**63 - 1, -(2**63)])
TEXT = st.text(max_size=3)
SCALARS = st.one_of(
    st.booleans().map(lambda value: ("bool_param", value)),
    st.integers(-(2**63), 2**63 - 1).map(lambda value: ("int64_param", value)),
    st.integers(0, 2**64 - 1).map(lambda value: ("uint64_param", value)),
    st.floats().map(lambda value: ("double_param", value)),
    (TEXT | st.sampled_from(["auto", "srm", '{"price": 1}', "{}", "[" * 9999, '{"margin": 2}'])).map(
        lambda v: ("string_param", v)
    ),
    st.none(),
)
NAMES = (
    st.sampled_from(
        [
            "top_n",
            "strategy",
            "specialist",
            "timeout_ms",
            "context",
            "raw_scores",
            "unit",
            "probabilities",
            "min_probability",
            "weights",
        ]
    )
    | TEXT
)
PARAMETERS = st.dictionaries(NAMES, SCALARS, max_size=3)
TENSORS = st.fixed_dictionaries(
    {
        "name": st.sampled_from(["features", "features", "ids"]) | TEXT,
        "datatype": st.sampled_from(["FP32", "FP32", "FP64", "FP16", "BF16", "BYTES", "INT64"]) | TEXT,
        "shape": st.lists(SIDES, max_size=3) | st.just([2, 4]) | st.just([2]),
        "values": st.lists(st.floats(width=32), max_size=9) | st.just([0.5] * 8),
        "texts": st.lists(st.binary(max_size=3), max_size=3) | st.just([b"a", b"b"]),
        "raw": st.binary(max_size=40) | st.just(bytes(32)) | st.just(b"\1\0\0\0a\1\0\0\0b"),
    }
)


def fill(parameters, values):
    for name, value in values.items():
        if value is None:
            parameters[name].SetInParent()
        else:
            setattr(parameters[name], *value)


@settings(max_examples=scale_examples(300))
@given(
    tensors=st.lists(TENSORS, max_size=3),
    extra=st.integers(-1, 1),
    is_raw=st.booleans(),
    parameters=PARAMETERS,
    outputs=st.lists(
        st.tuples(st.sampled_from(["scores", "ids", "order", "probabilities"]) | TEXT, PARAMETERS), max_size=3
    ),
    model=st.sampled_from(["shop", "shop", "", "other"]) | TEXT,
    version=st.sampled_from(["", "7"]) | TEXT,
    identifier=TEXT | st.just("x" * 600),
)
def test_any_message(calls, tensors, extra, is_raw, parameters, outputs, model, version, identifier):
    request = service_pb2.ModelInferRequest(model_name=model, model_version=version, id=identifier)
    for tensor in tensors:
        sent = request.inputs.add(name=tensor["name"], datatype=tensor["datatype"], shape=tensor["shape"])
        if is_raw:
            request.raw_input_contents.append(tensor["raw"])
        else:
            sent.contents.fp32_contents.extend(tensor["values"])
            sent.contents.fp64_contents.extend(tensor["values"])
            sent.contents.bytes_contents.extend(tensor["texts"])
    if is_raw and extra:
        request.raw_input_contents.extend([b""] * extra)
    fill(request.parameters, parameters)
    for name, values in outputs:
        fill(request.outputs.add(name=name).parameters, values)
    check(calls, request)


@settings(max_examples=scale_examples(100))
@given(
    datatype=st.sampled_from(["FP16", "BF16"]),
    bits=st.lists(st.integers(0, 2**16 - 1), min_size=3, max_size=24).filter(lambda values: len(values) % 3 == 0),
    code=st.integers(0, 3),
)
def test_any_half_precision_is_its_float32(calls, datatype, bits, code):
    """The halves of any pattern of bits, infinity too: the same answer to the bit, or the same refusal."""
    halves = np.full((len(bits) // 3, 4), [0x0000, 0x3C00, 0x4000, 0x4200][code], np.uint16)  # 0 to 3, in FP16
    if datatype == "BF16":
        halves[:] = [0x0000, 0x3F80, 0x4000, 0x4040][code]
    halves[:, :3] = np.reshape(bits, (-1, 3))
    parts = halves.view(np.float16).ravel().tolist() if datatype == "FP16" else None
    wide = [struct.unpack("<f", b"\0\0" + struct.pack("<H", half))[0] for half in halves.ravel().tolist()]
    expected = answered(calls, np.array(parts or wide, np.float32).tobytes(), halves.shape, "FP32")
    assert answered(calls, halves.tobytes(), halves.shape, datatype) == expected


def answered(calls, content, shape, datatype):
    """All outputs, or the code and words of a refusal."""
    call = calls.begin(raw(content, shape=shape, datatype=datatype))
    if error := call.exception():
        return error.code().name, error.details()
    return list(call.result().raw_output_contents)


@given(number=st.floats(width=32), at=st.integers(0, 7))
def test_any_value(calls, number, at):
    values = [0.0] * 8
    values[at] = number
    is_code = at % 4 == 3  # of carrier
    request = service_pb2.ModelInferRequest(model_name="shop")
    request.inputs.add(name="features", datatype="FP32", shape=[2, 4]).contents.fp32_contents.extend(values)
    valid = not math.isinf(number) and (not is_code or math.isnan(number) or number in (0, 1, 2, 3))
    assert (check(calls, request) == "OK") == valid
