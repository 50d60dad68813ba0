"""The tables of ``docs/capacity.md`` are the code's settings and the committed run."""

import math
import re

from benchmarks.capacity import __main__ as command
from benchmarks.capacity import limits, plan
from benchmarks.capacity.measured import rounds, shape
from benchmarks.capacity.simulated import arrivals
from benchmarks.capacity.simulated.balancers import BALANCERS
from listwright.service.settings import Settings
from support.pages.figure_blocks import ROOT, blocks, page, result, table

PAGE = page("docs/capacity.md")
RUN = result("capacity")
VALIDATION = result("capacity_validation")
EARLIER = result("capacity_validation_earlier")
OFFERED = "{:,}".format
THUMB = 0.7
"""How busy replicas are by the rule of thumb."""


def percent(share, digits=0):
    return f"{100 * share:.{digits}f}"


def measured():
    """Of one list, and of one replica."""
    of, service, found = RUN["shape"], RUN["service"], RUN["footprint"]
    return table(
        ["what", "measured"],
        [
            ["candidates, features, format", f"{of['candidates']}, {of['features']}, `{of['format']}`"],
            ["CPU time of one list that always waited, ms", f"{service['cpu_ms_per_list']:.2f}"],
            [
                "the same in tenths of a second, over its mean: 1st, 50th, 99th percentile",
                ", ".join(f"{ratio:.2f}" for ratio in service["slowness"]),
            ],
            [
                f"more where the replica slept for {', '.join(f'{slept:.1f}' for slept in service['slept_ms'])} ms, ms",
                ", ".join(f"{more:.2f}" for more in service["waking_ms"]),
            ],
            ["of which until its turn, ms", f"{service['of_which_intake_ms']:.2f}"],
            ["CPU time of a refusal, ms", f"{service['refusal_ms']:.2f}"],
            ["one caller: p50, p99, ms", f"{service['alone_p50_ms']:.2f}, {service['alone_p99_ms']:.2f}"],
            ["CPU time of haproxy for one list, ms", f"{service['haproxy_ms_per_list']:.3f}"],
            ["request, answer, bytes", f"{found['body_bytes']:,}, {found['answer_bytes']:,}"],
            ["log line, bytes", f"{found['log_bytes']:.0f}"],
            ["series of `/metrics`", f"{found['series']:,}"],
            ["bundle, MB", f"{found['bundle_bytes'] / 1e6:.1f}"],
            ["start to ready, s", f"{found['ready_s']:.1f}"],
            ["resident memory, MB", f"{found['resident_mb']:.0f}"],
            [
                "speed of the machine before each round",
                ", ".join(f"{v:,.0f}" for v in RUN["machine_speed"]),
            ],
        ],
    )


def settings():
    """What counts as carried, and what is simulated."""
    burst = f"{arrivals.BURST_FACTOR:g} × the mean rate, {percent(arrivals.BURST_SHARE)} % of the time"
    return table(
        ["setting", "value"],
        [
            ["refused at most", f"1 in {1 / plan.REFUSED:,.0f}"],
            ["spare replicas", plan.SPARE],
            ["margin on the load, %", percent(plan.MARGIN)],
            ["bursts", f"{burst}, {arrivals.BURST_S:g} s each on average"],
            ["replicas of a cell", plan.CELL],
            ["lists of a simulation, Poisson and bursty", f"{plan.LISTS['poisson']:,}, {plan.LISTS['bursty']:,}"],
        ],
    )


def costs():
    """Replicas and cost."""
    head = f"p99 ≤ {RUN['p99_ms']:g} ms, {RUN['balancer']}, {RUN['price_per_core_hour']:g} a core and hour"
    return table(
        [
            f"lists a second ({head})",
            "arrivals",
            "replicas",
            "busy, %",
            "cost an hour",
            "cost of a million lists",
            f"replicas at {percent(THUMB)} % busy",
        ],
        [
            [
                OFFERED(row["lists_per_second"]),
                row["arrivals"],
                OFFERED(row["replicas"]),
                percent(row["utilisation"]),
                f"{row['cost_per_hour']:,.2f}",
                f"{row['cost_per_million_lists']:.3f}",
                OFFERED(math.ceil(row["lists_per_second"] * RUN["service"]["cpu_ms_per_list"] / 1e3 / THUMB)),
            ]
            for row in RUN["plan"]
        ],
    )


def demands():
    """What a load asks of everything around the replicas."""
    names = [limit.name for limit in limits.LIMITS]
    rows = []
    for row in (row for row in RUN["plan"] if row["arrivals"] == "bursty"):
        asked, over = row["breaks"]["asked"], row["breaks"]["over_limit"]
        cells = [f"**{asked[name]:,.1f}**" if over[name] > 1.0 else f"{asked[name]:,.1f}" for name in names]
        first = row["breaks"]["first"]
        rows.append([OFFERED(row["lists_per_second"]), *cells, f"{first}, {over[first]:.2f} ×"])
    head = [f"{limit.name}, {limit.unit}" for limit in limits.LIMITS]
    return table(["lists a second", *head, "breaks first, over its limit"], rows)


def borne():
    """The assumptions."""
    return table(
        ["what", "one bears", "of"], [[one.name, f"{one.bears:,.0f} {one.unit}", one.of] for one in limits.LIMITS]
    )


TIMES = {
    "repeated": "none: measured twice",
    "predicted": "before and after",
    "trace_driven": "of the load itself",
}
SIMULATED = ("predicted", "trace_driven")


def verdicts():
    """How many loads are right, and by how much the worst is wrong."""
    within = f"within {percent(VALIDATION['within'])} %"
    return table(
        ["figure", "times of a list", "largest error of a load, %", f"loads {within}", f"single rounds {within}"],
        [
            [
                one["figure"],
                TIMES[one["way"]],
                f"{100 * one['worst']:+.1f}",
                f"{one['loads_within']} of {one['loads']}",
                f"{one['rounds_within']} of {one['rounds']}" if one["rounds"] else "",
            ]
            for one in VALIDATION["verdicts"]
        ],
    )


def signed(errors):
    return ", ".join(f"{100 * error:+.0f}" for error in errors)


def comparison():
    """Every load."""
    rows = []
    for row in VALIDATION["rows"]:
        ways = [row["measured"], *(row[way] for way in SIMULATED)]
        rows.append(
            [
                row["replicas"],
                row["balancer"] or "none",
                f"{row['arrivals']}, {percent(row['load'])} %",
                ", ".join(f"{way['answered_rps']:.0f}" for way in ways),
                ", ".join(percent(way["refused"], 1) for way in ways),
                ", ".join(f"{way['p50_ms']:.1f}" for way in ways),
                ", ".join(f"{way['p99_ms']:.1f}" for way in ways),
                signed(row[way]["p99_ms_error"] for way in TIMES),
                *(signed(one["p99_ms_error"] for one in row[f"{way}_rounds"]) for way in SIMULATED),
            ]
        )
    names = ("answers a second", "refused, %", "p50, ms", "p99, ms")
    return table(
        [
            "replicas",
            "balancer",
            "load",
            *(f"{name}: real, predicted, trace-driven" for name in names),
            "error of p99, %: repeated, predicted, trace-driven",
            "predicted, in each round",
            "trace-driven, in each round",
        ],
        rows,
    )


def history():
    """How often it was run, and what changed in between."""
    rows = []
    for number, run in enumerate([*EARLIER["runs"], {**VALIDATION, "changed": "nothing"}], start=1):
        p99 = {one["way"]: one for one in run["verdicts"] if one["figure"] == "p99"}
        each = [p99[way] for way in SIMULATED]
        rows.append(
            [
                number,
                f"`{run['command']}`",
                run["changed"],
                ", ".join(f"{one['loads_within']} of {one['loads']}" for one in each),
                signed(one["worst"] for one in each),
            ]
        )
    ways = "prediction, trace-driven"
    within = f"p99 within {percent(VALIDATION['within'])} %: {ways}"
    return table(["run", "command", "changed before it", within, f"largest error of p99, %: {ways}"], rows)


def conditions():
    """Of the run that compares."""
    return table(
        ["what", "measured"],
        [
            ["speed of the machine before each round", ", ".join(f"{v:,.0f}" for v in VALIDATION["machine_speed"])],
            *(
                [
                    f"CPU time of one list that always waited, of {count}: least, median, most, ms",
                    ", ".join(f"{ms:.2f}" for ms in VALIDATION["cpu_ms_of_busy"][count]),
                ]
                for count in ("1", "2")
            ),
            ["CPU time of haproxy for one list, ms", f"{VALIDATION['haproxy_ms_per_list']:.3f}"],
            ["CPU time of the generator for one list, ms", f"{VALIDATION['generator_ms_per_list']:.3f}"],
            ["seconds of each load in each round", f"{VALIDATION['seconds']:g}"],
        ],
    )


MADE = [measured(), settings(), costs(), demands(), borne(), verdicts(), conditions(), comparison(), history()]


def test_the_tables_are_the_settings_and_the_committed_run():
    assert blocks(PAGE) == MADE


def test_the_run_is_whole():
    """Whether the predictions hold is in the table, and not a test: a shared machine may spoil a run."""
    assert "--quick" not in RUN["command"]
    assert [row["lists_per_second"] for row in RUN["plan"]] == [*plan.RATES, *plan.RATES]
    assert "--quick" not in VALIDATION["command"]
    assert {row["failed"] for row in VALIDATION["rows"]} == {0}
    assert len(VALIDATION["rows"]) == len(rounds.planned())
    assert RUN["limits"] == [
        {"name": one.name, "unit": one.unit, "bears": one.bears, "of": one.of} for one in limits.LIMITS
    ]


def test_costs_are_the_products_that_the_page_names():
    found, haproxy_s = RUN["footprint"], RUN["service"]["haproxy_ms_per_list"] / 1e3
    for row in RUN["plan"]:
        rate, replicas, asked = row["lists_per_second"], row["replicas"], row["breaks"]["asked"]
        assert abs(asked["balancer"] - rate * haproxy_s) <= 0.001 * rate * haproxy_s + 0.001
        assert abs(asked["log"] - rate * found["log_bytes"] / 1e6) < 0.001
        assert asked["metrics"] == replicas * found["series"]
        assert abs(row["cost_per_hour"] - replicas * RUN["price_per_core_hour"]) < 0.01


def test_options_formats_and_balancers_are_named():
    for name in (*BALANCERS, *shape.FORMATS):
        assert f"`{name}`" in PAGE
    options = {"--quick": [], "--validate": [], "--format": ["npy"], "--balancer": ["random"]}
    named = [
        name for line in PAGE.splitlines() if line.startswith("| `--") for name in re.findall(r"`(--[\w-]+)`", line)
    ]
    assert len(named) > 5
    for name in named:
        command._options([name, *options.get(name, ["2"])])


def test_the_queue_that_the_page_names_is_a_setting():
    assert "queue_ms" in Settings.model_fields
    assert (ROOT / "benchmarks" / "results" / "capacity.svg").is_file()
