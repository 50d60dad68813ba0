"""The listwise suites' sums on results small enough to check by hand or against SciPy, and what their pages say."""

import re

import numpy as np
import polars as pl
import pytest
from scipy import stats

from listwright.training.evaluation.bootstrap import percentile_interval, resample_means
from listwright.training.reporting.page import render
from listwright_lab.crossed_means import resample_crossed_means
from listwright_lab.suites.listwise import methods, pages
from listwright_lab.suites.listwise import results as findings
from listwright_lab.suites.listwise.results import by_shift, compare, holm, paired_p
from support.training.measured import fitted_results, measured, planted_gains

NAN = float("nan")
VARIANTS = ("lambdamart", "qilcm", "qilcm-v1", "qilcm-v2", "qilcm-v3")


def test_holm_by_hand():
    """m = 4, smallest first: 4 x .005, 3 x .01, 2 x .03, and 1 x .04 may not be below the one before."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


def test_paired_t_is_scipys_and_the_formulas():
    rng = np.random.default_rng(0)
    one, other = rng.normal(0.1, 1.0, size=(2, 40))
    difference = one - other
    t = difference.mean() / (difference.std(ddof=1) / np.sqrt(40))
    assert paired_p(difference) == pytest.approx(2 * stats.t.sf(abs(t), df=39))
    assert paired_p(difference) == pytest.approx(stats.ttest_rel(one, other).pvalue)


@pytest.mark.parametrize(("difference", "p"), [([], None), ([0.1], None), ([0.0, 0.0], 1.0), ([0.1, 0.1], 0.0)])
def test_p_of_what_never_varies(difference, p):
    assert paired_p(np.array(difference)) == p


def test_a_comparison_is_paired_by_query():
    rng = np.random.default_rng(0)
    base, noise = rng.uniform(size=300), 0.01 * rng.normal(size=300)
    (found,) = compare([("mrr", "one", "other")], (base + 0.01 + noise)[None, :, None], base[None, :, None])
    assert found.gain == pytest.approx(0.01 + noise.mean())
    assert found.improvement == pytest.approx(found.gain / base.mean())
    half = 1.96 * noise.std() / np.sqrt(300)
    assert (found.low, found.high) == pytest.approx((found.gain - half, found.gain + half), abs=0.2 * half)


def test_a_family_is_corrected_as_one():
    rng = np.random.default_rng(0)
    gains = rng.normal([0.2, 0.1, 0.0], 1.0, size=(1, 100, 3))
    family = compare([(name, "x", "y") for name in "abc"], gains, np.zeros((1, 100, 3)))
    assert [one.holm for one in family] == holm([stats.ttest_1samp(column, 0.0).pvalue for column in gains[0].T])
    assert family[0].improvement is None, "nothing is no share of nothing"
    (alone,) = compare([("a", "x", "y")], np.ones((1, 1, 1)), np.zeros((1, 1, 1)))
    assert alone.p is alone.holm is None
    assert not alone.proven


def test_mean_and_deviation_are_over_seeds_and_conventions_by_hand():
    found = measured({"lambdamart": [[0.2, 0.4, NAN], [0.4, 0.6, NAN]], "qilcm": [[1.0, 1.0, NAN], [1.0, 1.0, NAN]]})
    assert (found.queries, found.empty, found.seeds) == (3, 1, 2)
    over_seeds = {0: [0.6 / 3, 1.0 / 3], 1: [1.6 / 3, 2.0 / 3], "drop": [0.3, 0.5]}
    for convention, means in over_seeds.items():
        expected = (np.mean(means), np.std(means, ddof=1))
        assert found.mean_sd("lambdamart", "ndcg@10", convention) == pytest.approx(expected)
    said = findings.conventions(found, "lambdamart", 10)
    assert len(said) == 6
    assert said["empty_queries=drop, ideal=truncated"]["mean"] == pytest.approx(0.4)
    assert measured({"lambdamart": [[0.2, 0.4]]}).mean_sd("lambdamart", "ndcg@1")[1] is None, "one seed does not vary"


def test_a_query_may_be_empty_under_one_seed_only():
    """As it is under the truncated ideal where one seed's first stage keeps nothing relevant of it."""
    found = measured({"lambdamart": [[0.2, NAN], [0.4, 0.6]]}, relevant=[3, 3])
    assert found.mean_sd("lambdamart", "ndcg@10 truncated", "drop") == pytest.approx((0.35, np.std([0.2, 0.5], ddof=1)))


def test_queries_are_the_witnesses_not_their_seeds():
    """Twice the same seed says nothing new."""
    values = planted_gains(seeds=1, gain=0.002)
    (once,) = measured(values).compare([("ndcg@10", "qilcm", "dlcm")])
    twice = measured({name: np.concatenate([row, row]) for name, row in values.items()})
    (again,) = twice.compare([("ndcg@10", "qilcm", "dlcm")])
    assert [again.gain, again.low, again.high, again.p] == pytest.approx([once.gain, once.low, once.high, once.p])
    assert once.queries == 200


def test_an_interval_is_of_queries_and_of_seeds():
    """Their variances add: of means over 10 seeds that differ by 0.1, and over 400 queries that differ by 1."""
    rng = np.random.default_rng(0)
    seeds, queries = 0.1 * rng.normal(size=10), rng.normal(size=400)
    low, high = percentile_interval(resample_crossed_means(seeds[:, None] + queries))
    deviation = np.sqrt(seeds.var() / 10 + queries.var() / 400)
    assert (high - low) / (2 * 1.96) == pytest.approx(deviation, rel=0.06)
    assert (high + low) / 2 == pytest.approx(seeds.mean() + queries.mean(), abs=0.1 * deviation)
    (one,) = compare([("mrr", "x", "y")], seeds[:, None, None] + queries[:, None], np.zeros((10, 400, 1)))
    assert (one.low, one.high) == (low, high)
    alone = percentile_interval(resample_crossed_means(queries[None]))
    assert alone == pytest.approx(percentile_interval(resample_means(queries))), "one seed says nothing of others"


def test_the_order_of_rows_does_not_matter():
    results = fitted_results(planted_gains())
    methods = tuple(planted_gains())
    again = by_shift(results.sample(fraction=1.0, shuffle=True, seed=1), methods)[None]
    assert again.mean_sd("qilcm", "ndcg@5") == by_shift(results, methods)[None].mean_sd("qilcm", "ndcg@5")


def test_improvement_is_over_the_best_baseline_and_qilcm2_is_none():
    values = planted_gains(gain=0.05)
    values["mlp"] = values["mlp"] + 0.02
    values["qilcm2"] = values["qilcm2"] + 0.9
    (found,) = findings.over_best_baseline(measured(values), "qilcm", ["ndcg@10"])
    assert found.rival == "mlp"
    assert found.gain == pytest.approx(0.03, abs=0.005)
    assert found.proven


@pytest.mark.nightly
def test_lambdamart_that_sees_the_list_is_a_baseline_and_all_stand_beside_it():
    names = ("lambdamart", "lambdamart+relative", "qilcm", "qilcm+relative", "shipped")
    values = planted_gains(methods=names)
    values["lambdamart+relative"] = values["lambdamart+relative"] + 0.03
    values["shipped"] = values["lambdamart+relative"]
    found = measured(values, chosen={"shipped": "lambdamart+relative"})
    told = pages.table2(found, 10)
    against = {(one["method"], one["rival"]): one for one in told.summary["over_lambdamart"]}
    assert set(against) == {
        *((name, "lambdamart") for name in names[1:]),
        *((name, "lambdamart+relative") for name in names[2:]),
    }
    assert against["lambdamart+relative", "lambdamart"]["gain"] == pytest.approx(0.03)
    assert against["shipped", "lambdamart+relative"]["gain"] == 0.0
    assert {one["rival"] for one in told.summary["comparisons"]} == {"lambdamart+relative"}, "it is the best baseline"
    assert told.summary["methods"]["shipped"]["chosen"] == {"lambdamart+relative": 2}
    assert told.verdicts[-1] == "Of 2 seeds and folds a fit ships LambdaMART + relative in 2."
    assert told.verdicts[0].startswith("LambdaMART + relative beats LambdaMART by 0.0300 NDCG@10")
    mean = told.summary["methods"]["qilcm"]["means"]["mrr"]
    assert mean["low"] < mean["mean"] < mean["high"]


def test_metrics_are_the_papers_for_the_kind_of_data():
    assert measured(planted_gains()).metrics() == ("ndcg@1", "ndcg@3", "ndcg@5", "ndcg@10")
    choice = measured({"lambdamart": [[1.0, 0.0]]}, relevant=[1, 1])
    assert choice.metrics() == ("hit@1", "hit@5", "mrr")
    assert findings.headline(choice, 10) == "hit@1"


def test_the_papers_sets_are_recognised_by_their_size():
    web = pages.published_figures(31531, 136)
    assert web.name == "Microsoft 30k"
    assert [web.value("ndcg@10", name) for name in ("qilcm", "lambdamart", "qilcm-v2")] == [0.5564, 0.5061, 0.5538]
    assert web.value("ndcg@10", "mlp") is None
    assert pages.published_figures(33000, 220).name == "Istella-S"
    assert pages.published_figures(615, 17) is None, "a small part of the airline set is not the set"
    assert all(len(row) == len(pages.PUBLISHED_METHODS) for each in pages.PUBLISHED_SETS for row in each.rows.values())


@pytest.mark.nightly
def test_a_printed_row_stands_beside_each_result():
    results = fitted_results(planted_gains()).with_columns(
        pl.lit(31531).alias("all_queries"), pl.lit(136).alias("features")
    )
    page = drawn(pages.table2(by_shift(results, tuple(planted_gains()))[None], 10))
    assert "Microsoft 30k" in page
    assert "paper 0.5564" in page
    assert "no printed row" in drawn(pages.table2(measured(planted_gains()), 10))


def test_gap_widens_where_it_was_planted():
    rng = np.random.default_rng(1)
    anomaly, values = rng.uniform(0.4, 0.7, size=200), planted_gains()
    values["qilcm"] = values["qilcm"] + 0.1 * (anomaly - 0.4)
    found = findings.gaps(measured(values, anomaly=anomaly), "ndcg@10")
    assert [part.queries for part in found.bins] == [20] * 10
    assert found.bins[-1].gap - found.bins[0].gap == pytest.approx(0.027, abs=0.01)
    assert found.trend == pytest.approx(
        stats.spearmanr(anomaly, measured(values).differences("qilcm", found.rival, "ndcg@10").mean(axis=0))[0]
    )
    assert "widens for anomalous queries" in pages.trend_sentence(found)
    flat = findings.gaps(measured(planted_gains(), anomaly=anomaly), "ndcg@10")
    assert "is not shown to depend" in pages.trend_sentence(flat)
    same = findings.gaps(measured(planted_gains(), anomaly=np.ones(200)), "ndcg@10")
    assert "never varies" in pages.trend_sentence(same)


def shifted(gain_at_one):
    return {
        shift: measured(planted_gains(gain=shift * gain_at_one, methods=VARIANTS), shift=shift)
        for shift in (0.0, 0.5, 1.0)
    }


@pytest.mark.nightly
def test_gain_grows_with_the_shift_and_is_nothing_without_it():
    for found in findings.growth(shifted(0.1), "ndcg@10"):
        assert found.grows == pytest.approx(0.1)
        assert found.low == pytest.approx(found.high), "only the planted gain differs between the shifts"
        assert found.vanishes
    sentence = pages.growth_sentence(found, "ndcg@10", 0.0, 1.0)
    assert sentence.startswith("QILCM's gain over V3 in NDCG@10 grows with the planted shift: from ")
    assert sentence.endswith("Without shift its interval holds 0.")
    flat = pages.growth_sentence(findings.growth(shifted(0.0), "ndcg@10")[0], "ndcg@10", 0.0, 1.0)
    assert "is not shown to change with the planted shift" in flat


def drawn(told):
    return render("x", told.verdicts, told.sections, command="c", facts=["Data: x."], settings="{}")


WEIGHTS = ("lambdamart", *(methods.weight_name(weight) for weight in methods.WEIGHTS))

PAGES = {
    "table2": (lambda: pages.table2(measured(planted_gains(gain=0.05)), 10), 2, 5),
    "table3": (lambda: pages.table3(shifted(0.1), 10), 4, 9),
    "anomaly": (lambda: pages.anomaly(measured(planted_gains(), anomaly=np.linspace(0.4, 0.6, 200)), 10), 2, 5),
    "lambda": (lambda: pages.confusion_weights(measured(planted_gains(methods=WEIGHTS)), 10), 1, 3),
}
"""Each with how many figures and tables it has."""


@pytest.mark.nightly
@pytest.mark.parametrize("suite", methods.SUITES)
def test_page_has_its_tables_and_figures(suite):
    told, figures, tables = PAGES[suite]
    page = drawn(told())
    assert page.count("<svg") == figures
    assert page.count("<table") == tables
    assert not re.findall(r"(?:src|href)\s*=\s*[\"'](?!#)", page), "nothing is fetched"
    ids = re.findall(r' id="([^"]+)"', page)
    assert len(ids) == len(set(ids))


@pytest.mark.nightly
def test_pages_repeat_to_the_byte():
    told = PAGES["lambda"][0]
    assert drawn(told()) == drawn(told())


@pytest.mark.nightly
def test_verdicts_are_honest():
    gained, none = (pages.table2(measured(planted_gains(gain=gain)), 10).verdicts[-1] for gain in (0.05, 0.0))
    assert gained.startswith("QILCM beats ")
    assert "gains in 4 of 4 metrics" in gained
    assert "are not shown to differ in NDCG@10" in none
    lost = pages.table2(measured(planted_gains(gain=-0.05)), 10).verdicts[-1]
    assert lost.startswith("QILCM loses to ")
    flat = np.full((1, 30), 0.5)
    told = pages.confusion_weights(measured(dict.fromkeys(WEIGHTS, flat)), 10)
    assert told.verdicts == [
        "No weight of the confusion loss raises NDCG@10. Beyond doubt (Holm) none of 5 raise it and none lower it."
    ]
