"""The files for Triton: their inputs and outputs are those of a file that is really exported."""

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import yaml
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from listwright.ranking import bundle
from listwright.training.export.ranker_file import write_ranker

ROOT = Path(__file__).resolve().parents[2]
FOLDER, DEMO = ROOT / "deploy" / "triton", ROOT / "models" / "demo" / "1"
TYPES = {
    "tensor(float)": "TYPE_FP32",
    "tensor(double)": "TYPE_FP64",
    "tensor(int64)": "TYPE_INT64",
    "tensor(string)": "TYPE_STRING",
}


@pytest.fixture(scope="module")
def config():
    text = (FOLDER / "config.pbtxt").read_text(encoding="utf-8")
    return text_format.Parse(text, model_config_pb2.ModelConfig())


def described(tensors):
    """Name, Triton's type and shape of tensors of ONNX Runtime; -1 for the list."""
    return [
        (tensor.name, TYPES[tensor.type], [size if isinstance(size, int) else -1 for size in tensor.shape])
        for tensor in tensors
    ]


def configured(tensors):
    return [(one.name, model_config_pb2.DataType.Name(one.data_type), list(one.dims)) for one in tensors]


@pytest.mark.nightly
def test_its_inputs_and_outputs_are_those_of_the_exported_demo(config, tmp_path):
    write_ranker(bundle.load(DEMO), tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    assert configured(config.input) == described(session.get_inputs())
    assert configured(config.output) == described(session.get_outputs())
    inputs = {"numbers": np.zeros((7, 10), np.float32), "categories": np.full((7, 2), "v1", object)}
    for tensor, value in zip(config.output, session.run(None, inputs), strict=True):
        assert list(value.shape) == [7] * len(tensor.dims)


def test_a_request_is_one_list(config):
    assert config.max_batch_size == 0
    assert config.WhichOneof("scheduling_choice") is None
    assert config.input  # without them Triton completes the file, and merges requests
    assert config.output
    assert config.parameters["intra_op_thread_count"].string_value == "1"
    assert config.backend == "onnxruntime"
    assert config.instance_group[0].kind == config.instance_group[0].KIND_CPU


def test_kserve_serves_it_by_triton():
    service = yaml.safe_load((FOLDER / "inference-service.yaml").read_text(encoding="utf-8"))
    model = service["spec"]["predictor"]["model"]
    assert (model["modelFormat"]["name"], model["runtime"]) == ("triton", "kserve-tritonserver")
    year, month = map(int, model["runtimeVersion"].removesuffix("-py3").split("."))
    assert (year, month) >= (26, 2)  # the first image with ONNX Runtime 1.24
