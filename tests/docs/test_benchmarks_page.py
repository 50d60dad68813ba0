"""The figures of docs/benchmarks.md are those of the code."""

import json
from pathlib import Path

from benchmarks import k6, throughput, wide_bundle
from benchmarks.rivals import climb, contenders, duel, measure, pipeline
from benchmarks.rivals.environments import ROOT

TEXT = " ".join((ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8").split())
NUMBERS = {1: "one", 2: "two", 3: "three", 4: "four", 8: "eight"}


def test_what_is_served():
    shape = f"{wide_bundle.FEATURES} features, {wide_bundle.TREES} trees of {wide_bundle.LEAVES} leaves"
    assert f"{shape}, QILCM over the best {pipeline.CUTOFF}" in TEXT
    assert f"Lists have {measure.CANDIDATES} candidates" in TEXT
    assert f"a list of {measure.PROBE} candidates exactly" in TEXT
    assert "`LISTWRIGHT_WORKERS` as many as cores" in TEXT


def test_how_load_is_put_on():
    *rungs, last = [f"{rung:.0%}".removesuffix("%") for rung in measure.WHOLE.rungs]
    assert f"at {', '.join(rungs)} and {last} % of the server's own peak" in TEXT
    assert f"{NUMBERS[measure.CLIENTS]} clients that each wait" in TEXT
    assert f"then {'twice' if measure.WHOLE.looks == 2 else measure.WHOLE.looks} halfway between" in TEXT
    assert f"a step lasts {NUMBERS[measure.WHOLE.step_s]} seconds" in TEXT
    assert f"because {k6.MOST_WAITING} were waiting" in TEXT
    assert f"in each of {NUMBERS[measure.WHOLE.rounds]} rounds" in TEXT
    *multiples, most = [f"{multiple:g}" for multiple in duel.MULTIPLES]
    assert f"{', '.join(multiples)} and {most} times that" in TEXT
    assert climb.LOST == 1 / 1000
    assert "at most one request in a thousand failed" in TEXT


def test_every_server_is_named_and_every_file_exists():
    for contender in (*contenders.RIVALS, contenders.OURS):
        assert f"| {contender.title} |" in TEXT
    for path in ("benchmarks/rivals/pipeline.py", "benchmarks/rivals/requirements"):
        assert path in TEXT
        assert (Path(ROOT) / path).exists()


DOORS = ("JSON rows", ".npy", "JSON rows by name")


def told(name):
    """What a committed run says of every door: times in turns, at the rival's percentile, and at the peak."""
    run = json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text(encoding="utf-8"))
    ours, turns = run["headline"]["ours"], run["in_turns"]["ours"]
    return run, [
        [f"{turns[door]['carried']:g}" for door in DOORS],
        [f"{ours[door]['at_the_rivals_p99']['ratio']:.1f}" for door in DOORS],
        [f"{ours[door]['peak_over_rivals_peak']:.1f}" for door in DOORS],
    ]


def test_the_committed_run_is_told():
    run, (turns, climbs, peaks) = told("rivals")
    assert (len(run["cores_of_the_server"]), run["machine"]["cores"], run["workers"]) == (1, 2, 1)
    rows, npy, by_name = climbs
    assert f"JSON rows sustained **{rows} times**, `.npy` **{npy} times** and rows by name **{by_name} times**" in TEXT
    assert f"it was {peaks[0]}, {peaks[1]} and {peaks[2]} times, and so it was by CPU time" in TEXT
    rows, npy, by_name = turns
    assert f"JSON rows carried {rows} times, `.npy` {npy} times and rows by name {by_name} times" in TEXT

    said = run["in_turns"]["rivals"]["p99_ms"]
    assert f"percentiles over the rounds of the committed run is {said:.0f} ms" in TEXT


def test_the_service_alone():
    run = json.loads((ROOT / "benchmarks" / "results" / "throughput.json").read_text(encoding="utf-8"))
    (npy, columns, by_name) = [[f"{us:.1f}" for us in row["further_candidate_us"]] for row in run["cost"]]
    said = f"{npy[0]} and {npy[1]} µs through `.npy`, {columns[0]} and {columns[1]} as columnar JSON"
    assert f"{throughput.TURN} lists of one length in a row): {said}, {by_name[0]} and {by_name[1]} by name" in TEXT
    npy, columns = [row["of_cores_over_floor"] for row in run["clients"] if row["settings"] == "2 workers, no threads"]
    assert f"get {npy:.2f} times through `.npy`, and {columns:.2f} times as columnar JSON" in TEXT


def test_what_overload_does():
    run = json.loads((ROOT / "benchmarks" / "results" / "overload.json").read_text(encoding="utf-8"))
    few, some, many = (f"{run['throughput'][callers]:.0f}" for callers in ("4", "16", "64"))
    assert f"4, 16 and 64 callers are answered {few}, {some} and {many} times a second" in TEXT
    impatient, overload = run["closed_loop_impatient"], run["overload"]
    assert f"64 that do not wait get {impatient['accepted_per_second']:.0f} answers a second" in TEXT
    assert f"and {impatient['answers']['429'] / impatient['seconds']:.0f} refusals" in TEXT
    p99 = f"p99 {overload['milliseconds']['200']['p99']:.1f} ms"
    assert f"{overload['accepted_per_second']:.0f} answers a second, {p99}" in TEXT
    assert f"plus the queue's bound is {run['accepted_p99_limit_ms']:.1f};" in TEXT


def test_so_is_the_one_on_shared_cores():
    run, ((rows, npy, by_name), _, peaks) = told("rivals_shared")
    assert (run["machine"]["cores"], run["workers"]) == (2, 2)
    said = f"`.npy` carried {npy} times, JSON rows {rows} times and rows by name {by_name} times in turns"
    assert f"{said}; {peaks[1]}, {peaks[0]} and {peaks[2]} times at the peak" in TEXT
