"""Steps to other training values: which, in which order, how far."""

import numpy as np
import pytest

from listwright.ranking.explaining.passing import (
    MOST_CATEGORIES,
    MOST_STEPS,
    OTHER_KIND,
    _list_steps,
    distance,
    is_whole,
)
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


def steps_of(row, *features):
    """Of the only candidate of a list."""
    found = _list_steps(np.array([row], dtype=np.float32), 0, FeatureSchema(features=features))
    assert found.left_out == 0
    return found.steps


def test_steps_go_both_ways_the_nearest_first():
    found = steps_of([20.0], STARS)
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
    found = steps_of([2.0], COUNTS)
    assert sorted(step.value for step in found) == [0.0, 8.0, 9.0]


def test_other_categories_and_from_missing_to_there_have_one_size():
    found = steps_of([2.0, np.nan], CATEGORY, STARS)
    assert {(step.column, step.value) for step in found} == {(0, 1.0), (0, 3.0)} | {(1, q) for q in STARS.quantiles}
    assert {step.size for step in found} == {OTHER_KIND}


def test_without_quantiles_there_is_no_step():
    assert steps_of([1.0], Feature(name="empty")) == []


MANY = Feature(name="shop", kind="categorical", categories=tuple(f"s{n:05}" for n in range(50_000)))


def test_of_many_categories_those_of_the_list_are_tried_and_then_the_first():
    rows = np.array([[7.0], [40_000.0], [9.0], [40_000.0], [0.0]], dtype=np.float32)
    found, left_out = _list_steps(rows, 0, FeatureSchema(features=(MANY,)))
    codes = [step.value for step in found]
    assert codes[:5] == [40_000.0, 9.0, 1.0, 2.0, 3.0]
    assert len(codes) == MOST_CATEGORIES
    assert 7.0 not in codes, "its own"
    assert left_out == 49_999 - MOST_CATEGORIES


def test_of_many_steps_the_smallest_are_tried():
    many = tuple(MANY.model_copy(update={"name": f"shop {n}"}) for n in range(MOST_STEPS // MOST_CATEGORIES))
    row = np.array([[20.0, *[1.0] * len(many)]], dtype=np.float32)
    found, left_out = _list_steps(row, 0, FeatureSchema(features=(STARS, *many)))
    assert len(found) == MOST_STEPS
    assert [step.column for step in found[:6]] == [0] * 6
    assert left_out == 6 + len(many) * (49_999 - MOST_CATEGORIES)


@pytest.mark.parametrize(("feature", "own", "counts"), [(STARS, 3.0, True), (STARS, 3.5, False), (COUNTS, 0.0, True)])
def test_what_counts(feature, own, counts):
    assert is_whole(feature, own) is counts
