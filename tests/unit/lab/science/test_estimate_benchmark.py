"""Small versions of the study of estimates: simulated logs, their truth, and what is computed of many."""

import numpy as np
import pytest

from listwright.training.traffic.propensity import estimate as estimate_propensities
from listwright_lab.science import bundle_order, click_logs
from listwright_lab.science import estimate as study
from listwright_lab.science.click_logs import BY_PLACE, PLACES, WITH_TRUST, Served


@pytest.fixture(scope="module")
def served():
    """Queries in an order that is hardly better than random, and rankers with less and less noise."""
    rng = np.random.default_rng(0)
    attraction = rng.beta(1.0, 3.0, size=(200, PLACES))
    noise = np.array([0.0, *np.linspace(2.0, 0.2, click_logs.BUNDLES)])[:, None, None]
    scores = np.log(attraction) + noise * rng.normal(size=(len(noise), *attraction.shape))
    orders = np.argsort(np.argsort(-scores, axis=2), axis=2)
    features = np.stack([attraction, rng.normal(size=attraction.shape)], axis=2)
    return Served(features, attraction, orders)


def test_the_true_gain_is_that_of_many_clicks(served):
    """By hand for one query; the best order gains most, less so where people trust the first places."""
    one = Served(
        np.zeros((1, PLACES, 1)),
        np.array([[0.1, 0.9, 0.0, 0.0, 0.0]]),
        np.array([[[1, 0, 2, 3, 4]], [[0, 1, 2, 3, 4]]]),
    )
    assert one.gains(1.0, BY_PLACE) == pytest.approx([0.9 + 0.1 / 2 - (0.1 + 0.9 / 2), 0.0])
    gains = served.gains(1.0, BY_PLACE)
    assert gains.argmax() == 0
    assert 0.0 < served.gains(1.0, WITH_TRUST)[0] < gains[0]
    log = click_logs.draw_log(served, 1.0, BY_PLACE, swaps=False, count=50_000, rng=np.random.default_rng(1))
    chances = click_logs.click_chances(served.attraction, np.tile(np.arange(PLACES), (200, 1)), 1.0, BY_PLACE)
    assert log.rows["label"].mean() == pytest.approx(chances.mean(), rel=0.02)


def test_rows_are_swapped_and_know_their_place_by_other_rankers(served):
    log = click_logs.draw_log(served, 1.0, BY_PLACE, swaps=True, count=500, rng=np.random.default_rng(2))
    swapped = log.rows["swapped"].to_numpy().reshape(-1, PLACES)
    assert set(swapped.sum(axis=1).tolist()) == {0, 2}
    assert swapped.any(axis=1).mean() == pytest.approx(click_logs.SWAP_SHARE, abs=0.06)
    attraction = log.features[:, 0].reshape(-1, PLACES)
    best = np.take_along_axis(attraction, np.argsort(log.places[0].reshape(-1, PLACES), axis=1), axis=1)
    assert (np.diff(best, axis=1) <= 0.0).all(), "the better ranker knows the attraction"


@pytest.mark.nightly
def test_the_closed_form_of_propensities_is_the_fit(served, tmp_path):
    log = click_logs.draw_log(served, 1.0, BY_PLACE, swaps=True, count=5000, rng=np.random.default_rng(3))
    values, covariance = click_logs.propensities_of(log.rows)
    log.rows.write_parquet(tmp_path / "rows.parquet")
    fitted = estimate_propensities(tmp_path / "rows.parquet", way="swaps", places=PLACES, same=None)
    assert values == pytest.approx(fitted.values, abs=1e-4)
    assert covariance == pytest.approx(fitted.log_covariance, abs=1e-5)


@pytest.mark.nightly
def test_a_log_is_estimated_near_its_truth(served):
    found = study.measure(served, 1.0, BY_PLACE, swaps=True, count=6000, seed=0)
    assert found["true"] == pytest.approx(served.gains(1.0, BY_PLACE)[0], abs=1e-6)
    estimates = found["estimates"]
    assert estimates["dr"][1] < found["true"] < estimates["dr"][2]
    assert found["check"] in {True, False}
    assert estimates["dr, clip 10"] == estimates["dr"][:1], "below all propensities"
    assert 0.0 < estimates["dr, clip 60"][0] < estimates["dr"][0], "the prediction regresses to the mean"


def logs_of(*values, check=True):
    other = {"snips": [0.2, -1.0, 1.0], "dr, clip 20": [0.1]}
    return [{"true": 0.1, "check": check, "estimates": {"dr": list(value), **other}} for value in values]


def test_coverage_and_error_of_logs():
    found = study.summary(logs_of((0.0, -0.2, 0.2), (0.3, 0.2, 0.4), (0.2, 0.0, 0.4), (0.1, 0.0, 0.2)))
    covered, errors = found["covered"], found["errors"]
    assert covered["dr"][0] == 0.75
    assert covered["dr"][1:] == pytest.approx([0.194, 0.994], abs=1e-3), "Clopper and Pearson's"
    assert (errors["dr"]["rmse"], errors["dr"]["bias"]) == (pytest.approx(np.sqrt(0.06 / 4), abs=1e-5), 0.05)
    assert errors["snips"]["squared_error_over_dr"][0] == pytest.approx(0.01 / 0.015, abs=1e-4)
    assert errors["dr"]["squared_error_over_dr"] == [1.0, 1.0, 1.0]
    assert (covered.keys(), errors["dr, clip 20"]["rmse"]) == ({"dr", "snips"}, 0.0), "a clip has no interval"


def test_the_check_counts_where_the_interval_misses():
    missed, hit = (0.5, 0.4, 0.6), (0.12, 0.0, 0.2)
    logs = logs_of(missed, missed, hit, check=False) + logs_of(missed, hit)
    found = study.summary(logs)
    assert (found["check_fires"][0], found["misses"], found["fires_if_missed"][0]) == (
        0.6,
        3,
        pytest.approx(2 / 3, abs=1e-4),
    )
    assert study.summary(logs_of(hit, hit))["fires_if_missed"] is None
    assert "check_fires" not in study.summary(logs_of(hit, hit, check=None)), "without swaps nothing is checked"


def test_a_draft_lets_both_teams_pick_their_best_in_turn():
    rng = np.random.default_rng(4)
    places = np.array([rng.permutation(5) for _ in range(300)])
    shown, teams = bundle_order.team_drafts(places, rng)
    for row in range(300):
        rankings, taken = (list(range(5)), np.argsort(places[row]).tolist()), []
        for pick, other in zip(shown[row].tolist(), teams[row].tolist(), strict=True):
            assert pick == next(n for n in rankings[other] if n not in taken)
            taken.append(pick)
        assert (teams[row, [0, 2]] != teams[row, [1, 3]]).all()
    assert teams[:, [0, 2, 4]].mean() == pytest.approx(0.5, abs=0.08)


def test_win_shares_follow_the_better_ranker(served):
    shares = bundle_order.win_shares(served, served.orders[0], np.random.default_rng(5))
    assert len(shares) == len(bundle_order.DRAFTS)
    assert shares[-1] > 0.55
    own = np.broadcast_to(np.arange(PLACES), served.attraction.shape)
    assert bundle_order.win_shares(served, own, np.random.default_rng(5))[-1] == pytest.approx(0.5, abs=0.01)


def test_naive_ndcg_by_hand():
    clicks = np.array([[True, False, False, False, True], [False] * PLACES])
    places = np.array([[1, 0, 2, 3, 4], [0, 1, 2, 3, 4]])
    assert bundle_order.naive_ndcg(clicks, places) == pytest.approx(
        (1 / np.log2(3) + 1 / np.log2(6)) / (1 + 1 / np.log2(3))
    )


def test_queries_for_a_correlation_are_between_those_tried():
    points = [0.1, 0.3, 0.5, 0.6, 0.7, 0.8, 0.85]
    assert bundle_order.needed(points, 0.5) == 10 * 1000
    assert bundle_order.needed(points, 0.4) == pytest.approx(10 * np.sqrt(300 * 1000), rel=1e-3)
    assert bundle_order.needed(points, 0.05) == 10 * 100
    assert bundle_order.needed(points, 0.9) is None
