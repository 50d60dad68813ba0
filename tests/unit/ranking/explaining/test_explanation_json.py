"""Explanations as JSON: every part, its absence, and numbers as they were sent."""

import json

import numpy as np

from listwright.ranking.candidates import CandidateList, Ranking, Route
from listwright.ranking.explaining.explanation import (
    AnomalyReasons,
    CandidateExplanation,
    Comparison,
    FeatureContribution,
    MovedCandidate,
    PlacedCandidate,
    RouterReasons,
    StageContributions,
    UnusualValue,
    ValueChange,
    WhatItTakes,
    id_of,
    place_of,
    to_json,
)

RANKING = Ranking(
    np.array([2, 0, 1]), np.zeros(3), np.full(3, 1 / 3), np.zeros(3), "second_stage", Route("qilcm", "bundle")
)
SHARE = FeatureContribution("price", 3.1, None, 0.25, None)
STAGE = StageContributions("qilcm", 1.5, 1.25, False, 64, True, (SHARE,))
SPLIT_SOURCES = CandidateList(np.zeros((3, 1), dtype=np.float32), ("a", "b", "c"))


def explanation(candidate, **parts):
    bare = dict.fromkeys(("first_stage", "second_stage", "passing", "anomaly", "router", "against"))
    return CandidateExplanation(
        candidate=candidate,
        **{**bare, "moves": (), "incomplete": (), "faults": {}, "ranking": RANKING, **parts},
    )


def written(explanation):
    (found,) = json.loads(to_json([explanation]))
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
        explanation(
            place_of(SPLIT_SOURCES, RANKING, 1),
            first_stage=STAGE,
            second_stage=STAGE,
            passing=WhatItTakes(
                place_of(SPLIT_SOURCES, RANKING, 0),
                (ValueChange("price", 1.0, 2.0),),
                (ValueChange("a", None, "x"), ValueChange("b", 1.0, 0.5)),
                9,
                4,
            ),
            moves=(MovedCandidate(2, id_of(SPLIT_SOURCES, 2), 1, 2),),
            anomaly=AnomalyReasons(0.5, {"0.99": 0.625}, (UnusualValue("price", None, 0.25),)),
            router=RouterReasons((0.25, 0.75), (0.0, 0.5), 0.125),
            against=Comparison(2, "c", (SHARE,), ()),
            incomplete=("passing",),
            faults={"passing": "it gave NaN"},
            seconds={"moves": 0.5},
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
    found = written(explanation(place_of(CandidateList(SPLIT_SOURCES.features), RANKING, 2)))
    assert found == {
        "candidate": {"index": 2, "id": None, "rank": 1},
        **dict.fromkeys(("first_stage", "second_stage", "passing", "anomaly", "router", "against")),
        "moves": [],
        "incomplete": [],
        "faults": {},
    }
    candidate = place_of(SPLIT_SOURCES, RANKING, 0)
    none_pass = explanation(candidate, passing=WhatItTakes(PlacedCandidate(2, "c", 1), None, None, 30, 0))
    assert written(none_pass)["passing"] == {
        "above": {"index": 2, "id": "c", "rank": 1},
        "one": None,
        "two": None,
        "tried": 30,
        "untried": 0,
    }


def test_json_has_no_nan():
    odd = FeatureContribution("price", float("nan"), float("nan"), float("nan"), None)
    stage = StageContributions("onnx", float("nan"), 0.0, True, 0, False, (odd,))
    found = written(explanation(place_of(SPLIT_SOURCES, RANKING, 0), first_stage=stage))["first_stage"]
    assert found["score"] is None
    assert found["contributions"][0]["value"] is None
