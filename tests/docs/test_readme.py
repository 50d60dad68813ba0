"""The README and the page of results say what the results say, and the README's commands exist."""

import json
import re
from pathlib import Path

from listwright.service.app import create_app
from listwright.service.settings import PREFIX, Settings
from listwright.training import fit
from listwright.training.recipe import config

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
RESULTS_PAGE = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
RESULTS = ROOT / "benchmarks" / "results"
OPERATIONS = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")


def result(name):
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


RANKERS = {
    "lambdamart": "LightGBM",
    "lambdamart+relative": "LightGBM + relative",
    "qilcm": "QILCM",
    "shipped": "shipped",
}
PAIRS = (
    ("lambdamart+relative", "lambdamart"),
    ("qilcm", "lambdamart+relative"),
    ("shipped", "lambdamart"),
    ("shipped", "lambdamart+relative"),
)
FEWEST_SEEDS = 5
QUALITY = {
    name: found for name in ("mq2008", "ohsumed", "airline") if "over_lambdamart" in (found := result(f"table2_{name}"))
}
"""Real sets of which there are results of searches within each fold."""


def quality_table():
    """Lines of NDCG@10 of every ranker that was measured."""
    methods = [method for method in RANKERS if any(method in found["methods"] for found in QUALITY.values())]
    lines = [f"| NDCG@10 | {' | '.join(RANKERS[method] for method in methods)} |", "|---" * (1 + len(methods)) + "|"]
    for name, found in QUALITY.items():
        means = [found["methods"].get(method, {}).get("means", {}).get("ndcg@10") for method in methods]
        cells = ["not measured" if m is None else f"{m['mean']:.3f} ±{(m['high'] - m['low']) / 2:.3f}" for m in means]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def paired_table():
    """Lines of the paired gains."""
    pairs = [
        (method, rival) for method, rival in PAIRS if any(method in found["methods"] for found in QUALITY.values())
    ]
    head = " | ".join(f"{RANKERS[method]} over {RANKERS[rival]}" for method, rival in pairs)
    lines = [f"| paired | {head} |", "|---" * (1 + len(pairs)) + "|"]
    for name, found in QUALITY.items():
        over = {(one["method"], one["rival"]): one for one in found["over_lambdamart"]}
        gains = [over.get(pair) for pair in pairs]
        cells = [
            "not measured" if g is None else f"{g['gain']:+.3f} [{g['low']:+.3f}, {g['high']:+.3f}]" for g in gains
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def test_quality_tables_are_the_committed_results():
    assert quality_table() in README
    assert quality_table() in RESULTS_PAGE
    assert paired_table() in RESULTS_PAGE
    for found in QUALITY.values():
        assert found["seeds"] >= FEWEST_SEEDS
        assert {one["metric"] for one in found["over_lambdamart"]} == {"ndcg@10"}


def test_the_readme_says_how_it_was_measured():
    seeds = {found["seeds"] for found in QUALITY.values()}
    (trials,) = {found["command"].partition("--tune ")[2].split()[0] for found in QUALITY.values()}
    assert f"{', '.join(map(str, seeds))} seeds" in README
    for page in (README, RESULTS_PAGE):
        assert f"{trials} trials per network" in page
        assert "20 trials per LightGBM" in page
    assert {config.load(name).first_stage.trials for name in QUALITY} == {20}


def test_demo_figures_are_those_of_the_committed_bundle():
    report = json.loads((ROOT / "models" / "demo" / "1" / "report.json").read_text())
    shown = {
        metric["ranker"]: f"{metric['mean']:.3f} ±{(metric['high'] - metric['low']) / 2:.3f}"
        for metric in report["metrics"]
        if metric["name"] == "ndcg@10"
    }
    names = {"LightGBM": "plain_first_stage", "LightGBM + relative": "first_stage", "QILCM": "qilcm"}
    assert ", ".join(f"{name} {shown[ranker]}" for name, ranker in names.items()) in README
    gain = report["gain_over_first_stage"]
    assert f"{gain['mean']:+.3f} [{gain['low']:+.3f}, {gain['high']:+.3f}]" in README


def test_speed_is_the_committed_result():
    results = ROOT / "benchmarks" / "results"
    floor, service, compute = (json.loads((results / f"{n}.json").read_text()) for n in ("floor", "service", "compute"))
    measured = {(row["candidates"], row["format"]): row for row in floor["table"]}
    for count in (10, 100, 1000):
        cells = [f"{measured[count, 'npy']['in_process_ms']:.1f}"]
        for request_format in ("npy", "columnar JSON", "rows by name"):
            row = measured[count, request_format]
            cells.append(f"{row['p50_ms']:.1f} ({row['p99_ms']:.1f}), {row['over_floor']:.2f} ×")
        assert f"| {count} | {' | '.join(cells)} |" in RESULTS_PAGE
    (first,) = (row for row in compute["first_stage"] if row["candidates"] == 100)
    assert f"{first['compiled times']:.1f} × as fast as LightGBM's own" in RESULTS_PAGE
    start_up = service["start_up"]
    assert f"{start_up['ready_s']:.1f} s and {start_up['resident_mb_when_ready']:.0f} MB" in RESULTS_PAGE
    parse = json.loads((ROOT / "benchmarks" / "results" / "parse.json").read_text())
    assert f"{parse['whole_file']['listwright']['rows_per_second']:,} rows" in RESULTS_PAGE
    assert f"{parse['speed_ratio_on_a_tenth']:.1f} × scikit-learn" in RESULTS_PAGE
    (columnar,) = (row for row in floor["table"] if (row["candidates"], row["format"]) == (100, "columnar JSON"))
    assert f" {columnar['p50_ms']:.1f} ms" in README


def test_the_readme_is_short():
    assert len(README.split()) <= 900


def test_make_targets_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    named = set(re.findall(r"make ([a-z][a-z-]+)", README))
    assert named
    assert named <= targets


def test_fit_commands_parse():
    commands = re.findall(r"^listwright fit(.*?)(?:\s{2,}#.*)?$", README, re.M)
    assert len(commands) >= 4
    for command in commands:
        options = fit._parser().parse_args(command.split())
        assert options.recipe is None or options.recipe in config.recipe_names()


def test_settings_exist():
    for name in re.findall(rf"{PREFIX}([A-Z_]+)", README):
        assert name.lower() in Settings.model_fields or name in ("DATA", "REFERENCE", "CACHE")


def test_files_exist():
    for path in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / path).exists(), path


def test_operations_page_has_every_setting_with_its_default():
    shown = dict(re.findall(rf"^\| `{PREFIX}([A-Z_]+)` \| `?([^`|]+?)`? \|", OPERATIONS, re.M))
    fields = Settings.model_fields.items()
    assert {name.lower() for name in shown} == {name for name, _ in fields}
    for name, field in fields:
        given = shown[name.upper()]
        default = f"{field.default:g}" if isinstance(field.default, float) else str(field.default).lower()
        assert given == ("required" if field.is_required() else default)


def test_operations_page_has_every_endpoint_and_metric(tmp_path):
    app = create_app(Settings(bundle=tmp_path))
    for path in app.openapi()["paths"]:
        path = path.replace("/versions/{version}", "")  # noqa: PLW2901 - the page says so once, for all
        assert re.search(rf"^\| `(GET|POST) {path}`", OPERATIONS, re.M), path
    collected = {family.name: family.type for family in app.service.telemetry.registry.collect()}
    shown = dict(re.findall(r"^\| `((?:listwright|process)_\w+?)(?:_total)?` \| (\w+)", OPERATIONS, re.M))
    assert shown == collected
