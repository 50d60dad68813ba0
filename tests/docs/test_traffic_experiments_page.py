"""``docs/traffic-experiments.md``: its keys, defaults, kinds, outcomes and metrics are the code's, and its file parses."""

import re
from typing import get_args

from prometheus_client import CollectorRegistry

from benchmarks.load import shadow as shadow_benchmark
from listwright.ranking.experiments.agreement import PERSISTENCE, Agreement
from listwright.service.experiments import definition, live, shadow, watch
from listwright.service.experiments.definition import Definition, ExperimentFile, parse
from listwright.service.experiments.metrics import ExperimentMetrics
from listwright.service.participation import Kind
from support.pages.figure_blocks import ROOT, blocks, page, result, table

PAGE = page("docs/traffic-experiments.md")


def section(heading):
    return PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]


def rows(text):
    return re.findall(r"^\| `(\w+)` \| ([^|]+) \|", text, flags=re.MULTILINE)


def test_its_file_is_right():
    (block,) = re.findall(r"```toml\n(.*?)```", PAGE, flags=re.DOTALL)
    assert [one.name for one in parse(block.encode()).experiment] == ["qilcm-2"]


def test_every_key_has_its_default():
    whole, each = section("The file").split("Of each")
    assert {name for name, _ in rows(whole)} | {"experiment"} == ExperimentFile.model_fields.keys()
    shown = dict(rows(each))
    assert shown.keys() == Definition.model_fields.keys()
    for name, said in shown.items():
        default = Definition.model_fields[name].default
        if isinstance(default, int | float):
            assert said == f"`{default:g}`", name


def test_every_kind_is_there():
    assert [name for name, _ in rows(section("Kinds"))] == ["kind", *get_args(Kind)]


def test_every_metric_and_outcome_is_there():
    registry = CollectorRegistry()
    ExperimentMetrics(registry)
    collected = {family.name: family.type for family in registry.collect()}
    shown = dict(re.findall(r"^\| `(listwright_\w+?)(?:_total)?` \| (\w+)", PAGE, flags=re.MULTILINE))
    assert shown == collected
    assert all(f"`{measure}`" in section("Metrics") for measure in Agreement._fields)
    told = dict(re.findall(r"^\| `(\w+)` \| (`.*`) \|$", section("Metrics"), flags=re.MULTILINE))
    assert told.keys() == set(get_args(Kind))
    source = "".join((ROOT / "service" / "experiments" / name).read_text() for name in ("trial.py", "shadow.py"))
    counted = set(re.findall(r'_count(?:ed)?\([^"()]*"(\w+)"', source)) | {"shadow_ok", "shadow_degraded"}
    assert set(re.findall(r"`(\w+)`", " ".join(told.values()))) == counted


def test_its_numbers_are_the_codes():
    assert 1.0 / watch.LOOK_S == 5
    assert "five times a second" in PAGE
    assert watch.STALE_S == 2
    assert f"p = {PERSISTENCE:g}" in PAGE
    assert f"At most {shadow.MOST_WAITING} lists" in PAGE
    assert f"at most {definition.MOST} of them" in PAGE
    assert sorted(live.SHOWS_ORDER) == ["explore", "interleave"]


def shadow_cost():
    """With and without a shadow."""
    run = result("shadow")
    rows = []
    for share, at in run["shares"].items():
        for load, found in at["loads"].items():
            low, high = (f"{100 * value:+.1f}" for value in found["later_95"])
            p99 = [f"{found['p99_ms'][way]:.2f}" for way in ("without", "with")]
            later = f"{100 * found['later']:+.1f} [{low}, {high}]"
            whole = ", ".join(f"{found['p99_ms_with_stalls'][way]:.2f}" for way in ("without", "with"))
            left = f"{found['stalled']['without']}, {found['stalled']['with']} of {found['turns']}"
            rows.append([share, f"{float(load):.0%}, {found['rate']:,.0f} lists/s", *p99, later, left, whole])
    head = ["`core_share`", "load, of the peak", "p99 without, ms", "with", "later, %"]
    return table([*head, "left out", "p99 of all turns, ms"], rows)


def test_the_first_share_that_is_measured_is_the_default():
    (first, *_) = result("shadow")["shares"]
    assert float(first) == shadow_benchmark.SHARES[0] == Definition.model_fields["core_share"].default


def interleaving_cost():
    """Of a list."""
    run = result("interleave")
    ms = [f"{run['median_ms'][way]:.3f}" for way in ("control", "challenger", "interleaved")]
    return table(["control, ms", "challenger, ms", "interleaved, ms", "times the sum"], [[*ms, f"{run['ratio']:.2f}"]])


def test_the_costs_are_the_committed_runs():
    assert blocks(PAGE) == [shadow_cost(), interleaving_cost()]


def test_an_interleaved_list_costs_its_rankers():
    assert result("interleave")["ratio"] <= result("interleave")["target"]
