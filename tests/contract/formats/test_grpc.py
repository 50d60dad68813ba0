"""Open Inference over gRPC says what Open Inference over HTTP says, to the bit."""

import json

import httpx
import numpy as np
import pytest
import tritonclient.grpc as by_grpc
import tritonclient.http as by_http
from tritonclient.grpc import service_pb2
from tritonclient.utils import InferenceServerException

from listwright.service.grpc.codec import MESSAGES
from listwright.service.wire.open_inference import OUTPUTS
from support.http.binary_requests import IDS, MATRIX
from support.http.grpc_calls import calling, ids, raw, tensor, typed, values
from support.http.rerank_requests import by_name
from support.service.threaded_service import LONG_MS, serving

DEFAULT_OUTPUTS = {name: datatype for name, datatype in OUTPUTS.items() if name != "probabilities"}


@pytest.fixture(scope="module")
def served(bundle_folder):
    with serving(bundle_folder, grpc_port=0, max_candidates=50, model_name="an-isvc", timeout_ms=LONG_MS) as served:
        yield served


@pytest.fixture(scope="module")
def calls(served):
    with calling(served) as calls:
        yield calls


@pytest.fixture(scope="module")
def clients(served):
    """NVIDIA's two clients, each with its kinds of inputs and outputs."""
    with (
        by_grpc.InferenceServerClient(f"localhost:{served._server.grpc.port}") as over_grpc,
        by_http.InferenceServerClient(served.url.removeprefix("http://")) as over_http,
    ):
        yield (over_grpc, by_grpc), (over_http, by_http)


def both(clients, array=MATRIX, outputs=(), name="shop", with_ids=True, datatype=None, **options):
    """Each output's bytes, by either way."""
    answers = []
    for client, kinds in clients:
        inputs = [tensor(kinds.InferInput, array, datatype)] + ([ids(kinds.InferInput)] if with_ids else [])
        asked = [kinds.InferRequestedOutput(output) for output in outputs] or None
        answer = client.infer(name, inputs, outputs=asked, **options)
        answers.append({output: answer.as_numpy(output) for output in outputs or DEFAULT_OUTPUTS})
    return answers


def same(one, other):
    assert one.keys() == other.keys()
    for name, array in one.items():
        assert array.dtype == other[name].dtype
        if array.dtype == np.object_:
            assert array.tolist() == other[name].tolist()
        else:
            assert array.tobytes() == other[name].tobytes(), name


@pytest.mark.parametrize("array", [MATRIX, MATRIX.astype(np.float64)], ids=["FP32", "FP64"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"model_version": "7"},
        {"name": "an-isvc"},
        {"outputs": ("ranks", "ids")},
        {"parameters": {"strategy": "srm", "specialist": 1, "top_n": 2, "raw_scores": True}},
        {"parameters": {"strategy": "first_stage"}},
    ],
    ids=str,
)
def test_equal_to_http_to_the_bit(clients, array, options):
    same(*both(clients, array, **options))


@pytest.mark.parametrize("datatype", ["FP16", "BF16"])
def test_half_precision_is_the_same_matrix_in_float32(clients, datatype):
    """The values of either type: NVIDIA's client cuts float32 down to BF16."""
    matrix = MATRIX * np.array([1 / 3, 1 / 3, 1 / 3, 1], np.float32)
    halves = matrix.astype(np.float16) if datatype == "FP16" else matrix
    exact = halves.astype(np.float32) if datatype == "FP16" else cut(matrix)
    assert not np.array_equal(exact, matrix, equal_nan=True)
    expected, _ = both(clients, exact)
    for found in both(clients, halves, datatype=datatype):
        same(found, expected)


def cut(array):
    """The array in BF16, as float32: the higher halves of its values."""
    return (array.view(np.uint32) & 0xFFFF0000).view(np.float32)


def in_shared_memory(kinds, name):
    tensor = kinds.InferInput(name, [len(MATRIX)] if name == "ids" else MATRIX.shape, "FP32")
    tensor.set_shared_memory("region", MATRIX.nbytes, offset=8)
    return tensor


@pytest.mark.parametrize("name", ["features", "ids"])
def test_shared_memory_is_named_in_its_refusal(clients, name):
    for client, kinds in clients:
        inputs = [in_shared_memory(kinds, name)] + ([] if name == "features" else [tensor(kinds.InferInput)])
        asked = kinds.InferRequestedOutput("scores")
        asked.set_shared_memory("region", 64)
        for inputs_, outputs, says in (
            (inputs, None, r"inputs\[0\].parameters: .*shared memory"),
            ([tensor(kinds.InferInput)], [asked], r"outputs\[0\].parameters.shared_memory_"),
        ):
            with pytest.raises(InferenceServerException, match=says) as raised:
                client.infer("shop", inputs_, outputs=outputs)
            assert raised.value.status() in ("422", "StatusCode.INVALID_ARGUMENT")


@pytest.mark.parametrize("name", ["classification", "sequence_id", "priority", "timeout"])
def test_what_would_change_the_answer_elsewhere_is_refused(clients, name):
    for client, kinds in clients:
        options = {} if name == "classification" else {name: 5}
        outputs = [kinds.InferRequestedOutput("scores", class_count=2)] if name == "classification" else None
        with pytest.raises(InferenceServerException, match=r"parameters\." + name.split("_")[0]):
            client.infer("shop", [tensor(kinds.InferInput)], outputs=outputs, **options)


def test_a_list_of_another_length_than_was_sent_is_refused(clients, calls):
    length = len(MATRIX)
    same(*both(clients, parameters={"expect_candidates": length}))
    same(both(clients)[0], both(clients, parameters={"expect_candidates": length})[0])
    assert calls.ask(typed(), metadata=[("listwright-expect-candidates", str(length))]) == calls.ask(typed())
    for sent in (1, length - 1, length + 1):
        for client, kinds in clients:
            with pytest.raises(InferenceServerException, match=f"{sent}, and {length} arrived") as raised:
                client.infer("shop", [tensor(kinds.InferInput)], parameters={"expect_candidates": sent})
            assert raised.value.status() in ("422", "StatusCode.INVALID_ARGUMENT")
        code, details, _ = calls.refused(typed(), metadata=[("listwright-expect-candidates", str(sent))])
        assert (code, f"is {sent}," in details) == ("INVALID_ARGUMENT", True)


def test_the_whole_answer(clients, served):
    client, kinds = clients[0]
    answer = client.infer("shop", [tensor(kinds.InferInput), ids(kinds.InferInput)], request_id="req-7").get_response()
    assert (answer.id, answer.model_name, answer.model_version) == ("req-7", "shop", "7")
    assert [(one.name, one.datatype) for one in answer.outputs] == list(DEFAULT_OUTPUTS.items())
    assert len(answer.raw_output_contents) == len(DEFAULT_OUTPUTS)
    expected = httpx.post(f"{served.url}/rerank", json=by_name()).json()
    assert answer.parameters["decided_by"].string_param == "bundle"
    assert answer.parameters["stage_reached"].string_param == expected["meta"]["stage_reached"]
    assert values(answer, "ranks").tolist() == expected["ranks"]


def test_typed_contents_in_and_out(calls):
    request = typed(id="a")
    request.inputs.add(name="ids", datatype="BYTES", shape=[len(IDS)]).contents.bytes_contents.extend(
        i.encode() for i in IDS
    )
    answer = calls.ask(request)
    assert not answer.raw_output_contents
    expected = calls.ask(raw(MATRIX.tobytes()))
    for name in ("scores", "ranks", "order", "first_stage_scores"):
        assert np.array_equal(values(answer, name), values(expected, name), equal_nan=True)
    assert sorted(values(answer, "ids").tolist()) == [i.encode() for i in IDS]
    double = service_pb2.ModelInferRequest(model_name="shop")
    features = double.inputs.add(name="features", datatype="FP64", shape=MATRIX.shape)
    features.contents.fp64_contents.extend(MATRIX.ravel().tolist())
    assert np.array_equal(values(calls.ask(double), "scores"), values(expected, "scores"), equal_nan=True)


@pytest.mark.parametrize("wants_raw", [True, False])
def test_the_caller_says_how_it_wants_its_outputs(calls, wants_raw):
    request = typed() if wants_raw else raw(MATRIX.tobytes())
    request.parameters["binary_data_output"].bool_param = wants_raw
    assert bool(calls.ask(request).raw_output_contents) == wants_raw
    del request.parameters["binary_data_output"]
    request.outputs.add(name="scores").parameters["binary_data"].bool_param = wants_raw
    assert bool(calls.ask(request).raw_output_contents) == wants_raw


def test_context_is_an_object_as_text(calls, served):
    request = typed()
    context = {"device": "phone", "price": 0.5}
    request.parameters["context"].string_param = json.dumps(context)
    answer = calls.ask(request)
    expected = httpx.post(f"{served.url}/rerank", json=by_name(context=context)).json()
    assert values(answer, "ranks").tolist() == expected["ranks"]
    request.parameters["context"].string_param = "{"
    assert calls.refused(request)[0] == "INVALID_ARGUMENT"


def test_health_and_metadata(clients):
    (client, _), (over_http, _) = clients
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("shop")
    assert client.is_model_ready("an-isvc", "7")
    assert client.get_server_metadata().name == over_http.get_server_metadata()["name"]
    assert client.get_server_metadata().version == over_http.get_server_metadata()["version"]
    described, expected = client.get_model_metadata("an-isvc"), over_http.get_model_metadata("an-isvc")
    assert (described.name, list(described.versions), described.platform) == ("shop", ["7"], "listwright")
    for ours, theirs in ((described.inputs, expected["inputs"]), (described.outputs, expected["outputs"])):
        assert [{"name": t.name, "datatype": t.datatype, "shape": list(t.shape)} for t in ours] == theirs


def with_parameter(name, **value):
    request = typed()
    for kind, one in value.items():
        setattr(request.parameters[name], kind, one)
    return request


def with_ids(*names):
    request = typed(np.zeros((len(names), 4), np.float32))
    request.inputs.add(name="ids", datatype="BYTES", shape=[len(names)]).contents.bytes_contents.extend(names)
    return request


def half_in_contents(datatype):
    """Values where the protocol has no place for those of the type."""
    request = typed()
    request.inputs[0].datatype = datatype
    return request


def without_values():
    request = typed()
    request.inputs[0].ClearField("contents")
    return request


def without_features():
    return service_pb2.ModelInferRequest(model_name="shop")


@pytest.mark.parametrize(
    ("request_", "code", "says"),
    [
        (raw(MATRIX.tobytes(), model="other"), "NOT_FOUND", "'other' is not served here"),
        (typed(model_version="8"), "NOT_FOUND", "version '8'"),
        (typed(MATRIX[:, :3]), "FAILED_PRECONDITION", "3 columns, the bundle was fitted on 4"),
        (typed(np.zeros((51, 4), np.float32)), "INVALID_ARGUMENT", "LISTWRIGHT_MAX_CANDIDATES"),
        (typed(np.zeros((0, 4), np.float32)), "INVALID_ARGUMENT", "no candidates"),
        (typed(np.full((2, 4), np.inf, np.float32)), "INVALID_ARGUMENT", "features"),
        (raw(MATRIX.tobytes()[:-1]), "INVALID_ARGUMENT", "111 bytes, FP32 of shape [7, 4] takes 112"),
        (raw(b"", shape=[-1, 4]), "INVALID_ARGUMENT", "$.inputs[0].shape[0]"),
        (raw(b"", shape=[2**62, 2**62]), "INVALID_ARGUMENT", "$.inputs[0].shape[0]"),
        (raw(MATRIX.tobytes(), shape=[28]), "INVALID_ARGUMENT", "without a batch axis"),
        (raw(MATRIX.tobytes(), shape=[1] * 100), "INVALID_ARGUMENT", "$.inputs[0].shape"),
        (raw(MATRIX.tobytes(), datatype="INT32"), "INVALID_ARGUMENT", "FP32, FP64, FP16 or BF16, found 'INT32'"),
        (raw(MATRIX.tobytes(), datatype="FP16"), "INVALID_ARGUMENT", "112 bytes, FP16 of shape [7, 4] takes 56"),
        (raw(MATRIX.tobytes(), datatype="BF16"), "INVALID_ARGUMENT", "112 bytes, BF16 of shape [7, 4] takes 56"),
        (raw(b"\x80\x7f" * 28, datatype="BF16"), "INVALID_ARGUMENT", "features"),  # infinity
        (raw(b"\0\x7c" * 28, datatype="FP16"), "INVALID_ARGUMENT", "features"),
        (half_in_contents("FP16"), "INVALID_ARGUMENT", "$.inputs[0]: has no values: send raw_input_contents"),
        (half_in_contents("BF16"), "INVALID_ARGUMENT", "$.inputs[0]: has no values: send raw_input_contents"),
        (without_values(), "INVALID_ARGUMENT", "has no values: send raw_input_contents"),
        (raw(MATRIX.tobytes(), name="X"), "INVALID_ARGUMENT", "$.inputs[0].name"),
        (with_ids(b"a", b"\xff"), "INVALID_ARGUMENT", "UTF-8"),
        (with_ids(b"a", b"a"), "INVALID_ARGUMENT", "'a'"),
        (b"\x0a\x01\xff", "INVALID_ARGUMENT", "inference.ModelInferRequest"),
        (without_features(), "INVALID_ARGUMENT", "no input named 'features'"),
        (with_parameter("topn", int64_param=1), "INVALID_ARGUMENT", "$.parameters.topn"),
        (with_parameter("top_n", string_param="1"), "INVALID_ARGUMENT", "$.parameters.top_n"),
        (with_parameter("top_n", uint64_param=2**64 - 1), "INVALID_ARGUMENT", "$.parameters.top_n"),
        (b"\xff", "INVALID_ARGUMENT", "inference.ModelInferRequest"),
        (typed().SerializeToString()[:-3], "INVALID_ARGUMENT", "inference."),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_errors(calls, request_, code, says):
    found, words, metadata = calls.refused(request_)
    assert found == code
    assert says in words
    assert metadata["x-request-id"]


def test_one_kind_of_contents_for_all_inputs(calls):
    request = raw(MATRIX.tobytes())
    request.inputs.add(name="ids", datatype="BYTES", shape=[len(IDS)])
    assert "1 of 2 inputs" in calls.refused(request)[1]
    request = raw(MATRIX.tobytes())
    request.inputs[0].contents.fp32_contents.append(1.0)
    assert "send either" in calls.refused(request)[1]


def test_parts_that_are_repeated_without_end_are_refused(calls):
    many = service_pb2.ModelInferRequest(model_name="shop", raw_input_contents=[b""] * 10_000)
    for _ in range(10_000):
        many.inputs.add(name="features")
        many.outputs.add(name="scores")
        many.parameters[str(len(many.parameters))].bool_param = True
    assert calls.refused(many)[0] == "INVALID_ARGUMENT"
    del many.inputs[:]
    assert calls.refused(many)[0] == "INVALID_ARGUMENT"
    many.parameters.clear()
    assert calls.refused(many)[0] == "INVALID_ARGUMENT"


def test_other_methods_and_messages(calls, served):
    assert calls.refused(b"", "RepositoryIndex")[0] == "UNIMPLEMENTED"
    assert calls.refused(b"\xff", "ModelReady")[0] == "INVALID_ARGUMENT"
    for name in ("other", "\U0001f600" * 8000):
        assert calls.refused(service_pb2.ModelMetadataRequest(name=name), "ModelMetadata")[0] == "NOT_FOUND"
    assert httpx.post(f"{served.url}/inference.GRPCInferenceService/ModelInfer").status_code == 404, "HTTP has no calls"


def test_a_long_error_of_many_bytes_arrives(calls):
    code, words, _ = calls.refused(with_ids(*["\U0001f600".encode() * 512] * 2))
    assert code == "INVALID_ARGUMENT"
    assert "\U0001f600" in words


@pytest.mark.parametrize("name", ["ModelInferRequest", "ModelInferResponse", "ModelMetadataResponse", "InferParameter"])
def test_the_messages_are_those_of_the_protocol(name):
    """Numbers and types; parts that are counted first are bytes here, which look the same on the wire."""
    theirs = {field.number: field for field in getattr(service_pb2, name).DESCRIPTOR.fields}
    ours = MESSAGES[name].DESCRIPTOR.fields
    assert {field.number: field.name for field in ours} == {number: field.name for number, field in theirs.items()}
    for field in ours:
        alike = theirs[field.number]
        assert field.is_repeated == alike.is_repeated
        assert field.type == alike.type or (field.type, alike.type) == (field.TYPE_BYTES, field.TYPE_MESSAGE)
