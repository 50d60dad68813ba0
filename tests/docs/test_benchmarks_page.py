"""The figures of docs/benchmarks.md are those of the code."""

import json
from pathlib import Path

from benchmarks import k6, wide_bundle
from benchmarks.rivals import climb, contenders, duel, measure, pipeline
from benchmarks.rivals.environments import ROOT

TEXT = " ".join((ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8").split())
NUMBERS = {1: "one", 2: "two", 3: "three", 4: "four", 8: "eight"}


def test_what_is_served():
    shape = f"{wide_bundle.FEATURES} features, {wide_bundle.TREES} trees of {wide_bundle.LEAVES} leaves"
    assert f"{shape}, QILCM over the best {pipeline.CUTOFF}" in TEXT
    assert f"Lists have {measure.CANDIDATES} candidates" in TEXT
    assert f"a list of {measure.PROBE} candidates exactly" in TEXT
    assert f"uvicorn with {NUMBERS[contenders.WORKERS]} workers" in TEXT
    assert f"`LISTWRIGHT_WORKERS={contenders.WORKERS}`" in TEXT


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


def test_the_committed_run_is_told():
    run = json.loads((ROOT / "benchmarks" / "results" / "rivals.json").read_text(encoding="utf-8"))
    ours = run["headline"]["ours"]
    carried = {door: f"{found['carried']:g}" for door, found in run["in_turns"]["ours"].items()}
    peaks = [f"{ours[door]['peak_over_rivals_peak']:.1f}" for door in (".npy", "JSON rows", "JSON rows by name")]
    assert f"`.npy` carried {carried['.npy']} times" in TEXT
    assert f"JSON rows {carried['JSON rows']} times" in TEXT
    assert f"rows by name {carried['JSON rows by name']} times" in TEXT
    assert f"it was {peaks[0]}, {peaks[1]} and {peaks[2]} times" in TEXT
