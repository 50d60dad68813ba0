"""Probabilities and weights of goals in experiments whose bundles differ in what they have."""

import numpy as np
import pytest

from listwright.ranking import bundle
from listwright.ranking.candidates import CandidateList
from listwright.ranking.served_log import files
from listwright.service.bundles import folder
from support.experiments import experiment
from support.http.binary_requests import MATRIX
from support.http.rerank_requests import matrix
from support.service.bundles import make_bundle
from support.waiting import until


@pytest.fixture(scope="module")
def rivals(tmp_path_factory):
    """A control with probabilities and goals, a challenger with neither, and one with others."""
    root = tmp_path_factory.mktemp("rivals")
    make_bundle(root / "shop" / "1", seed=1, probability="relevance", goals={"margin": 0.5})
    make_bundle(root / "next" / "1", seed=2)
    make_bundle(root / "alike" / "1", seed=3, probability="choice", goals={"margin": 0.1, "eco": 0.1})
    for name in ("shop", "next", "alike"):
        folder.point(root, name, "1")
    (root / "default").mkdir()
    (root / "default" / "ALIAS").write_text("shop\n")
    return root


@pytest.fixture
def records(tmp_path):
    return lambda: {one.query_id: one for one in files.records(files.log_files(tmp_path / "log", unfinished=False))}


def ask(client, number, **options):
    answer = client.post("/rerank", json=matrix() | {"query_id": f"q{number}", **options})
    assert answer.status_code == 200, answer.text
    return answer.json()


def split(challenger):
    return experiment("split", challenger=challenger, challenger_share=0.999999)


def test_a_challenger_without_probabilities_answers_without_them(running, records):
    with running(split("next")) as client:
        answer = ask(client, 1, probabilities=True, min_probability=0.5)
    assert (answer["model"], answer["meta"]["status"]) == ("next", "ok")
    assert answer["probabilities"] == [None] * 7
    assert len(answer["results"]) == 7
    assert answer["meta"]["rules"][0]["reason"] is not None
    assert "weights" not in answer["meta"]
    assert (records()["q1"].probabilities, records()["q1"].weights) == (None, None)


@pytest.mark.parametrize(("challenger", "weights"), [("next", {"margin": 1}), ("next", {})])
def test_control_answers_where_the_challenger_does_not_know_the_weights(running, records, challenger, weights):
    with running(split(challenger)) as client:
        answer = ask(client, 1, weights=weights)
    assert (answer["model"], answer["meta"]["experiment"]["arm"]) == ("shop", "challenger")
    assert "UnknownGoalError" in answer["meta"]["experiment"]["reason"]
    assert records()["q1"].weights == {"booked": 1.0, "margin": 0.5} | weights


def test_a_challenger_has_weights_of_its_own(running, records):
    with running(split("alike")) as client:
        plain, asked = ask(client, 1, probabilities=True), ask(client, 2, weights={"margin": 2})
    assert plain["meta"]["weights"] == {"booked": 1.0, "margin": 0.1, "eco": 0.1}
    assert sum(plain["probabilities"]) == pytest.approx(1.0), "the challenger's are of choices"
    assert asked["meta"]["weights"] == {"booked": 1.0, "margin": 2.0, "eco": 0.1}
    assert (asked["model"], records()["q2"].weights) == ("alike", asked["meta"]["weights"])


def test_a_goal_of_the_challenger_alone_is_refused_as_without_the_experiment(running):
    with running(split("alike")) as client:
        answer = client.post("/rerank", json=matrix() | {"weights": {"eco": 1}})
        assert (answer.status_code, answer.json()["errors"][0]["path"]) == (422, "$.weights")


@pytest.mark.parametrize("kind", ["interleave", "explore"])
def test_probabilities_are_those_of_control(running, records, rivals, kind):
    more = {"swap_share": 1.0} if kind == "explore" else {"challenger": "alike"}
    with running(experiment(kind, **more)) as client:
        answer = ask(client, 1, probabilities=True, weights={"margin": 0.25}, min_probability=0.45)
    control = bundle.load(rivals / "shop" / "1").reranker
    expected = control.rerank(CandidateList(MATRIX), probability=True).probability
    assert answer["probabilities"] == expected.tolist()
    assert answer["meta"]["weights"] == {"booked": 1.0, "margin": 0.25}
    assert {result["index"] for result in answer["results"]} == set(np.flatnonzero(expected >= 0.45).tolist())
    if kind == "interleave":
        assert set(records()["q1"].teams) <= {"control", "challenger"}


def test_a_shadow_ranks_by_the_weights_of_the_request(running, records, rivals):
    with running(experiment("shadow", challenger="alike")) as client:
        ask(client, 1)
        until(
            lambda: client.app.service.telemetry.registry.get_sample_value(
                "listwright_experiment_requests_total", {"experiment": "first", "outcome": "shadow_ok"}
            )
        )
        ask(client, 2, weights={"margin": 50, "booked": 0})
        until(
            lambda: (
                client.app.service.telemetry.registry.get_sample_value(
                    "listwright_experiment_requests_total", {"experiment": "first", "outcome": "shadow_ok"}
                )
                == 2
            )
        )
    challenger, found = bundle.load(rivals / "alike" / "1").reranker, records()
    for name, weights in (("q1", None), ("q2", {"margin": 50, "booked": 0})):
        expected = challenger.rerank(CandidateList(MATRIX), weights=weights)
        assert list(found[name].shadow.order) == expected.order.tolist()
    assert found["q1"].shadow.order != found["q2"].shadow.order
