"""The tables of ``docs/benchmarks.md`` are the code's settings and the committed runs."""

from benchmarks import wide_bundle
from benchmarks.rivals import measure, rising_load, turns
from support.pages.figure_blocks import blocks, page, result, table

PAGE = page("docs/benchmarks.md")
FORMATS = ("JSON rows", ".npy", "JSON rows by name")
RUNS = {"a core of its own": "rivals", "`--shared`": "rivals_shared"}
AIM = 3


def test_settings_are_those_of_the_code_and_of_the_committed_runs():
    *multiples_in_turns, most = (f"{multiple:g}" for multiple in turns.MULTIPLES)
    shares = ", ".join(f"{100 * share:.0f}" for share in measure.WHOLE.shares)
    runs = [result(name) for name in RUNS.values()]
    for setting in (
        f"**Peak**: {measure.CLIENTS} clients",
        f"({shares} % and beyond)",
        f"at most {runs[0]['limit_ms']:g} ms (`--limit-ms`), and at most 1 request in {1 / rising_load.LOST:,.0f}",
        "lasts {} seconds (`--shared`: {})".format(*(run["seconds_per_step"] for run in runs)),
        "in {} round (`--shared`: {})".format(*(run["in_turns"]["rounds"] for run in runs)),
        f"{', '.join(multiples_in_turns)} and {most} times as much",
    ):
        assert setting in " ".join(PAGE.split())


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


def test_what_one_more_candidate_takes():
    names = {"npy": "`.npy`", "columnar JSON": "columnar JSON", "rows by name": "JSON rows by name"}
    for row in result("throughput")["cost"]:
        first, second = row["further_candidate_us"]
        assert f"{first:.1f} µs as {names[row['format']]}" in PAGE
        assert abs(second / first - 1.0) <= 0.15


def workers():
    """Throughput of four clients: lists a second, and over the floor."""
    shown = {"2": "2 workers, no threads", "1, the default": "1 worker, no threads"}
    run = result("throughput")["clients"]
    rows = [
        [
            title,
            *(
                f"{row['per_second']:,.0f} ({row['of_cores_over_floor']:.2f})"
                for row in run
                if row["settings"] == found
            ),
        ]
        for title, found in shown.items()
    ]
    return table(["workers", "`.npy`", "columnar JSON"], rows)


def overload():
    """Answers and refusals by callers."""
    run = result("overload")
    rows = [
        [callers if callers == "4" else f"{callers}, which obey `Retry-After`", f"{count:.0f}", ""]
        for callers, count in run["throughput"].items()
    ]
    for title, found in (
        ("64, which do not wait", run["closed_loop_impatient"]),
        ("five times the capacity, for a minute", run["overload"]),
    ):
        refused = found["answers"]["429"] / found["seconds"]
        rows.append([title, f"{found['accepted_per_second']:.0f}", f"{refused:.0f}"])
    return table(["callers", "answers a second", "refusals a second"], rows)


def tables():
    return [loads(), workers(), overload()]


def test_the_tables_are_those_of_the_code_and_of_the_committed_runs():
    assert blocks(PAGE) == tables()


def test_what_every_server_serves():
    bundle = f"{wide_bundle.FEATURES} features, {wide_bundle.TREES} trees of {wide_bundle.LEAVES} leaves"
    assert bundle in PAGE
    assert f"lists have {measure.CANDIDATES} candidates" in PAGE


def test_the_aim_is_reached_where_the_page_says():
    found = multiples("rivals")
    others = [f"{result(name)['in_turns']['rivals']['p99_ms']:.0f}" for name in RUNS.values()]
    assert "{} ms (`--shared`: {})".format(*others) in PAGE
    reached = {
        figure: [name for name, value in zip(FORMATS, found[figure], strict=True) if value >= AIM]
        for figure in ("rising load", "in turns")
    }
    assert reached == {"rising load": [".npy"], "in turns": ["JSON rows", ".npy"]}


def test_latencies_of_overload():
    run = result("overload")
    took = run["overload"]["milliseconds"]
    shown = [f"{took['200']['p99']:.1f}", f"{run['accepted_p99_limit_ms']:.1f}", f"{took['429']['p99']:.0f} ms"]
    assert [number for number in shown if number not in PAGE] == []


def test_the_committed_runs_are_whole_and_of_two_cores():
    for name, processes in (("rivals", 1), ("rivals_shared", 2)):
        run = result(name)
        assert run["complete"]
        assert (run["machine"]["cores"], run["workers"]) == (2, processes)
    assert len(result("rivals")["cores_of_the_server"]) == 1
    assert result("overload")["format"] == "columnar JSON"
