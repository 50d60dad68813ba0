"""Estimates on planted logs whose true change is known: no confident wrong verdict."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy.special import expit

from listwright.ranking.errors import DataError
from listwright.training.traffic.estimate import estimators
from listwright.training.traffic.estimate.estimate import summarise
from listwright.training.traffic.estimate.lists import PartWork, fit_models, keep_usable, value_rows


@pytest.fixture(autouse=True)
def few_trees(monkeypatch):
    monkeypatch.setattr(estimators, "TREES", 10)


class Planted:
    """A log of swaps in half of the lists.

    Args:
        order: ``(N, L)`` candidates in the logged ranker's order.
        attraction: ``(N, L)`` probability of a click on each candidate that is looked at.
        propensities: Propensities of the places, of which lists have perhaps fewer.
        shown: Number of shown candidates of each list.
    """

    def __init__(self, order, attraction, propensities, *, seed=0, shown=None, share=0.5):
        count, length = order.shape
        rng = np.random.default_rng(seed)
        shown = np.full(count, length) if shown is None else shown
        upper = np.where(rng.random(count) < share, (rng.random(count) * (shown - 1)).astype(int), -1)
        self.logged, rows = order, np.flatnonzero(upper >= 0)
        self.candidates, swapped = order.copy(), np.zeros(order.shape, dtype=bool)
        pairs = np.stack([upper[rows], upper[rows] + 1], axis=1)
        self.candidates[rows[:, None], pairs] = order[rows[:, None], pairs[:, ::-1]]
        swapped[rows[:, None], pairs] = True
        places = np.arange(length)
        looked = np.where(places < shown[:, None], np.append(propensities, np.zeros(length))[:length], 0.0)
        clicks = rng.random(order.shape) < looked * np.take_along_axis(attraction, self.candidates, axis=1)
        hidden = pl.Series(np.tile(places, count) >= np.repeat(shown, length))
        self.frame = pl.DataFrame(
            {
                "query_id": np.repeat([f"q{n}" for n in range(count)], length),
                "position": pl.Series(np.tile(places + 1, count)).set(hidden, None),
                "label": pl.Series(clicks.ravel().astype(np.int32)).set(hidden, None),
                "bundle": "shop/1",
                "experiment": "places",
                "swapped": swapped.ravel(),
                "team": pl.Series([None] * (count * length), dtype=pl.String),
            }
        )

    def rows_of(self, values):
        """Return ``(N * L,)`` values of candidates, ``(N, L)``, in the order of the rows."""
        return np.take_along_axis(values, self.candidates, axis=1).ravel()

    def estimate(self, orders, propensities, *, feature, clip=0.0, estimator="dr", covariance=None):
        _, facts, left_out = keep_usable(self.frame, "", len(propensities))
        kept = self.frame["query_id"].is_in(facts["query_id"].unique().to_list()).to_numpy()
        features = self.rows_of(feature)[kept, None].astype(np.float32)
        places = np.column_stack([self.rows_of(np.argsort(order, axis=1))[kept] for order in orders])
        models = fit_models(facts, features, propensities)
        covariance = np.zeros((len(propensities), len(propensities))) if covariance is None else covariance
        work = PartWork((), Path("rows"), "clicks", "", propensities, covariance, clip, models)
        names = [f"shop/{n}" for n in range(2, 2 + len(orders))]
        return summarise(names, value_rows(facts, features, places, work) | {"left_out": left_out}, work, estimator)


P = 1.0 / np.arange(1, 11)


def exchangeable(seed, count=1000):
    """The served ranker sorts by one feature, another by a second one that counts as much: no change."""
    rng = np.random.default_rng(seed)
    own, served = rng.normal(size=(2, count, 10))
    log = Planted(np.argsort(-served, axis=1), expit(own + served - 1.5), P, seed=seed)
    return log, np.argsort(-own, axis=1), own


def test_a_change_of_nothing_is_none():
    log, order, feature = exchangeable(0)
    for clip in (0.0, 0.6):
        found = log.estimate([order], P, feature=feature, clip=clip)
        (own,) = found["bundles"]
        assert own["verdict"] == "none"
        both = own["estimates"]["dr"], own["estimates"]["ips"]
        if not clip:
            assert both[0] == pytest.approx(both[1]), "one logged place of each candidate"
            assert own["clip_bias"] is None
        else:
            assert both[0]["low"] > 0.0, "the click model does not know why the served order is as good"
            assert own["clip_bias"]["value"] == pytest.approx(both[0]["value"] - both[1]["value"])
            assert own["clip_bias"]["low"] > 0.0
            (other,) = log.estimate([order], P, feature=feature, clip=clip, estimator="ips")["bundles"]
            assert other["clip_bias"] is None, "ips has no clip"


def test_candidates_that_nobody_was_shown_have_no_place():
    """Half of the lists show four of twelve candidates; the bundle is the logged ranker."""
    rng = np.random.default_rng(0)
    feature, shown = rng.normal(size=(600, 12)), np.tile([4, 8], 300)
    log = Planted(np.argsort(-feature, axis=1), expit(feature - 1.0), P[:8], shown=shown)
    (own,) = log.estimate([log.logged], P[:8], feature=feature)["bundles"]
    assert own["estimates"]["dr"] == {"value": 0.0, "low": 0.0, "high": 0.0}
    assert own["bounds"] == [0.0, 0.0]
    assert own["changed"] == 0.0
    lists = log.estimate([log.logged[:, ::-1]], P[:8], feature=feature)["bundles"][0]
    assert lists["bounds"][1] < (np.cumsum(P)[[3, 7]]).mean(), "and no more places than were shown"


def test_a_swap_at_the_last_place_leaves_bounds_right():
    """Two of three places have a propensity. The bundle exchanges places 2 and 3, whatever was swapped."""
    rng = np.random.default_rng(1)
    feature = rng.normal(size=(3000, 3))
    log = Planted(np.tile(np.arange(3), (3000, 1)), np.tile([0.5, 0.4, 0.1], (3000, 1)), P[:3], share=0.9)
    found = log.estimate([np.tile([0, 2, 1], (3000, 1))], P[:2], feature=feature)
    (own,) = found["bundles"]
    assert found["control"] == pytest.approx(0.5 + 0.4 / 2.0, abs=0.05)
    assert own["bounds"] == pytest.approx([-0.4 / 2.0, -0.4 / 2.0 + 0.5], abs=0.05)
    assert own["missing"] == pytest.approx(1.0 / 3.0)


def test_pairs_of_bundles_have_bounds():
    """The first bundle puts candidates without usable clicks first, the second two of them, the third as the second."""
    rng = np.random.default_rng(2)
    feature, shape = rng.normal(size=(3000, 6)), (3000, 1)
    log = Planted(np.tile(np.arange(6), shape), np.tile([0.3] * 3 + [0.05] * 3, shape), P[:6])
    orders = [np.tile(order, shape) for order in ([3, 4, 5, 0, 1, 2], [3, 4, 0, 1, 2, 5], [3, 4, 1, 0, 2, 5])]
    found = log.estimate(orders, P[:3], feature=feature)
    middle = {tuple(pair["names"]): pair for pair in found["pairs"]}
    for (better, worse), pair in middle.items():
        if "shop/2" in (better, worse):
            sign = 1.0 if worse == "shop/2" else -1.0
            clicked = 0.3 / 3.0  # of the candidate that only one of them shows, and the other may get a click there
            ends = sorted((sign * clicked, sign * (clicked - 1.0 / 3.0)))
            assert pair["bounds"] == pytest.approx(ends, abs=0.03)
            assert pair["verdict"] in ("depends", "none")
        else:
            assert pair["bounds"] == pytest.approx([pair["value"]] * 2), "both put the same unknown ones first"


def test_logs_with_few_clicks_are_refused():
    log, order, feature = exchangeable(0, 400)
    clicked = pl.col("label") > 0
    log.frame = log.frame.with_columns(label=pl.when(clicked & (clicked.cum_sum() <= 29)).then(1).otherwise(0))
    with pytest.raises(DataError, match="units with a click: 30 are needed"):
        log.estimate([order], P, feature=feature)


def test_lists_with_rules_are_no_part_of_the_check():
    """A swap with an excluded candidate is dropped, so lists with exclusions are swapped less often."""
    log, order, feature = exchangeable(0)
    ruled = pl.col("query_id").str.slice(1).cast(pl.Int64) < 300
    rules = pl.when(ruled).then(pl.lit("exclude")).alias("rules")
    log.frame = log.frame.with_columns(rules)
    found = log.estimate([order], P, feature=feature)
    assert found["lists"] == 1000
    assert found["check"]["swapped"] + found["check"]["unswapped"] == 700


def test_unsure_propensities_move_ips_by_its_clicks():
    """The interval of ips, from propensities alone, is that of its slopes, whatever the clip of dr."""
    log, order, feature = exchangeable(1)
    sure, low = np.zeros((10, 10)), np.zeros((10, 10))
    low[9, 9] = 1.0
    widths = []
    for clip in (0.0, 0.6):
        both = [
            log.estimate([order], P, feature=feature, clip=clip, covariance=covariance)["bundles"][0]["estimates"][
                "ips"
            ]
            for covariance in (sure, low)
        ]
        widths.append([each["high"] - each["low"] for each in both])
    assert widths[0] == pytest.approx(widths[1])
    up, down = P.copy(), P.copy()
    up[9], down[9] = P[9] * np.exp(0.01), P[9] * np.exp(-0.01)
    ends = [log.estimate([order], p, feature=feature)["bundles"][0]["estimates"]["ips"]["value"] for p in (up, down)]
    added = np.sqrt((widths[0][1] / 3.92) ** 2 - (widths[0][0] / 3.92) ** 2)
    assert added == pytest.approx(abs(ends[0] - ends[1]) / 0.02, rel=0.01)
