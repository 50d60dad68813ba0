"""The figures of docs/benchmarks.md are those of the code and of the committed runs."""

import json
from pathlib import Path

import pytest

from benchmarks import wide_bundle
from benchmarks.load import k6
from benchmarks.rivals import contenders, measure, pipeline, rising_load, turns
from benchmarks.rivals.environments import ROOT
from benchmarks.speed import throughput

PAGE = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if line.startswith("|")]
FORMATS = ("JSON rows", ".npy", "JSON rows by name")


def result(name):
    return json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("first", "others"),
    [
        ("features", [wide_bundle.FEATURES]),
        ("trees of the first stage", [f"{wide_bundle.TREES} of {wide_bundle.LEAVES} leaves"]),
        ("candidates that QILCM reranks", [pipeline.CUTOFF]),
        ("candidates of a list", [measure.CANDIDATES]),
        ("candidates of the list that every server must rank exactly as ours does", [measure.PROBE]),
        ("clients at the peak", [measure.CLIENTS]),
        (
            "rising loads, % of the peak",
            [f"{', '.join(f'{100 * share:.0f}' for share in measure.WHOLE.shares)}, then beyond"],
        ),
        ("loads halfway between", [measure.WHOLE.halvings]),
        ("seconds of a step", [measure.WHOLE.step_s]),
        ("limit of the 99th percentile, ms (`--limit-ms`)", [f"{result('rivals')['limit_ms']:g}"]),
        ("lost requests at most", [f"1 in {1 / rising_load.LOST:,.0f}"]),
        ("waiting requests at most", [k6.MOST_WAITING]),
        ("rounds in turns", [measure.WHOLE.rounds]),
        ("multiples in turns", [", ".join(f"{multiple:g}" for multiple in turns.MULTIPLES)]),
    ],
)
def test_settings_are_those_of_the_code(first, others):
    assert [first, *map(str, others)] in ROWS


def test_every_server_is_named_and_every_file_exists():
    for contender in (*contenders.RIVALS, contenders.OURS):
        assert contender.title in [row[0] for row in ROWS]
    for path in ("benchmarks/rivals/pipeline.py", "benchmarks/rivals/requirements"):
        assert path in PAGE
        assert (Path(ROOT) / path).exists()


def told(name):
    """The cells of a committed run: rising load at the rival's percentile, the peak, and in turns, in every format."""
    run = result(name)
    ours, in_turns = run["headline"]["ours"], run["in_turns"]["ours"]
    return run, [
        [f"{ours[request_format]['at_the_rivals_p99']['ratio']:.1f}" for request_format in FORMATS],
        [f"{ours[request_format]['peak_over_rivals_peak']:.1f}" for request_format in FORMATS],
        [f"{in_turns[request_format]['carried']:g}" for request_format in FORMATS],
    ]


def test_the_committed_run_is_told():
    run, (rising, peaks, in_turns) = told("rivals")
    assert (len(run["cores_of_the_server"]), run["machine"]["cores"], run["workers"]) == (1, 2, 1)
    assert ["committed", "rising load, within the other's 99th percentile", *rising] in ROWS
    assert ["committed", f"peak of {'four' if measure.CLIENTS == 4 else measure.CLIENTS} clients", *peaks] in ROWS
    assert ["committed", "in turns", *in_turns] in ROWS
    assert f" is {run['in_turns']['rivals']['p99_ms']:.0f} ms." in PAGE


def test_so_is_the_one_on_shared_cores():
    run, (_, peaks, in_turns) = told("rivals_shared")
    assert (run["machine"]["cores"], run["workers"]) == (2, 2)
    assert ["`--shared`, committed", "peak of four clients", *peaks] in ROWS
    assert ["`--shared`, committed", "in turns", *in_turns] in ROWS


def test_where_three_times_the_load_is_held():
    _, (rising, _, in_turns) = told("rivals")
    before = {row[1]: row[2:] for row in ROWS if row[0] == "the one before"}
    for place, (request_format, title) in enumerate(
        zip(FORMATS, ("JSON rows, the body that the others get too", "`.npy`", "JSON rows by name"), strict=True)
    ):
        held = [
            min(float(own[place]), float(before[figure][place])) >= 3
            for own, figure in ((rising, "rising load, within the other's 99th percentile"), (in_turns, "in turns"))
        ]
        assert [title, *("**held**" if one else "not held" for one in held)] in ROWS, request_format


def test_the_service_alone():
    run = result("throughput")
    assert f"{throughput.TURN} lists of one length" in PAGE
    for name, row in zip(("`.npy`", "columnar JSON", "JSON rows by name"), run["cost"], strict=True):
        assert [name, *(f"{us:.1f}" for us in row["further_candidate_us"])] in ROWS
    for shown, settings in (("2", "2 workers, no threads"), ("1, the default", "1 worker, no threads")):
        found = [f"{row['of_cores_over_floor']:.2f}" for row in run["clients"] if row["settings"] == settings]
        assert [shown, *found] in ROWS


def test_what_overload_does():
    run = result("overload")
    for callers, count in run["throughput"].items():
        (row,) = (row for row in ROWS if row[0].partition(",")[0] == callers and "do not" not in row[0])
        assert row[1:] == [f"{count:.0f}", ""]
    for shown, found in (
        ("64, which do not wait", run["closed_loop_impatient"]),
        ("five times the capacity, for a minute", run["overload"]),
    ):
        refused = found["answers"]["429"] / found["seconds"]
        assert [shown, f"{found['accepted_per_second']:.0f}", f"{refused:.0f}"] in ROWS
    took = run["overload"]["milliseconds"]
    assert ["answers, 99th percentile", f"{took['200']['p99']:.1f}"] in ROWS
    limit = "its limit: twice that of a single caller, plus the queue's bound"
    assert [limit, f"{run['accepted_p99_limit_ms']:.1f}"] in ROWS
    assert ["refusals, median", f"{took['429']['p50']:.1f}"] in ROWS
    assert ["refusals, 99th percentile", f"{took['429']['p99']:.0f}"] in ROWS
