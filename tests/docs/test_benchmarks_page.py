"""The tables of ``docs/benchmarks.md`` are the code's settings and the committed runs."""

from benchmarks import wide_bundle
from benchmarks.load import k6
from benchmarks.rivals import measure, pipeline, rising_load, turns
from support.pages.figure_blocks import blocks, page, result, table

PAGE = page("docs/benchmarks.md")
FORMATS = {
    "JSON rows": "JSON rows, the body that the others get too",
    ".npy": "`.npy`",
    "JSON rows by name": "JSON rows by name",
}
RUNS = {"a core of its own": "rivals", "`--shared`": "rivals_shared"}
AIM = 3


def lists():
    """What every server serves and gets."""
    return table(
        ["what", "how many"],
        [
            ["features", wide_bundle.FEATURES],
            ["trees of the first stage", f"{wide_bundle.TREES} of {wide_bundle.LEAVES} leaves"],
            ["candidates that QILCM reranks", pipeline.CUTOFF],
            ["candidates of a list", measure.CANDIDATES],
            ["candidates of the list that every server must rank exactly as ours does", measure.PROBE],
        ],
    )


def settings():
    """How a run is made."""
    shares = ", ".join(f"{100 * share:.0f}" for share in measure.WHOLE.shares)
    return table(
        ["setting", "value"],
        [
            ["clients at the peak", measure.CLIENTS],
            ["rising loads, % of the peak", f"{shares}, then beyond"],
            ["loads halfway between", measure.WHOLE.halvings],
            ["seconds of a step", measure.WHOLE.step_s],
            ["limit of the 99th percentile, ms (`--limit-ms`)", f"{result('rivals')['limit_ms']:g}"],
            ["lost requests at most", f"1 in {1 / rising_load.LOST:,.0f}"],
            ["waiting requests at most", k6.MOST_WAITING],
            ["rounds in turns", measure.WHOLE.rounds],
            ["multiples in turns", ", ".join(f"{multiple:g}" for multiple in turns.MULTIPLES)],
        ],
    )


def multiples(name):
    """Our load over the best other server's, in every format: under rising load, at the peak, in turns."""
    run = result(name)
    ours, in_turns = run["headline"]["ours"], run["in_turns"]["ours"]
    return {
        "rising load": [ours[name]["at_the_rivals_p99"]["ratio"] for name in FORMATS],
        f"peak of {measure.CLIENTS} clients": [ours[name]["peak_over_rivals_peak"] for name in FORMATS],
        "in turns": [in_turns[name]["carried"] for name in FORMATS],
    }


def loads():
    """Multiples of both committed runs."""
    rows = [
        [run, figure, *(f"{value:g}" if figure == "in turns" else f"{value:.1f}" for value in values)]
        for run, name in RUNS.items()
        for figure, values in multiples(name).items()
    ]
    return table(["run", "figure", "JSON rows", "`.npy`", "JSON rows by name"], rows)


def aim():
    """Where the committed run carries the load that we aim at."""
    found = multiples("rivals")
    rows = [
        [title, *("**held**" if found[figure][place] >= AIM else "not held" for figure in ("rising load", "in turns"))]
        for place, title in enumerate(FORMATS.values())
    ]
    return table(["format", "rising load", "in turns"], rows)


def others():
    """The other server beside ours."""
    rows = [[run, f"{result(name)['in_turns']['rivals']['p99_ms']:.0f}"] for run, name in RUNS.items()]
    return table(["run", "the other server in turns: median of its 99th percentiles, ms"], rows)


def cost():
    """What one more candidate takes."""
    names = {"npy": "`.npy`", "columnar JSON": "columnar JSON", "rows by name": "JSON rows by name"}
    rows = [
        [names[row["format"]], *(f"{us:.1f}" for us in row["further_candidate_us"])]
        for row in result("throughput")["cost"]
    ]
    return table(["format", "from 100 to 550 candidates", "from 550 to 1000"], rows)


def workers():
    """Throughput of four clients, over the floor."""
    shown = {"2": "2 workers, no threads", "1, the default": "1 worker, no threads"}
    run = result("throughput")["clients"]
    rows = [
        [title, *(f"{row['of_cores_over_floor']:.2f}" for row in run if row["settings"] == found)]
        for title, found in shown.items()
    ]
    return table(["workers", "`.npy`", "columnar JSON"], rows)


def overload():
    """Answers and refusals by callers."""
    run = result("overload")
    rows = [
        [callers if callers == "4" else f"{callers}, which wait as `Retry-After` says if refused", f"{count:.0f}", ""]
        for callers, count in run["throughput"].items()
    ]
    for title, found in (
        ("64, which do not wait", run["closed_loop_impatient"]),
        ("five times the capacity, for a minute", run["overload"]),
    ):
        refused = found["answers"]["429"] / found["seconds"]
        rows.append([title, f"{found['accepted_per_second']:.0f}", f"{refused:.0f}"])
    return table(["callers", "answers a second", "refusals a second"], rows)


def overload_times():
    """Latencies in the minute of overload."""
    run = result("overload")
    took = run["overload"]["milliseconds"]
    limit = "its limit: twice that of a single caller, plus the queue's bound"
    return table(
        ["milliseconds", "value"],
        [
            ["answers, 99th percentile", f"{took['200']['p99']:.1f}"],
            [limit, f"{run['accepted_p99_limit_ms']:.1f}"],
            ["refusals, median", f"{took['429']['p50']:.1f}"],
            ["refusals, 99th percentile", f"{took['429']['p99']:.0f}"],
        ],
    )


def test_the_tables_are_those_of_the_code_and_of_the_committed_runs():
    made = [lists(), settings(), loads(), aim(), others(), cost(), workers(), overload(), overload_times()]
    assert blocks(PAGE) == made


def test_the_committed_runs_are_whole_and_of_two_cores():
    for name, processes in (("rivals", 1), ("rivals_shared", 2)):
        run = result(name)
        assert run["complete"]
        assert (run["machine"]["cores"], run["workers"]) == (2, processes)
    assert len(result("rivals")["cores_of_the_server"]) == 1
    assert result("overload")["format"] == "columnar JSON"
