"""What ``explain`` sends, and what it makes of an answer."""

import dataclasses
import pickle

import numpy as np
import pytest

from listwright_client import Contribution, OverloadedError, Place, UnexpectedAnswerError
from support.http.scripted import answer, answering, problem, refusing

MATRIX = np.ones((2, 3))
IDS = ["a", "b"]
SHARE = {"feature": "price", "value": 3.1, "reference": None, "contribution": 0.25, "standard_error": 0.01}
STAGE = {
    "ranker": "qilcm",
    "score": 1.5,
    "reference_score": 1.25,
    "exact": False,
    "evaluations": 64,
    "budget_spent": False,
    "contributions": [SHARE],
}
WHOLE = {
    "candidate": {"index": 1, "id": "b", "rank": 2},
    "first_stage": STAGE,
    "second_stage": STAGE,
    "passing": {
        "above": {"index": 0, "id": "a", "rank": 1},
        "one": [{"feature": "price", "from": 1.0, "to": 2.0}],
        "two": None,
        "tried": 9,
        "untried": 3,
    },
    "router": {"probabilities": [0.25, 0.75], "gains": [0.5, 1.5], "margin": 0.1},
    "moves": [{"index": 0, "id": "a", "rank": 1, "rank_without": 2}],
    "anomaly": {
        "score": 0.5,
        "training_quantiles": {"0.99": 0.6},
        "features": [{"feature": "price", "value": None, "anomaly_without": 0.4}],
    },
    "against": {"index": 0, "id": "a", "first_stage": [SHARE], "second_stage": [], "goals": [SHARE]},
    "goals": {**STAGE, "ranker": "goals", "goals": [{"goal": "booked", "weight": 1, "contribution": 0.25}]},
    "incomplete": ["passing"],
    "faults": {"passing": "it gave NaN"},
}
BARE = {
    "candidate": {"index": 0, "id": "a", "rank": 1},
    **dict.fromkeys(("first_stage", "second_stage", "passing", "anomaly", "against", "router")),
    "moves": [],
    "incomplete": [],
    "faults": {},
}


def explaining(*explanations, **changes):
    body = {
        "id": None,
        "model": "shop",
        "version": "7",
        "ranking": answer(ids=IDS),
        "explanations": list(explanations),
        "meta": {"timings_ms": {"total": 2.0}, "incomplete": ["passing"]},
        **changes,
    }
    return answering(body)


def test_the_question_is_rerank_and_what_to_explain(client, server):
    against = {"index": 1, "id": "b", "first_stage": [], "second_stage": []}
    server.says(explaining({**BARE, "against": against}), explaining(BARE))
    client.explain(MATRIX, candidate=0, against="b", ids=IDS, strategy="qilcm", explain_budget=None)
    client.explain(MATRIX, ids=IDS, explain_top_n=2, explain_budget=100, timeout_ms=500, candidate=None)
    assert [request.url.path for request in server.requests] == ["/explain"] * 2
    first, second = server.bodies()
    features = MATRIX.tolist()
    assert first == {"candidate": 0, "against": "b", "strategy": "qilcm", "ids": ["a", "b"], "features": features}
    assert {**second, "timeout_ms": None} == {
        "explain_top_n": 2,
        "explain_budget": 100,
        "timeout_ms": None,
        "ids": IDS,
        "features": features,
    }
    assert 0 < second["timeout_ms"] <= 500


def test_every_part_is_read(client, server):
    server.says(explaining(WHOLE), explaining(BARE))
    found = client.explain(MATRIX, ids=IDS, candidate="b", against=0, request_id="r-1")
    assert found.ranking.ranks.tolist() == [1, 2]
    assert (found.ranking.model, found.ranking.request_id) == ("shop", "r-1")
    assert (found.request_id, found.attempts, found.incomplete) == ("r-1", 1, ("passing",))
    assert found.timings_ms == {"total": 2.0}
    (whole,), (bare,) = found.explanations, client.explain(MATRIX, ids=IDS, candidate=0).explanations
    assert whole.candidate == Place(1, "b", 2)
    assert whole.first_stage == whole.second_stage
    assert whole.second_stage.contributions == (Contribution("price", 3.1, None, 0.25, 0.01),)
    assert (whole.second_stage.score, whole.second_stage.reference_score) == (1.5, 1.25)
    assert (whole.second_stage.evaluations, whole.second_stage.exact) == (64, False)
    assert whole.passing.above == Place(0, "a", 1)
    assert [(change.feature, change.value_from, change.value_to) for change in whole.passing.one] == [
        ("price", 1.0, 2.0)
    ]
    assert (whole.passing.two, whole.passing.tried) == (None, 9)
    assert [(move.index, move.id, move.rank, move.rank_without) for move in whole.moves] == [(0, "a", 1, 2)]
    assert (whole.anomaly.score, whole.anomaly.training_quantiles["0.99"]) == (0.5, 0.6)
    assert [(one.feature, one.value, one.anomaly_without) for one in whole.anomaly.features] == [("price", None, 0.4)]
    assert (whole.against.index, whole.against.first_stage, whole.against.second_stage) == (
        0,
        whole.first_stage.contributions,
        (),
    )
    assert whole.goals.contributions == whole.against.goals == whole.first_stage.contributions
    assert [(share.goal, share.weight, share.contribution) for share in whole.goals.goals] == [("booked", 1, 0.25)]
    assert (whole.incomplete, whole.faults) == (("passing",), {"passing": "it gave NaN"})
    assert (whole.router.probabilities, whole.router.gains, whole.router.margin) == ((0.25, 0.75), (0.5, 1.5), 0.1)
    assert whole.passing.untried == 3
    parts = {field.name: getattr(bare, field.name) for field in dataclasses.fields(bare)}
    assert (parts.pop("moves"), parts.pop("incomplete"), parts.pop("faults")) == ((), (), {})
    assert set(map(str, list(parts.values())[1:])) == {"None"}


def test_its_fields_stay_and_processes_exchange_it(client, server):
    server.says(explaining(WHOLE))
    found = client.explain(MATRIX, ids=IDS, candidate=1, against="a")
    for value, name in (
        (found, "ranking"),
        (found.explanations[0], "moves"),
        (found.explanations[0].candidate, "rank"),
    ):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(value, name, None)
    assert repr(pickle.loads(pickle.dumps(found))) == repr(found)
    assert repr(pickle.loads(pickle.dumps(found.ranking))) == repr(found.ranking)


def test_fields_of_a_newer_service_are_left_out(client, server):
    server.says(explaining({**WHOLE, "poem": "roses", "candidate": {**WHOLE["candidate"], "colour": "red"}}))
    found = client.explain(MATRIX, ids=IDS, candidate=1, against=0)
    assert found.explanations[0].candidate == Place(1, "b", 2)


def test_a_busy_service_is_asked_again(client, server):
    server.says(refusing(429, Retry_After="2"), explaining(BARE))
    assert client.explain(MATRIX, ids=IDS, candidate=0).attempts == 2
    server.says(refusing(429, Retry_After="60"))
    with pytest.raises(OverloadedError):
        client.explain(MATRIX, candidate=0)


OTHER = {**BARE, "candidate": {"index": 1, "id": "b", "rank": 2}}


@pytest.mark.parametrize(
    ("asked", "explanations"),
    [
        ({"candidate": 0}, [OTHER]),
        ({"candidate": "a"}, [OTHER]),
        ({"candidate": "a"}, [BARE, OTHER]),
        ({"candidate": 0}, []),
        ({"candidate": 0}, [{**BARE, "candidate": {"index": 0, "id": "c", "rank": 1}}]),
        ({"candidate": 0}, [{**BARE, "candidate": {"index": -2, "id": "a", "rank": 1}}]),
        ({"candidate": "b", "against": "a"}, [OTHER]),
        ({"candidate": "b"}, [WHOLE]),
        ({"candidate": "b", "against": 0}, [{**WHOLE, "against": {**WHOLE["against"], "index": 1, "id": "b"}}]),
        ({"explain_top_n": 1}, [OTHER]),
        ({"explain_top_n": 2}, [BARE, BARE]),
        ({"explain_top_n": 1}, [BARE, OTHER]),
        ({"explain_top_n": 2}, [OTHER, BARE]),
        ({"explain_top_n": 2}, [OTHER]),
        ({"candidate": 0}, [{**BARE, "candidate": {"index": 0, "id": "a", "rank": 2}}]),
        ({"candidate": 0}, [{**BARE, "moves": [{"index": 9, "id": "b", "rank": 2, "rank_without": 1}]}]),
        ({"candidate": 0}, [{**BARE, "moves": [{"index": 1, "id": "c", "rank": 2, "rank_without": 1}]}]),
        ({"candidate": 0}, [{**BARE, "moves": 5}]),
        ({"candidate": 0}, [{**BARE, "incomplete": "passing"}]),
        ({"candidate": 0}, [{**BARE, "first_stage": {**STAGE, "score": "high"}}]),
        ({"candidate": 0}, [{**BARE, "passing": {**WHOLE["passing"], "above": {"index": 1, "id": "a", "rank": 1}}}]),
    ],
)
def test_what_explains_something_else_is_no_answer(client, server, asked, explanations):
    server.says(explaining(*explanations))
    with pytest.raises(UnexpectedAnswerError):
        client.explain(MATRIX, ids=IDS, **asked)


def test_ids_of_an_explanation_come_back_as_they_were_sent(client, server):
    def texts(part):
        if isinstance(part, dict):
            return {name: {"a": "7", "b": "9"}[value] if name == "id" else texts(value) for name, value in part.items()}
        return [texts(inner) for inner in part] if isinstance(part, list) else part

    server.says(explaining(texts(WHOLE), ranking=answer(ids=["7", "9"])))
    for candidate, against in ((1, 0), ("9", "7")):
        found = client.explain(MATRIX, ids=[7, 9], candidate=candidate, against=against)
        (why,) = found.explanations
        assert [result.id for result in found.ranking.results] == [7, 9]
        assert (why.candidate.id, why.against.id, why.passing.above.id, why.moves[0].id) == (9, 7, 7, 7)
    for candidate in (9, 7, "1"):
        with pytest.raises(UnexpectedAnswerError):
            client.explain(MATRIX, ids=[7, 9], candidate=candidate, against=0)


def test_fewer_places_than_were_asked_for_are_an_answer(client, server):
    """The deadline may leave some out, and a list may be shorter."""
    server.says(explaining(BARE))
    assert len(client.explain(MATRIX, ids=IDS, explain_top_n=5).explanations) == 1
    server.says(explaining(BARE, OTHER))
    assert len(client.explain(MATRIX, ids=IDS, explain_top_n=5).explanations) == 2


@pytest.mark.parametrize("changes", [{"explanations": [{"candidate": 1}]}, {"meta": {}}, {"ranking": None}])
def test_what_is_no_answer_is_said_to_be_none(client, server, changes):
    server.says(explaining(**changes))
    with pytest.raises(UnexpectedAnswerError):
        client.explain(MATRIX, ids=IDS, candidate=0)


def test_unknown_words_are_refused_before_anything_is_sent(client, server):
    with pytest.raises(TypeError, match="explain has no candidates: it takes"):
        client.explain(MATRIX, candidates=1)
    with pytest.raises(TypeError, match="rerank has no candidate: it takes"):
        client.rerank(MATRIX, candidate=1)
    assert server.requests == []


def test_a_service_that_explains_nothing_says_so(client, server):
    server.says(problem(404, "not-found", {}))
    with pytest.raises(Exception, match="404 not-found"):
        client.explain(MATRIX, candidate=0)
