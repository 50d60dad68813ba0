"""What is shown to harm is taken away from ``auto``, one thing at a time; nothing is ever chosen."""

import re
from datetime import UTC, datetime

import numpy as np
import pytest

from listwright.ranking.features import Feature, FeatureSchema
from listwright.ranking.manifest import Manifest
from listwright.ranking.metrics import EvalProtocol
from listwright.ranking.stages import AnomalyStage, LightGbmStage, NetworkStage, RouterStage, Specialist, SrmStage
from listwright.training.choice.default_strategy import without_harm
from listwright.training.evaluation.evaluate import METRICS, Evaluation
from listwright.training.reporting.sentences import default_sentence

SCHEMA = FeatureSchema(features=(Feature(name="price"),))
FIRST = np.linspace(0.2, 0.9, 50)


def manifest(*, kind="dlcm", margin=None, routed=False, **changes):
    values = {
        "name": "shop",
        "version": "1",
        "created_at": datetime(2026, 1, 1, tzinfo=UTC),
        "recipe": {},
        "data": "x",
        "feature_schema": SCHEMA,
        "fingerprint": SCHEMA.fingerprint,
        "first_stage": LightGbmStage(),
        "second_stages": (NetworkStage(kind=kind, file="g.onnx", cutoff=5, first_stage_score=True),) if kind else (),
        "strategy": kind or "first_stage",
    }
    if routed:
        values |= {
            "srm": SrmStage(specialists=(Specialist(weight=1.0, queries=1),)),
            "anomaly": AnomalyStage(),
            "router": RouterStage(temperature=1.0, margin=margin),
        }
    return Manifest(**(values | changes))


def evaluation(**gains):
    """Every query gains so much over the first stage, give or take a little; NDCG@10 alone."""
    spread = np.where(np.arange(len(FIRST)) % 2, 0.001, -0.001)
    values = {"first_stage": FIRST} | {name: FIRST + gain + spread for name, gain in gains.items()}
    return Evaluation(
        {name: {metric: FIRST if metric != "ndcg@10" else one for metric in METRICS} for name, one in values.items()},
        EvalProtocol(),
    )


@pytest.mark.parametrize("gain", [0.05, 0.0, -0.0001])
def test_what_is_not_shown_to_harm_stays(gain):
    assert without_harm(manifest(), evaluation(dlcm=gain), "ndcg@10") is None


def test_a_harmful_second_stage_answers_by_name_only():
    before = manifest()
    after = without_harm(before, evaluation(dlcm=-0.05), "ndcg@10")
    assert after.strategy == "first_stage"
    assert after.strategies == before.strategies == ("dlcm", "first_stage")
    for said in ("dlcm is worse", "on 50 test queries", "NDCG@10 -0.0500 [-0.050", "below 0"):
        assert said in after.default_reason
    assert after.model_copy(update={"strategy": "dlcm", "default_reason": None}) == before, "nothing else changes"
    assert without_harm(after, evaluation(dlcm=-0.05), "ndcg@10") is None, "once is enough"


def test_only_the_metric_that_is_asked_for_counts():
    assert without_harm(manifest(), evaluation(dlcm=-0.05), "ndcg@5") is None


def test_a_first_stage_alone_has_nothing_to_take_away():
    assert without_harm(manifest(kind=None), evaluation(), "ndcg@10") is None


def test_a_harmful_generalist_leaves_a_router_that_abstains_to_the_first_stage():
    after = without_harm(manifest(routed=True, margin=0.1), evaluation(dlcm=-0.05, routed=-0.05), "ndcg@10")
    assert (after.strategy, after.router.margin) == ("first_stage", 0.1), "what auto answers now is to be measured"
    assert without_harm(after, evaluation(dlcm=-0.05, routed=0.02), "ndcg@10") is None, "it does not harm any more"
    last = without_harm(after, evaluation(dlcm=-0.05, routed=-0.01), "ndcg@10")
    assert (last.strategy, last.router.margin) == ("first_stage", None)
    assert "dlcm is worse" in last.default_reason
    assert "; routing is worse" in last.default_reason
    assert without_harm(last, evaluation(dlcm=-0.05, routed=-0.01), "ndcg@10") is None


def test_a_harmful_router_leaves_the_generalist():
    after = without_harm(manifest(routed=True, margin=0.1), evaluation(dlcm=0.01, routed=-0.01), "ndcg@10")
    assert (after.strategy, after.router.margin) == ("dlcm", None)
    assert after.router.temperature == 1.0
    assert after.default_reason.startswith("routing is worse than the first stage")


def test_a_router_that_never_routes_is_left_alone():
    assert without_harm(manifest(routed=True), evaluation(dlcm=0.01, routed=-0.01), "ndcg@10") is None


@pytest.mark.parametrize(
    ("default", "says"),
    [
        ({}, None),
        ({"strategy": "dlcm", "reason": None}, None),
        ({"strategy": "first_stage", "reason": None}, None),
        ({"strategy": "first_stage", "reason": "dlcm is"}, "answers with the first stage unless .* strategy=dlcm: dlcm is."),
        ({"strategy": "dlcm", "reason": "routing is"}, "router of this bundle always abstains: routing is."),
    ],
)  # fmt: skip
def test_a_sentence_says_what_was_taken_away(default, says):
    said = default_sentence(default, "dlcm")
    assert (said is None) if says is None else re.search(says, said)
