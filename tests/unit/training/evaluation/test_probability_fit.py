"""Probabilities of being relevant that are planted and found again, and labels that give none."""

import dataclasses

import numpy as np
import pytest

from listwright.ranking.probability import level_probabilities, sigmoid
from listwright.training.data.dataset import Splits
from listwright.training.evaluation.calibration import FEWEST_LISTS
from listwright.training.evaluation.probability import ScoredLists, obstacle_to
from listwright.training.evaluation.protocol import RankedRows
from support.training.planted import ranking_data

SLOPE, INTERCEPT, TEMPERATURE = 0.7, -0.4, 0.5


def planted(lists, seed=0, lengths=(1, 12), scale=1.0):
    """Lists whose candidates are relevant with the probability of a calibration of their scores, and these."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(lengths[0], lengths[1] + 1, lists)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    levels, scores = np.repeat(2.0 * rng.normal(size=lists), sizes), rng.normal(size=offsets[-1])
    expected = np.add.reduceat(sigmoid(SLOPE * levels + INTERCEPT), offsets[:-1])
    probability = level_probabilities(scores / TEMPERATURE, expected, offsets[:-1])
    ranked = RankedRows(np.arange(offsets[-1]), scale * scores, {"first_stage": scale * scores})
    relevant = rng.random(offsets[-1]) < probability
    return ScoredLists(relevant, np.ones(offsets[-1]), levels, offsets, ranked), probability


def fitted(lists, queries=None):
    return lists.fit_stage(np.arange(lists.valid) if queries is None else queries, ("first_stage",))


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_a_planted_calibration_is_found_on_any_scale_of_scores(scale):
    lists, probability = planted(700, scale=scale)
    stage = fitted(lists)
    assert (stage.slope, stage.intercept) == pytest.approx((SLOPE, INTERCEPT), abs=0.1)
    assert stage.temperatures["first_stage"] / scale == pytest.approx(TEMPERATURE, rel=0.1)
    assert (stage.lists, stage.mean) == (700, lists.relevant.mean())
    stated = lists.probabilities(np.arange(700), "first_stage", stage)
    assert np.abs(stated - probability).mean() < 0.02


def test_a_planted_weight_of_the_pointwise_scores_is_found():
    """Which differ within lists and are right; the ranker's order is that of both together."""
    rng = np.random.default_rng(2)
    offsets = np.arange(0, 8_001, 8)
    levels, noise = 2.0 * rng.normal(size=8_000), rng.normal(size=8_000)
    relevant = rng.random(8_000) < sigmoid(0.8 * levels + 0.5 * noise - 0.5)
    scores = 0.8 * levels + noise
    lists = ScoredLists(relevant, np.ones(8_000), levels, offsets, RankedRows(np.arange(8_000), scores, {}))
    stage = lists.fit_stage(np.arange(1_000), ())
    assert 1.0 / stage.temperatures["first_stage"] == pytest.approx(0.5, abs=0.1)
    assert stage.pointwise["first_stage"] == pytest.approx(0.4, abs=0.1)
    alone = stage.model_copy(update={"pointwise": {}})
    losses = [
        lists.loss(np.arange(1_000), lists.probabilities(np.arange(1_000), "first_stage", s)) for s in (stage, alone)
    ]
    assert losses[0] < losses[1] - 0.01


def test_probabilities_fall_along_the_scores_and_add_up_to_the_expected_number():
    lists, _ = planted(60)
    stage = fitted(lists)
    expected = np.add.reduceat(sigmoid(stage.slope * lists.levels + stage.intercept), lists.offsets[:-1])
    for n in range(60):
        stated = lists.probabilities(np.array([n]), "first_stage", stage)
        order = np.argsort(lists.ranked.first_scores[lists.rows_of(np.array([n]))])
        assert (np.diff(stated[order]) >= 0.0).all()
        assert stated.sum() == pytest.approx(expected[n], abs=1e-9)


def test_a_list_of_weight_2_is_two_lists():
    """And one of weight 0 is none."""
    lists, _ = planted(60)
    of_list = np.repeat([2.0, 1.0, 0.0], 20)
    weighted = dataclasses.replace(lists, weights=np.repeat(of_list, np.diff(lists.offsets)))
    twice = fitted(lists, np.concatenate([np.arange(20), np.arange(40)]))
    once = fitted(weighted)
    for name in ("slope", "intercept", "mean"):
        assert getattr(once, name) == pytest.approx(getattr(twice, name), rel=1e-3)
        assert getattr(once, name) != pytest.approx(getattr(fitted(lists), name), rel=1e-2)
    assert once.temperatures["first_stage"] == pytest.approx(twice.temperatures["first_stage"], rel=0.1)


def test_probabilities_are_refused_where_they_predict_no_better_than_one_rate():
    lists, _ = planted(200)
    assert lists.calibration("first_stage") is not None
    shuffled = np.random.default_rng(1).permutation(lists.relevant)
    assert dataclasses.replace(lists, relevant=shuffled).calibration("first_stage") is None


def test_equal_scores_share_what_is_expected_of_their_list():
    lists, _ = planted(60)
    alike = np.full(len(lists.relevant), 3.0)
    lists = dataclasses.replace(lists, ranked=RankedRows(lists.ranked.order, alike, {"first_stage": alike}))
    stage = fitted(lists)
    assert stage.temperatures == {"first_stage": 1.0}
    stated = lists.probabilities(np.arange(60), "first_stage", stage)
    np.testing.assert_allclose(stated, sigmoid(stage.slope * lists.levels + stage.intercept), atol=1e-9)


def test_candidates_below_the_cutoff_are_calibrated_by_the_first_stage():
    lists, _ = planted(200, lengths=(6, 12))
    first, cut = lists.ranked.first_scores, lists.ranked.first_scores.copy()
    for n in range(lists.valid):
        rows = lists.rows_of(np.array([n]))
        cut[rows[np.argsort(-first[rows])[4:]]] = np.nan
    lists = dataclasses.replace(lists, ranked=lists.ranked._replace(scores={"dlcm": cut, "first_stage": first}))
    stage = lists.fit_stage(np.arange(200), ("dlcm", "first_stage"))
    assert set(stage.temperatures) == {"dlcm", "first_stage"}
    stated = lists.probabilities(np.arange(200), "dlcm", stage)
    assert lists.loss(np.arange(200), stated) < 0.5
    for n in range(lists.valid):
        own = lists.probabilities(np.array([n]), "dlcm", stage)
        assert (np.diff(own[np.argsort(first[lists.rows_of(np.array([n]))])]) >= 0.0).all()


def level_of(levels, relevant, length=2):
    """Slope and intercept by pointwise scores and labels of lists that have one length."""
    count, nothing = len(levels), np.empty(0)
    offsets, ranked = np.arange(0, count + 1, length), RankedRows(nothing.astype(np.int64), nothing, {})
    lists = ScoredLists(np.asarray(relevant), np.ones(count), np.asarray(levels), offsets, ranked)
    return lists.fit_level(np.arange(count // length))


@pytest.mark.parametrize("levels", [[-800.0, 800.0], [-1.0, 1.0], [0.0, 0.0]])
def test_labels_that_scores_separate_leave_finite_numbers(levels):
    level = level_of(np.repeat(levels, 30), np.repeat([False, True], 30))
    assert np.isfinite(level).all()
    assert level[0] >= 0.0


def test_scores_against_the_labels_get_no_slope():
    slope, intercept = level_of(np.repeat([1.0, -1.0] * 25, 2), np.repeat([False, True] * 25, 2))
    assert slope == 0.0
    assert sigmoid(np.array([intercept]))[0] == pytest.approx(0.5, abs=1e-3)


def test_scores_that_say_nothing_of_a_whole_list_get_no_slope():
    """Single rows have the log-odds of their scores; but of four candidates of a list, two are always relevant."""
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(300, 4))
    utility = scores + rng.gumbel(size=scores.shape)
    relevant = (utility.argsort(axis=1).argsort(axis=1) >= 2).reshape(-1)
    shifted = (scores + rng.normal(size=(300, 1))).reshape(-1)
    slope, intercept = level_of(shifted, relevant, length=4)
    assert slope == pytest.approx(0.0, abs=0.05)
    assert sigmoid(np.array([intercept]))[0] == pytest.approx(0.5, abs=0.01)


def test_training_lists_settle_the_level_of_a_few_validation_lists():
    many, _ = planted(1500, seed=1)
    few, _ = planted(25)
    both = (np.concatenate([getattr(part, name) for part in (few, many)]) for name in ("relevant", "weights", "levels"))
    offsets = np.concatenate([few.offsets, few.offsets[-1] + many.offsets[1:]])
    stage = fitted(ScoredLists(*both, offsets, few.ranked))
    assert (stage.slope, stage.intercept) == pytest.approx((SLOPE, INTERCEPT), abs=0.1)
    assert (stage.lists, stage.mean) == (25, few.relevant.mean())
    alone = fitted(few)
    assert abs(alone.intercept - INTERCEPT) > 2 * abs(stage.intercept - INTERCEPT)


def labelled(labels, weights=None):
    """Splits of 30 lists of two candidates; their labels, of one list or of each."""
    data = ranking_data(np.random.default_rng(0), queries=30, length=2)
    values = np.resize(np.asarray(labels, dtype=np.int32), 60)
    part = dataclasses.replace(data, labels=values, weights=weights)
    return Splits(part, part, part, "planted")


def test_labels_that_tell_relevant_candidates_from_others_are_calibrated():
    for labels in ([0, 2, 0, 0], [0, 0, 1, 1], [1, 1, 0, 1], [0, 4, 3, 2]):
        assert obstacle_to(labelled(labels)) is None


def test_choices_need_no_pointwise_model():
    assert obstacle_to(labelled([0, 1])) == ""


@pytest.mark.parametrize("labels", [[0], [1], [1, 2]])
def test_labels_that_are_all_alike_give_no_probabilities(labels):
    assert obstacle_to(labelled(labels))
    assert obstacle_to(dataclasses.replace(labelled([0, 1, 1, 1]), valid=labelled(labels).valid))


def test_rows_without_weight_do_not_count():
    weights = np.resize([1.0, 0.0], 60)
    assert obstacle_to(labelled([0, 1, 0, 0], weights))
    assert obstacle_to(labelled([0, 1, 1, 1], weights)) is None


def test_too_few_validation_lists_give_no_probabilities():
    splits = labelled([0, 1, 0, 0])
    for lists, enough in ((FEWEST_LISTS, True), (FEWEST_LISTS - 1, False)):
        few = dataclasses.replace(splits, valid=splits.valid.select(range(lists)))
        assert (obstacle_to(few) is None) == enough


def test_validation_lists_of_weight_0_are_not_enough():
    for counting, enough in ((FEWEST_LISTS, True), (FEWEST_LISTS - 1, False)):
        weights = np.repeat(np.arange(30) < counting, 2).astype(np.float64)
        assert (obstacle_to(labelled([0, 1, 0, 0], weights)) is None) == enough
