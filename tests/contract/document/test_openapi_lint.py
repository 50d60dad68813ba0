"""The lint of ``openapi.yaml``: valid OpenAPI 3.1, and written so that a caller can work from it alone.

In Python, so that `make test` needs no second toolchain. Every rule returns its findings.
"""

import tomllib
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator

from listwright.service.paths import INFER
from listwright.service.wire.examples import INFERENCES, REQUESTS

ROOT = Path(__file__).resolve().parents[3]
PROBLEM = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
REFUSALS = {"400", "404", "409", "413", "415", "422", "503"}


@pytest.fixture(scope="module")
def document():
    return yaml.safe_load((ROOT / "openapi.yaml").read_text(encoding="utf-8"))


def operations(document):
    """``(name, operation)`` of every operation."""
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


def responses(document):
    """``(name, status, response)`` of every response."""
    for name, operation in operations(document):
        for status, response in operation["responses"].items():
            yield f"{name} {status}", status, response


def invalid(document):
    return [error.message for error in OpenAPIV31SpecValidator(document).iter_errors()]


def undescribed(document):
    wanted = ("operationId", "summary", "description", "tags")
    found = [
        f"{name} has no {key}" for name, operation in operations(document) for key in wanted if not operation.get(key)
    ]
    found += [
        f"info has no {key}" for key in ("title", "summary", "description", "version") if not document["info"].get(key)
    ]
    schemas = document["components"]["schemas"]
    return found + [f"schema {name} has no description" for name in schemas if not schemas[name].get("description")]


def ambiguous(document):
    ids = [operation.get("operationId") for _, operation in operations(document)]
    return [f"operationId {i} is used twice" for i in sorted(set(ids)) if ids.count(i) > 1]


def no_problems(document):
    """Refusals that do not promise exactly a problem body."""
    return [
        name for name, status, response in responses(document) if status >= "4" and response.get("content") != PROBLEM
    ]


def silent(document):
    """Answers that do not say what is in them; the framework's own phrase says nothing."""
    return [
        name
        for name, _, response in responses(document)
        if response.get("description", "") in ("", "Successful Response") or not response.get("content")
    ]


def wrong_examples(document):
    """Request bodies without examples, and examples that their own schema refuses; bytes cannot be written here."""
    found = []
    for name, operation in operations(document):
        for media in operation.get("requestBody", {}).get("content", {}).values():
            if media["schema"].get("format") == "binary":
                continue
            if not media.get("examples"):
                found.append(f"{name} has no example")
            validator = Draft202012Validator({**media["schema"], "components": document["components"]})
            for title, example in media.get("examples", {}).items():
                found += [f"{name} {title}: {error.message}" for error in validator.iter_errors(example["value"])]
    return found


def unused(document):
    text = yaml.safe_dump(document)
    return [name for name in document["components"]["schemas"] if f"#/components/schemas/{name}'" not in text + "'"]


RULES = (invalid, undescribed, ambiguous, no_problems, silent, wrong_examples, unused)


@pytest.mark.parametrize("rule", RULES)
def test_the_document_keeps_every_rule(document, rule):
    assert rule(document) == []


@pytest.mark.parametrize("path", ["/rerank", *INFER])
def test_rankings_document_every_refusal(document, path):
    assert set(document["paths"][path]["post"]["responses"]) >= REFUSALS


def test_examples_are_the_applications_own(document):
    """Word for word: FastAPI drops a null on the way, and with it what the example shows."""
    body = document["paths"]["/rerank"]["post"]["requestBody"]
    assert body["content"]["application/json"]["examples"] == REQUESTS
    for path in INFER:
        body = document["paths"][path]["post"]["requestBody"]
        assert body["content"]["application/json"]["examples"] == INFERENCES


def test_the_version_is_the_packages(document):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert document["info"]["version"] == project["version"]


def rerank(document):
    return document["paths"]["/rerank"]["post"]
