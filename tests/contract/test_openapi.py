"""``openapi.yaml`` is the application, and the application is ``openapi.yaml``."""

import importlib.util
from pathlib import Path

import hypothesis
import pytest
import schemathesis
import yaml

ROOT = Path(__file__).resolve().parents[2]


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


OPERATIONS = [("POST", "/rerank"), ("GET", "/livez"), ("GET", "/readyz"), ("GET", "/info"), ("GET", "/metrics")]


@pytest.fixture(scope="module")
def schema(app):
    return schemathesis.openapi.from_asgi("/openapi.json", app)


def test_every_operation_is_tried(schema):
    assert {(o.ok().method.upper(), o.ok().path) for o in schema.get_all_operations()} == set(OPERATIONS)


VALID, INVALID = schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE


# a GET without parameters cannot be asked wrongly
@pytest.mark.parametrize(("method", "path", "mode"), [*((*o, VALID) for o in OPERATIONS), ("POST", "/rerank", INVALID)])
def test_service_keeps_its_contract(schema, method, path, mode):
    """schemathesis over ASGI, all checks: valid and invalid requests alike get documented answers, never a 500."""
    operation = schema[path][method]

    @hypothesis.settings(max_examples=60, suppress_health_check=list(hypothesis.HealthCheck))
    @hypothesis.given(case=operation.as_strategy(generation_mode=mode))
    def check(case):
        case.call_and_validate()

    check()
