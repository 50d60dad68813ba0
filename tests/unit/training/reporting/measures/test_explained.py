"""The three explained queries of a report, on lists whose ranking is known, and what the page says of them."""

import json

import numpy as np
import pytest

from listwright.ranking.errors import ScoringError
from listwright.ranking.explaining import contributions
from listwright.ranking.metrics import EvalProtocol
from listwright.training.data.dataset import Dataset
from listwright.training.evaluation.protocol import Evaluation
from listwright.training.reporting import fit_page
from listwright.training.reporting.measures import explained as measure
from support.service.computed_by_hand import SCHEMA, Column, reranker

# by price first, by stars in the end
LISTS = (
    ([[3, 1], [2, 2], [1, 3]], [0, 0, 2]),  # the last one goes to the front
    ([[3, 1], [2, 2], [1, 3]], [1, 0, 0]),  # the first one goes to the end
    ([[2, 2], [1, 1]], [1, 0]),
    ([[1, 1], [2, 2]], [0, 0]),
)
GAINS = {"qilcm": [1.0, 0.25, 0.5, np.nan], "first_stage": [0.5, 1.0, 0.5, np.nan]}


def a_split(lists=LISTS):
    rows = np.concatenate([np.array(features, dtype=np.float32) for features, _ in lists])
    labels = np.concatenate([np.array(labels, dtype=np.int32) for _, labels in lists])
    offsets = np.cumsum([0, *(len(labels) for _, labels in lists)], dtype=np.int64)
    return Dataset(rows, labels, offsets, tuple(f"q{n}" for n in range(len(lists))), SCHEMA)


def evaluation(values=GAINS):
    return Evaluation({name: {"ndcg@10": np.array(row)} for name, row in values.items()}, EvalProtocol())


def found(values=GAINS, lists=LISTS, second=None):
    served = reranker(Column(0), second or Column(1), first_stage_score=False)
    return measure.explain_queries(served, a_split(lists), evaluation(values), "ndcg@10")["explained"]


def test_one_was_helped_most_one_was_hurt_most_one_is_random():
    helped, hurt, random = found()["queries"]
    assert (helped["why"], helped["qid"], helped["gain"]) == ("helped", "q0", 0.5)
    assert (helped["candidate"], helped["label"], helped["rank_before"], helped["rank"]) == (2, 2, 3, 1)
    assert (hurt["why"], hurt["qid"], hurt["gain"]) == ("hurt", "q1", -0.75)
    assert (hurt["candidate"], hurt["rank_before"], hurt["rank"]) == (0, 1, 3)
    assert random["why"] == "random"
    assert random["rank"] == 1


def test_contributions_are_those_of_both_stages():
    helped = found()["queries"][0]
    (first,), (second,) = helped["first_stage"]["contributions"], helped["second_stage"]["contributions"]
    assert (first["feature"], first["value"], first["contribution"]) == ("price", 1.0, -1.0)
    assert (second["feature"], second["value"], second["reference"], second["contribution"]) == ("stars", 3.0, 2.0, 1.0)


def test_without_gain_or_loss_there_is_the_random_one():
    same = {"qilcm": [0.5] * 4, "first_stage": [0.5] * 4}
    assert [query["why"] for query in found(same)["queries"]] == ["random"]


def test_longer_lists_are_left_out(monkeypatch):
    monkeypatch.setattr(measure, "MOST_CANDIDATES", 2)
    assert {query["length"] for query in found()["queries"]} == {2}


def test_a_query_that_cannot_be_explained_says_why(monkeypatch):
    def fail(*_, **__):
        raise ScoringError("no oil")

    monkeypatch.setattr(measure, "explain", fail)
    assert [query["fault"] for query in found()["queries"]] == ["no oil"] * 3


def test_each_query_has_so_much_time_and_its_ranking_is_the_one_that_is_explained(monkeypatch):
    left, rankings = [], []
    explain = measure.explain

    def noting(*values, deadline, ranking, **words):
        left.append(deadline.left_s)
        rankings.append(ranking)
        return explain(*values, deadline=deadline, ranking=ranking, **words)

    monkeypatch.setattr(measure, "explain", noting)
    queries = found()["queries"]
    assert left == [pytest.approx(measure.MOST_SECONDS, abs=5)] * 3
    assert [one.ranks[query["candidate"]] for one, query in zip(rankings, queries, strict=True)] == [
        query["rank"] for query in queries
    ]


def test_a_query_for_which_the_time_is_up_says_so(monkeypatch):
    monkeypatch.setattr(measure, "MOST_SECONDS", -1.0)
    assert {query["fault"] for query in found()["queries"]} == {
        "the deadline had passed before the first stage was explained"
    }


def test_all_coalitions_of_ten_features_are_within_the_budget():
    assert measure.BUDGET >= contributions.EXHAUSTIVE


def test_it_can_be_written_and_is_the_same_again():
    assert json.loads(json.dumps(found())) == found()


PART = {"feature": "price", "value": 2.0, "reference": None, "contribution": -0.12345, "standard_error": None}
SAMPLED = {"feature": "carrier", "value": "A5", "reference": None, "contribution": 1.5, "standard_error": 0.0123}
QUERY = {
    "why": "helped",
    "qid": "q7",
    "gain": 0.25,
    "length": 4,
    "candidate": 2,
    "label": 1,
    "rank_before": 3,
    "rank": 2,
    "first_stage": {"contributions": [PART]},
    "second_stage": {"contributions": [SAMPLED]},
    "passing": {"one": [{"feature": "price", "from": 2.0, "to": 1.5}], "two": None},
    "faults": {},
}


def section(**other):
    report = {"details": {"explained": {"metric": "ndcg@10", "queries": [QUERY | other]}}}
    (made,) = fit_page.explained_section(report)
    return made


def test_the_table_of_a_query():
    (table,) = section().tables
    assert table.title == "Most helped by +0.250 NDCG@10: query q7"
    assert list(table.rows) == [
        ["price\n2", "first", "-0.123"],
        ["carrier\nA5, list: missing", "second", "+1.5\n±0.01"],
    ]
    assert table.note == (
        "Candidate 3 of 4, label 1, from place 3 to 2. It would pass the candidate above with price 1.5 instead of 2."
    )


@pytest.mark.parametrize(
    ("other", "says"),
    [
        ({"rank": 3}, "at place 3 in both stages"),
        ({"second_stage": None}, "No second stage scored it."),
        ({"second_stage": None, "faults": {"second_stage": "no oil"}}, "Second stage: failed, no oil."),
        ({"second_stage": None, "incomplete": ["second_stage"]}, "to 2. Second stage: not complete, for lack of time."),
        ({"passing": {"one": None, "two": None}}, "No tried change of one or two features"),
    ],
)
def test_what_the_note_says(other, says):
    assert says in section(**other).tables[0].note


def test_a_fault_is_said():
    made = section(fault="no oil")
    assert not made.tables
    assert "query q7: not explained, because no oil." in made.text[-1]


def test_a_report_of_an_earlier_version_has_none():
    assert fit_page.explained_section({"details": {}}) == []
