"""schemathesis, stateful: what one answer says is asked of the next operation, with all checks but two, behind a key."""

import copy

import hypothesis
import pytest
import schemathesis
from hypothesis.stateful import run_state_machine_as_test
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

from listwright.ranking import bundle
from listwright.service.app import create_app
from listwright.service.paths import HEALTH, INFER
from listwright.service.settings import Settings
from support.http.openapi import CONFIG, for_this_bundle
from support.strategies import scale_examples

KEY, ADMIN_KEY = "k" * 20, "a" * 20
SPLIT_SOURCES = {"name": "$response.body#/model", "version": "$response.body#/version"}


def linked(document):
    """The document with keys required, and what leads from an answer to the next request."""
    document = for_this_bundle(copy.deepcopy(document))
    paths = document["paths"]
    for path, operations in paths.items():
        for operation in operations.values():
            if path not in HEALTH and not path.startswith("/admin/"):
                operation["security"] = [{"apiKey": []}]
    by_name = {"name": SPLIT_SOURCES["name"]}
    links = {
        "metadata": {"operationId": "model_metadata", "parameters": by_name},
        "version": {"operationId": "model_version_metadata", "parameters": SPLIT_SOURCES},
        "ready": {"operationId": "model_version_ready", "parameters": SPLIT_SOURCES},
        "infer": {"operationId": "infer_version", "parameters": SPLIT_SOURCES},
        "info": {
            "operationId": "info",
            "parameters": {"model": SPLIT_SOURCES["name"], "version": SPLIT_SOURCES["version"]},
        },
        "again": {"operationId": "rerank"},
        "reload": {"operationId": "reload"},
        "metrics": {"operationId": "metrics"},
    }
    for path, method in (("/info", "get"), ("/rerank", "post")):
        paths[path][method]["responses"]["200"]["links"] = links
    named = {"name": "$response.body#/name"}
    for path in ("/v2/models/{name}", "/v2/models/{name}/ready"):
        paths[path]["get"]["responses"]["200"]["links"] = {
            "infer": {"operationId": "infer", "parameters": named},
            "info": {"operationId": "info", "parameters": {"model": named["name"]}},
        }
    return document


def headers_for(path):
    return {"Authorization": f"Bearer {ADMIN_KEY if path.startswith('/admin/') else KEY}"}


@pytest.mark.hypothesis
@pytest.mark.nightly
def test_sequences_of_requests_keep_the_contract(bundle_folder):
    settings = Settings(bundle=bundle_folder, max_candidates=50, keys=f"tester:{KEY}", admin_key=ADMIN_KEY)
    app = create_app(settings, models=bundle.load(bundle_folder))
    app.openapi_schema = linked(app.openapi())
    statuses = set()

    class Sequence(
        schemathesis.openapi.from_asgi(
            "/openapi.json", app, headers=headers_for("/openapi.json"), config=CONFIG
        ).as_state_machine()
    ):
        def get_call_kwargs(self, case):
            return {"headers": headers_for(case.path)}

        def validate_response(self, response, case, additional_checks=(), **more):
            statuses.add((case.path, response.status_code))
            # a list that fits the document need not fit the bundle, and every call has a key, also where a case is
            # about its absence: both are for test_openapi.py and test_fitting_requests.py
            excluded = [positive_data_acceptance, negative_data_rejection]
            case.validate_response(response, additional_checks=additional_checks, excluded_checks=excluded)

    run_state_machine_as_test(
        Sequence,
        settings=hypothesis.settings(
            max_examples=scale_examples(80),
            stateful_step_count=6,
            deadline=None,
            suppress_health_check=list(hypothesis.HealthCheck),
        ),
    )
    assert ("/rerank", 200) in statuses
    assert any(path in INFER and status in (400, 422) for path, status in statuses)
    assert not [status for _, status in statuses if status >= 500]
