"""Probabilities, their cutoff and weights of goals, in each form of a request and its answer."""

import io
import json

import numpy as np
import pytest
from jsonschema import Draft202012Validator

from listwright.ranking import bundle
from listwright.ranking.candidates import CandidateList
from listwright.service import watched_file
from listwright.service.wire.json_codec import nullable
from support.http import binary_requests
from support.http.binary_requests import INFER, MATRIX, NPY, saved
from support.http.problem_bodies import check
from support.http.rerank_requests import by_column, by_name, by_position, matrix
from support.service.asgi import serving
from support.service.bundles import make_bundle

GOALS = {"booked": 1.0, "margin": 0.3, "eco": 0.0}


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """Relevance, and goals of which one counts by default."""
    out = tmp_path_factory.mktemp("models") / "shop" / "7"
    return make_bundle(out, cutoff=5, graph="nan", probability="relevance", goals={"margin": 0.3, "eco": 0.0})


@pytest.fixture(scope="module")
def choosing(tmp_path_factory):
    """Choices, and one goal alone."""
    return make_bundle(tmp_path_factory.mktemp("models") / "shop" / "7", cutoff=5, probability="choice")


@pytest.fixture(scope="module")
def client(shop):
    with serving(shop, max_candidates=10_000, timeout_ms=600_000) as client:
        yield client


@pytest.fixture(scope="module")
def plain_client(tmp_path_factory):
    with serving(make_bundle(tmp_path_factory.mktemp("models") / "shop" / "7", cutoff=5)) as client:
        yield client


@pytest.fixture(scope="module")
def expected(shop):
    """The library's ranking of the list that all requests here hold."""
    return bundle.load(shop).reranker.rerank(CandidateList(MATRIX), probability=True)


def ask(client, body=None, query="", **options):
    answer = client.post(f"/rerank{query}", json=(body or by_name()) | options)
    assert answer.status_code == 200, answer.text
    return answer.json()


def order(answer):
    return [result["index"] for result in answer["results"]]


@pytest.mark.parametrize("body", [by_name(), by_position(), matrix(), by_column()])
def test_each_form_of_json_has_the_probabilities_of_the_library(client, expected, body):
    answer = ask(client, body, probabilities=True)
    assert answer["probabilities"] == expected.probability.tolist()
    assert [result["probability"] for result in answer["results"]] == expected.probability[expected.order].tolist()
    assert answer["meta"]["weights"] == GOALS
    assert {"probability", "goals"} <= answer["meta"]["timings_ms"].keys()
    assert ask(client, body, "?probabilities=true") | {"meta": 0} == answer | {"meta": 0}


def test_what_is_not_asked_for_is_left_out(client):
    answer = ask(client)
    assert "probabilities" not in answer
    assert not any("probability" in result for result in answer["results"])
    assert "probability" not in answer["meta"]["timings_ms"]
    cut = ask(client, min_probability=0.5)
    assert "probabilities" not in cut, "the rule alone asks for no probability in the answer"
    assert cut["meta"]["timings_ms"]["probability"] >= 0.0


def test_answers_fit_the_document(client):
    document = client.app.openapi()
    schema = {"$ref": "#/components/schemas/RerankResponse", "components": document["components"]}
    described = document["components"]["schemas"]
    for options in ({}, {"probabilities": True}, {"min_probability": 0.5, "weights": {"eco": 1}}):
        answer = ask(client, **options)
        Draft202012Validator(schema).validate(answer)
        meta = answer["meta"]
        for part, name in (
            (answer, "RerankResponse"),
            (answer["results"][0], "Result"),
            (meta, "Meta"),
            (meta["timings_ms"], "Timings"),
        ):
            assert part.keys() <= described[name]["properties"].keys()


def test_choices_add_up_to_one(choosing):
    with serving(choosing) as client:
        answer = ask(client, probabilities=True)
        info = client.get("/info").json()
    assert sum(answer["probabilities"]) == pytest.approx(1.0)
    assert "weights" not in answer["meta"]
    assert info["probability"] == {"of": "choice", "lists": None, "mean": None}
    assert info["goals"] is None


def test_info_says_what_there_is(client, plain_client):
    info = client.get("/info").json()
    assert info["probability"] == {"of": "relevance", "lists": 30, "mean": 0.4}
    assert list(info["goals"].items()) == list(GOALS.items())
    info = plain_client.get("/info").json()
    assert (info["probability"], info["goals"]) == (None, None)


def test_the_cutoff_is_a_rule_of_the_request(client, expected):
    lowest = float(np.sort(expected.probability)[3])
    for body, query in ((by_name(min_probability=lowest), ""), (by_name(), f"?min_probability={lowest!r}")):
        answer = ask(client, body, query)
        kept = [index for index in expected.order.tolist() if expected.probability[index] >= lowest]
        assert order(answer) == kept
        assert [index for index, rank in enumerate(answer["ranks"]) if rank is None] == sorted({*range(7)} - {*kept})
        assert answer["meta"]["rules"] == [
            {"name": "min_probability", "action": "cutoff", "candidates": 7 - len(kept), "reason": None}
        ]


def test_every_candidate_may_be_below_it_and_none(client):
    whole = ask(client)
    assert ask(client, min_probability=1)["results"] == []
    for lowest in (0, 0.0, 1e-300):
        assert ask(client, min_probability=lowest) | {"meta": 0} == whole | {"meta": 0}
    assert "rules" not in ask(client, min_probability=0)["meta"]


def test_pins_stay_and_the_best_of_the_rest_are_cut_to_top_n(client, expected):
    last = int(np.argmin(expected.probability))
    rules = [
        {"action": "pin", "id": f"sku-{last}", "place": 1},
        {"action": "exclude", "ids": [f"sku-{expected.order[0]}"]},
    ]
    lowest = float(np.median(expected.probability))
    answer = ask(client, rules=rules, min_probability=lowest, top_n=2, probabilities=True)
    kept = [i for i in expected.order[1:].tolist() if expected.probability[i] >= lowest and i != last]
    assert order(answer) == [last, kept[0]]
    assert answer["results"][0]["probability"] == min(answer["probabilities"]) < lowest
    assert [result["id"] for result in answer["results"]] == [f"sku-{i}" for i in (last, kept[0])]
    assert {rule["action"] for rule in answer["meta"]["rules"]} == {"pin", "exclude", "cutoff"}


def test_a_rule_of_the_request_cuts_as_the_option_does(client):
    by_rule = ask(client, rules=[{"action": "cutoff", "min_probability": 0.5, "name": "min_probability"}])
    by_option = ask(client, min_probability=0.5)
    for answer in (by_rule, by_option):
        del answer["meta"]["timings_ms"]
    assert by_rule == by_option


def test_a_rule_of_the_file_cuts_where_the_request_asks_for_nothing(shop, tmp_path, monkeypatch):
    monkeypatch.setattr(watched_file, "LOOK_S", 0.01)
    file = tmp_path / "rules.toml"
    file.write_text('[[shop]]\nname = "relevant"\naction = "cutoff"\nmin_probability = 0.5\n')
    with serving(shop, rules=file) as client:
        answer = ask(client)
        both = ask(client, min_probability=1.0)
    assert [rule["name"] for rule in answer["meta"]["rules"]] == ["relevant"]
    assert 0 < len(answer["results"]) < 7
    assert [rule["name"] for rule in both["meta"]["rules"]] == ["relevant", "min_probability"]
    assert both["results"] == []


def test_a_rule_of_the_file_says_so_where_the_bundle_has_no_probabilities(tmp_path):
    file = tmp_path / "rules.toml"
    file.write_text('[[shop]]\naction = "cutoff"\nmin_probability = 0.5\n')
    with serving(make_bundle(tmp_path / "shop" / "7", cutoff=5), rules=file) as client:
        answer = ask(client)
    assert len(answer["results"]) == 7
    (rule,) = answer["meta"]["rules"]
    assert (rule["candidates"], rule["reason"] is None) == (0, False)


def test_weights_order_by_the_goals(client, shop):
    reranker = bundle.load(shop).reranker
    for weights in ({"eco": 1}, {"margin": 0}, {"booked": 0, "eco": 0.5}, {"margin": 1e6, "booked": 1e-300}, {}):
        ranking = reranker.rerank(CandidateList(MATRIX), weights=weights)
        effective = GOALS | weights
        for body, query in ((by_name(weights=weights), ""), (matrix(), f"?weights={json.dumps(weights)}")):
            answer = ask(client, body, query, finite_scores=False)
            assert order(answer) == ranking.order.tolist()
            assert answer["scores"] == nullable(ranking.relevance)
            assert answer["meta"]["weights"] == effective
    assert order(ask(client, weights={"margin": 0})) != order(ask(client, weights={"margin": 10}))


def test_the_second_stage_has_scored_the_same_candidates_whatever_the_weights(client):
    alone, several = (
        {one["index"]: one["stage"] for one in ask(client, weights={"margin": weight})["results"]}
        for weight in (0.0, 10.0)
    )
    assert several == alone
    assert sorted(several.values()).count("second") == 5 < len(several)


def test_probabilities_are_of_the_first_goal_whatever_the_weights(client, expected):
    answer = ask(client, probabilities=True, weights={"margin": 100})
    assert answer["probabilities"] == expected.probability.tolist()
    assert order(answer) != expected.order.tolist()


@pytest.mark.parametrize(
    ("options", "path"),
    [
        ({"weights": {"profit": 1}}, "$.weights"),
        ({"weights": {"booked": 0, "margin": 0}}, "$.weights"),
        ({"weights": {"eco": -1e-9}}, "$.weights.eco"),
        ({"weights": {"eco": 1e308}}, "$.weights.eco"),
        ({"weights": {"eco": True}}, "$.weights.eco"),
        ({"weights": {"eco": "1"}}, "$.weights.eco"),
        ({"weights": {"eco": None}}, "$.weights.eco"),
        ({"weights": dict.fromkeys("abcdef", 1)}, "$.weights"),
        ({"weights": dict.fromkeys(map(str, range(5000)), 1)}, "$.weights"),
        ({"weights": '{"eco": 1}'}, "$.weights"),
        ({"weights": [1]}, "$.weights"),
        ({"weights": {"": 1}}, "$.weights['']['[key]']"),
        ({"min_probability": -0.1}, "$.min_probability"),
        ({"min_probability": 1.1}, "$.min_probability"),
        ({"min_probability": "0.5"}, "$.min_probability"),
        ({"min_probability": True}, "$.min_probability"),
        ({"probabilities": 1}, "$.probabilities"),
        ({"probabilities": "true"}, "$.probabilities"),
    ],
)
def test_what_is_wrong_in_a_body_is_refused_at_its_place(client, options, path):
    answer = client.post("/rerank", json=by_name(**options))
    assert answer.status_code == 422, answer.text
    assert [fault["path"] for fault in answer.json()["errors"]] == [path]
    assert "\n" not in answer.json()["detail"]


@pytest.mark.parametrize(
    "query",
    [
        "weights=",
        "weights=1",
        "weights={",
        'weights={"eco":NaN}',
        'weights={"eco":-1}',
        'weights={"eco":1e999}',
        'weights=[["eco",1]]',
        "weights=eco",
        "weights=" + "[" * 5000,
        'weights={"eco":1}&weights={"eco":1}',
        'weights={"eco":1,"eco":1}',
        "min_probability=nan",
        "min_probability=inf",
        "min_probability=2",
        "min_probability=",
        "probabilities=maybe",
    ],
)
def test_what_is_wrong_in_a_query_is_refused_at_its_place(client, query):
    for sent in ({"json": by_name()}, {"content": saved(MATRIX), "headers": NPY}):
        problem = check(client.post(f"/rerank?{query}", **sent), 422, "invalid-request")
        assert problem["errors"][0]["path"].startswith("?" + query.split("=", maxsplit=1)[0])


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e400"])
def test_no_number_of_json_is_no_weight(client, number):
    body = json.dumps(by_name())[:-1] + f', "weights": {{"eco": {number}}}}}'
    answer = client.post("/rerank", content=body, headers={"content-type": "application/json"})
    assert answer.status_code in (400, 422)
    assert [fault["path"] for fault in answer.json()["errors"]] == ["$.weights.eco"]


def test_a_goal_twice_is_refused(client):
    body = json.dumps(by_name())[:-1] + ', "weights": {"eco": 1, "eco": 2}}'
    problem = check(
        client.post("/rerank", content=body, headers={"content-type": "application/json"}), 422, "repeated-name"
    )
    assert problem["errors"][0]["path"] == "$.weights.eco"


def test_options_of_body_and_query_agree(client):
    agreed = {"weights": {"eco": 0.5}, "min_probability": 0.5, "probabilities": True}
    for name, value in agreed.items():
        text = json.dumps(value)
        assert client.post(f"/rerank?{name}={text}", json=by_name(**{name: value})).status_code == 200
    for name, other in {"weights": '{"eco":1}', "min_probability": "0.6", "probabilities": "false"}.items():
        problem = check(
            client.post(f"/rerank?{name}={other}", json=by_name(**{name: agreed[name]})), 422, "invalid-request"
        )
        assert problem["errors"][0]["path"] == f"?{name}"


@pytest.mark.parametrize(
    ("options", "path"),
    [
        ({"probabilities": True}, "$.probabilities"),
        ({"min_probability": 0}, "$.min_probability"),
        ({"min_probability": 0.5}, "$.min_probability"),
        ({"rules": [{"action": "exclude", "ids": ["x"]}, {"action": "cutoff", "min_probability": 0.5}]}, "$.rules[1]"),
        ({"weights": {}}, "$.weights"),
        ({"weights": {"booked": 1}}, "$.weights"),
    ],
)
def test_a_bundle_refuses_what_it_has_not_in_one_line(plain_client, options, path):
    for _ in range(2):  # rules of a recent request are prepared
        problem = check(plain_client.post("/rerank", json=by_name(**options)), 422, "candidate")
        assert [fault["path"] for fault in problem["errors"]] == [path]
        assert "\n" not in problem["detail"]
    assert ask(plain_client, probabilities=False, min_probability=None, weights=None)["results"]


def test_npy_has_a_second_column(client, expected):
    def read(query, accept="application/x-npy"):
        answer = client.post(f"/rerank{query}", content=saved(MATRIX), headers={**NPY, "accept": accept})
        assert answer.status_code == 200, answer.text
        return answer

    scores = np.load(io.BytesIO(read("").content))
    both = read("?probabilities=true")
    found = np.load(io.BytesIO(both.content))
    assert (found.shape, found.dtype) == ((7, 2), np.dtype("<f4"))
    assert found[:, 0].tolist() == scores.tolist()
    assert found[:, 1].tolist() == expected.probability.astype("<f4").tolist()
    assert json.loads(both.headers["listwright-weights"]) == GOALS
    cut = np.load(io.BytesIO(read("?min_probability=0.5&finite_scores=false").content))
    assert np.isnan(cut).tolist() == (expected.probability < 0.5).tolist()
    answer = read("?probabilities=true&min_probability=0.5", "application/json").json()
    assert answer["probabilities"] == expected.probability.tolist()
    assert len(answer["results"]) == (expected.probability >= 0.5).sum()


@pytest.mark.parametrize("binary", [False, True])
def test_tensors(client, expected, binary):
    def found(**more):
        parameters = {"binary_data_output": binary, **more.pop("parameters", {})}
        request = binary_requests.body([binary_requests.features()], MATRIX.tobytes(), parameters=parameters, **more)
        return binary_requests.ask(client, request)

    probability = expected.probability.astype("<f4").tolist()
    plain, head = found()
    assert "probabilities" not in plain
    assert json.loads(head["parameters"]["weights"]) == GOALS
    named, _ = found(outputs=[{"name": "probabilities"}, {"name": "scores"}])
    assert list(named) == ["probabilities", "scores"]
    assert named["probabilities"].tolist() == probability
    by_parameter, _ = found(parameters={"probabilities": True})
    assert by_parameter.keys() - plain.keys() == {"probabilities"}
    assert by_parameter["probabilities"].tolist() == probability
    cut, _ = found(parameters={"min_probability": 0.5})
    assert len(cut["order"]) == (expected.probability >= 0.5).sum()
    assert (cut["ranks"] == 0).tolist() == (expected.probability < 0.5).tolist()
    weighted, head = found(parameters={"weights": {"eco": 2}})
    assert json.loads(head["parameters"]["weights"]) == GOALS | {"eco": 2.0}
    assert weighted["order"].tolist() == order(ask(client, weights={"eco": 2}))


@pytest.mark.parametrize(
    ("more", "path"),
    [
        ({"parameters": {"probabilities": True}}, "$.parameters.probabilities"),
        ({"parameters": {"min_probability": 0.5}}, "$.parameters.min_probability"),
        ({"parameters": {"weights": {"booked": 1}}}, "$.parameters.weights"),
        ({"outputs": [{"name": "probabilities"}]}, "$.parameters.probabilities"),
    ],
)
def test_tensors_that_a_bundle_has_not(plain_client, more, path):
    request = binary_requests.body([binary_requests.features()], MATRIX.tobytes(), **more)
    problem = check(plain_client.post(INFER, **request), 422, "candidate")
    assert [fault["path"] for fault in problem["errors"]] == [path]


def test_metadata_name_the_output_where_there_is_one(client, plain_client):
    def names(client):
        return [output["name"] for output in client.get("/v2/models/shop").json()["outputs"]]

    assert names(client) == [*names(plain_client), "probabilities"]


def test_one_candidate_and_ten_thousand(client):
    one = ask(client, {"features": [[1.0, 2.0, None, "A5"]]}, probabilities=True, weights={"eco": 1e6})
    assert 0.0 < one["probabilities"][0] < 1.0
    rows = np.random.default_rng(0).normal(size=(10_000, 4)).astype(np.float32)
    rows[:, 3] = 1
    answer = client.post(
        "/rerank?probabilities=true", content=saved(rows), headers=NPY | {"accept": "application/x-npy"}
    )
    found = np.load(io.BytesIO(answer.content))
    assert found.shape == (10_000, 2)
    assert ((found[:, 1] >= 0) & (found[:, 1] <= 1)).all()


def test_a_degraded_answer(client):
    """The second stage fails: the first stage is calibrated, too."""
    rows = [[5000.0, 2.0, 3.0, "A5"], [2.0, 1.0, 0.0, "B2"]]
    answer = ask(client, {"features": rows}, probabilities=True)
    assert (answer["meta"]["status"], answer["meta"]["stage_reached"]) == ("degraded", "first_stage")
    assert all(0 < value < 1 for value in answer["probabilities"])


def test_where_nothing_ranked_probabilities_are_null(client, monkeypatch):
    from listwright.ranking.deadline import LatencyEstimator

    monkeypatch.setattr(LatencyEstimator, "fits", lambda *_: False)
    answer = ask(client, probabilities=True, min_probability=0.5)
    assert answer["meta"]["stage_reached"] == "input_order"
    assert answer["probabilities"] == [None] * 7
    assert [result["probability"] for result in answer["results"]] == [None] * 7
    assert answer["meta"]["rules"][0]["reason"] is not None
    assert "weights" not in answer["meta"]
    content = client.post(
        "/rerank?probabilities=true", content=saved(MATRIX), headers=NPY | {"accept": "application/x-npy"}
    ).content
    assert np.isnan(np.load(io.BytesIO(content))[:, 1]).all()


def test_weights_are_logged_where_they_are_not_the_default(client, caplog):
    caplog.set_level("INFO", "listwright.requests")
    ask(client)
    ask(client, weights={"margin": 0.3})
    ask(client, weights={"margin": 0.5})
    logged = [r.facts.get("weights") for r in caplog.records if getattr(r, "facts", {}).get("path") == "/rerank"]
    assert logged == [None, None, GOALS | {"margin": 0.5}]
