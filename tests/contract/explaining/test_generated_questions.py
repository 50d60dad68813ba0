"""Questions made from the document: each gets an answer of the document, and those that fit the list are explained."""

import hypothesis
import pytest
import schemathesis

from support.http.openapi import CONFIG, INVALID, VALID, for_this_bundle, with_arrays
from support.strategies import scale_examples


@pytest.fixture
def operation(client, mode):
    """Valid for the served bundle, or not valid for any: a bundle may take what its own part of the document leaves out,
    such as true for a category.
    """
    document = with_arrays(client.app.openapi())
    if mode == VALID:
        document = for_this_bundle(document)
    else:
        found = document["paths"]["/explain"]["post"]
        found["parameters"] = []
        found["requestBody"]["content"] = {"application/json": found["requestBody"]["content"]["application/json"]}
    return schemathesis.openapi.from_dict(document, config=CONFIG)["/explain"]["POST"]


@pytest.mark.nightly
@pytest.mark.hypothesis
@pytest.mark.parametrize("mode", [VALID, INVALID])
def test_generated_questions_get_documented_answers(client, operation, mode):
    documented = client.app.openapi()["paths"]["/explain"]["post"]["responses"]
    seen = set()

    @hypothesis.settings(
        max_examples=scale_examples(60), deadline=None, suppress_health_check=list(hypothesis.HealthCheck)
    )
    @hypothesis.given(case=operation.as_strategy(generation_mode=mode))
    def check(case):
        sent = {"content": case.body} if isinstance(case.body, bytes) else {"json": case.body}
        answer = client.post("/explain", headers={"Content-Type": "application/json"}, **sent)
        if answer.status_code == 504 and isinstance(case.body, dict) and case.body.get("timeout_ms") is not None:
            return  # the caller gave it no time
        seen.add(answer.status_code)
        assert str(answer.status_code) in documented, answer.text
        if answer.status_code == 200:
            operation.validate_response(answer)
        else:
            assert answer.headers["content-type"] == "application/problem+json"
            assert answer.status_code < 500, answer.text

    check()
    assert seen <= ({200, 422} if mode == VALID else set(range(200, 500))), "a candidate may not be in the list"
    assert (200 in seen) == (mode == VALID)
