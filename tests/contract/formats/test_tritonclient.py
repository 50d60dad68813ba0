"""NVIDIA's own HTTP client works against the service, unchanged."""

import numpy as np
import pytest
from tritonclient.http import InferenceServerClient, InferInput, InferRequestedOutput
from tritonclient.utils import InferenceServerException

from support.http.binary_requests import IDS, MATRIX
from support.http.rerank_requests import by_name


@pytest.fixture(scope="module")
def triton(live):
    with InferenceServerClient(live.base_url.netloc.decode()) as client:
        yield client


def tensors(array=MATRIX, *, binary=True):
    features = InferInput("features", list(array.shape), "FP32" if array.dtype == np.float32 else "FP64")
    return [features.set_data_from_numpy(array, binary_data=binary)]


def ids(*, binary=True):
    found = InferInput("ids", [len(IDS)], "BYTES")
    return found.set_data_from_numpy(np.array(IDS, dtype=np.object_), binary_data=binary)


def test_health_and_metadata(triton):
    assert triton.is_server_live()
    assert triton.is_server_ready()
    assert triton.is_model_ready("shop")
    assert triton.is_model_ready("shop", "7")
    assert not triton.is_model_ready("other")
    assert not triton.is_model_ready("shop", "8")
    assert triton.get_server_metadata()["extensions"] == ["binary_tensor_data"]
    metadata = triton.get_model_metadata("shop", "7")
    assert metadata["versions"] == ["7"]
    assert metadata["inputs"] == [{"name": "features", "datatype": "FP32", "shape": [-1, 4]}]
    assert {o["name"]: o["datatype"] for o in metadata["outputs"]}["scores"] == "FP32"
    assert metadata["columns"][3] == {"name": "carrier", "kind": "categorical", "categories": ["A5", "B2", "C7"]}


@pytest.mark.parametrize("version", ["", "7"])
@pytest.mark.parametrize("array", [MATRIX, MATRIX.astype(np.float64)], ids=["FP32", "FP64"])
def test_infer(triton, live, array, version):
    expected = live.post("/rerank", json=by_name()).json()
    result = triton.infer("shop", [*tensors(array), ids()], model_version=version, request_id="req-7")
    scores = result.as_numpy("scores")
    assert scores.dtype == np.float32
    assert np.array_equal(scores, np.array(expected["scores"], dtype=np.float32), equal_nan=True)
    assert result.as_numpy("ranks").tolist() == expected["ranks"]
    assert result.as_numpy("order").tolist() == [r["index"] for r in expected["results"]]
    assert [i.decode() for i in result.as_numpy("ids")] == [r["id"] for r in expected["results"]]
    answer = result.get_response()
    assert (answer["id"], answer["model_name"], answer["model_version"]) == ("req-7", "shop", "7")
    assert answer["parameters"]["decided_by"] == "bundle"


def test_options_are_parameters(triton, live):
    options = {"strategy": "srm", "specialist": 1, "top_n": 2, "raw_scores": True, "context": {"device": "phone"}}
    expected = live.post("/rerank", json=by_name(**options)).json()
    result = triton.infer("shop", tensors(), parameters=options)
    assert np.array_equal(result.as_numpy("scores"), np.array(expected["scores"], dtype=np.float32), equal_nan=True)
    assert result.as_numpy("order").tolist() == [r["index"] for r in expected["results"]]
    assert result.get_response()["parameters"]["specialist"] == 1


def test_json_in_and_out(triton):
    complete = np.nan_to_num(MATRIX)  # this client spells NaN as no JSON does
    expected = triton.infer("shop", [*tensors(complete), ids()])
    asked = [InferRequestedOutput(name, binary_data=False) for name in ("scores", "ids", "first_stage_scores")]
    result = triton.infer("shop", [*tensors(complete, binary=False), ids(binary=False)], outputs=asked)
    for name in ("scores", "first_stage_scores"):
        assert np.array_equal(result.as_numpy(name), expected.as_numpy(name), equal_nan=True)
    assert result.as_numpy("ids").tolist() == expected.as_numpy("ids").astype(str).tolist()
    assert result.as_numpy("ranks") is None, "not asked for"


def test_outputs_as_asked_for(triton):
    asked = [InferRequestedOutput("ranks"), InferRequestedOutput("scores", binary_data=False)]
    result = triton.infer("shop", tensors(), outputs=asked)
    assert [o["name"] for o in result.get_response()["outputs"]] == ["ranks", "scores"]
    assert sorted(result.as_numpy("ranks").tolist()) == list(range(1, len(MATRIX) + 1))


@pytest.mark.parametrize(
    ("call", "status", "says"),
    [
        (lambda c: c.infer("other", tensors()), "404", "model 'other' is not served here, 'shop' is"),
        (lambda c: c.infer("shop", tensors(MATRIX[:, :3])), "409", "3 columns, the bundle was fitted on 4"),
        (lambda c: c.infer("shop", tensors(MATRIX[None])), "422", "one list a request, without a batch axis"),
        (lambda c: c.infer("shop", tensors(), parameters={"topn": 1}), "422", "$.parameters.topn"),
        (lambda c: c.infer("shop", tensors(), request_compression_algorithm="gzip"), "415", "send it as it is"),
        (lambda c: c.get_model_metadata("other"), "404", "'other' is not served here"),
    ],
)
def test_errors_reach_the_caller_in_words(triton, call, status, says):
    with pytest.raises(InferenceServerException) as raised:
        call(triton)
    assert raised.value.status() == status
    assert says in raised.value.message()


def test_many_at_once(live):
    with InferenceServerClient(live.base_url.netloc.decode(), concurrency=8) as client:
        pending = [client.async_infer("shop", tensors()) for _ in range(50)]
        found = [one.get_result().as_numpy("ranks").tolist() for one in pending]
    assert all(ranks == found[0] for ranks in found)
