"""The tables of ``docs/experiments.md`` are the committed results."""

import re

import pytest

from listwright.training.reporting.fit_figures import metric_name
from listwright_lab.suites.listwise.methods import BASELINES, OURS, title
from support.pages.figure_blocks import ROOT, blocks, interval, page, result, table

PAGE = page("docs/experiments.md")
TEXT = " ".join(PAGE.split())
RESULTS = ROOT / "benchmarks" / "results"
REAL = ("ohsumed", "airline", "mq2008")
TABLE2 = (*REAL, "shifted")
VARIANTS = ("qilcm-v1", "qilcm-v2", "qilcm-v3")


def table2(name, metric="ndcg@10"):
    """Means and deviations over seeds, and what ours gain over the best baseline."""
    found = result(f"table2_{name}")
    over = {one["method"]: one for one in found["comparisons"] if one["metric"] == metric}
    rows = []
    for method in sorted(found["methods"], key=(*BASELINES, *OURS).index):
        mean = found["methods"][method]["means"][metric]
        gain = f"{interval(over[method])}, {title(over[method]['rival'])}" if method in over else ""
        rows.append([title(method), f"{mean['mean']:.3f} ± {mean['sd']:.3f}", gain])
    return table([f"{found['test_queries']:,} queries", metric_name(metric), "over the best baseline"], rows)


def test_the_gain_by_how_unlike_the_training_queries_a_query_is():
    (one,) = (found for found in result("anomaly_shifted")["gaps"] if found["metric"] == "ndcg@10")
    *others, strangest = (dict(zip(one["columns"], row, strict=True)) for row in one["bins"])
    assert len(others) == 9
    highest = f"{strangest['gap']:+.3f} [{strangest['low']:+.3f}, {strangest['high']:+.3f}]"
    assert one["rival"] == "dcm"
    shown = [highest, f"{max(other['gap'] for other in others):+.3f}", f"{one['spearman']:+.3f}"]
    assert [figure for figure in shown if figure not in TEXT] == []


def table3():
    """Means on planted shifts, and QILCM's gain over its variants there."""
    sets = result("table3_shifted")["data_sets"]
    rows = []
    for method in ("lambdamart", "qilcm"):
        rows.append([title(method), *(f"{one['methods'][method]['means']['ndcg@10']['mean']:.4f}" for one in sets)])
    for variant in VARIANTS:
        rows.append([f"QILCM over {title(variant)}", *(interval(gain_over(one, variant), 4) for one in sets)])
    return table(["NDCG@10", *(f"s = {one['shift']:g}" for one in sets)], rows)


def gain_over(data, variant):
    (gain,) = (one for one in data["comparisons"] if (one["rival"], one["metric"]) == (variant, "ndcg@10"))
    return gain


def test_the_share_of_variance_that_is_left_between_queries():
    shares = {name: found["query_share"] for name, found in result("invariance")["by_shift"]["1"].items()}
    shown = [f"{100 * shares[name]:.1f} %" for name in ("qilcm-v3", "qilcm-v2", "qilcm")]
    assert [share for share in shown if share not in TEXT] == []


def test_the_weights_of_the_confusion_loss_that_are_shown_to_lose():
    changes = {
        float(one["method"].removeprefix("qilcm-")): (one["gain"], one["holm"])
        for one in result("lambda_shifted")["comparisons"]
        if one["metric"] == "ndcg@10"
    }
    assert set(changes) == {0.003, 0.01, 0.03, 0.1, 0.3}
    lost = {weight: gain for weight, (gain, p) in changes.items() if p < 0.05}
    assert set(lost) == {0.03, 0.1, 0.3}
    assert f"{-max(lost.values()):.4f} to {-min(lost.values()):.4f}" in TEXT


def tables():
    return [table2("shifted"), table3()]


def test_the_tables_are_the_committed_results():
    assert blocks(PAGE) == tables()


def test_a_result_is_of_as_many_seeds_as_it_takes():
    assert {path.stem.removeprefix("table2_") for path in RESULTS.glob("table2_*.json")} == set(TABLE2)
    for name in TABLE2:
        assert result(f"table2_{name}")["seeds"] >= 5
    assert {one["seeds"] for one in result("table3_shifted")["data_sets"]} == {3}
    assert result("anomaly_shifted")["seeds"] == result("lambda_shifted")["seeds"] == 3


@pytest.mark.parametrize("name", REAL)
def test_no_second_stage_is_shipped_on_real_sets(name):
    assert set(result(f"table2_{name}")["methods"]["shipped"]["chosen"]) <= {"lambdamart", "lambdamart+relative"}


def test_query_normalisation_gains_where_shifts_are_and_only_there():
    without, *_, most = result("table3_shifted")["data_sets"]
    gain = gain_over(without, "qilcm-v3")
    assert gain["low"] < 0 < gain["high"]
    assert gain_over(most, "qilcm-v3")["low"] > 0


def test_no_weight_of_the_loss_gains():
    over = [one for one in result("lambda_shifted")["comparisons"] if one["metric"] == "ndcg@10"]
    assert max(one["gain"] for one in over) < 0


def test_every_result_names_its_command():
    for path in (*RESULTS.glob("table[23]_*.json"), *RESULTS.glob("anomaly_*.json")):
        suite = path.stem.partition("_")[0]
        assert re.fullmatch(rf"listwright experiment {suite} .*", result(path.stem)["command"])
