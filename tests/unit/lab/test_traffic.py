"""Judged rows that are made up: their places, arms, teams and swaps are what they say."""

import numpy as np
import polars as pl
import pytest

from listwright.ranking.experiments import team_draft
from listwright_lab.synthetic_traffic import Shop, interleaved_rows, ranked, split_rows, swapped_rows, visits

SHOP = Shop(length=6, depth=4, days=5)


@pytest.fixture(scope="module")
def served():
    rng = np.random.default_rng(0)
    found = visits(SHOP, 500, rng)
    return found, [ranked(found, noise, rng) for noise in (1.0, 0.0)]


def shown(rows):
    return np.array([int(name[1:]) for name in rows["candidate_id"]]).reshape(-1, SHOP.depth)


def test_a_ranker_without_noise_ranks_by_attraction(served):
    found, (_, exact) = served
    assert (np.diff(np.take_along_axis(found.attraction, exact, axis=1), axis=1) <= 0).all()


def test_a_unit_stays_in_its_arm_and_sees_its_ranker(served):
    found, orders = served
    rows = split_rows(SHOP, found, orders, np.random.default_rng(1), share=0.3)
    assert rows.group_by("unit").agg(pl.col("arm").n_unique())["arm"].max() == 1
    arm = rows["arm"].to_numpy().reshape(-1, SHOP.depth)[:, 0] == "challenger"
    assert 0.2 < arm.mean() < 0.4
    assert (shown(rows) == np.where(arm[:, None], orders[1], orders[0])[:, : SHOP.depth]).all()


def test_lists_are_interleaved_by_the_draft(served):
    found, orders = served
    rows = interleaved_rows(SHOP, found, orders, np.random.default_rng(1), salt="x")
    wanted = team_draft(orders[0][7].tolist(), orders[1][7].tolist(), query_id="q7", salt="x", length=SHOP.depth)
    mine = rows.filter(pl.col("query_id") == "q7")
    assert tuple(shown(rows)[7]) == wanted.order
    assert tuple(mine["team"]) == wanted.teams


def test_swaps_exchange_neighbours_and_say_so(served):
    found, (order, _) = served
    rows = swapped_rows(SHOP, found, order, np.random.default_rng(1), share=0.4)
    moved = shown(rows) != order[:, : SHOP.depth]
    assert (moved == rows["swapped"].to_numpy().reshape(moved.shape)).all()
    assert set(moved.sum(axis=1)) == {0, 2}
    assert (np.diff(np.argwhere(moved)[:, 1].reshape(-1, 2)) == 1).all()
    told = rows.filter("swapped").select("intervention", "propensity").unique().rows()
    assert told == [("swap", pytest.approx(0.4 / 3))]
    assert (
        rows.filter(pl.col("intervention").is_null())["propensity"].null_count()
        == rows.filter(pl.col("intervention").is_null()).height
    )


def test_time_goes_on(served):
    found, (order, _) = served
    rows = swapped_rows(SHOP, found, order, np.random.default_rng(1))
    assert rows["served_at"].is_sorted()
    assert rows["served_at"].dt.date().n_unique() == SHOP.days
