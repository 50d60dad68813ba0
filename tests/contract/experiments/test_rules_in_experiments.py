"""Rules act on the order that an experiment made, and the served log says where its candidates went."""

import pytest

from listwright.ranking.experiments import adjacent_swap
from listwright.ranking.served_log import files
from support.experiments import experiment
from support.http.rerank_requests import matrix

PIN = {"action": "pin", "id": "sku-3", "place": 2}
EXCLUDE = {"action": "exclude", "ids": ["sku-0"]}


def ask(client, number, *rules):
    answer = client.post("/rerank", json=matrix() | {"query_id": f"q{number}", "rules": list(rules)})
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.fixture
def records(tmp_path):
    return lambda: {one.query_id: one for one in files.records(files.log_files(tmp_path / "log", unfinished=False))}


def order(answer):
    return [result["index"] for result in answer["results"]]


def test_teams_move_with_their_candidates(running, records):
    with running(experiment("interleave")) as client:
        plain = ask(client, 0)
        answer = ask(client, 1, PIN, EXCLUDE)
        ask(client, 2, {**PIN, "id": "another"})
    found = records()
    assert order(answer)[1] == 3
    teams = dict(zip(found["q1"].order.tolist(), found["q1"].teams, strict=True))
    assert teams[3] == "rule"
    assert set(teams.values()) <= {"control", "challenger", "rule"}
    assert 0 not in teams
    assert len(plain["results"]) == len(answer["results"]) + 1
    assert "rule" not in found["q2"].teams
    assert [answer["ranks"][index] for index in order(answer)] == [
        -score for score in sorted((s for s in answer["scores"] if s is not None), reverse=True)
    ]


def test_a_swap_moves_with_its_candidates(running, records):
    """Where the excluded candidate is one of the two, there is no swap left."""
    with running(experiment("explore", swap_share=1.0, k=7)) as client:
        ranked = order(client.post("/rerank", json=matrix() | {"version": "1", "query_id": "plain"}).json())
        for number in range(30):
            ask(client, number, EXCLUDE)
    lost, logged = 0, records()
    del logged["plain"]
    for query_id, record in logged.items():
        drawn = adjacent_swap(ranked, k=7, share=1.0, query_id=query_id, salt="first")
        pair = [drawn.order[place] for place in drawn.places]
        assert record.order.tolist() == [index for index in drawn.order if index != 0]
        if 0 in pair:
            assert record.intervention is None
            lost += 1
        else:
            assert [record.order[place] for place in record.intervention.places] == pair
    assert 0 < lost < 30
