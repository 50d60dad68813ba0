"""``docs/events.md``: its events are taken, its labels and commands are read, and its tables are the code's."""

import json
import re
import shlex

import polars as pl

from listwright.ranking.served_log.events import COLUMNS, MAX_EVENTS, event_of
from listwright.ranking.served_log.files import write
from listwright.service.api.events import MAX_BODY
from listwright.service.events import MAX_LINE_BYTES, MODE, ROLL_BYTES, ROLL_S
from listwright.training.commands import join
from listwright.training.data.tables.judged import KEY, judged_metadata
from listwright.training.traffic.join.events import Cause, read_labels
from support.events import event, write_events
from support.pages.figure_blocks import page
from support.served import served_record

PAGE = page("docs/events.md")


def rows_below(head):
    """Cells of the first table behind a heading or a line."""
    lines = PAGE.partition(head)[2].partition("|---")[2].splitlines()[1:]
    found = []
    for line in lines:
        if not line.startswith("|"):
            break
        found.append([cell.strip() for cell in line.strip("|").split("|")])
    return found


def test_the_fields_of_an_event_are_those_that_are_read():
    fields = [row[0].strip("`") for row in rows_below("## Event fields")]
    assert set(fields) == set(COLUMNS.values())


def test_the_event_of_the_page_is_one():
    sent = re.search(r"-d '(.*?)'", PAGE, re.S)[1]
    found = event_of(json.loads(sent))
    assert (found.query_id, found.object_id, found.ordinal) == ("req-7", "sku-2", 1)


def test_the_numbers_are_the_codes():
    assert f"{MAX_EVENTS:,}" in PAGE
    assert [f"{size // 2**10} KiB" for size in (MAX_BODY.size, MAX_LINE_BYTES)] == re.findall(r"\d+ KiB", PAGE)
    assert f"{ROLL_BYTES // 2**20} MiB" in PAGE
    assert ROLL_S == 600
    assert f"0{MODE:o}" in PAGE


def test_every_cause_has_a_row():
    told = "; ".join(row[0] for row in rows_below("### What does not count"))
    places = [told.find(cause) for cause in Cause]
    assert min(places) >= 0
    assert places == sorted(places), "in the order in which they are looked for"


def test_the_labels_and_the_join_of_the_page_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "labels.toml").write_text(re.search(r"```toml\n(.*?)```", PAGE, re.S)[1])
    assert read_labels(tmp_path / "labels.toml").actions == ("purchase", "click", "impression")
    for folder in ("served", "events"):
        (tmp_path / folder).mkdir()
    write(tmp_path / "served" / "1.avro", [served_record(0)])
    write_events(tmp_path / "events" / "1.jsonl", [event(0)])
    first, again = re.findall(r"^listwright join (.*)$", PAGE, re.M)
    assert join.main(shlex.split(first)) == 0
    assert join._parser().parse_args(shlex.split(again)).replay == 1000


def test_a_person_is_filtered_from_judged_rows_and_their_metadata_stay(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = judged_metadata(["price"], qid="query_id", label="label", time="served_at")
    units = ["customer-17", None, "customer-18", "customer-17"]
    pl.DataFrame({"query_id": [*"abcd"], "unit": units}).write_parquet("rows.parquet", metadata=said)
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(code, "events.md", "exec"), {})
    assert pl.read_parquet("rows-without.parquet")["query_id"].to_list() == ["b", "c"]
    assert pl.read_parquet_metadata("rows-without.parquet")[KEY] == said[KEY]
