"""Grades of real values, default weights and the front, on lists whose best weights are known."""

import dataclasses
import math

import numpy as np
import pytest

from listwright.ranking.errors import RecipeError
from listwright.ranking.metrics import JudgedLists
from listwright.training.data.dataset import Dataset
from listwright.training.data.letor.text import letor_schema
from listwright.training.evaluation.protocol import goal_lists
from listwright.training.pipeline.goals import MOST_GRADES, ScoredGoals, _orders_alike, default_weights, front, grade
from listwright.training.recipe.config import Goals

LISTS = 1000
SECOND = 1.0 / math.log2(3.0)
LOSS = 1.0 - SECOND
"""NDCG that a list of two loses when the wrong candidate is first."""


def planted(lists=LISTS, others=1, weights=None):
    """Lists of two: the label wants the first candidate, every other goal the second.

    The label's shares of list n differ by (n + 0.5) / lists, those of another goal by 1: at the weight w, a share w of
    the lists has turned round.
    """
    theta = (np.arange(lists) + 0.5) / lists
    own = np.column_stack([(1.0 + theta) / 2.0, (1.0 - theta) / 2.0]).ravel()
    other = np.tile([0.0, 1.0], lists)
    offsets = 2 * np.arange(lists + 1)
    wanted = [JudgedLists(np.tile([1, 0], lists), offsets), *(goal_lists(other, offsets) for _ in range(others))]
    return ScoredGoals(own, np.column_stack([own, *[other] * others]), wanted, weights)


def names(others=1):
    return ["booked", "margin", "eco"][: 1 + others]


def test_few_values_have_a_grade_each_and_gain_in_proportion():
    values = np.array([0.0, 3.0, 1.0, 3.0, 2.0])
    edges, gains = grade(values)
    assert np.searchsorted(edges, values, side="right").tolist() == [0, 3, 1, 3, 2]
    assert gains == pytest.approx((0.0, 1 / 3, 2 / 3, 1.0))


def test_many_values_share_grades_of_equal_numbers():
    values = np.random.default_rng(0).lognormal(size=3100)
    values[:100] = 0.0
    edges, gains = grade(values)
    grades = np.searchsorted(edges, values, side="right")
    assert grades.max() == MOST_GRADES == len(gains) - 1
    assert np.ptp(np.bincount(grades)[1:]) <= 1
    assert np.bincount(grades)[0] == 100
    assert (np.diff(gains) > 0.0).all()
    assert gains[7] / gains[3] == pytest.approx(values[grades == 7].mean() / values[grades == 3].mean())


@pytest.mark.parametrize("cost", [0.005, 0.02, 0.1])
def test_a_weight_is_the_largest_whose_cost_is_shown_to_be_small(cost):
    weight = default_weights(planted(), names(), Goals(cost=cost))[1]
    steps = [round(step / (100 - step), 4) for step in range(100)]

    def upper(share):
        return LOSS * (share + 1.96 * math.sqrt(share * (1.0 - share) / LISTS))

    shares = [math.ceil(step * LISTS - 0.5) / LISTS for step in steps[:50]]
    safe = [step for step, share in zip(steps, shares, strict=False) if upper(share) <= cost]
    assert weight == safe[-1]
    assert steps[1] <= weight < 0.5 or (weight == 0.0 and cost == 0.005)


def test_no_weight_is_taken_beyond_one_that_costs_too_much():
    class Recovering(ScoredGoals):
        """Lists that lose NDCG by the label at one weight in the middle alone."""

        def ndcg(self, weights):
            middle = 0.2 < weights[1] < 0.25
            return [np.full(LISTS, 0.5 if middle else 1.0), np.full(LISTS, weights[1] / 100.0)]

    lists = planted()
    recovering = Recovering(lists.alone, lists.shares, lists.lists, None)
    assert default_weights(recovering, names(), Goals())[1] == pytest.approx(16 / 84, abs=1e-4)


def test_the_label_alone_has_the_order_that_is_served():
    lists = planted()
    tied = dataclasses.replace(lists, shares=np.full_like(lists.shares, 0.5))
    assert tied.means([1.0, 0.0]) == pytest.approx((1.0, SECOND))
    assert tied.means([1.0, 0.1])[0] == pytest.approx((1.0 + SECOND) / 2.0)


def test_few_lists_show_no_cost_to_be_small():
    assert default_weights(planted(lists=19), names(), Goals(cost=0.5)) == [1.0, 0.0]
    assert default_weights(planted(lists=20), names(), Goals(cost=0.5))[1] > 0.0
    counted = np.zeros(LISTS)
    counted[:19] = 1.0
    assert default_weights(planted(weights=counted), names(), Goals(cost=0.5)) == [1.0, 0.0]


def test_a_goal_that_agrees_with_the_label_does_no_harm():
    lists = planted()
    same = dataclasses.replace(lists, shares=lists.shares[:, [0, 0]], lists=[lists.lists[0]] * 2)
    assert default_weights(same, names(), Goals()) == [1.0, 0.0]
    assert {point.valid for point in front(same, same, [1.0, 0.0])} == {(1.0, 1.0)}


def test_a_goal_that_was_not_learned_has_no_weight():
    lists = planted()
    coin = np.random.default_rng(0).random(2 * LISTS)
    noise = dataclasses.replace(lists, shares=np.column_stack([lists.alone, coin]))
    assert default_weights(noise, names(), Goals(cost=0.5)) == [1.0, 0.0]
    assert default_weights(noise, names(), Goals(weights={"margin": 0.3})) == [1.0, 0.3]


@pytest.mark.parametrize(("scale", "alike"), [([1.0, 5.0], True), ([0.0, 1.0], False)])
def test_values_in_proportion_to_the_gains_of_each_list(scale, alike):
    labels, lengths = np.array([0, 1, 2, 0, 1]), [3, 2]
    data = Dataset(
        np.zeros((5, 1), np.float32),
        labels,
        np.array([0, 3, 5]),
        ("a", "b"),
        letor_schema(1),
        goals={"margin": (2.0**labels - 1.0) * np.repeat(scale, lengths)},
    )
    assert _orders_alike(data, "margin") is alike


@pytest.mark.parametrize("ratio", [0.9, 1.0, 1.05, 1.3, 1.5])
def test_a_least_ratio_takes_the_smallest_weight_that_reaches_it(ratio):
    lists = planted()
    weight = default_weights(lists, names(), Goals(ratios={"margin": ratio}))[1]
    steps = [round(step / (100 - step), 4) for step in range(100)]
    expected = next(step for step in steps if lists.means([1.0, step])[1] >= ratio * SECOND)
    assert weight == expected
    assert lists.means([1.0, weight])[1] / SECOND == pytest.approx(
        min(1.0 + weight * LOSS / SECOND, 1 / SECOND), abs=1e-3
    )


def test_a_ratio_out_of_reach_names_the_largest():
    with pytest.raises(RecipeError, match=rf"margin>=1\.7.*{1 / SECOND:.4f}"):
        default_weights(planted(), names(), Goals(ratios={"margin": 1.7}))


def test_given_weights_stand_and_earlier_ones_are_kept():
    lists = planted(others=2)
    assert default_weights(lists, names(2), Goals(weights={"margin": 0.2, "eco": 0.7})) == [1.0, 0.2, 0.7]
    first = default_weights(planted(), names(), Goals(cost=0.05))[1]
    both = default_weights(lists, names(2), Goals(cost=0.05))
    assert both[1] == first
    assert both[2] > 0.0, "the cost is counted from the order with the weights before it"
    given = default_weights(lists, names(2), Goals(weights={"eco": 0.3}, cost=0.05))
    assert given[2] == 0.3
    assert lists.means(given)[0] >= lists.means([1.0, 0.0, 0.3])[0] - 0.05


def test_a_ratio_holds_beside_all_other_weights():
    lists = planted(others=2)
    against = dataclasses.replace(
        lists, shares=lists.shares @ np.diag([1, 1, 0]) + np.outer(np.tile([1.0, 0.0], LISTS), [0, 0, 1])
    )
    asked = Goals(weights={"eco": 0.5}, ratios={"margin": 1.3})
    weights = default_weights(against, names(2), asked)
    assert weights[1] > default_weights(lists, names(2), Goals(ratios={"margin": 1.3}, weights={"eco": 0.0}))[1]
    assert against.means(weights)[1] >= 1.3 * SECOND
    goals = [lists.lists[0], lists.lists[1], lists.lists[0]]  # the third wants what the second does not
    opposed = dataclasses.replace(against, lists=goals)
    with pytest.raises(RecipeError, match=r"--goal margin>=1\.4: .*beside the other goals' weights"):
        default_weights(opposed, names(2), Goals(ratios={"margin": 1.4, "eco": 0.99}))


def test_points_that_another_one_beats_are_left_out():
    lists = planted()
    points = front(lists, lists, [1.0, 0.25])
    weights = [point.weights for point in points]
    assert (1.0, 0.25) in weights
    assert len(weights) == 22
    assert weights[0] == (1.0, 0.0)
    assert weights[-1] == (0.0, 1.0)
    by_label, by_goal = np.array([point.valid for point in points]).T
    assert (np.diff(by_label) <= 0.0).all()
    assert (np.diff(by_goal) >= 0.0).all()
    assert points[0].valid == pytest.approx((1.0, SECOND))
    assert points[-1].valid == pytest.approx((SECOND, 1.0))

    useless = dataclasses.replace(lists, lists=[lists.lists[0]] * 2)  # both want the same: the label's model is best
    kept = [point.weights for point in front(useless, lists, [1.0, 0.9])]
    assert {(1.0, 0.0), (1.0, 0.9), (0.0, 1.0)} <= set(kept)
    assert (0.4, 0.6) not in kept
    assert all(useless.means(some) == (1.0, 1.0) for some in kept if some not in {(1.0, 0.9), (0.0, 1.0)})
    three = planted(others=2)
    weights = [point.weights for point in front(three, three, [1.0, 0.0, 0.0])]
    assert len(set(weights)) == len(weights), "the default weights are one of the ends, which is there once"
