"""Probabilities that are planted right or wrong, in lists whose candidates are relevant together."""

from dataclasses import replace

import numpy as np
import pytest

from listwright.ranking import bundle
from listwright.training.data.dataset import Dataset
from listwright.training.evaluation import reliability as measure
from listwright.training.evaluation.bootstrap import MOST_GROUPS
from listwright.training.evaluation.reliability import StatedProbabilities, join_lists
from listwright.training.reporting.measures.scores import reliability
from listwright.training.reporting.score_sections import score_lines, score_sections
from support.service.bundles import make_bundle, rows

LENGTH = 20


def planted(lists, seed=0, *, bias=0.0, base_rate=False, spread=0.8, length=LENGTH):
    """Right log-odds, moved by a bias; each list is easier or harder than its candidates say, by a spread."""
    rng = np.random.default_rng(seed)
    odds = 1.2 * rng.normal(size=(lists, length)) - 1.0
    nodes, mass = np.polynomial.hermite_e.hermegauss(15)
    own = 1.0 / (1.0 + np.exp(-(odds[..., None] + spread * nodes)))
    right = own @ mass / mass.sum()
    relevant = rng.random(right.shape) < 1.0 / (1.0 + np.exp(-(odds + spread * rng.normal(size=(lists, 1)))))
    stated = 1.0 / (1.0 + np.exp(-(np.log(right / (1.0 - right)) + bias)))
    if base_rate:
        stated = np.full_like(right, 0.3147)  # the mean of what is right
    return StatedProbabilities(np.full(lists, length), stated.ravel(), relevant.ravel(), np.ones(lists))


def test_log_loss_and_error_by_hand():
    """Two bins would need ten lists: all candidates are in one."""
    stated = StatedProbabilities(
        np.array([1, 3]), np.array([0.5, 0.8, 0.1, 0.0]), np.array([True, True, False, False]), np.array([2.0, 1.0])
    )
    losses = -np.log([0.5, 0.8, 0.9, 1.0])
    assert stated.log_losses() == pytest.approx([losses[0], losses[1:].mean()])
    assert np.average(stated.log_losses(), weights=stated.candidate_weights) == pytest.approx(losses @ [2, 1, 1, 1] / 5)
    assert stated.ece == pytest.approx(abs(2 * 0.5 + 0.9 - 3.0) / 5.0)
    assert stated.error_interval() == (0.0, 1.0), "of two lists nothing is known"


def test_a_certain_mistake_costs_much_and_not_everything():
    stated = StatedProbabilities(np.array([1]), np.array([0.0]), np.array([True]), np.ones(1))
    assert 20.0 < stated.log_losses()[0] < 40.0


@pytest.mark.parametrize("base_rate", [False, True])
def test_right_probabilities_are_not_refused_because_lists_differ(base_rate):
    found = [planted(60, seed, base_rate=base_rate) for seed in range(100)]
    assert sum(one.facts()["p"] <= 0.05 for one in found) <= 12
    errors, chance = (
        np.mean([value(one) for one in found]) for value in (lambda o: o.ece, lambda o: o.by_chance.mean())
    )
    assert chance == pytest.approx(errors, rel=0.15)
    if base_rate:
        rng = np.random.default_rng(0)
        alone = [replace(one, relevant=rng.random(60 * LENGTH) < one.probability).ece for one in found]
        assert np.mean(alone) < 0.6 * errors, "draws of single candidates would refuse even that"


def test_wrong_probabilities_are_refused_and_the_bias_is_in_the_interval():
    for seed in range(20):
        found = planted(200, seed, bias=0.5)
        facts, (low, high) = found.facts(), found.error_interval()
        assert facts["p"] == 1.0 / (1 + measure.DRAWS)
        assert facts["ece"] > 2.0 * facts["by_chance"]["high"]
        assert 0.0 < low < found.ece < high


def test_intervals_of_the_error_hold_it():
    """The true error is that of very many lists. Of 200 intervals, 195 should hold it."""
    for bias in (0.0, 0.2, 0.5):
        true = planted(40_000, 1, bias=bias).ece
        missed = [
            not low <= true <= high for low, high in (planted(100, s, bias=bias).error_interval() for s in range(100))
        ]
        assert sum(missed) <= 9
    narrow, wide = (planted(300, 2, bias=0.3).error_interval(alpha) for alpha in (0.05, 0.001))
    assert wide[0] < narrow[0] < narrow[1] < wide[1]


def test_bins_have_the_shares_and_their_intervals():
    found = planted(400, 3)
    facts = found.facts()
    assert len(facts["bins"]) == measure.MOST_BINS
    for number, (candidates, stated, share, low, high) in enumerate(facts["bins"]):
        of_bin = found.bins == number
        assert candidates == of_bin.sum()
        assert stated == pytest.approx(found.probability[of_bin].mean(), abs=1e-6)
        assert share == pytest.approx(found.relevant[of_bin].mean(), abs=1e-6)
        assert 0.0 <= low < share < high <= 1.0
    held = [low <= stated <= high for _, stated, _, low, high in facts["bins"]]
    assert sum(held) >= len(held) - 2
    mass = [found.probability[found.bins == number].sum() for number in range(measure.MOST_BINS)]
    assert mass == pytest.approx([np.mean(mass)] * measure.MOST_BINS, rel=0.02)


def test_lists_that_are_selected_and_joined_are_the_lists():
    found = planted(50, 4)
    first, last = found.select(np.arange(20)), found.select(np.arange(20, 50))
    assert first.ece == pytest.approx(planted(50, 4).select(np.arange(20)).ece)
    whole = join_lists([first, last])
    assert whole.ece == pytest.approx(found.ece)
    np.testing.assert_array_equal(whole.log_losses(), found.log_losses())


def test_very_many_lists_have_the_same_error_in_bounded_memory():
    found = planted(MOST_GROUPS + 500, 5, bias=0.1, length=3)
    gaps = [(found.probability - found.relevant)[found.bins == number].sum() for number in range(measure.MOST_BINS)]
    assert found.ece == pytest.approx(np.abs(gaps).sum() / len(found.probability))
    assert len(found._sums[0]) == MOST_GROUPS


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    return bundle.load(make_bundle(tmp_path_factory.mktemp("models") / "shop" / "1", probability="relevance"))


def labelled(schema, lists=60, seed=0):
    rng = np.random.default_rng(seed)
    features = rows(rng, lists * 8)
    labels = (features[:, 1] + rng.normal(size=len(features)) > 0).astype(np.int32)
    return Dataset(features, labels, np.arange(0, lists * 8 + 1, 8), tuple(map(str, range(lists))), schema)


def test_a_bundles_probabilities_are_measured_beside_the_rivals(served):
    reranker, test = served.reranker, labelled(served.manifest.feature_schema)
    facts = reliability(reranker, test)
    by = {row["by"]: row for row in facts["stated"]}
    assert set(by) == {"base_rate", "pointwise", *reranker.manifest.strategies}
    assert (facts["lists"], facts["answering"]) == (30, "qilcm")
    pointwise = reranker.calibration.pointwise(test.features)
    losses = -np.log(np.where(test.labels > 0, pointwise, 1.0 - pointwise))
    assert by["pointwise"]["log_loss"] == pytest.approx(losses.mean())
    assert by["pointwise"]["over_rival"] == {"mean": 0.0, "low": 0.0, "high": 0.0}
    rate = np.where(test.labels > 0, 0.4, 0.6)
    assert by["base_rate"]["log_loss"] == pytest.approx(-np.log(rate).mean())
    over = by["base_rate"]["over_rival"]
    assert over["mean"] == pytest.approx(by["base_rate"]["log_loss"] - by["pointwise"]["log_loss"])
    assert 0.0 < over["low"] < over["mean"] < over["high"]


def test_the_page_says_whether_they_can_be_trusted(served):
    test = labelled(served.manifest.feature_schema)
    facts = reliability(served.reranker, test)
    answering = next(row for row in facts["stated"] if row["by"] == "qilcm")
    names = {"qilcm": "QILCM", "first_stage": "LightGBM"}
    titles = []
    for p in (0.3, 0.01):
        answering["p"] = p
        (section,) = score_sections({"details": {"probability": facts}, "rankers": names})
        titles.append(section.title)
        (line,) = score_lines({"probability": facts}, names)
        assert line.startswith(section.title)
        assert f"{answering['ece']:.4f}" in section.title
        assert [row[0].split("\n")[0] for row in section.tables[0].rows][2:] == [
            names[r["by"]] for r in facts["stated"][2:]
        ]
    assert titles[0] != titles[1]


def test_the_reason_for_no_probabilities_is_on_the_page():
    facts = {"calibration": {"choices": False, "lists": 180, "without_choice": 170}}
    plain, told = (
        score_sections({"details": {**facts, **more}, "rankers": {}})[0] for more in ({}, {"no_probability": "too few"})
    )
    assert "too few" in " ".join(told.text)
    assert "too few" not in " ".join(plain.text)
