"""Probabilities and weights of goals over gRPC are those of JSON."""

import json

import httpx
import numpy as np
import pytest
from tritonclient.grpc import service_pb2

from support.http.binary_requests import MATRIX
from support.http.grpc_calls import calling, raw, typed, values
from support.http.rerank_requests import matrix
from support.service.bundles import make_bundle
from support.service.threaded_service import LONG_MS, serving

GOALS = {"booked": 1.0, "margin": 0.3, "eco": 0.0}


def start(folder, **options):
    return serving(make_bundle(folder / "shop" / "7", cutoff=5, **options), grpc_port=0, timeout_ms=LONG_MS)


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    goals = {"margin": 0.3, "eco": 0.0}
    with start(tmp_path_factory.mktemp("models"), probability="relevance", goals=goals) as served:
        yield served


@pytest.fixture(scope="module")
def calls(served):
    with calling(served) as calls:
        yield calls


@pytest.fixture(scope="module")
def plain_calls(tmp_path_factory):
    with start(tmp_path_factory.mktemp("models")) as served, calling(served) as calls:
        yield calls


def request(outputs=(), *, is_raw=True, **parameters):
    message = raw(MATRIX.tobytes()) if is_raw else typed()
    for name in outputs:
        message.outputs.add(name=name)
    for name, value in parameters.items():
        kind = {bool: "bool_param", int: "int64_param", float: "double_param", str: "string_param"}[type(value)]
        setattr(message.parameters[name], kind, value)
    return message


@pytest.fixture(scope="module")
def by_json(served):
    def answer(**options):
        return httpx.post(f"{served.url}/rerank", json=matrix() | options).json()

    return answer


@pytest.mark.parametrize("is_raw", [True, False])
def test_the_output_is_there_where_it_is_named_or_asked_for(calls, by_json, is_raw):
    expected = np.array(by_json(probabilities=True)["probabilities"], dtype="<f4").tolist()
    for message in (request(["order", "probabilities"], is_raw=is_raw), request(is_raw=is_raw, probabilities=True)):
        assert values(calls.ask(message), "probabilities").tolist() == expected
    names = [output.name for output in calls.ask(request(is_raw=is_raw)).outputs]
    assert names == ["scores", "ranks", "first_stage_scores", "order"]


def test_the_cutoff(calls, by_json):
    answer = by_json(min_probability=0.5)
    order = values(calls.ask(request(min_probability=0.5)), "order").tolist()
    assert order == [result["index"] for result in answer["results"]]
    assert 0 < len(order) < len(MATRIX)


def test_weights_are_json_text(calls, by_json):
    weights = {"eco": 2, "booked": 0.5}
    answer = calls.ask(request(weights=json.dumps(weights)))
    expected = by_json(weights=weights)
    assert values(answer, "order").tolist() == [result["index"] for result in expected["results"]]
    assert json.loads(answer.parameters["weights"].string_param) == GOALS | weights == expected["meta"]["weights"]


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"weights": "{"}, "$.parameters.weights: expected a JSON object as text"),
        ({"weights": "[]"}, "$.parameters.weights: expected an object"),
        ({"weights": 1.0}, "$.parameters.weights: expected an object"),
        ({"weights": '{"eco": -1}'}, "$.parameters.weights.eco"),
        ({"weights": '{"eco": NaN}'}, "$.parameters.weights"),
        ({"weights": '{"profit": 1}'}, "$.parameters.weights: weights name 'profit'"),
        ({"weights": '{"booked": 0, "margin": 0}'}, "$.parameters.weights: the weights of all goals are 0"),
        ({"min_probability": float("nan")}, "$.parameters.min_probability"),
        ({"min_probability": 1.5}, "$.parameters.min_probability"),
        ({"min_probability": "0.5"}, "$.parameters.min_probability"),
        ({"probabilities": 1}, "$.parameters.probabilities"),
    ],
)
def test_what_is_wrong_is_refused_at_its_place(calls, parameters, words):
    code, details, _ = calls.refused(request(**parameters))
    assert code == "INVALID_ARGUMENT"
    assert details.startswith(words)


def test_what_a_bundle_has_not(plain_calls):
    for message, place in (
        (request(["probabilities"]), "probabilities"),
        (request(min_probability=0.0), "min_probability"),
        (request(weights="{}"), "weights"),
    ):
        code, details, _ = plain_calls.refused(message)
        assert (code, details.split(":")[0]) == ("INVALID_ARGUMENT", f"$.parameters.{place}")


def test_metadata(calls, plain_calls):
    def names(calls):
        asked = service_pb2.ModelMetadataRequest(name="shop")
        return [output.name for output in calls.ask(asked, "ModelMetadata").outputs]

    assert names(calls) == [*names(plain_calls), "probabilities"]
