"""Events of JSON lines, CSV and Parquet: the same events, whatever the file."""

import csv
import gzip
import json
from datetime import datetime

import pandas as pd
import polars as pl
import pytest

from listwright.ranking.errors import DataError
from listwright.training.traffic.join import events
from listwright.training.traffic.join.events import SUMMED, Cause, Labels, event_batches
from support.events import event, write_events

EVENTS = [
    event(0, 1, event_id="e", event_attributes={"object": {"object_id": "a,b"}, "position": {"ordinal": 2}}),
    event(1, 0, timestamp="2026-05-01T14:00:00+02:00"),
    event(2, 0, query_id=None),
]
FLAT = {
    "query_id": [e["query_id"] for e in EVENTS],
    "action_name": [e["action_name"] for e in EVENTS],
    "client_id": [e["client_id"] for e in EVENTS],
    "event_id": ["e", None, None],
    "timestamp": [e["timestamp"] for e in EVENTS],
    "event_attributes.object.object_id": [e["event_attributes"]["object"]["object_id"] for e in EVENTS],
    "event_attributes.position.ordinal": [2, None, None],
    "another": [1, 2, 3],
}


LABELS = Labels(
    labels={"purchase": 1},
    sums={"revenue": {"action": "purchase", "field": "event_attributes.object.price"}},
)


def read(path, labels=Labels(labels={"click": 1})):  # noqa: B008 - it is frozen
    batches = list(event_batches(path, labels))
    return pl.concat([batch.frame for batch in batches]), batches


def as_lines(folder):
    return write_events(folder / "events.jsonl", EVENTS)


def as_gzip(folder):
    path = folder / "events.jsonl.gz"
    path.write_bytes(gzip.compress(as_lines(folder).read_bytes()))
    return path


def as_csv(folder):
    pl.DataFrame(FLAT).write_csv(folder / "events.csv")
    return folder / "events.csv"


def as_parquet(folder):
    pl.DataFrame(FLAT).write_parquet(folder / "events.parquet")
    return folder / "events.parquet"


def as_pandas_csv(folder):
    """Quoted, with an index, a byte order mark and blank lines."""
    frame = pd.DataFrame(FLAT).rename(columns={"another": 'an "other"'})
    text = frame.to_csv(quoting=csv.QUOTE_ALL).replace("\n", "\n\n")
    (folder / "events.csv").write_text(text, encoding="utf-8-sig")
    return folder / "events.csv"


def as_bytes(folder):
    """As Spark, Hive and Impala may write text: no column says that it is UTF-8."""
    pl.DataFrame(FLAT).with_columns(pl.col(pl.String).cast(pl.Binary)).write_parquet(folder / "events.parquet")
    return folder / "events.parquet"


def as_array(folder):
    (folder / "events.json").write_text(json.dumps(EVENTS))
    return folder / "events.json"


def as_pretty_array(folder):
    (folder / "events.json").write_bytes(b"\xef\xbb\xbf" + json.dumps(EVENTS, indent=2).encode() + b"\n\n")
    return folder / "events.json"


def as_gzipped_array(folder):
    (folder / "events.json.gz").write_bytes(gzip.compress(as_pretty_array(folder).read_bytes()))
    return folder / "events.json.gz"


def as_arrays_in_lines(folder):
    """As bodies of ``POST /ubi/events`` that somebody has logged."""
    path = folder / "events.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in (EVENTS[:1], EVENTS[1], [], EVENTS[2:])))
    return path


def as_nested_bytes(folder):
    frame = pl.read_parquet(as_nested_parquet(folder)).with_columns(pl.col("query_id", "event_id").cast(pl.Binary))
    attributes = pl.col("event_attributes").struct
    item = attributes.field("object").struct.field("object_id").cast(pl.Binary)
    place = attributes.field("position")
    nested = pl.struct(pl.struct(item).alias("object"), place).alias("event_attributes")
    frame.with_columns(nested).write_parquet(folder / "nested.parquet")
    return folder / "nested.parquet"


def as_nested_parquet(folder):
    times = pl.col("timestamp").str.to_datetime(time_zone="UTC")
    attributes = [{"object": {"object_id": "x"}, "position": {"ordinal": None}}] * 3
    for place, said in enumerate(FLAT["event_attributes.object.object_id"]):
        attributes[place] = {"object": {"object_id": said}, "position": {"ordinal": (2, None, None)[place]}}
    flat = {name: values for name, values in FLAT.items() if "." not in name}
    pl.DataFrame(flat).with_columns(times, pl.Series("event_attributes", attributes)).write_parquet(
        folder / "nested.parquet"
    )
    return folder / "nested.parquet"


FORMATS = [as_lines, as_gzip, as_csv, as_pandas_csv, as_parquet, as_nested_parquet, as_bytes, as_nested_bytes]
FORMATS += [as_array, as_pretty_array, as_gzipped_array, as_arrays_in_lines]


@pytest.mark.parametrize("write", FORMATS)
def test_the_same_events_from_each_format(tmp_path, write):
    found, _ = read(write(tmp_path))
    assert found["query_id"].to_list() == ["query-0", "query-1", None]
    assert found["object_id"].to_list() == ["a,b", "sku-1-0", "sku-2-0"]
    assert found["event_id"].to_list() == ["e", None, None]
    assert found["ordinal"].to_list() == [2, None, None]
    assert found["timestamp"].to_list() == [datetime(2026, 5, 1, 12, 0, s) for s in (1, 0, 3)]
    assert found.schema == events.EVENT_SCHEMA


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_whole_ids_that_became_fractions_are_whole_again(tmp_path, ending):
    """As pandas has them where some are missing."""
    ids = pd.DataFrame({**FLAT, "query_id": [70.0, 71.0, None], "event_attributes.object.object_id": [1.0, 2.0, 3.0]})
    path = tmp_path / f"events.{ending}"
    ids.to_csv(path) if ending == "csv" else ids.to_parquet(path)
    found, _ = read(path)
    assert found["query_id"].to_list() == ["70", "71", None]
    assert found["object_id"].to_list() == ["1", "2", "3"]
    assert found["ordinal"].to_list() == [2, None, None]


def test_a_fault_behind_a_quoted_line_end_has_its_line(tmp_path):
    said = [*FLAT["another"]]
    frame = pd.DataFrame(
        {**FLAT, "another": ["a\nb\n", *said[1:]], "timestamp": [EVENTS[0]["timestamp"], "noon", None]}
    )
    frame.to_csv(tmp_path / "events.csv", index=False)
    _, batches = read(tmp_path / "events.csv")
    assert batches[0].first_fault.startswith(f"{tmp_path / 'events.csv'}, line 5")


def test_lines_may_begin_with_a_byte_order_mark(tmp_path):
    path = as_lines(tmp_path)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    found, batches = read(path)
    assert found.height == 3
    assert not any(any(batch.faulty.values()) for batch in batches)


PRICED = [{"object_id": "x", "price": price} for price in (12.0, 0.5, None)]


@pytest.mark.parametrize("way", ["lines", "csv", "nested", "without"])
def test_numbers_that_are_summed_come_from_each_format(tmp_path, way):
    if way == "lines":
        path = write_events(tmp_path / "e.jsonl", [event(0, event_attributes={"object": priced}) for priced in PRICED])
    elif way == "csv":
        path = tmp_path / "e.csv"
        pl.DataFrame({**FLAT, "event_attributes.object.price": ["12", "0.5", "inf"]}).write_csv(path)
    else:
        path = tmp_path / "e.parquet"
        flat = {name: values for name, values in FLAT.items() if way == "without" or "." not in name}
        nested = {} if way == "without" else {"event_attributes": [{"object": priced} for priced in PRICED]}
        pl.DataFrame({**flat, **nested}).write_parquet(path)
    found, _ = read(path, LABELS)
    assert found[SUMMED + "revenue"].to_list() == ([None] * 3 if way == "without" else [12.0, 0.5, None])


@pytest.mark.parametrize("bad", ['"12"', "true", "NaN", "1e999", "1" + "0" * 400, "[1]", '{"x": 1}'])
def test_what_is_no_finite_number_is_not_summed(tmp_path, bad):
    path = tmp_path / "events.jsonl"
    priced = event(0, event_attributes={"object": {"object_id": "x", "price": "PRICE"}})
    path.write_text(json.dumps(priced).replace('"PRICE"', bad) + "\n" + json.dumps(EVENTS[0]) + "\n")
    found, _ = read(path, LABELS)
    assert found[SUMMED + "revenue"].to_list()[-2:] == [None, None][-found.height :]


def test_a_folder_is_read_by_name(tmp_path):
    (tmp_path / "clicks.parquet").mkdir()
    more = ("clicks.parquet/part-0.parquet", "d.json.gz", "e.jsonl.zst")
    for name in ("b.csv", "a.jsonl", "c.jsonl.part", ".hidden.jsonl", "_SUCCESS", "notes.txt", *more):
        (tmp_path / name).write_text("")
    notes = []
    found = [path.name for path in events.event_files(tmp_path, notes.append)]
    assert found == ["a.jsonl", "b.csv", "c.jsonl.part", "part-0.parquet", "d.json.gz"]
    assert [note.rpartition(": ")[2] for note in notes] == [".hidden.jsonl, _SUCCESS, e.jsonl.zst, notes.txt"]
    with pytest.raises(DataError, match="does not exist"):
        events.event_files(tmp_path / "nowhere")


def test_lines_that_are_no_events_are_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(events, "BATCH_EVENTS", 2)
    path = tmp_path / "events.jsonl"
    good = json.dumps(EVENTS[0])
    long = json.dumps({**EVENTS[0], "x": "y" * events.MAX_LINE})
    path.write_text(f"{good}\n\n{{}}\n{good}\n{long}\n{good}\nnot json\n{good[:20]}")
    found, batches = read(path)
    assert found.height == 3
    faulty = [sum(batch.faulty[cause] for batch in batches) for cause in (Cause.UNREADABLE, Cause.CUT_OFF)]
    assert faulty == [3, 1]
    assert f"{path}, line 3: action_name" in batches[-1].first_fault


def test_values_of_an_array_that_are_no_events_are_counted(tmp_path):
    path = tmp_path / "events.json"
    path.write_text(json.dumps([{}, EVENTS[0], 7]))
    found, batches = read(path)
    assert found.height == 1
    assert batches[0].faulty[Cause.UNREADABLE] == 2
    assert batches[0].first_fault.startswith(f"{path}, line 1, value 1: action_name")


@pytest.mark.parametrize("form", [{}, {"indent": 1}])
@pytest.mark.parametrize("packed", [False, True])
def test_an_array_that_is_cut_off_is_an_error(tmp_path, form, packed):
    content = json.dumps(EVENTS * 3, **form).encode()[:-40]
    path = tmp_path / "events.json"
    path.write_bytes(gzip.compress(content) if packed else content)
    with pytest.raises(DataError, match=r"events\.json: holds no event"):
        read(path)


@pytest.mark.parametrize("write", [as_gzip, as_gzipped_array, as_parquet])
def test_a_packed_file_that_is_cut_off_is_an_error(tmp_path, write):
    path = write(tmp_path)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError, match=f"{path.name}: cannot be read"):
        read(path)


def test_a_csv_file_that_is_cut_off_has_rows_that_do_not_count(tmp_path):
    path = as_csv(tmp_path)
    path.write_bytes(path.read_bytes()[: -len(b"2026-05-01T12:00:03+00:00,sku-2-0,,3\n")])
    found, batches = read(path)
    assert found.height == 2
    assert batches[0].faulty == {Cause.UNREADABLE: 1}


@pytest.mark.parametrize("name", ["query_id", "action_name", "event_attributes.object.object_id", "timestamp"])
def test_bytes_that_are_no_utf8_are_refused_with_their_column(tmp_path, name):
    frame = pl.DataFrame(FLAT).with_columns(pl.Series(name, [b"a", b"\xff", None]))
    frame.write_parquet(tmp_path / "events.parquet")
    with pytest.raises(DataError, match=rf"events\.parquet, column {name}: holds Binary"):
        read(tmp_path / "events.parquet")


def test_rows_that_are_no_events_are_counted(tmp_path):
    path = tmp_path / "events.csv"
    rows = pl.DataFrame(FLAT).with_columns(timestamp=pl.Series([EVENTS[0]["timestamp"], "noon", None]))
    rows.write_csv(path)
    found, batches = read(path)
    assert found.height == 1
    assert batches[0].faulty == {Cause.UNREADABLE: 2}
    assert batches[0].first_fault.startswith(f"{path}, line 3")


def test_a_file_of_something_else_is_an_error(tmp_path):
    (tmp_path / "events.jsonl").write_text("a\nb\nc\n")
    with pytest.raises(DataError, match="holds no event"):
        read(tmp_path / "events.jsonl")
    for one in ("{}", "{}\n", "not an event\n", "null", '{"events": []}'):
        (tmp_path / "events.jsonl").write_text(one)
        with pytest.raises(DataError, match="holds no event, and 1 of something else"):
            read(tmp_path / "events.jsonl")
    pl.DataFrame(FLAT).write_csv(tmp_path / "events.tsv", separator="\t")
    with pytest.raises(DataError, match=r"separated by '\\t'"):
        read(tmp_path / "events.tsv")
    pl.DataFrame(FLAT).write_csv(tmp_path / "events.txt")
    with pytest.raises(DataError, match="holds no event"):
        read(tmp_path / "events.txt")
    (tmp_path / "events.csv").write_text("query_id,action_name,timestamp\nq,click,2026-05-01T12:00:00\n")
    with pytest.raises(DataError, match=r"event_attributes\.object\.object_id"):
        read(tmp_path / "events.csv")
    pl.DataFrame({**FLAT, "timestamp": [1, 2, 3]}).write_parquet(tmp_path / "times.parquet")
    with pytest.raises(DataError, match="expected datetimes"):
        read(tmp_path / "times.parquet")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(DataError, match="cannot be read"):
        read(tmp_path / "broken.parquet")
