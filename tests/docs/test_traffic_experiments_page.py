"""``docs/traffic-experiments.md``: its keys, defaults, kinds, outcomes and metrics are the code's, and its file parses."""

import re
from typing import get_args

from prometheus_client import CollectorRegistry

from benchmarks.load import shadow as shadow_benchmark
from listwright.ranking.experiments import PERSISTENCE, Agreement
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
    source = "".join((ROOT / "service" / "experiments" / name).read_text() for name in ("live.py", "shadow.py"))
    counted = set(re.findall(r'count\([^"()]*"(\w+)"', source)) | {"shadow_ok", "shadow_degraded"}
    assert set(re.findall(r"`(\w+)`", " ".join(told.values()))) == counted


def test_its_numbers_are_the_codes():
    assert 1.0 / experiment_file.LOOK_S == 5
    assert "five times a second" in PAGE
    assert experiment_file.STALE_S == 2
    assert f"p = {PERSISTENCE:g}" in PAGE
    assert f"At most {shadow.MOST_WAITING} lists" in PAGE
    assert f"at most {experiment_file.MOST} of them" in PAGE
    assert sorted(live.SHOWS_ORDER) == ["explore", "interleave"]


def core_time():
    """Of a request that is shadowed."""
    work = result("shadow")["core_time"]
    low, high = (f"{100 * value:+.2f}" for value in work["more_95"])
    more = f"{100 * work['more']:+.2f} [{low}, {high}]"
    return table(
        ["not shadowed, µs of a core", "shadowed", "more, %"],
        [[f"{work['core_us'][way]:,.0f}" for way in ("without", "with")] + [more]],
    )


def taking_part():
    """Of requests that are shadowed."""
    rows = []
    for load, found in result("shadow")["loads"].items():
        part = found["taking_part"]
        computed, measured = part["computed"], part["measured"]
        p99 = [f"{computed['p99_ms'][way]:.2f}" for way in ("without", "with")]
        left = f"{computed['stalled_seconds']} of {computed['of']}"
        turns = f"{measured['stalled']['without']}, {measured['stalled']['with']} of {measured['turns']}"
        rows.append([at(load, part), *p99, later(computed), left, later(measured), turns])
    head = ["load, of the peak", "not shadowed, p99 in ms", "shadowed, computed", "later, %", "left out, s"]
    return table([*head, "later, % measured", "left out: not shadowed, shadowed"], rows)


def ranking():
    """Of the challenger's work, and both together."""
    rows = []
    for load, found in result("shadow")["loads"].items():
        one = found["ranking"]
        p99 = [f"{one['p99_ms'][way]:.2f}" for way in ("away", "all")]
        left = f"{one['stalled_seconds']} of {one['of']}, {one['begun_beside']}"
        share = f"{100 * one['share_beside']:.1f}"
        rows.append([at(load, one), share, *p99, later(one), left, f"{100 * found['later']:+.1f}"])
    head = ["load, of the peak", "requests beside its work, %", "the others, p99 in ms", "all", "later, %"]
    return table([*head, "left out: seconds, begun beside it", "both costs, %"], rows)


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
    assert all(load["later"] <= run["target"] for load in run["loads"].values())


def interleaving_cost():
    """Of a list."""
    run = result("interleave")
    ms = [f"{run['median_ms'][way]:.3f}" for way in ("control", "challenger", "interleaved")]
    return table(["control, ms", "challenger, ms", "interleaved, ms", "times the sum"], [[*ms, f"{run['ratio']:.2f}"]])


def test_the_costs_are_the_committed_runs():
    assert blocks(PAGE) == [core_time(), taking_part(), ranking(), interleaving_cost()]


def test_an_interleaved_list_costs_its_rankers():
    assert result("interleave")["ratio"] <= result("interleave")["target"]
