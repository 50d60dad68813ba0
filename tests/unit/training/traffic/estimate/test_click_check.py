"""The check of the click model on planted swaps: silent where the model holds, and not where it does not."""

import numpy as np
import pytest

from listwright.training.traffic.estimate.estimate import UnitMeans, check_clicks
from listwright_lab.science.click_logs import click_chances
from listwright_lab.synthetic_traffic import examination

PLACES, COUNT = 10, 20_000
P = examination(PLACES, 1.0)


def swap_log(seed, clicks="by place", count=COUNT, share=0.5):
    """Lists of ten, better candidates first, with one pair of neighbours swapped in a share of them."""
    rng = np.random.default_rng(seed)
    attraction = -np.sort(-rng.beta(1.0, 3.0, size=(count, PLACES)), axis=1)
    upper, swapped = rng.integers(0, PLACES - 1, count), rng.random(count) < share
    order, rows = np.tile(np.arange(PLACES), (count, 1)), np.flatnonzero(swapped)
    pairs = np.stack([upper[rows], upper[rows] + 1], axis=1)
    order[rows[:, None], pairs] = pairs[:, ::-1]
    shown = np.take_along_axis(attraction, order, axis=1)
    places = np.tile(np.arange(PLACES), (count, 1))
    clicked = (rng.random((count, PLACES)) < click_chances(shown, places, 1.0, clicks)).astype(np.int8)
    units = rng.integers(0, count // 2, count)
    return {
        "swap": np.where(swapped, upper, -1),
        "clicked": clicked,
        "attraction": np.clip(shown + 0.1 * rng.normal(size=shown.shape), 0.0, 1.0),
        "stratum": np.zeros(count, dtype=np.int64),
        "unit": units,
    }


def check(log, propensities=P, covariance=None):
    covariance = np.zeros((PLACES, PLACES)) if covariance is None else covariance
    return check_clicks(log, UnitMeans(log["unit"], covariance), propensities)


def test_it_holds_where_clicks_are_by_place():
    found = [check(swap_log(seed)) for seed in range(12)]
    assert sum(each["holds"] for each in found) >= 11
    differences = np.array([[each["clicks"]["value"], each["attraction"]["value"]] for each in found])
    widths = np.array(
        [[each[name]["high"] - each[name]["value"] for name in ("clicks", "attraction")] for each in found]
    )
    assert (np.abs(differences.mean(axis=0)) < widths.mean(axis=0) / np.sqrt(len(found))).all()
    assert found[0]["swapped"] + found[0]["unswapped"] == COUNT


def test_trust_in_the_first_places_is_noticed():
    """People click irrelevant candidates at the top: those clicked there attract less."""
    found = [check(swap_log(seed, "with trust", 60_000)) for seed in range(3)]
    assert not any(each["holds"] for each in found)
    assert all(each["attraction"]["high"] < 0.0 for each in found)


def test_other_propensities_are_noticed():
    found = check(swap_log(0), examination(PLACES, 2.0))
    assert found["clicks"]["low"] > 0.0
    assert found["attraction"] == check(swap_log(0))["attraction"], "does not depend on them"
    unsure = check(swap_log(0), examination(PLACES, 2.0), np.eye(PLACES))
    assert unsure["clicks"]["low"] < 0.0 < unsure["clicks"]["high"], "but another log's may be off by so much"


def test_groups_with_more_swaps_are_no_difference():
    """Short lists are swapped more often, and get fewer clicks."""
    many, few = swap_log(1, share=0.8), swap_log(2, share=0.1)
    few["clicked"][:] = 0
    together = {name: np.concatenate([many[name], few[name]]) for name in many}
    together["unit"][COUNT:] += COUNT
    mixed = check(together)
    together["stratum"][COUNT:] = 1
    apart = check(together)
    assert not mixed["clicks"]["low"] < 0.0 < mixed["clicks"]["high"]
    assert apart["clicks"]["low"] < 0.0 < apart["clicks"]["high"]


def test_few_swaps_check_nothing():
    assert check(swap_log(0, count=30)) is None
    assert check(swap_log(0, share=0.0)) is None
    assert check(swap_log(0, share=1.0)) is None


def test_the_values_of_a_swap_by_hand():
    """Forty lists of two: a click at the lower place after a swap would have been 1 / p of a click above."""
    swaps = np.array([0, -1] * 40)
    clicked = np.array([[0, 1], [1, 0]] * 40, dtype=np.int8)
    log = {"swap": swaps, "clicked": clicked, "attraction": np.full((80, 2), 0.5), "unit": np.arange(80)}
    found = check(log | {"stratum": np.zeros(80, dtype=np.int64)}, np.array([1.0, 0.5]), np.zeros((2, 2)))
    assert (found["logged"], found["estimated"]) == (pytest.approx(1.0), pytest.approx(2.0))
    assert not found["holds"]
