"""``POST /explain``: what is said is the ranking's own, in the words of the document, and not there unless it is wanted."""

import numpy as np
import pytest
from jsonschema import Draft202012Validator

from listwright.ranking.candidates import CandidateList
from listwright.service.wire.examples import EXPLANATIONS
from support.http.problem_bodies import check
from support.http.rerank_requests import (
    BROKEN,
    CODES,
    NAMES,
    ROWS,
    by_column,
    by_name,
    by_position,
    matrix,
    without_timings,
)
from support.service.asgi import serving
from support.service.bundles import make_bundle

PATH = "/explain"


def explained(client, body, status=200):
    answer = client.post(PATH, json=body)
    assert answer.status_code == status, answer.text
    return answer.json()


def test_without_the_setting_there_is_nothing(explained_folder):
    with serving(explained_folder) as client:
        check(client.post(PATH, json=matrix() | {"candidate": 0}), 404, "not-found")
        assert client.get("/info").json()["explain"] is False
        assert "listwright_explanations" not in client.get("/metrics").text


@pytest.mark.parametrize("form", [by_name, by_position, matrix, by_column])
def test_the_ranking_is_that_of_rerank(client, form):
    for more in ({}, {"top_n": 3, "raw_scores": True, "id": "q-1"}, {"strategy": "srm", "specialist": 1}):
        found = explained(client, form() | more | {"candidate": 1})
        ranked = client.post("/rerank", json=form() | more).json()
        assert without_timings(found["ranking"]) == without_timings(ranked)
        assert {name: found[name] for name in ("id", "model", "version")} == {
            "id": more.get("id"),
            "model": "shop",
            "version": "7",
        }


def test_the_answer_is_in_the_words_of_the_document(client):
    document = client.app.openapi()
    words = {"$ref": "#/components/schemas/ExplainResponse", "components": document["components"]}
    for body in (matrix() | {"candidate": 1, "against": "sku-3"}, by_position() | {"explain_top_n": 5}):
        Draft202012Validator(words).validate(explained(client, body))


def test_contributions_sum_to_the_difference_of_the_scores(client, explained_reranker):
    coded = [[row[name] for name in NAMES[:3]] + [CODES.get(row["carrier"], 0)] for row in ROWS]
    ranking = explained_reranker.rerank(CandidateList(np.array(coded, dtype=np.float32)), strategy="qilcm")
    for index in range(len(ROWS)):
        (found,) = explained(client, matrix() | {"candidate": index, "strategy": "qilcm"})["explanations"]
        assert found["candidate"] == {"index": index, "id": f"sku-{index}", "rank": int(ranking.ranks[index])}
        first, second = found["first_stage"], found["second_stage"]
        assert first["exact"]
        assert first["score"] == pytest.approx(ranking.first_stage_scores[index])
        assert (second is None) == bool(np.isnan(ranking.scores[index])), "below the cutoff nothing scored it"
        for stage in filter(None, (first, second)):
            total = sum(one["contribution"] for one in stage["contributions"])
            assert total == pytest.approx(stage["score"] - stage["reference_score"], abs=1e-5)
            sizes = [abs(one["contribution"]) for one in stage["contributions"]]
            assert sizes == sorted(sizes, reverse=True)
        if second is not None:
            assert second["score"] == pytest.approx(ranking.scores[index])


def test_values_have_the_digits_that_were_sent(client):
    row = {"price": 3.1, "stars": -0.7, "bm25": None, "carrier": "B2"}
    body = by_name([row, *ROWS]) | {"candidate": 0, "strategy": "srm"}
    (found,) = explained(client, body)["explanations"]
    assert {one["feature"]: one["value"] for one in found["second_stage"]["contributions"]} == row


def test_a_change_that_is_named_passes(client):
    """Sent as it is told, it lets the candidate pass."""
    passed = 0
    for index in range(len(ROWS)):
        (found,) = explained(client, by_name() | {"candidate": index})["explanations"]
        if found["passing"] is None:
            assert found["candidate"]["rank"] == 1
            continue
        above = found["passing"]["above"]
        assert above["rank"] == found["candidate"]["rank"] - 1
        for changes in filter(None, (found["passing"]["one"], found["passing"]["two"])):
            rows = [dict(row) for row in ROWS]
            rows[index] |= {change["feature"]: change["to"] for change in changes}
            ranks = client.post("/rerank", json=by_name(rows)).json()["ranks"]
            assert ranks[index] < ranks[above["index"]]
            passed += 1
    assert passed > 0


def test_a_candidate_is_named_by_index_or_id(client):
    by_index = explained(client, matrix() | {"candidate": 2, "against": 5})
    by_id = explained(client, matrix() | {"candidate": "sku-2", "against": "sku-5"})
    as_json_has_it = explained(client, matrix() | {"candidate": 2.0, "against": 5.0})
    assert by_index["explanations"] == by_id["explanations"] == as_json_has_it["explanations"], (
        "the same seed each time"
    )
    against = by_index["explanations"][0]["against"]
    assert (against["index"], against["id"]) == (5, "sku-5")
    (other,) = explained(client, matrix() | {"candidate": 5})["explanations"]
    (one,) = by_index["explanations"]
    mine, others = ({c["feature"]: c["contribution"] for c in e["first_stage"]["contributions"]} for e in (one, other))
    assert {c["feature"]: c["contribution"] for c in against["first_stage"]} == pytest.approx(
        {name: mine[name] - others[name] for name in mine}
    )


def test_the_first_places(client):
    found = explained(client, matrix() | {"explain_top_n": 3})
    places = [one["candidate"] for one in found["explanations"]]
    assert [place["rank"] for place in places] == [1, 2, 3]
    assert [place["index"] for place in places] == [one["index"] for one in found["ranking"]["results"][:3]]
    (second,) = explained(client, matrix() | {"candidate": places[1]["index"]})["explanations"]
    assert found["explanations"][1] == second
    one = by_name(ROWS[:1])
    assert len(explained(client, one | {"explain_top_n": 5})["explanations"]) == 1, "there are no more"


def test_a_list_without_ids_has_none(client):
    (found,) = explained(client, {"features": [[1.0, 2.0, 3.0, "A5"], [2.0, 1.0, 0.0, "B2"]], "candidate": 1})[
        "explanations"
    ]
    assert found["candidate"]["id"] is None


def test_a_degraded_list_is_explained_as_it_was_ranked(client):
    """The second stage fails on it: the first stage gave the order, and there is no second one to explain."""
    found = explained(client, BROKEN | {"candidate": 0, "strategy": "qilcm"})
    assert found["ranking"]["meta"]["status"] == "degraded"
    assert found["explanations"][0]["second_stage"] is None
    assert found["explanations"][0]["first_stage"]["contributions"]


def test_what_the_router_made_of_the_list_is_told_here_and_not_in_the_ranking(client, explained_reranker):
    features = np.array([[row[name] for name in NAMES[:3]] + [CODES.get(row["carrier"], 0)] for row in ROWS])
    route = explained_reranker.rerank(CandidateList(features.astype(np.float32))).route
    found = explained(client, matrix() | {"candidate": 1})
    (one,) = found["explanations"]
    assert one["router"]["probabilities"] == pytest.approx(route.probabilities.tolist(), abs=1e-6)
    assert one["router"]["gains"] == pytest.approx(route.gains.tolist(), abs=1e-6)
    assert one["router"]["margin"] == 0.0
    assert found["ranking"]["route"].keys() == {"strategy", "specialist", "confidence", "decided_by"}
    (unasked,) = explained(client, matrix() | {"candidate": 1, "strategy": "qilcm"})["explanations"]
    assert unasked["router"] is None


@pytest.mark.parametrize("name", EXPLANATIONS)
def test_documented_examples_are_answered(client, name):
    found = explained(client, EXPLANATIONS[name]["value"])
    assert len(found["explanations"]) == EXPLANATIONS[name]["value"].get("explain_top_n", 1)


def test_it_is_counted_timed_and_logged(client):
    counted = client.app.service.telemetry.registry.get_sample_value
    before = counted("listwright_explanations_total", {"outcome": "ok"}) or 0.0
    answer = client.post(PATH, json=matrix() | {"candidate": 0})
    assert counted("listwright_explanations_total", {"outcome": "ok"}) == before + 1
    assert counted("listwright_explanation_seconds_count") >= before + 1
    assert counted("listwright_requests_total", {"path": PATH, "status": "200"}) >= 1
    assert counted("listwright_candidates_count") == len(sent_to_rerank(client)), "it is no traffic"
    assert "total;dur=" in answer.headers["server-timing"]
    assert answer.json()["meta"]["timings_ms"].keys() > {"total"}


def sent_to_rerank(client):
    count = client.app.service.telemetry.registry.get_sample_value(
        "listwright_requests_total", {"path": "/rerank", "status": "200"}
    )
    return range(int(count or 0))


@pytest.fixture(scope="module")
def several(tmp_path_factory):
    """A service whose bundle ranks by several goals, with probabilities."""
    folder = make_bundle(
        tmp_path_factory.mktemp("goals") / "shop" / "7", kind=None, goals={"margin": 0.5}, probability="relevance"
    )
    with serving(folder, explain=True, timeout_ms=600_000, explain_timeout_ms=600_000) as client:
        yield client


@pytest.mark.parametrize(
    "more", [{}, {"weights": {"margin": 3.0}}, {"weights": {"booked": 0.0}, "probabilities": True}]
)
def test_goals_are_explained_by_the_weights_of_the_request(several, more):
    ranked = several.post("/rerank", json=matrix() | more).json()
    found = explained(several, matrix() | more | {"candidate": 2, "against": 0})
    assert without_timings(found["ranking"]) == without_timings(ranked)
    goals = found["explanations"][0]["goals"]
    assert {one["goal"]: one["weight"] for one in goals["goals"]} == ranked["meta"]["weights"]
    for parts in (goals["goals"], goals["contributions"]):
        total = sum(one["contribution"] for one in parts)
        assert total == pytest.approx(goals["score"] - goals["reference_score"], abs=1e-6)
    document = several.app.openapi()
    words = {"$ref": "#/components/schemas/ExplainResponse", "components": document["components"]}
    Draft202012Validator(words).validate(found)


def test_a_cutoff_is_told_as_a_rule(several):
    found = explained(several, matrix() | {"candidate": 2, "min_probability": 0.999})
    assert found["explanations"][0]["rules"] == {"rank": None, "names": ["min_probability"]}


def test_goals_are_not_told_of_without_any(client):
    (found,) = explained(client, matrix() | {"candidate": 1, "against": 0})["explanations"]
    assert "goals" not in found
    assert "goals" not in found["against"]


def test_weights_and_probabilities_are_those_of_rerank(tmp_path):
    folder = make_bundle(tmp_path / "shop" / "7", cutoff=5, probability="relevance", goals={"margin": 0.3})
    with serving(folder, explain=True, timeout_ms=600_000, explain_timeout_ms=600_000) as client:
        for more in ({}, {"weights": {"margin": 3}, "probabilities": True, "min_probability": 0.4}):
            found = explained(client, matrix() | more | {"candidate": 1})
            ranked = client.post("/rerank", json=matrix() | more).json()
            assert without_timings(found["ranking"]) == without_timings(ranked)
        problem = check(client.post(PATH, json=matrix() | {"candidate": 1, "weights": {"x": 1}}), 422, "candidate")
        assert problem["errors"][0]["path"] == "$.weights"
