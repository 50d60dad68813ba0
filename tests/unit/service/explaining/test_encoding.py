"""Explanations as JSON: every part, its absence, and numbers as they were sent."""

import json

import numpy as np

from listwright.ranking.candidates import Ranking, Route
from listwright.ranking.explaining.explanation import (
    Against,
    Anomaly,
    Change,
    Contribution,
    Explanation,
    Move,
    Passing,
    RouterEstimate,
    StageExplanation,
    UnusualFeature,
)
from listwright.service.explaining.encoding import encoded

RANKING = Ranking(
    np.array([2, 0, 1]), np.zeros(3), np.full(3, 1 / 3), np.zeros(3), "second_stage", Route("qilcm", "bundle")
)
SHARE = Contribution("price", 3.1, None, 0.25)
STAGE = StageExplanation("second_stage", "qilcm", 1.5, 1.25, (SHARE,), exact=False, evaluations=64, budget_spent=True)


def written(explanation, ids=("a", "b", "c")):
    (found,) = json.loads(encoded([explanation], ids))
    return found


def test_every_part_is_written():
    stage = {
        "ranker": "qilcm",
        "score": 1.5,
        "reference_score": 1.25,
        "exact": False,
        "evaluations": 64,
        "budget_spent": True,
        "contributions": [
            {"feature": "price", "value": 3.1, "reference": None, "contribution": 0.25, "standard_error": None}
        ],
    }
    found = written(
        Explanation(
            candidate=1,
            ranking=RANKING,
            first_stage=STAGE,
            second_stage=STAGE,
            passing=Passing(0, (Change("price", 1.0, 2.0),), (Change("a", None, "x"), Change("b", 1.0, 0.5)), 9, 4),
            moves=(Move(2, 1, 2),),
            anomaly=Anomaly(0.5, {"0.99": 0.625}, (UnusualFeature("price", None, 0.25),)),
            against=Against(2, (SHARE,), ()),
            seconds={"moves": 0.5},
            incomplete=("passing",),
            faults={"passing": "it gave NaN"},
            router=RouterEstimate((0.25, 0.75), (0.0, 0.5), 0.125),
        )
    )
    assert found == {
        "candidate": {"index": 1, "id": "b", "rank": 3},
        "first_stage": stage,
        "second_stage": stage,
        "passing": {
            "above": {"index": 0, "id": "a", "rank": 2},
            "one": [{"feature": "price", "from": 1.0, "to": 2.0}],
            "two": [{"feature": "a", "from": None, "to": "x"}, {"feature": "b", "from": 1.0, "to": 0.5}],
            "tried": 9,
            "untried": 4,
        },
        "moves": [{"index": 2, "id": "c", "rank": 1, "rank_without": 2}],
        "anomaly": {
            "score": 0.5,
            "training_quantiles": {"0.99": 0.625},
            "features": [{"feature": "price", "value": None, "anomaly_without": 0.25}],
        },
        "router": {"probabilities": [0.25, 0.75], "gains": [0.0, 0.5], "margin": 0.125},
        "against": {"index": 2, "id": "c", "first_stage": stage["contributions"], "second_stage": []},
        "incomplete": ["passing"],
        "faults": {"passing": "it gave NaN"},
    }


def test_what_is_not_there_is_null():
    found = written(Explanation(2, RANKING, None, None, None, (), None, None), ids=None)
    assert found == {
        "candidate": {"index": 2, "id": None, "rank": 1},
        **dict.fromkeys(("first_stage", "second_stage", "passing", "anomaly", "router", "against")),
        "moves": [],
        "incomplete": [],
        "faults": {},
    }
    none_pass = Explanation(0, RANKING, None, None, Passing(2, None, None, 30), (), None, None)
    assert written(none_pass)["passing"] == {
        "above": {"index": 2, "id": "c", "rank": 1},
        "one": None,
        "two": None,
        "tried": 30,
        "untried": 0,
    }


def test_json_has_no_nan():
    odd = Contribution("price", float("nan"), float("nan"), float("nan"))
    stage = StageExplanation("first_stage", "onnx", float("nan"), 0.0, (odd,), exact=True)
    found = written(Explanation(0, RANKING, stage, None, None, (), None, None))["first_stage"]
    assert found["score"] is None
    assert found["contributions"][0]["value"] is None
