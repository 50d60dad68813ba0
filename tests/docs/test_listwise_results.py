"""What ``docs/experiments.md`` says came out is what the committed results say."""

import json
import re
from pathlib import Path

import pytest

from listwright.training.experiments.listwise.plans import BASELINES, OURS, title
from listwright.training.reporting.fit_figures import metric_name

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "experiments.md").read_text(encoding="utf-8")
RESULTS = ROOT / "benchmarks" / "results"
TABLE2 = sorted(path.stem.removeprefix("table2_") for path in RESULTS.glob("table2_*.json"))
METRICS = {"ndcg@1", "ndcg@5", "ndcg@10", "hit@1", "hit@5", "mrr"}


def result(name):
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def difference(one):
    return f"{one['gain']:+.3f} [{one['low']:+.3f}, {one['high']:+.3f}], {title(one['rival'])}"


def table2(name):
    """Lines of the table of one data set: means and deviations over seeds, then ours over the best baseline."""
    found = result(f"table2_{name}")
    compared = dict.fromkeys(one["metric"] for one in found["comparisons"])
    metrics = [metric for metric in compared if metric in METRICS]
    head = f"{name}, {found['test_queries']} queries, {found['seeds']} seeds"
    lines = [f"| {head} | {' | '.join(map(metric_name, metrics))} |", "|---" * (1 + len(metrics)) + "|"]
    for method in sorted(found["methods"], key=(*BASELINES, *OURS).index):
        means = found["methods"][method]["means"]
        cells = [f"{means[metric]['mean']:.3f} ± {means[metric]['sd']:.3f}" for metric in metrics]
        lines.append(f"| {title(method)} | {' | '.join(cells)} |")
    for method in dict.fromkeys(one["method"] for one in found["comparisons"]):
        by_metric = {one["metric"]: one for one in found["comparisons"] if one["method"] == method}
        cells = [difference(by_metric[metric]) for metric in metrics]
        lines.append(f"| {title(method)} over the best baseline | {' | '.join(cells)} |")
    return lines


@pytest.mark.parametrize("name", TABLE2)
def test_table2_is_the_committed_result(name):
    assert "\n".join(table2(name)) in PAGE


def test_what_is_shipped_is_the_committed_result():
    for name in TABLE2:
        chosen = result(f"table2_{name}")["methods"].get("shipped", {}).get("chosen")
        if chosen is not None:
            said = ", ".join(f"{title(method)} {count}" for method, count in chosen.items())
            assert f"| {name} | {said} |" in PAGE


def test_what_each_rule_for_the_columns_takes_is_the_committed_result():
    decision = (ROOT / "docs" / "decisions" / "0006-what-auto-means.md").read_text(encoding="utf-8")
    choices = result("shipped_choices")["choices"]
    rules = {
        "better mean: the decision": lambda one: one["mean"] > 0.0,
        "one standard error": lambda one: one["mean"] > (one["high"] - one["low"]) / 2 / 1.96,
        "95 % interval above 0": lambda one: one["low"] > 0.0,
    }
    for rule, takes in rules.items():
        counts = [sum(takes(fold["comparisons"][0]) for fold in choices[name].values()) for name in sorted(choices)]
        assert f"| {rule} | {' | '.join(f'{count} of 5' for count in counts)} |" in decision
    for folds in choices.values():
        for fold in folds.values():
            assert fold["relative"] == (fold["comparisons"][0]["mean"] > 0.0)


def test_a_result_is_of_as_many_seeds_as_it_takes():
    assert set(TABLE2) >= {"airline", "mq2008", "ohsumed", "shifted"}
    for name in TABLE2:
        assert result(f"table2_{name}")["seeds"] >= 5


def table3():
    """Lines of the means on planted shifts, and of QILCM's gain over its variants there."""
    sets = result("table3_shifted")["data_sets"]
    shifts = [f"s = {one['shift']:g}" for one in sets]
    lines = [f"| NDCG@10 | {' | '.join(shifts)} |", "|---" * (1 + len(sets)) + "|"]
    for method in ("lambdamart", "qilcm", "qilcm-v1", "qilcm-v2", "qilcm-v3"):
        means = [one["methods"][method]["means"]["ndcg@10"]["mean"] for one in sets]
        lines.append(f"| {title(method)} | {' | '.join(f'{mean:.4f}' for mean in means)} |")
    for variant in ("qilcm-v1", "qilcm-v2", "qilcm-v3"):
        cells = []
        for one in sets:
            (gain,) = (c for c in one["comparisons"] if c["rival"] == variant and c["metric"] == "ndcg@10")
            cells.append(f"{gain['gain']:+.4f} [{gain['low']:+.4f}, {gain['high']:+.4f}]")
        lines.append(f"| QILCM over {title(variant)} | {' | '.join(cells)} |")
    return lines


def test_table3_is_the_committed_result():
    for line in table3():
        assert line in PAGE


def test_the_gap_by_anomaly_is_the_committed_result():
    found = result("anomaly_shifted")
    (one,) = (gap for gap in found["gaps"] if gap["metric"] == "ndcg@10")
    *others, strangest = (dict(zip(one["columns"], row, strict=True)) for row in one["bins"])
    interval = f"{strangest['gap']:+.3f} [{strangest['low']:+.3f}, {strangest['high']:+.3f}]"
    assert f"gap to {title(one['rival'])} in NDCG@10" in " ".join(PAGE.split())
    assert f"| the tenth with the highest anomaly score | {interval} |" in PAGE
    assert f"| any other tenth | at most {max(other['gap'] for other in others):+.3f} |" in PAGE
    assert f"| Spearman's correlation over all queries | {one['spearman']:+.3f} |" in PAGE
    assert (len(others), found["seeds"]) == (9, 3)


def test_no_weight_of_the_loss_helps_as_committed():
    found = result("lambda_shifted")
    over = {one["method"]: one for one in found["comparisons"] if one["metric"] == "ndcg@10"}
    for method, one in over.items():
        change = f"{one['gain']:+.4f} [{one['low']:+.4f}, {one['high']:+.4f}]"
        doubt = "yes" if one["holm"] < 0.05 else "no"
        assert f"| {method.removeprefix('qilcm-')} | {change} | {doubt} |" in PAGE
    assert found["seeds"] == 3


def test_planted_results_are_of_as_many_seeds_as_it_takes():
    assert {one["seeds"] for one in result("table3_shifted")["data_sets"]} == {3}


def test_why_the_parts_do_what_they_do_is_the_committed_result():
    by_shift = result("invariance")["by_shift"]
    columns = ("query_share", "distance_to_others", "attention_spread")
    for method in ("qilcm", "qilcm-v1", "qilcm-v2", "qilcm-v3"):
        cells = [f"{by_shift[shift][method][column]:.3f}" for column in columns for shift in ("0", "1")]
        assert f"| {title(method)} | {' | '.join(cells)} |" in PAGE


def test_every_result_names_its_command():
    for path in (*RESULTS.glob("table[23]_*.json"), *RESULTS.glob("anomaly_*.json")):
        suite = path.stem.partition("_")[0]
        assert re.fullmatch(rf"(?:python -m training\.|listwright )experiment {suite} .*", result(path.stem)["command"])
