"""Whole comparisons on simulated traffic: the right ranker wins, nothing planted is no verdict, and faults are told."""

import json
import math

import numpy as np
import polars as pl
import pytest

from listwright.ranking.errors import DataError, RecipeError
from listwright.training.commands import compare as command
from listwright.training.data.tables.judged import judged_metadata
from listwright.training.evaluation.intervals import ConfidenceSequence, fixed_half_width
from listwright.training.traffic.compare.compare import compare
from listwright.training.traffic.compare.estimates import _times_of_the_same, needed_for, ratio_of
from listwright.training.traffic.compare.page import page
from listwright.training.traffic.compare.text import more, text
from listwright_lab.synthetic_traffic import Shop, interleaved_rows, ranked, split_rows, visits

SHOP = Shop(days=8, length=12, depth=6)
NOISE = {"better": (1.5, 0.5), "same": (1.0, 1.0), "worse": (0.5, 1.5)}


@pytest.fixture(scope="module")
def traffic(tmp_path_factory):
    """A file for every kind and planted difference."""
    folder, files = tmp_path_factory.mktemp("traffic"), {}
    for planted, noise in NOISE.items():
        rng = np.random.default_rng(list(NOISE).index(planted))
        found = visits(SHOP, 6000, rng)
        orders = [ranked(found, one, rng) for one in noise]
        for kind, rows_of in (("split", split_rows), ("interleaving", interleaved_rows)):
            files[kind, planted] = folder / f"{kind}-{planted}.parquet"
            rows_of(SHOP, found, orders, rng).write_parquet(files[kind, planted])
    return files


@pytest.mark.parametrize("kind", ["split", "interleaving"])
@pytest.mark.parametrize(("planted", "decision"), [("better", "challenger"), ("same", "none"), ("worse", "control")])
def test_the_right_ranker_wins(traffic, kind, planted, decision):
    found = compare(traffic[kind, planted])
    assert (found.kind, found.decision, found.queries, found.crossed) == (kind, decision, 6000, 0)
    assert len(found.looks) == 8
    effect = found.effects[0]
    assert effect.look == found.looks[-1]
    assert effect.low < effect.look.estimate < effect.high
    assert effect.look.always > effect.look.fixed > 0.0
    assert (effect.high - effect.low) / 2 == pytest.approx(effect.look.fixed, rel=0.1), "bootstrap and linearisation"
    assert all(word in text(found) for word in ("6,000", f"{effect.look.estimate:+.4f}"))


@pytest.mark.nightly
def test_interleaving_says_more_than_the_split_of_the_same_visits(traffic):
    split, teams = (compare(traffic[kind, "better"]).effects[0].look for kind in ("split", "interleaving"))
    assert abs(teams.estimate) / teams.fixed > 1.5 * abs(split.estimate) / split.fixed


def test_exact_and_ranked_tests_of_units(traffic):
    found = compare(traffic["interleaving", "better"])
    won, lost, even = found.wins
    assert won > lost
    assert won + lost + even <= found.units
    assert max(p for _, p in found.tests) < 1e-3
    assert min(p for _, p in compare(traffic["interleaving", "same"]).tests) > 1e-3
    assert compare(traffic["split", "same"]).tests == ()


@pytest.mark.nightly
def test_a_mismatch_leaves_no_verdict(traffic, tmp_path):
    frame = pl.read_parquet(traffic["split", "better"])
    few = frame.filter((pl.col("arm") == "control") | (pl.col("unit").hash(0) % 10 < 6))
    few.write_parquet(tmp_path / "rows.parquet")
    found = compare(tmp_path / "rows.parquet")
    assert found.effects[0].look.decision == "challenger"
    assert found.decision == "mismatch"
    assert compare(tmp_path / "rows.parquet", share=0.375).decision == "challenger"


def test_units_in_both_arms_leave_no_verdict(traffic, tmp_path):
    frame = pl.read_parquet(traffic["split", "better"])
    moved = pl.when(pl.col("query_id") == "q7").then(pl.lit("u_of_both")).otherwise("unit").alias("unit")
    other = frame.filter(pl.col("arm") != frame.filter(pl.col("query_id") == "q7")["arm"][0])["query_id"][0]
    moved = pl.when(pl.col("query_id").is_in(["q7", other])).then(pl.lit("both")).otherwise("unit").alias("unit")
    frame.with_columns(moved).write_parquet(tmp_path / "rows.parquet")
    found = compare(tmp_path / "rows.parquet")
    assert (found.crossed, found.decision) == (1, "mismatch")


def test_few_units_leave_no_verdict(traffic, tmp_path):
    pl.read_parquet(traffic["split", "better"]).head(600).write_parquet(tmp_path / "rows.parquet")
    found = compare(tmp_path / "rows.parquet")
    assert found.decision == "too_few"
    assert "<svg" not in page(found, command="")


@pytest.mark.nightly
def test_a_difference_that_is_worth_to_be_shown_is_planned_for(traffic):
    found = compare(traffic["split", "same"])
    wide, narrow = (compare(traffic["split", "same"], target=target).effects[0].needed[1] for target in (0.1, 0.01))
    assert narrow.true == 0.01
    assert narrow.always > wide.always
    assert narrow.fixed > 0.0
    assert found.effects[0].difference == pytest.approx(0.05 * found.effects[0].control, rel=0.1)


@pytest.mark.nightly
def test_what_the_sequence_is_narrowest_for_does_not_follow_the_data(traffic, tmp_path):
    """It is chosen at the first look that counts: a busier second half changes nothing."""
    frame = pl.read_parquet(traffic["split", "same"])
    half = sorted(frame["served_at"].dt.date().unique())[4]
    later = pl.col("served_at").dt.date() >= half
    frame.with_columns(pl.when(later).then(1).otherwise("label").alias("label")).write_parquet(
        tmp_path / "busy.parquet"
    )
    frame.filter(~later).write_parquet(tmp_path / "half.parquet")
    busy, first = (compare(tmp_path / f"{name}.parquet").effects[0] for name in ("busy", "half"))
    assert busy.control > 1.2 * first.control
    assert busy.difference == first.difference


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["split", "interleaving"])
def test_nothing_earned_is_no_verdict_and_no_fault(traffic, tmp_path, kind):
    rows = pl.read_parquet(traffic[kind, "same"]).with_columns(pl.lit(0).alias("label"))
    rows.write_parquet(tmp_path / "rows.parquet")
    found = compare(tmp_path / "rows.parquet")
    assert found.decision == "too_few"
    assert "out of reach" in text(found)
    assert page(found, command="").startswith("<!")


@pytest.mark.nightly
def test_rows_with_a_prefix_are_compared_and_rows_without_unseen_candidates_are_not(traffic, tmp_path):
    rows, path = pl.read_parquet(traffic["split", "better"]), tmp_path / "rows.parquet"
    said = {"qid": "j_query_id", "label": "j_label", "time": "j_served_at", "prefix": "j_"}
    prefixed = rows.rename({name: f"j_{name}" for name in rows.columns}).with_columns(position=pl.lit(7.5))
    prefixed.write_parquet(path, metadata=judged_metadata(["position"], **said))
    assert compare(path) == compare(traffic["split", "better"])
    prefixed.write_parquet(path, metadata=judged_metadata(["position"], **said, only_seen=True))
    with pytest.raises(DataError, match="join again, without seen"):
        compare(path)


@pytest.mark.nightly
def test_arms_are_told_apart_by_the_weights_of_their_goals(traffic, tmp_path):
    """Both arms may have one bundle: what differs is the weights, which lists of one goal lack."""
    rows, path = pl.read_parquet(traffic["split", "same"]), tmp_path / "rows.parquet"
    plain = compare(traffic["split", "same"])
    weights = pl.when(pl.col("arm") != "control").then(pl.lit('{"margin": 0.3}'))
    rows.with_columns(weights=weights).write_parquet(path)
    found = compare(path)
    assert found.bundles == (plain.bundles[0], f'{plain.bundles[1]} {{"margin": 0.3}}')
    assert found.effects == plain.effects


def test_what_is_needed_is_in_queries_beyond_those_there_are():
    (observed, worth) = needed_for(0.01, 1e-4, 1000.0, ConfidenceSequence(0.02))
    assert observed.fixed == pytest.approx(1000.0 * ((1.959964 + 0.841621) ** 2 - 1.0), rel=1e-4)
    assert observed.always > observed.fixed > worth.fixed
    assert {one.always for one in needed_for(0.01, math.nan, 0.0, ConfidenceSequence(0.02))} == {math.inf}
    assert [more(n) for n in (0.0, 7.4, 1234.0, float("inf"))] == ["none", "7", "1,200", "out of reach"]


@pytest.mark.parametrize(
    ("within", "times"), [(1e-4, 5.0), (0.9e-4, 9.0), (0.81e-4, 81.0), (0.79e-4, math.inf), (0.0, math.inf)]
)
def test_the_same_units_lower_only_what_lies_within_them(within, times):
    """Of a variance of 1e-4, five times the data with new units are needed, and 2e-5 therefore."""
    assert _times_of_the_same(5.0, 1e-4, within) == pytest.approx(times, rel=1e-6)
    assert _times_of_the_same(0.5, 1e-4, within) == 0.5
    assert math.isnan(_times_of_the_same(5.0, 1e-4, math.nan))
    (observed, _) = needed_for(0.01, 1e-4, 1000.0, ConfidenceSequence(0.02), within)
    assert observed.same_always >= observed.always
    assert observed.same_fixed >= observed.fixed


def planted(rng, units, visits, own, effect):
    """Preference, credited queries and squares of each unit: 1/2 or -1/2, more often one of them by its own taste."""
    won = rng.random((units, visits)) < np.clip(0.5 + effect + own[:, None], 0.0, 1.0)
    return (won - 0.5).sum(axis=1), np.full(units, float(visits)), np.full(units, visits / 4.0)


@pytest.mark.nightly
@pytest.mark.parametrize("same", [False, True])
def test_as_many_queries_as_are_said_show_the_difference_in_80_of_100_runs(same):
    """With new units, or with the same ones: what the sentences say of either."""
    rng, shown, asked = np.random.default_rng(5), [], []
    effect, units, visits = 0.03, 300, 4
    for _ in range(300):
        own = 0.1 * rng.normal(size=units)
        first = ratio_of(*planted(rng, units, visits, own, effect))
        needed = needed_for(effect, first.variance, first.queries, ConfidenceSequence(effect), first.within)[1]
        more_of_it = (needed.same_fixed if same else needed.fixed) / first.queries
        assert not math.isinf(more_of_it)
        asked.append(more_of_it)
        if same:
            whole = ratio_of(*planted(rng, units, round(visits * (1.0 + more_of_it)), own, effect))
        else:
            count = round(units * (1.0 + more_of_it))
            whole = ratio_of(*planted(rng, count, visits, 0.1 * rng.normal(size=count), effect))
        shown.append(whole.value - fixed_half_width(whole.variance) > 0.0)
    assert np.mean(shown) == pytest.approx(0.8, abs=0.08), np.mean(asked)


@pytest.mark.parametrize(
    ("kind", "options", "complaint"),
    [
        ("split", {"challenger": "b"}, "--challenger b"),
        ("split", {"share": 1.0}, "--share 1"),
        ("split", {"target": 0.0}, "--difference 0"),
        ("split", {"metrics": ("revenue",)}, "no column 'revenue'"),
        ("interleaving", {"metrics": ("mrr",)}, "an interleaving has one metric"),
        ("interleaving", {"metrics": ("hit", "label")}, "an interleaving has one metric"),
        ("interleaving", {"share": 0.3}, "of a split"),
    ],
)
def test_options_that_do_not_fit_are_refused(traffic, kind, options, complaint):
    with pytest.raises((RecipeError, DataError), match=complaint):
        compare(traffic[kind, "same"], **options)


def test_an_arm_alone_and_two_challengers_are_refused(traffic, tmp_path):
    frame = pl.read_parquet(traffic["split", "same"])
    frame.filter(pl.col("arm") == "control").write_parquet(tmp_path / "one.parquet")
    with pytest.raises(DataError, match="expected control and a challenger"):
        compare(tmp_path / "one.parquet")
    third = pl.when(pl.col("unit").hash(0) % 3 == 0).then(pl.lit("third")).otherwise("arm").alias("arm")
    frame.with_columns(third).write_parquet(tmp_path / "three.parquet")
    with pytest.raises(RecipeError, match="several challengers"):
        compare(tmp_path / "three.parquet")
    assert compare(tmp_path / "three.parquet", challenger="third").queries < 6000


def test_the_command_prints_the_verdict_and_writes_page_and_numbers(traffic, tmp_path, capsys):
    out, numbers = tmp_path / "page.html", tmp_path / "numbers.json"
    rows = str(traffic["interleaving", "better"])
    assert command.main([rows, "--out", str(out), "--json", str(numbers)]) == 0
    said, stored, html = capsys.readouterr().out, json.loads(numbers.read_text()), out.read_text()
    assert stored["decision"] == "challenger"
    assert stored["command"] == "listwright compare interleaving-better.parquet"
    assert stored["verdict"].split(":")[0] in said
    assert stored["verdict"].replace(" %", "\u00a0%") in html
    assert "<svg" in html


def test_the_command_says_what_is_wrong(tmp_path, capsys):
    assert command.main([str(tmp_path / "none.parquet")]) == 1
    assert "none.parquet" in capsys.readouterr().out
    assert command.main([str(tmp_path), "--out", str(tmp_path / "no" / "page.html")]) == 1
    assert "there is no folder" in capsys.readouterr().out
    assert command.main([str(tmp_path / "none.parquet"), "--json", str(tmp_path / "none.parquet")]) == 1
    assert "ROWS and --json name the same file" in capsys.readouterr().out
