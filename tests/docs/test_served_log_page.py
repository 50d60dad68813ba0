"""``docs/served-log.md`` has the code's fields and reasons, its Python runs, and its figures are the committed ones."""

import json
import re
from datetime import timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from benchmarks.speed.archive import ARCHIVE
from listwright.ranking.served_log import files
from listwright.ranking.served_log.encoding import SCHEMA
from listwright.ranking.served_log.record import Intervention, hashed
from listwright.training.commands import estimate, join, propensity
from listwright.training.data.tables.judged import read_judged_metadata
from support.events import event, write_events
from support.pages.figure_blocks import blocks, result, table
from support.served import NOON, served_record
from support.service.bundles import NUMERIC, make_bundle

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "served-log.md").read_text(encoding="utf-8")
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
LISTS = 1500


def test_every_field_of_a_record_is_described():
    table = PAGE.partition("## What is logged")[2].partition("## Files")[0]
    named = set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| ([^|]+) \|", table, re.MULTILINE))))
    assert named == {field["name"] for field in SCHEMA["fields"]}


def test_every_reason_of_a_drop_is_described():
    table = PAGE.partition("| `reason` | cause |")[2].partition("\n\n")[0]
    named = set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| ([^|]+) \|", table, re.MULTILINE))))
    code = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "service" / "served_log").glob("*.py"))
    used = set(re.findall(r'\.note\(\s*"(\w+)"', code)) | set(re.findall(r'"(disk_full|write_failed)"', code))
    assert named == used
    assert len(used) >= 7


def test_its_python_runs(tmp_path, capsys):
    unit = hashed("customer-17", b"the salt of the service")
    files.write(tmp_path / "1.avro", [served_record(1), served_record(2, unit=unit)])
    code, _ = PROGRAMS
    exec(compile(code.replace("/var/log/served", str(tmp_path)), "served-log.md", "exec"), {})
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["query-1", "query-2"]
    assert [line.rpartition("(4, 3) ")[2] for line in lines] == ["False", "True"]


@pytest.fixture
def rows(tmp_path):
    """Judged rows of a log of three days: half of the lists have two neighbours swapped, and no list shows all."""
    rng = np.random.default_rng(0)
    logged, clicks = [], []
    for number in range(LISTS):
        order, upper = rng.permutation(4)[:3], int(rng.integers(4))
        changes = {}
        if upper < 2:
            order[[upper, upper + 1]] = order[[upper + 1, upper]]
            changes["intervention"] = Intervention("swap", (upper, upper + 1), 0.25)
        at = NOON + timedelta(seconds=100 * number)
        changes |= {"served_at": at, "order": order, "top_n": 3, "unit": f"u{number % 700}", "experiment": "places"}
        logged.append(served_record(number, names=NUMERIC, **changes))
        places = np.flatnonzero(rng.random(3) < 0.6 / np.arange(1, 4))
        clicks += [event(number, int(order[place]), after_s=99 * number + 1) for place in places]
    files.write(tmp_path / "1.avro", logged)
    write_events(tmp_path / "events.jsonl", clicks)
    path, labels = tmp_path / "rows.parquet", tmp_path / "labels.toml"
    labels.write_text("[labels]\nclick = 1\n")
    inputs = ["--served", tmp_path / "1.avro", "--events", tmp_path / "events.jsonl", "--labels", labels]
    assert join.main([*map(str, inputs), "--unshown", "--out", str(path)]) == 0
    return path


@pytest.mark.nightly
def test_the_archive_says_what_the_rows_say(rows, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(PROGRAMS[1], "served-log.md", "exec"), {})
    archive = tmp_path / "archive"
    days = [f"day={day}" for day in sorted(pl.read_parquet(rows)["served_at"].dt.date().unique())]
    assert sorted(path.name for path in archive.iterdir()) == days
    assert len(days) == 3
    metadata = [read_judged_metadata(path) for path in (rows, *archive.rglob("*.parquet"))]
    assert metadata == metadata[:1] * 4
    bundle = make_bundle(tmp_path / "shop" / "1", categorical=False)
    found = []
    for path in (rows, archive):
        outputs = [tmp_path / f"{path.stem}-{name}.json" for name in ("propensities", "estimate")]
        assert propensity.main([str(path), "--out", str(outputs[0])]) == 0
        arguments = [bundle, "--data", path, "--propensities", outputs[0], "--json", outputs[1], "--jobs", "1"]
        assert estimate.main([*map(str, arguments)]) == 0
        found.append([{**json.loads(output.read_text()), "command": ""} for output in outputs])
    assert found[0] == found[1]
    assert found[0][1]["lists"] == LISTS
    assert found[0][1]["bundles"][0]["missing"] > 0.0


def figures():
    """Bytes, CPU seconds, the largest memory of a command, and the interval of an estimate, by length of the log."""
    rows = []
    for run in result("archive")["table"]:
        seconds, change = run["cpu seconds"], run["change"]
        rows.append(
            [
                f"{run['lists']:,}",
                *(f"{run['bytes'][name] / 2**20:,.0f}" for name in ("served log", "served log, gzipped", "archive")),
                f"{seconds['join'] + seconds['archive']:.0f}",
                *(f"{seconds[name]:.0f}" for name in ("propensity", "estimate", "estimate of three", "score")),
                f"{max(run['peak rss mib of one process'].values()) / 1024:.1f}",
                f"±{(change['high'] - change['low']) / 2:.3f}",
            ]
        )
    sizes, steps = (
        ["log, MiB", "gzipped", "archive"],
        ["join and archive, s", "propensity", "estimate", "of three", "`score`"],
    )
    return table(["lists", *sizes, *steps, "memory, GiB", "interval"], rows)


def test_the_figures_are_those_of_the_committed_run_of_the_program_on_the_page():
    assert PROGRAMS[1].strip() == ARCHIVE.strip()
    run = result("archive")
    assert f"{run['candidates']} candidates with {run['features']} features, of which {run['shown']} are shown" in PAGE
    assert blocks(PAGE) == [figures()]
