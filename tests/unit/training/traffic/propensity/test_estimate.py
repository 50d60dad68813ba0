"""Propensities of simulated logs cover the planted truth; where a log cannot say, the refusal says what is lacking."""

import json
import re

import numpy as np
import polars as pl
import pytest

from listwright.ranking.errors import DataError, RecipeError
from listwright.training.commands import propensity as command
from listwright.training.recipe.data import read_propensity
from listwright.training.traffic.propensity import FEWEST_CLICKS, estimate
from listwright_lab.synthetic_traffic import Shop, examination, judged_rows, ranked, swapped_rows, visits

SHOP = Shop(length=8, depth=5, rate=0.3)


def swaps(queries, seed=0, share=0.5, shop=SHOP):
    rng = np.random.default_rng(seed)
    found = visits(shop, queries, rng)
    return swapped_rows(shop, found, ranked(found, 1.0, rng), rng, share=share)


def served_by_two(queries, seed=0, requests=40):
    """A few requests again and again, each time ranked by one of two bundles."""
    rng = np.random.default_rng(seed)
    page = visits(SHOP, requests, rng)
    orders = np.stack([ranked(page, noise, rng) for noise in (0.2, 3.0)])
    asked, bundle = rng.integers(0, requests, queries), rng.integers(0, 2, queries)
    log = visits(SHOP, queries, rng)
    log = type(log)(log.unit, log.day, page.attraction[asked])
    shown = orders[bundle, asked][:, : SHOP.depth]
    names = np.repeat(np.where(bundle, "shop/2", "shop/1"), SHOP.depth)
    return judged_rows(SHOP, log, shown, rng).with_columns(
        pl.Series("bundle", names), pl.Series("text", np.repeat([f"t{n}" for n in asked], SHOP.depth))
    )


def written(path, rows):
    rows.write_parquet(path / "rows.parquet")
    return path / "rows.parquet"


def estimated(path, rows, **options):
    return estimate(written(path, rows), **({"way": None, "places": None, "same": None} | options))


def covered(found, strength=1.0):
    truth = examination(len(found.values), strength)[1:]
    return ((found.low[1:] <= truth) & (truth <= found.high[1:])).tolist()


@pytest.mark.nightly
@pytest.mark.parametrize("strength", [0.0, 1.0])
def test_intervals_from_swaps_cover_the_truth(tmp_path, strength):
    shop = Shop(length=8, depth=5, rate=0.3, strength=strength)
    inside = []
    for seed in range(5):
        found = estimated(tmp_path, swaps(12_000, seed, shop=shop))
        assert (found.way, found.queries) == ("swaps", 12_000)
        inside += covered(found, strength)
    assert np.mean(inside) >= 0.8
    assert found.values == pytest.approx(examination(5, strength), abs=0.25)


@pytest.mark.nightly
def test_a_small_share_of_swaps_is_no_bias(tmp_path):
    found = estimated(tmp_path, swaps(40_000, share=0.1))
    assert found.values == pytest.approx(examination(5, 1.0), abs=0.12)


def test_naive_click_rates_would_be_wrong(tmp_path):
    rows = swaps(12_000)
    rates = rows.group_by("position").agg(pl.col("label").mean()).sort("position")["label"].to_numpy()
    truth, found = examination(5, 1.0), estimated(tmp_path, rows)
    assert np.abs(found.values - truth).max() < np.abs(rates / rates[0] - truth).max()


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["text", "asked", "n"])
def test_intervals_from_two_bundles_cover_the_truth(tmp_path, name):
    """Requests are told apart by their text."""
    rows = served_by_two(6000).rename({"text": name})
    found = estimated(tmp_path, rows, same=name, places=4)
    assert found.way == "harvest"
    assert np.mean(covered(found)) >= 2 / 3
    assert found.values == pytest.approx(examination(4, 1.0), abs=0.2)


def test_requests_with_the_same_candidates_are_the_same(tmp_path):
    shop, rng = Shop(length=5, depth=5, rate=0.3), np.random.default_rng(3)
    page = visits(shop, 40, rng)
    found = estimated(tmp_path, pl.concat(_again(shop, page, rng, n) for n in range(150)))
    assert (found.way, found.observations, found.queries) == ("harvest", 40, 6000)
    assert found.values == pytest.approx(examination(5, 1.0), abs=0.2)


def _again(shop, page, rng, n):
    """All requests once more, by one of two bundles; candidates have ids of their request."""
    bundle = n % 2
    order = ranked(page, 0.2, np.random.default_rng(7)) if bundle else ranked(page, 3.0, np.random.default_rng(8))
    return judged_rows(shop, page, order, rng).with_columns(
        pl.col("query_id") + f"-{n}",
        (pl.col("query_id") + pl.col("candidate_id")).alias("candidate_id"),
        pl.lit(f"shop/{bundle}").alias("bundle"),
    )


def test_lists_of_different_lengths_are_not_mixed_up(tmp_path):
    """The two places of a short list are swapped always, where long lists have more pairs; and both differ in merit."""
    rng, parts = np.random.default_rng(5), []
    for shown, odds in ((2, 4.0), (8, 0.0)):
        shop = Shop(length=8, depth=shown, rate=0.3, strength=0.0)
        found = visits(shop, 20_000, rng)
        found.attraction[:, 0] = 1.0 / (1.0 + np.exp(-odds))
        orders = np.tile(np.arange(8), (20_000, 1))
        rows = swapped_rows(shop, found, orders, rng, share=0.5)
        parts.append(rows.with_columns(pl.col("query_id") + f"-{shown}"))
    found = estimated(tmp_path, pl.concat(parts), places=2)
    assert found.values[1] == pytest.approx(1.0, abs=0.04)


def test_traffic_of_different_shares_is_not_mixed_up(tmp_path):
    """Two bundles, one clicked much more and swapped much less: pooled rates would be far off."""
    busy = swaps(12_000, 1, share=0.1, shop=Shop(length=8, depth=3, rate=0.5))
    quiet = swaps(12_000, 2, share=0.9, shop=Shop(length=8, depth=3, rate=0.05))
    rows = pl.concat([busy, quiet.with_columns(pl.col("query_id") + "b", pl.lit("shop/2").alias("bundle"))])
    assert estimated(tmp_path, rows).values == pytest.approx(examination(3, 1.0), abs=0.1)


def test_too_few_swaps_are_refused_with_how_many_are_lacking(tmp_path):
    rows = swaps(2000)
    with pytest.raises(DataError, match="more swaps are needed") as told:
        estimated(tmp_path, rows)
    said = re.search(
        r"places (\d) and (\d) were swapped (\d+) times, with (\d+) clicks.*?about (\d+) more", str(told.value)
    )
    upper, lower, swapped, clicks, lacking = map(int, said.groups())
    assert lower == upper + 1
    assert lacking == np.ceil(swapped * (FEWEST_CLICKS / clicks - 1.0))
    reach = int(re.search(r"--positions (\d)", str(told.value))[1])
    assert len(estimated(tmp_path, rows, places=reach).values) == reach


@pytest.mark.parametrize(
    ("way", "complaint"),
    [
        (None, "and no request was shown in two orders"),
        ("swaps", "no two places were swapped"),
        ("harvest", "^.*no request"),
    ],
)
def test_a_log_of_one_order_says_nothing(tmp_path, way, complaint):
    rows = swaps(300).with_columns(pl.lit(value=False).alias("swapped"))
    with pytest.raises(DataError, match=complaint):
        estimated(tmp_path, rows, way=way)


def test_one_place_is_none(tmp_path):
    with pytest.raises(RecipeError, match="--positions 1"):
        estimated(tmp_path, swaps(300), places=1)


def test_the_command_writes_what_a_fit_reads(tmp_path, capsys):
    rows, out = written(tmp_path, swaps(12_000)), tmp_path / "propensities.json"
    assert command.main([str(rows), "--out", str(out), "--same", "query_text"]) == 0
    assert "12,000 queries" in capsys.readouterr().out
    stored = json.loads(out.read_text())
    assert stored["command"] == "listwright propensity rows.parquet --same query_text"
    assert stored["same"] == "query_text"
    assert [one["position"] for one in stored["positions"]] == [1, 2, 3, 4, 5]
    assert read_propensity(out, column="position", clip=0.1).values[0] == 1.0
    assert command.main([str(rows), "--out", str(tmp_path / "no" / "x.json")]) == 1
    assert command.main([str(tmp_path / "none.parquet"), "--out", str(out)]) == 1
    capsys.readouterr()
    assert command.main([str(rows), "--out", str(rows)]) == 1
    assert "ROWS and --out name the same file" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("way", "leaves", "stays"),
    [("swaps", "exclude", None), ("harvest", "boost pin", "cutoff"), ("harvest", "boost pin", "cutoff exclude")],
)
def test_lists_with_rules_are_left_out(tmp_path, way, leaves, stays):
    """Those of exclusions and cutoffs count for harvest alone: no swap with an excluded candidate is served."""
    log = swaps(6000) if way == "swaps" else served_by_two(8000)
    queries = log["query_id"].unique(maintain_order=True).to_list()
    other = pl.col("query_id").is_in(queries[: len(queries) // 2])
    pinned = log.with_columns(rules=pl.when(other).then(pl.lit(leaves)).otherwise(pl.lit(stays, pl.String)))
    found, expected = (estimated(tmp_path, rows, way=way, places=2) for rows in (pinned, log.filter(~other)))
    assert found.values.tolist() == expected.values.tolist()
    assert found.observations == expected.observations


def test_the_file_has_the_covariance_of_the_logarithms(tmp_path):
    found = estimated(tmp_path, swaps(12_000))
    file = found.file("command")
    covariance = np.array(file.log_covariance)
    assert covariance.shape == (5, 5)
    assert covariance == pytest.approx(found.log_covariance, rel=1e-4)
    widths = np.log(found.high[1:] / found.low[1:]) / 3.92
    assert np.sqrt(np.diag(covariance))[1:] == pytest.approx(widths, rel=0.25)
