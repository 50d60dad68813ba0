"""``listwright served forget --events``: a person's events go, and nobody else's."""

import json
import os

import pytest

from listwright.ranking import plain_file
from listwright.ranking.commands import served as command
from listwright.ranking.served_log import files
from support.served import served_record


@pytest.fixture
def logs(tmp_path, monkeypatch):
    """Records of three units in turn, and an event for each of their queries; the last ones are still written."""
    monkeypatch.delenv("LISTWRIGHT_UNIT_SALT", raising=False)
    served, events = tmp_path / "served", tmp_path / "events"
    served.mkdir()
    events.mkdir()
    files.write(served / "1.avro", [served_record(number) for number in range(6)])
    files.write(served / "2.avro", [served_record(number) for number in range(6, 9)])
    lines(events / "events-1.jsonl", [event(number) for number in range(6)])
    lines(events / "events-2.jsonl", [event(1), event(4)])
    lines(events / "events-3.jsonl.part", [event(number) for number in range(6, 9)])
    (events / "events-1.jsonl").chmod(0o640)
    return served, events


def event(number, **more):
    return {"query_id": f"query-{number}", "action_name": "click", **more}


def lines(path, found):
    path.write_text("".join(json.dumps(one) + "\n" for one in found))


def queries(path):
    return [json.loads(line).get("query_id") for line in path.read_text().splitlines()]


def test_events_of_the_units_queries_go_with_its_records(logs, capsys):
    served, events = logs
    words = ["forget", str(served), "--unit", "unit-1", "--events", str(events)]
    assert command.main(words) == command.LEFT
    assert queries(events / "events-1.jsonl") == ["query-0", "query-2", "query-3", "query-5"]
    assert (events / "events-1.jsonl").stat().st_mode & 0o777 == 0o640
    assert queries(events / "events-3.jsonl.part") == ["query-6", "query-7", "query-8"]
    assert sorted(path.name for path in events.iterdir()) == ["events-1.jsonl", "events-3.jsonl.part"]
    assert [r.unit for r in files.read(served / "1.avro")] == ["unit-0", "unit-2"] * 2
    assert [r.query_id for r in files.read(served / "2.avro")] == ["query-6", "query-7", "query-8"]
    said = capsys.readouterr().out
    assert "4 events removed, 1 left" in said
    assert "2 records removed" in said
    (events / "events-3.jsonl.part").rename(events / "events-3.jsonl")
    assert command.main(words) == 0, "the record that stayed tells which event is left"
    assert queries(events / "events-3.jsonl") == ["query-6", "query-8"]
    assert [r.query_id for r in files.read(served / "2.avro")] == ["query-6", "query-8"]


def test_events_whose_client_is_the_unit_go_and_lines_that_are_none_stay(logs):
    served, events = logs
    whole = events / "events-4.jsonl"
    lines(whole, [event(100, client_id="unit-1"), event(101, client_id="unit-2"), {"query_id": 7}])
    with whole.open("a") as file:
        file.write('{"query_id": "query-1", "cut o')
    list(command._forget_events(events, frozenset(), frozenset({"unit-1"})))
    kept = whole.read_text().splitlines()
    assert [json.loads(line)["query_id"] for line in kept[:2]] == ["query-101", 7]
    assert kept[2:] == ['{"query_id": "query-1", "cut o']
    assert queries(events / "events-2.jsonl") == ["query-1", "query-4"]
    assert served.is_dir()


def test_events_in_folders_go_too_and_files_of_another_kind_are_named(logs, capsys):
    served, events = logs
    (events / "2026").mkdir()
    (events / "events-1.jsonl").rename(events / "2026" / "events-1.jsonl")
    (events / "events-3.jsonl.part").unlink()
    (events / "events-0.jsonl.gz").write_bytes(b"")
    assert command.main(["forget", str(served), "--unit", "unit-1", "--events", str(events)]) == 0
    assert queries(events / "2026" / "events-1.jsonl") == ["query-0", "query-2", "query-3", "query-5"]
    assert f"{events}: 1 left out" in (said := capsys.readouterr().out)
    assert "events-0.jsonl.gz" in said


def test_a_file_keeps_its_age_and_what_a_stopped_run_left_is_removed(logs):
    _, events = logs
    whole, left = events / "events-1.jsonl", events / ".events-0.jsonl.without"
    os.utime(whole, (1000.0, 2000.0))
    left.write_text("half")
    list(command._forget_events(events, frozenset({"query-1"}), frozenset()))
    assert len(queries(whole)) == 5
    assert whole.stat().st_mtime == 2000.0
    assert not left.exists()


def test_a_file_that_the_service_finishes_or_removes_meanwhile_stops_nothing(logs, monkeypatch):
    _, events = logs
    found = list(events.iterdir())
    (events / "events-3.jsonl.part").rename(events / "events-3.jsonl")
    (events / "events-2.jsonl").unlink()
    monkeypatch.setattr(plain_file, "files_below", lambda *_: sorted(found))
    removed = list(command._forget_events(events, frozenset({"query-4", "query-7"}), frozenset()))
    assert [(one.path.name, one.removed, one.unfinished) for one in removed] == [
        ("events-1.jsonl", 1, False),
        ("events-3.jsonl", 1, False),
    ]


def test_query_ids_of_a_unit_stand_in_files_that_are_still_written_too(logs):
    served, _ = logs
    files.write(served / "3.avro.part", [served_record(10), served_record(11)])
    found = command.query_ids(served, frozenset({"unit-1"}))
    assert found == {"query-1", "query-4", "query-7", "query-10"}


def test_a_log_whose_file_is_finished_meanwhile_tells_all_queries(logs, monkeypatch):
    served, _ = logs
    files.write(served / "3.avro.part", [served_record(10)])
    listed = files.log_files(served)
    (served / "3.avro.part").rename(served / "3.avro")
    (served / "1.avro").unlink()
    monkeypatch.setattr(files, "log_files", lambda *_: listed)
    assert command.query_ids(served, frozenset({"unit-1"})) == {"query-7", "query-10"}


def test_a_folder_of_events_that_is_not_there_is_named_and_no_record_goes(logs, capsys):
    served, events = logs
    assert command.main(["forget", str(served), "--unit", "unit-1", "--events", str(events / "gone")]) == 1
    assert str(events / "gone") in capsys.readouterr().err
    assert len(list(files.read(served / "1.avro"))) == 6
