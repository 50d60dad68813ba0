"""The examples for KServe have KServe's fields, and its own client ranks over both protocols as they serve."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import httpx
import kubernetes_validate
import numpy as np
import pytest
import yaml
from kubernetes_validate.utils import all_versions, major_minor

from listwright.service.settings import PREFIX, Settings
from support import kserve_client
from support.http.processes import SERVING_ONLY, Process, free_port
from support.service.bundles import make_bundle

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "kserve"
RUNTIME, SERVICES = FOLDER / "runtime.yaml", FOLDER / "inference-services.yaml"
TRITON = FOLDER.parent / "triton" / "inference-service.yaml"
PACKAGE = "kserve==0.21.0"
ROWS = [[1.0, 0.5, 3.0, 1.0], [-1.0, 2.5, 0.25, 2.0], [0.25, -1.5, 0.5, 0.0]]


def container():
    (found,) = yaml.safe_load(RUNTIME.read_text(encoding="utf-8"))["spec"]["containers"]
    return found


def settings():
    """The variables of the runtime, for an InferenceService named shop."""
    return {one["name"]: one["value"].replace("{{.Name}}", "shop") for one in container()["env"]}


def test_the_runtime_is_one_that_kubernetes_and_the_service_accept(monkeypatch):
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "shop"}, "spec": {"containers": [container()]}}
    kubernetes_validate.validate(pod, major_minor(all_versions()[-1]), strict=True)
    fields = {PREFIX + name.upper() for name in Settings.model_fields}
    assert settings().keys() <= fields
    for name, value in settings().items():
        monkeypatch.setenv(name, value)
    served = Settings()
    assert (served.model_name, served.port, served.bundle) == ("shop", 8080, Path("/mnt/models"))


def test_each_service_asks_for_what_the_runtime_has():
    runtime = yaml.safe_load(RUNTIME.read_text(encoding="utf-8"))["spec"]
    for service in yaml.safe_load_all(SERVICES.read_text(encoding="utf-8")):
        model = service["spec"]["predictor"]["model"]
        assert model["modelFormat"]["name"] == runtime["supportedModelFormats"][0]["name"]
        assert model["protocolVersion"] in runtime["protocolVersions"]
        if model["protocolVersion"] == "grpc-v2":
            assert [port["containerPort"] for port in model["ports"]] == [int(settings()["LISTWRIGHT_GRPC_PORT"])]
            assert model["readinessProbe"]["grpc"]["port"] == int(settings()["LISTWRIGHT_GRPC_PORT"])


@pytest.fixture(scope="module")
def kserve(tmp_path_factory):
    """Runs KServe's package, which pins libraries of ours to other versions, in an environment of its own."""
    uv = shutil.which("uv", path=str(Path(sys.executable).parent)) or shutil.which("uv")
    if uv is None:
        pytest.skip("uv is not installed, which makes the environment for KServe's client")
    folder = tmp_path_factory.mktemp("kserve")
    python = str(folder / "bin" / "python")
    for command in (["venv", "--python", sys.executable, str(folder)], ["pip", "install", "--python", python, PACKAGE]):
        done = subprocess.run([uv, *command], capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"{PACKAGE} cannot be installed: {done.stderr.strip().splitlines()[-1]}")

    def run(*words, sent=""):
        script = [python, "-P", kserve_client.__file__, *map(str, words)]
        done = subprocess.run(script, input=sent, capture_output=True, text=True, check=False, env={})
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.mark.nightly
def test_the_examples_have_the_fields_of_kserve(kserve, tmp_path):
    kserve("fields", RUNTIME, SERVICES, TRITON)
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(RUNTIME.read_text(encoding="utf-8").replace("autoSelect", "autoselect"), encoding="utf-8")
    with pytest.raises(AssertionError, match="no field autoselect"):
        kserve("fields", wrong)


@pytest.mark.nightly
def test_its_own_client_ranks_over_both_protocols(kserve, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", SERVING_ONLY)
    models = tmp_path / "mnt" / "models"
    shutil.copytree(make_bundle(tmp_path / "candy" / "7", cutoff=2, graph="nan", specialists=3), models)
    port = free_port()
    service = Process(bundle=models, model_name="shop", grpc_port=port).wait_until_ready()
    try:
        answer = json.loads(kserve("ask", service.url, f"127.0.0.1:{port}", "shop", sent=json.dumps(ROWS)))
        names = ["A5", "B2", None]
        features = [[*row[:3], name] for row, name in zip(ROWS, names, strict=True)]
        ids = [f"sku-{n}" for n in range(len(ROWS))]
        expected = httpx.post(f"{service.url}/rerank", json={"features": features, "ids": ids, "model": "shop"}).json()
    finally:
        service.stop()
    assert answer["ready"] == [True] * 6
    first, *others = answer["answers"].values()
    assert len(others) == 3
    for other in others:
        assert other == first
    assert first["ids"] == [result["id"] for result in expected["results"]]
    assert [int(rank) for rank in first["ranks"]] == expected["ranks"]
    scores = np.array(expected["scores"], dtype=np.float32)
    assert np.array_equal(np.array(first["scores"], dtype=np.float32), scores, equal_nan=True)
