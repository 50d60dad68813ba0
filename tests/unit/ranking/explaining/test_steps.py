"""Steps to other training values: which, in which order, how far."""

import numpy as np
import pytest

from listwright.ranking.explaining.steps import OTHER_KIND, distance, steps, whole
from listwright.ranking.features import Feature, FeatureSchema
from support.service.bundles import CATEGORY

# levels               0.001 0.01 0.25   0.5   0.75   0.99   0.999
STARS = Feature(name="stars", quantiles=(0.0, 1.0, 10.0, 20.0, 30.0, 40.0, 50.0))
COUNTS = Feature(name="clicks", quantiles=(0.0, 0.0, 0.0, 0.0, 2.0, 8.0, 9.0))


@pytest.mark.parametrize(
    ("one", "other", "share"),
    [
        (10.0, 20.0, 0.25),
        (20.0, 10.0, 0.25),
        (10.0, 15.0, 0.125),
        (15.0, 25.0, 0.25),
        (-5.0, 0.0, 0.001),
        (50.0, 60.0, 0.001),
        (-5.0, 60.0, 1.0),
    ],
)
def test_distance_is_the_share_of_training_rows_between(one, other, share):
    assert distance(STARS, one, other) == pytest.approx(share)


def test_rows_that_have_the_value_itself_are_not_between():
    assert distance(COUNTS, 0.0, 2.0) == pytest.approx(0.25), "half of the rows have a 0"
    assert distance(COUNTS, 0.0, 1.0) == pytest.approx(0.125)


def test_steps_go_both_ways_the_nearest_first():
    found = steps(np.array([20.0], dtype=np.float32), FeatureSchema(features=(STARS,)))
    assert [step.value for step in found] == [30.0, 10.0, 40.0, 1.0, 50.0, 0.0] or [step.value for step in found] == [
        10.0,
        30.0,
        40.0,
        1.0,
        50.0,
        0.0,
    ]
    assert [step.size for step in found] == pytest.approx([0.25, 0.25, 0.49, 0.49, 0.499, 0.499])
    by_value = {step.value: step for step in found}
    assert (by_value[40.0].near_value, by_value[40.0].near) == (30.0, pytest.approx(0.25))
    assert (by_value[10.0].near_value, by_value[10.0].near) == (20.0, 0.0)


def test_a_quantile_that_repeats_is_one_step():
    found = steps(np.array([2.0], dtype=np.float32), FeatureSchema(features=(COUNTS,)))
    assert sorted(step.value for step in found) == [0.0, 8.0, 9.0]


def test_other_categories_and_from_missing_to_there_have_one_size():
    schema = FeatureSchema(features=(CATEGORY, STARS))
    found = steps(np.array([2.0, np.nan], dtype=np.float32), schema)
    assert {(step.column, step.value) for step in found} == {(0, 1.0), (0, 3.0)} | {(1, q) for q in STARS.quantiles}
    assert {step.size for step in found} == {OTHER_KIND}


def test_without_quantiles_there_is_no_step():
    assert steps(np.array([1.0], dtype=np.float32), FeatureSchema(features=(Feature(name="empty"),))) == []


@pytest.mark.parametrize(("feature", "own", "counts"), [(STARS, 3.0, True), (STARS, 3.5, False), (COUNTS, 0.0, True)])
def test_what_counts(feature, own, counts):
    assert whole(feature, own) is counts
