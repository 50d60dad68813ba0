"""An answer of ``POST /explain``, recorded by hand in the form of its contract."""

import copy

RANKING = {
    "id": None,
    "model": "demo",
    "version": "1",
    "results": [],
    "scores": [0.1, 0.4, 0.2, 0.2, 0.1],
    "ranks": [5, 1, 2, 3, 4],
    "route": {"strategy": "qilcm", "specialist": None, "confidence": None, "decided_by": "bundle"},
    "meta": {"status": "ok", "stage_reached": "second_stage", "reason": None, "ignored": [], "timings_ms": {}},
}


def contribution(feature, value, size, *, reference=None, error=None):
    return {
        "feature": feature,
        "value": value,
        "reference": reference,
        "contribution": size,
        "standard_error": error,
    }


FIRST_STAGE = {
    "ranker": "lightgbm",
    "score": 1.25,
    "reference_score": 0.5,
    "exact": True,
    "evaluations": 0,
    "budget_spent": False,
    "contributions": [
        contribution("n5", 1.5, 0.9),
        contribution("c1", "v3", -0.25),
        *(contribution(f"n{number}", None, 0.01) for number in range(6, 16)),
    ],
}

SECOND_STAGE = {
    "ranker": "qilcm",
    "score": 2.0,
    "reference_score": 1.5,
    "exact": False,
    "evaluations": 640,
    "budget_spent": False,
    "contributions": [
        contribution("n5", 1.5, 0.75, reference=0.25, error=0.01),
        contribution("<img src=x onerror=hacked()>", "v3", -0.25, reference="v1", error=0.02),
    ],
}

EXPLANATION = {
    "candidate": {"index": 2, "id": "offer-3", "rank": 2},
    "first_stage": FIRST_STAGE,
    "second_stage": SECOND_STAGE,
    "passing": {
        "above": {"index": 1, "id": "offer-2", "rank": 1},
        "one": [{"feature": "n5", "from": 1.5, "to": 2.75}],
        "two": [{"feature": "n1", "from": None, "to": 0.5}, {"feature": "c1", "from": "v3", "to": "v2"}],
        "tried": 84,
        "untried": 0,
    },
    "moves": [{"index": 4, "id": "offer-5", "rank": 4, "rank_without": 2}],
    "anomaly": {
        "score": 0.45,
        "training_quantiles": {"0.5": 0.4, "0.99": 0.5},
        "features": [{"feature": "n7", "value": 3.5, "anomaly_without": 0.41}],
    },
    "router": None,
    "against": None,
    "incomplete": [],
    "faults": {},
}

ANSWER = {
    "id": None,
    "model": "demo",
    "version": "1",
    "ranking": RANKING,
    "explanations": [EXPLANATION],
    "meta": {"timings_ms": {"first_stage": 12.0, "second_stage": 800.0, "total": 900.0}, "incomplete": []},
}


def explained(*, meta=None, ranking=None, **changes):
    """The answer with other parts; what the one explanation lacks stands in ``meta``, too."""
    answer = copy.deepcopy(ANSWER)
    answer["explanations"][0] |= changes
    answer["meta"]["incomplete"] = list(answer["explanations"][0]["incomplete"])
    answer["meta"] |= meta or {}
    answer["ranking"]["meta"] |= ranking or {}
    return answer
