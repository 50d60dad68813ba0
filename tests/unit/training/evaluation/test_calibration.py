"""Temperatures that are planted and found again, and calibration errors that can be checked by hand."""

import dataclasses

import numpy as np
import pytest

from listwright.ranking.candidates import Ranking, Route
from listwright.ranking.features import Feature, FeatureSchema
from listwright.ranking.order import rank_by_score, relevance
from listwright.ranking.probability import Calibration
from listwright.ranking.reranker import Reranker
from listwright.training.data.dataset import Dataset, Splits
from listwright.training.evaluation import reliability as measure
from listwright.training.evaluation.calibration import (
    FEWEST_LISTS,
    ListOutcome,
    are_choices,
    choices,
    temperature_of,
    temperatures,
    without_choice,
)
from listwright.training.evaluation.reliability import StatedProbabilities
from listwright.training.recipe.config import Recipe
from listwright.training.reporting.measures.scores import measure_scores, reliability
from listwright.training.reporting.score_sections import calibration_title, score_lines, score_sections
from support.stand_ins import standing_in

LENGTH = 5


def calibration(outcomes, temperature, weights):
    stated = np.concatenate([relevance(choice.scores, temperature) for choice in outcomes])
    chosen = np.concatenate([np.arange(len(choice.scores)) == choice.place for choice in outcomes])
    return StatedProbabilities(np.array([len(choice.scores) for choice in outcomes]), stated, chosen, weights).facts()


def planted(lists, temperature, seed=0, scale=1.0):
    """Choices by scores over a temperature: the largest of these with Gumbel noise is chosen with softmax probability."""
    rng = np.random.default_rng(seed)
    scores = scale * rng.normal(size=(lists, LENGTH))
    chosen = (scores / temperature + rng.gumbel(size=scores.shape)).argmax(axis=1)
    return [ListOutcome(n, scores[n], int(chosen[n])) for n in range(lists)]


@pytest.mark.parametrize(("temperature", "scale"), [(0.5, 1.0), (2.0, 1.0), (500.0, 1000.0), (0.0005, 0.001)])
def test_a_planted_temperature_is_found(temperature, scale):
    assert temperature_of(planted(4000, temperature, scale=scale)) == pytest.approx(temperature, rel=0.1)


def test_a_list_of_weight_2_is_two_lists():
    found = planted(240, 0.7)
    weights = np.repeat([2.0, 1.0, 0.0], 80)
    twice = [*found[:80], *found[:80], *found[80:160]]
    assert temperature_of(found, weights) == pytest.approx(temperature_of(twice), rel=1e-4)
    assert temperature_of(found) != pytest.approx(temperature_of(twice), rel=1e-3)


def test_a_temperature_that_worsens_calibration_out_of_fold_is_not_taken():
    """By 30 lists a temperature of 1 is hard to improve on, and one of 5 easy."""
    right, wrong = ([temperature_of(planted(30, value, seed)) for seed in range(20)] for value in (1.0, 5.0))
    assert right.count(1.0) >= 12
    assert wrong.count(1.0) <= 1


def test_too_little_gives_no_temperature():
    found = planted(FEWEST_LISTS, 1.0)
    assert temperature_of(found) is not None
    assert temperature_of(found[1:]) is None
    assert temperature_of([ListOutcome(n, np.ones(3), 0) for n in range(50)]) is None, "nobody is told apart"
    assert temperature_of(found, np.zeros(len(found))) is None


def test_the_error_by_hand():
    """Two lists of two candidates, one bin: 4 candidates of mean probability 1/2, 2 of them chosen."""
    found = [ListOutcome(0, np.log([0.8, 0.2]), 0), ListOutcome(1, np.log([0.6, 0.4]), 0)]
    facts = calibration(found, 1.0, np.ones(2))
    assert (facts["ece"], facts["bins"][0][:3]) == (0.0, [4, 0.5, 0.5])
    many = [choice for choice in found for _ in range(50)]
    facts = calibration(many, 1.0, np.ones(100))
    # every first candidate is chosen, no second one: the gaps are 0.2, 0.4, 0.2 and 0.4
    assert facts["ece"] == pytest.approx(0.3, abs=0.02)
    said, chosen = np.array(facts["bins"])[:, 1], np.array(facts["bins"])[:, 2]
    assert said[chosen == 1.0] == pytest.approx(np.where(said[chosen == 1.0] > 0.7, 0.8, 0.6), abs=1e-6)


def test_the_error_counts_lists_by_their_weights():
    found = planted(200, 3.0)
    weights = np.repeat([2.0, 0.0], 100)
    alone, every = calibration(found[:100], 1.0, np.ones(100)), calibration(found, 1.0, np.ones(200))
    half = calibration(found, 1.0, weights)
    assert half["ece"] == pytest.approx(alone["ece"], rel=1e-9)
    assert half["ece"] != pytest.approx(every["ece"], rel=1e-3)
    assert [row[1:3] for row in half["bins"]] == [pytest.approx(row[1:3], abs=1e-6) for row in alone["bins"]]


@pytest.mark.parametrize("place", range(LENGTH))
def test_equal_scores_share_a_bin(place):
    """Two of each list are best, and one of them or none is chosen: where the chosen row stands says nothing."""
    scores = np.log([4.0, 4.0, 1.0, 1.0, 1.0])
    turned = [np.roll(scores, place - (0 if n % 2 else 2)) for n in range(60)]  # the chosen one always stands here
    data = dataset([ListOutcome(n, row, place) for n, row in enumerate(turned)])
    bins = np.array(reliability(ByHand({"first_stage": 1.0}), data)["stated"][-1]["bins"])
    assert bins[:, :3] == pytest.approx(np.array([[180, 1 / 11, 1 / 6], [120, 4 / 11, 1 / 4]]), abs=1e-6)


def test_a_good_temperature_is_told_from_a_bad_one():
    found = planted(2000, 2.0)
    right, wrong = (calibration(found, temperature, np.ones(2000)) for temperature in (2.0, 1.0))
    assert right["ece"] < 0.02
    assert right["p"] > 0.05, "noise alone is no error"
    assert wrong["p"] == 1.0 / (1 + measure.DRAWS)
    assert wrong["ece"] > 3.0 * wrong["by_chance"]["high"]
    for facts in (right, wrong):
        assert 0.0 < facts["by_chance"]["mean"] < facts["by_chance"]["high"] < 0.02
        assert sum(row[0] for row in facts["bins"]) == 2000 * LENGTH
    held = [row[3] - 1e-9 <= row[1] <= row[4] + 1e-9 for row in right["bins"]]
    assert sum(held) >= len(held) - 2, "95 % intervals hold what is said"
    assert np.array(wrong["bins"])[-1, 1] > np.array(wrong["bins"])[-1, 4], "too sure of the best"


@pytest.mark.parametrize("lists", [40, 300])
@pytest.mark.parametrize("weighted", [False, True])
def test_right_probabilities_are_called_wrong_as_often_as_is_said(monkeypatch, lists, weighted):
    """At any number of lists: p is even between 0 and 1. The interval that it replaces excluded 0 in a third of them."""
    monkeypatch.setattr(measure, "DRAWS", 99)
    weights = np.resize([1.0, 3.0, 0.5], lists) if weighted else np.ones(lists)
    found = np.array([calibration(planted(lists, 2.0, seed=seed), 2.0, weights)["p"] for seed in range(100)])
    assert found.mean() == pytest.approx(0.5, abs=0.1)
    assert np.count_nonzero(found <= 0.05) <= 12


SCALES = [1.0, 1e-9, 1e9]


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("value", [0.1, -7.3, 1 / 3, 0.0])
def test_equal_scores_have_no_temperature_whatever_they_are(scale, value):
    """The mean of 100 equal numbers is another number than theirs, in the last place."""
    lists = [ListOutcome(n, np.full(100, scale * value), n % 100) for n in range(50)]
    assert temperature_of(lists) is None
    noisy = [one._replace(scores=one.scores * (1.0 + 1e-15 * np.arange(100))) for one in lists]
    assert temperature_of(noisy) is None
    apart = [one._replace(scores=one.scores + scale * 1e-3 * np.arange(100)) for one in lists]
    assert temperature_of(apart) > 1e-6 * scale


SCHEMA = FeatureSchema(features=(Feature(name="x"),))
RECIPE = standing_in(Recipe, first_stage=None)


def dataset(found):
    rows = np.concatenate([choice.scores for choice in found]).astype(np.float32)[:, None]
    labels = np.concatenate([np.arange(len(choice.scores)) == choice.place for choice in found]).astype(np.int32)
    offsets = np.concatenate([[0], np.cumsum([len(choice.scores) for choice in found])])
    return Dataset(rows, labels, offsets, tuple(map(str, range(len(found)))), SCHEMA)


class ByHand(Reranker):
    """A bundle whose first stage scores by the one feature, and whose second stage scores the best three only."""

    def __init__(self, temperatures=None):
        facts = {"strategies": ("qilcm", "first_stage"), "strategy": "qilcm", "probability": None}
        self.manifest = type("M", (), facts)
        self.calibration = Calibration(temperatures) if temperatures else None

    def rerank(self, candidates, *, strategy, probability=False):
        first = candidates.features[:, 0].astype(np.float64)
        order = rank_by_score(first)
        scores = first.copy()
        if strategy == "qilcm":
            scores *= 10.0
            scores[order[3:]] = np.nan
        ranking = Ranking(order, scores, scores, first, "second_stage", Route(strategy, "caller"))
        if probability:
            stated = self.calibration.probabilities(candidates.features, scores, first, strategy)
            ranking = dataclasses.replace(ranking, probability=stated)
        return ranking


def test_a_choice_below_the_cutoff_is_left_out():
    found = planted(100, 1.0)
    data = dataset([*found, ListOutcome(0, np.zeros(1), 0)])
    kept = [choice for choice in found if (choice.scores > choice.scores[choice.place]).sum() < 3]
    looked_at = choices(ByHand(), data, "qilcm")
    assert [choice.query for choice in looked_at] == [choice.query for choice in kept], "nor a list of one"
    assert {len(choice.scores) for choice in looked_at} == {3}
    assert len(choices(ByHand(), data, "first_stage")) == 100


def test_every_strategy_has_its_own_temperature():
    data = dataset(planted(2000, 2.0))
    found = temperatures(ByHand(), Splits(data, data, data, "by hand"))
    assert found["first_stage"] == pytest.approx(2.0, rel=0.15)
    assert found["qilcm"] == pytest.approx(20.0, rel=0.15)


def without_a_choice(data, labels):
    """The same lists, the first of which has other labels."""
    return dataclasses.replace(data, labels=np.concatenate([labels, data.labels[LENGTH:]]).astype(np.int32))


@pytest.mark.parametrize("labels", [[0, 0, 0, 0, 0], [1, 1, 0, 0, 0]])
def test_labels_are_choices_where_every_training_and_validation_list_has_one(labels):
    """A list without a choice, or with two relevant candidates, makes them grades."""
    data = dataset(planted(40, 1.0))
    other = without_a_choice(data, labels)
    assert without_choice(other) == 1
    assert are_choices(Splits(data, data, data, "x"))
    for splits in (Splits(other, data, data, "x"), Splits(data, other, data, "x")):
        assert not are_choices(splits)
        assert temperatures(ByHand(), splits) == {}
        found = measure_scores(ByHand(), RECIPE, splits)["calibration"]
        assert found == {"choices": False, "lists": 120, "without_choice": 1}
        assert calibration_title(found) == (
            "Scores are not probabilities on these data: 1 of 120 lists does not have exactly one relevant candidate"
        )


@pytest.mark.parametrize("labels", [[0, 0, 0, 0, 0], [1, 1, 0, 0, 0]])
def test_test_labels_do_not_decide_whether_temperatures_are_fitted(labels):
    data = dataset(planted(400, 2.0))
    whole, other = (Splits(data, data, test, "x") for test in (data, without_a_choice(data, labels)))
    assert temperatures(ByHand(), other) == temperatures(ByHand(), whole) != {}
    found = measure_scores(ByHand({"first_stage": 2.0}), RECIPE, other)
    assert found["calibration"] == {"choices": True, "lists": 1200, "without_choice": 1}
    assert found["probability"]["answering"] == "first_stage", "the default ranker is not calibrated"


def test_choices_without_a_temperature_are_called_uncalibrated():
    data = dataset(planted(40, 1.0))
    found = measure_scores(ByHand(), RECIPE, Splits(data, data, data, "x"))
    assert "probability" not in found
    assert "not calibrated" in score_sections({"details": found, "rankers": {}})[0].title
    earlier = {"calibration": {**found["calibration"], "rankers": [{}]}}
    assert score_sections({"details": earlier, "rankers": {}}) == []


def test_what_is_reported_is_what_the_temperature_does():
    found = reliability(ByHand({"first_stage": 2.0, "qilcm": 20.0}), dataset(planted(1000, 2.0, seed=1)))
    base, before, *_ = found["stated"]
    after = {row["by"]: row for row in found["stated"]}["qilcm"]
    assert (found["lists"], found["answering"], found["rival"], before["by"]) == (None, "qilcm", *2 * ["undivided"])
    assert base["log_loss"] == pytest.approx(-(np.log(1 / LENGTH) + (LENGTH - 1) * np.log(1 - 1 / LENGTH)) / LENGTH)
    assert after["log_loss"] < base["log_loss"]
    assert after["over_rival"]["mean"] == pytest.approx(after["log_loss"] - before["log_loss"])
    assert after["over_rival"]["high"] < 0.0
    assert after["ece"] < before["ece"]
    assert (before["temperature"], after["temperature"]) == (None, 20.0)
    (line,) = score_lines({"probability": found}, {})
    (section,) = score_sections({"details": {"probability": found}, "rankers": {"qilcm": "QILCM"}})
    assert line.startswith(section.title)
    assert f"{before['log_loss']:.4f}" in line
