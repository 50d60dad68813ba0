"""``docs/traffic-experiments.md``: its keys, defaults, kinds, outcomes and metrics are the code's, and its file parses."""

import re
from typing import get_args

from prometheus_client import CollectorRegistry

from benchmarks.load import shadow as shadow_benchmark
from listwright.ranking.experiments import PERSISTENCE, Agreement
from listwright.service import watched_file
from listwright.service.experiments import experiment_file, live, shadow
from listwright.service.experiments.experiment_file import Definition, ExperimentFile, parse
from listwright.service.experiments.roster import ExperimentMetrics
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
    whole, each = section("The file").split("Keys of each")
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
    source = "".join((ROOT / "service" / "experiments" / name).read_text() for name in ("live.py", "shadow.py"))
    counted = set(re.findall(r'count\([^"()]*"(\w+)"', source)) | {"shadow_ok", "shadow_degraded"}
    assert set(re.findall(r"`(\w+)`", " ".join(told.values()))) == counted


def test_its_numbers_are_the_codes():
    assert watched_file.LOOK_S < 1
    assert f"for {experiment_file.STALE_S:g} seconds" in PAGE
    assert f"p = {PERSISTENCE:g}" in PAGE
    assert f"{shadow.MOST_WAITING} lists wait" in " ".join(PAGE.split())
    assert f"at most {experiment_file.MOST}:" in PAGE
    assert sorted(live.SHOWS_ORDER) == ["explore", "interleave"]


def shadow_cost():
    """Of requests that are shadowed, and of the challenger's work beside them."""
    rows = []
    for load, found in result("shadow")["loads"].items():
        computed = found["taking_part"]["computed"]
        p99 = f"{computed['p99_ms']['without']:.2f}"
        rows.append(
            [
                at(load, found["taking_part"]),
                p99,
                later(computed),
                later(found["ranking"]),
                f"{100 * found['later']:+.1f}",
            ]
        )
    head = ["load, of the peak", "p99 without shadow, ms", "added to shadowed requests, %"]
    return table([*head, "added by the challenger's process, %", "both, %"], rows)


def at(load, found):
    return f"{float(load):.0%}, {found['rate']:,.0f} lists/s"


def later(found):
    low, high = (f"{100 * value:+.1f}" for value in found["later_95"])
    return f"{100 * found['later']:+.1f} [{low}, {high}]"


def test_the_share_of_a_core_that_is_measured_is_the_default():
    run = result("shadow")
    assert run["core_share"] == shadow_benchmark.CORE_SHARE == Definition.model_fields["core_share"].default


def test_a_shadow_keeps_to_the_target():
    run = result("shadow")
    work = run["core_time"]
    low, high = (f"{100 * value:.2f}" for value in work["more_95"])
    assert f"{100 * work['more']:.2f} % [{low}, {high}]" in PAGE
    assert f"at most {100 * run['target']:g} %" in PAGE
    assert all(load["later"] <= run["target"] for load in run["loads"].values())


def interleaving_cost():
    """Of a list."""
    run = result("interleave")
    ms = [f"{run['median_ms'][way]:.3f}" for way in ("control", "challenger", "interleaved")]
    return table(["control, ms", "challenger, ms", "interleaved, ms", "times the sum"], [[*ms, f"{run['ratio']:.2f}"]])


def test_the_costs_are_the_committed_runs():
    assert blocks(PAGE) == [shadow_cost(), interleaving_cost()]


def test_an_interleaved_list_costs_its_rankers():
    assert result("interleave")["ratio"] <= result("interleave")["target"]
