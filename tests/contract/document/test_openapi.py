"""``openapi.yaml`` is the application, and the application is ``openapi.yaml``."""

import importlib.util
from pathlib import Path

import hypothesis
import pytest
import schemathesis
import yaml
from schemathesis.specs.openapi.checks import positive_data_acceptance

from listwright.service.wire.examples import INFERENCES, REQUESTS
from support.http.openapi import CONFIG, INVALID, OPERATIONS, RANKINGS, VALID, with_arrays
from support.strategies import scale_examples

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def committed():
    return yaml.safe_load((ROOT / "openapi.yaml").read_text(encoding="utf-8"))


def test_committed_document_is_the_applications(app, committed):
    """Components included; `make openapi` writes it."""
    assert committed == app.openapi()


def test_the_tool_writes_the_committed_document():
    spec = importlib.util.spec_from_file_location("openapi_tool", ROOT / "tools" / "openapi.py")
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    assert tool.text() == (ROOT / "openapi.yaml").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def schema(app):
    loaded = schemathesis.openapi.from_dict(with_arrays(app.openapi()), config=CONFIG)
    loaded.app = app
    return loaded


def test_a_wrong_body_may_be_too_large_first(schema):
    body = {"candidates": [{"features": {"price": [[[]] * 800]}}]}
    case = schema["/rerank"]["POST"].Case(body=body, media_type="application/json")
    assert case.call_and_validate().status_code == 413


def test_every_operation_is_tried(schema):
    assert {(o.ok().method.upper(), o.ok().path) for o in schema.get_all_operations()} == set(OPERATIONS)


@pytest.mark.parametrize("name", REQUESTS)
def test_documented_examples_are_answered(live, name):
    response = live.post("/rerank", json=REQUESTS[name]["value"])
    assert response.status_code == 200, response.text
    assert [result["id"] for result in sorted(response.json()["results"], key=lambda r: r["index"])] == [
        "sku-1",
        "sku-2",
    ]


@pytest.mark.parametrize("name", INFERENCES)
def test_documented_inferences_are_answered(live, name):
    response = live.post("/v2/models/shop/infer", json=INFERENCES[name]["value"])
    assert response.status_code == 200, response.text
    by_rows = live.post("/rerank", json=REQUESTS["rows_by_name"]["value"] | {"strategy": "qilcm"}).json()
    outputs = {output["name"]: output["data"] for output in response.json()["outputs"]}
    assert outputs["ids"] == [result["id"] for result in by_rows["results"]]


@pytest.mark.hypothesis
# a GET without parameters cannot be asked wrongly
@pytest.mark.parametrize(
    ("method", "path", "mode"), [*((*o, VALID) for o in OPERATIONS), *(("POST", path, INVALID) for path in RANKINGS)]
)
def test_service_keeps_its_contract(schema, method, path, mode):
    """schemathesis over ASGI: valid and invalid requests alike get documented answers, never a 500.

    Which names and kinds of features a bundle takes no general document can say: a list that fits the document and not
    the bundle is rightly refused. That what fits is answered, ``test_fitting_requests.py`` holds.
    """
    operation = schema[path][method]
    left_out = [positive_data_acceptance] if path in RANKINGS and mode == VALID else []

    @hypothesis.settings(max_examples=scale_examples(60), suppress_health_check=list(hypothesis.HealthCheck))
    @hypothesis.given(case=operation.as_strategy(generation_mode=mode))
    def check(case):
        case.call_and_validate(excluded_checks=left_out)

    check()
