"""The study of several goals measures areas of fronts, and repeats lists with weights."""

import numpy as np
import polars as pl
import pytest

from listwright.ranking.features import Feature, FeatureSchema
from listwright.training.data.dataset import Dataset
from listwright_lab.science import goal_sets, goals


def test_a_hypervolume_is_the_area_of_the_stairs_above_the_reference():
    points = [(0.5, 0.2), (0.3, 0.4), (0.25, 0.35), (0.05, 0.9)]
    assert goals.hypervolume(points, (0.1, 0.1)) == pytest.approx(0.4 * 0.1 + 0.2 * 0.2)


def test_a_point_is_beaten_by_one_that_is_better_by_one_goal_and_no_worse_by_the_other():
    assert goals.unbeaten([(0.5, 0.2), (0.5, 0.1), (0.4, 0.3), (0.4, 0.3)]) == [True, False, True, True]


def test_lists_are_repeated_with_a_weight_from_each_third():
    schema = FeatureSchema(features=(Feature(name="price"),))
    rows, offsets = np.arange(5.0, dtype=np.float32)[:, None], np.array([0, 2, 5])
    data = Dataset(rows, np.array([0, 1, 1, 0, 0]), offsets, ("a", "b"), schema)
    values = np.column_stack([data.labels, [4.0, 3.0, 2.0, 1.0, 0.0]])
    many = goals.repeated(data, values, np.random.default_rng(0))
    assert many.lengths.tolist() == [2, 3] * 3
    price, share = many.features.T
    assert price.tolist() == [0, 1, 2, 3, 4] * 3
    by_list = share[many.offsets[:-1]]
    assert np.array_equal(np.repeat(by_list, many.lengths), share)
    for n in range(2):
        low, middle, high = np.sort(by_list[n::2])
        assert 0.0 <= low <= 0.3 <= middle <= 0.7 <= high <= 1.0
    first, second = np.tile(values, (3, 1)).T
    assert many.goals["mixed"] == pytest.approx((1 - share) * first + share * second)


@pytest.mark.parametrize("of_booked", [False, True])
def test_planted_values_have_the_stated_expectations(of_booked):
    data = goal_sets.planted(0, of_booked=of_booked)
    rows, expected = data.parts[2], data.expected
    assert len(rows) == len(expected)
    assert rows.group_by("qid").agg(booked=pl.col("label").sum())["booked"].min() > 0
    for name, column in (("label", 0), (goal_sets.SECOND, 1)):
        means = rows.select(name).to_numpy()[:, 0].reshape(-1, 20).mean(axis=1) - expected[:, column].reshape(
            -1, 20
        ).mean(axis=1)
        assert abs(means.mean()) < 4 * means.std() / np.sqrt(len(means))
