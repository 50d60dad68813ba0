"""What the report says of ``auto``: by which comparisons it was chosen, and which it does not tell."""

from datetime import UTC, datetime

import pytest

from listwright.ranking.features import Feature, FeatureSchema
from listwright.ranking.manifest import Comparison, Manifest
from listwright.ranking.stages import LightGbmStage
from listwright.training.evaluation.intervals import FEWEST
from listwright.training.reporting.report import default_facts
from listwright.training.reporting.sentences import choice_sentence

SCHEMA = FeatureSchema(features=(Feature(name="price"),))


def comparison(ranker, n=90):
    return Comparison(ranker=ranker, over="plain", metric="ndcg@10", mean=0.1, low=0.05, high=0.15, n=n)


def manifest(recipe, *choice):
    return Manifest(
        name="shop",
        version="1",
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
        recipe=recipe,
        data="x",
        feature_schema=SCHEMA,
        fingerprint=SCHEMA.fingerprint,
        first_stage=LightGbmStage(),
        second_stages=(),
        strategy="first_stage",
        choice=choice,
    )


COMPARED = {"model": {"kind": "qilcm"}, "choice": {"folds": 5}}


@pytest.mark.parametrize(
    ("recipe", "told"),
    [
        (COMPARED, True),
        (COMPARED | {"router": None}, True),
        (COMPARED | {"router": {"kind": "forest"}}, False),
        ({"model": {"kind": "qilcm"}}, False),
        ({"model": {"kind": "first_stage"}}, True),
    ],
)
def test_comparisons_are_told_where_they_chose(recipe, told):
    found = default_facts(manifest(recipe, comparison("relative")))
    assert ("compared" in found) == told


@pytest.mark.parametrize("rankers", [["relative"], ["relative", "qilcm"]])
@pytest.mark.parametrize(("n", "few"), [(FEWEST - 1, True), (FEWEST, False)])
def test_a_sentence_names_the_ranker_the_queries_and_what_there_was_no_time_for(rankers, n, few):
    compared = [comparison(ranker, n).model_dump() for ranker in rankers]
    budget = {"left_out": ["QILCM2"], "undecided": ["qilcm"]}
    default, names = {"strategy": "first_stage", "compared": compared}, {"first_stage": "LightGBM + relative"}
    sentence = choice_sentence(default, names, budget)
    assert sentence.startswith("auto means LightGBM + relative")
    assert f"{n} held-out queries" in sentence
    assert (f" {FEWEST} are needed" in sentence) == few
    gain = f"{compared[0]['mean']:+.4f} [{compared[0]['low']:+.4f}, {compared[0]['high']:+.4f}]"
    assert (gain in sentence) == (not few and len(rankers) == 1)
    assert "QILCM2, QILCM." in sentence
    assert "QILCM2" not in choice_sentence(default, names)
    assert "held-out" not in choice_sentence(default, names, external=True)


def test_nothing_compared_is_nothing_said():
    assert choice_sentence({"strategy": "first_stage"}, {}) is None
