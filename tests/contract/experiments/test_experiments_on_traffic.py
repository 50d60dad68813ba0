"""Split, interleave and explore on a real service: what is answered, and what is logged."""

from collections import Counter

import numpy as np
import pytest

from listwright.ranking import bundle
from listwright.ranking.candidates import CandidateList
from listwright.ranking.experiments import adjacent_swap, arm_of, team_draft
from listwright.ranking.order import rank_by_score
from listwright.ranking.served_log import files
from support.experiments import experiment
from support.http import binary_requests
from support.http.rerank_requests import by_name, matrix, without_timings
from support.service.asgi import serving

NPY = {"content-type": "application/x-npy", "accept": "application/x-npy"}


def asked(client, number, **more):
    answer = client.post("/rerank", json=matrix() | {"query_id": f"query-{number}", **more})
    assert answer.status_code == 200
    return answer.json()


def shown(answer):
    return [result["index"] for result in answer["results"]]


@pytest.fixture
def records(tmp_path):
    return lambda: {one.query_id: one for one in files.records(files.log_files(tmp_path / "log", unfinished=False))}


def order_by(rivals, name):
    reranker = bundle.load(rivals / name / "1").reranker
    return lambda features: reranker.rerank(CandidateList(features)).order.tolist()


def test_a_unit_is_in_one_arm_and_its_ranker_answers(running, records, rivals):
    with running(experiment("split", challenger_share=0.4, salt="s")) as client:
        answers = {number: asked(client, number, unit=f"unit-{number % 20}") for number in range(40)}
    assert len({answer["model"] for answer in answers.values()}) == 2
    logged = records()
    for number, answer in answers.items():
        arm = arm_of(f"unit-{number % 20}", "s", 0.4)
        assert answer["model"] == {"control": "shop", "challenger": "next"}[arm]
        assert answer["meta"]["experiment"] == {"name": "first", "kind": "split", "arm": arm, "reason": None}
        record = logged[f"query-{number}"]
        assert (record.experiment, record.arm, record.bundle) == ("first", arm, f"{answer['model']}/1")
        assert record.order.tolist() == shown(answer) == order_by(rivals, answer["model"])(record.features)
        assert (record.teams, record.intervention, record.shadow) == (None, None, None)


def test_arms_are_the_same_after_a_restart_and_without_a_unit_the_query_is_one(running):
    arms = []
    for _ in range(2):
        with running(experiment("split")) as client:
            arms.append([asked(client, number)["meta"]["experiment"]["arm"] for number in range(20)])
    assert arms[0] == arms[1] == [arm_of(f"query-{number}", "first", 0.5) for number in range(20)]


@pytest.mark.parametrize("top_n", [None, 3])
def test_an_interleaved_list_is_the_draft_of_both_orders(running, records, rivals, top_n):
    more = {} if top_n is None else {"top_n": top_n}
    with running(experiment("interleave", salt="s")) as client:
        answers = {number: asked(client, number, **more) for number in range(10)}
        again = {number: asked(client, number, **more) for number in range(10)}
    logged = records()
    for number, answer in answers.items():
        record = logged[f"query-{number}"]
        both = [order_by(rivals, name)(record.features) for name in ("shop", "next")]
        draft = team_draft(*both, query_id=f"query-{number}", salt="s", length=top_n)
        assert tuple(shown(answer)) == draft.order
        assert (record.teams, tuple(record.order)) == (draft.teams, draft.order)
        assert (record.experiment, record.arm, record.bundle) == ("first", None, "shop/1")
        assert answer["scores"] == [-rank for rank in answer["ranks"]], "no single ranker scored this list"
        assert [result["relevance_score"] for result in answer["results"]] == [
            -1 - n for n in range(len(shown(answer)))
        ]
        assert sorted(answer["ranks"]) == list(range(1, 8))
        assert [answer["ranks"][index] for index in draft.order] == list(range(1, len(draft.order) + 1))
        assert answer["meta"]["experiment"]["reason"]
        assert {result["stage"] for result in answer["results"]} == {"second"}
        assert shown(again[number]) == shown(answer)
    assert len({tuple(shown(answer)) for answer in answers.values()}) > 1


def test_an_interleaved_list_has_no_scores_of_either_kind(running):
    with running(experiment("interleave")) as client:
        raw = asked(client, 0, raw_scores=True)
        assert raw["scores"] == [-rank for rank in raw["ranks"]]
        for more in ({}, {"raw_scores": True}):
            assert set(asked(client, 0, finite_scores=False, **more)["scores"]) == {None}


def test_explored_lists_are_swapped_as_drawn_and_swap_the_scores_too(running, records, rivals):
    with running(experiment("explore", swap_share=0.5, k=4)) as client:
        answers = {number: asked(client, number, top_n=5) for number in range(40)}
        plain = asked(client, 1000, version="1", model="shop")
    logged, seen = records(), Counter()
    for number, answer in answers.items():
        record = logged[f"query-{number}"]
        order = order_by(rivals, "shop")(record.features)
        swap = adjacent_swap(order[:5], k=4, share=0.5, query_id=f"query-{number}", salt="first")
        assert shown(answer) == list(order[:5] if swap is None else swap.order) == record.order.tolist()
        assert (record.experiment, record.arm, record.teams) == ("first", None, None)
        if swap is not None:
            found = record.intervention
            assert (found.kind, found.places, found.propensity) == ("swap", swap.places, 0.5 / 3)
        assert (record.intervention is None) == (swap is None)
        assert sorted(answer["scores"]) == sorted(plain["scores"])
        assert rank_by_score(np.array(answer["scores"])).tolist() == np.argsort(answer["ranks"]).tolist()
        assert (answer["scores"] == plain["scores"]) == (swap is None)
        seen[swap is None] += 1
    assert min(seen[True], seen[False]) > 5


def test_who_names_what_is_to_answer_gets_that(running, records):
    with running(experiment("interleave")) as client:
        answers = [
            asked(client, 0, model="shop", version="1"),
            asked(client, 1, model="next"),
            asked(client, 2, strategy="first_stage"),
        ]
        in_it = asked(client, 3, model="default")
    assert ["experiment" in answer["meta"] for answer in answers] == [False] * 3
    assert "experiment" in in_it["meta"]
    assert [record.experiment for _, record in sorted(records().items())] == [None, None, None, "first"]


def test_answers_of_scores_alone_are_in_no_experiment_that_changes_orders(running, records):
    content = binary_requests.saved(binary_requests.MATRIX)
    for kind in ("interleave", "explore", "split"):
        with running(experiment(kind)) as client:
            answer = client.post(f"/rerank?query_id={kind}", content=content, headers=NPY)
            json = client.post(
                f"/rerank?query_id={kind}-json", content=content, headers={**NPY, "accept": "application/json"}
            )
        assert answer.headers.get("listwright-experiment") == ("first" if kind == "split" else None)
        assert json.json()["meta"]["experiment"]["kind"] == kind
    found = {query_id: record.experiment for query_id, record in records().items()}
    assert (found["interleave"], found["explore"], found["split"]) == (None, None, "first")


def test_tensors_tell_the_experiment_and_a_named_version_is_in_none(running, tmp_path):
    array = binary_requests.MATRIX
    tensors = binary_requests.body([binary_requests.features(array)], array.tobytes(), parameters={}, id="of-tensors")
    with running(experiment("interleave")) as client:
        answer = client.post("/v2/models/shop/infer", **tensors)
        pinned = client.post("/v2/models/shop/versions/1/infer", **tensors)
    assert b'"experiment":"first"' in answer.content
    assert b'"experiment"' not in pinned.content
    logged = [one for one in files.records(files.log_files(tmp_path / "log")) if one.query_id == "of-tensors"]
    assert [one.teams is None for one in logged] == [False, True]


def test_shares_divide_the_traffic(running, records):
    with running(experiment("explore", share=0.3), experiment("split", name="second", share=0.4)) as client:
        for number in range(120):
            asked(client, number)
    found = Counter(record.experiment for record in records().values())
    assert sum(found.values()) == 120
    assert all(found[name] > 15 for name in ("first", "second", None))


def test_without_experiments_answers_are_those_of_a_service_without_the_setting(running, rivals):
    with running() as client:
        assert client.get("/info").json()["experiments"] == {"experiments": [], "refused": None, "killed": None}
        one = client.post("/rerank", json=by_name())
    with serving(rivals / "shop" / "1") as client:
        other = client.post("/rerank", json=by_name())
        assert client.get("/info").json()["experiments"] is None
    assert without_timings(one.json()) == without_timings(other.json())
    assert "experiment" not in other.json()["meta"]
