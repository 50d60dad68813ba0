"""What ``docs/experiments.md`` says came out is what the committed results say."""

import json
import re
from pathlib import Path

import pytest

from training.experiments.plans import title
from training.reporting.fit_figures import metric_name

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "experiments.md").read_text(encoding="utf-8")
RESULTS = ROOT / "benchmarks" / "results"
TABLE2 = sorted(path.stem.removeprefix("table2_") for path in RESULTS.glob("table2_*.json"))
METRICS = {"ndcg@1", "ndcg@5", "ndcg@10", "hit@1", "hit@5", "mrr"}
ORDER = ("lambdamart", "mlp", "dlcm", "dcm", "qilcm", "qilcm2")


def result(name):
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def difference(one):
    return f"{one['gain']:+.3f} [{one['low']:+.3f}, {one['high']:+.3f}], {title(one['rival'])}"


def table2(name):
    """Lines of the table of one data set: means and deviations over seeds, then QILCM and QILCM2 over the best."""
    found = result(f"table2_{name}")
    metrics = [metric for metric in found["methods"]["lambdamart"]["means"] if metric in METRICS]
    head = f"{name}, {found['test_queries']} queries, {found['seeds']} seeds"
    lines = [f"| {head} | {' | '.join(map(metric_name, metrics))} |", "|---" * (1 + len(metrics)) + "|"]
    for method in ORDER:
        means = found["methods"][method]["means"]
        cells = [f"{means[metric]['mean']:.3f} ± {means[metric]['sd']:.3f}" for metric in metrics]
        lines.append(f"| {title(method)} | {' | '.join(cells)} |")
    for method in ("qilcm", "qilcm2"):
        by_metric = {one["metric"]: one for one in found["comparisons"] if one["method"] == method}
        cells = [difference(by_metric[metric]) for metric in metrics]
        lines.append(f"| {title(method)} over the best baseline | {' | '.join(cells)} |")
    return lines


@pytest.mark.parametrize("name", TABLE2)
def test_table2_is_the_committed_result(name):
    for line in table2(name):
        assert line in PAGE


def test_a_result_is_of_as_many_seeds_as_it_takes():
    assert set(TABLE2) >= {"airline", "ohsumed"}
    for name in TABLE2:
        assert result(f"table2_{name}")["seeds"] >= 10


def test_every_result_names_its_command():
    for path in RESULTS.glob("table2_*.json"):
        assert re.fullmatch(r"python -m training\.experiment table2 .*", result(path.stem)["command"])
