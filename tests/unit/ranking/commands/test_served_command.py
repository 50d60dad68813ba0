"""``listwright served``: a person's records are found and removed, and nobody else's."""

import json
import os

import pytest

from listwright.command import main as listwright
from listwright.ranking.commands import served as command
from listwright.ranking.served_log import files
from listwright.ranking.served_log.encoding import header, long_bytes
from listwright.ranking.served_log.record import hashed
from support.served import as_bytes, served_record

SALT = "a salt that is long enough"


@pytest.fixture
def log(tmp_path, monkeypatch):
    """Three files: units 0 to 2 in turn, unit 1 alone, and one that is still written."""
    monkeypatch.delenv("LISTWRIGHT_UNIT_SALT", raising=False)
    files.write(tmp_path / "1.avro", [served_record(number) for number in range(7)], mode=0o640)
    files.write(tmp_path / "2.avro", [served_record(number) for number in (1, 4)])
    files.write(tmp_path / "3.avro.part", [served_record(number) for number in (10, 11)])
    return tmp_path


def units(folder):
    return {path.name: [record.unit for record in files.read(path)] for path in files.log_files(folder)}


def test_the_records_of_a_unit_go_and_all_others_stay_to_the_byte(log, capsys):
    others = [as_bytes(r) for r in files.read(log / "1.avro") if r.unit != "unit-1"]
    assert listwright(["served", "forget", str(log), "--unit", "unit-1"]) == command.LEFT
    assert [as_bytes(record) for record in files.read(log / "1.avro")] == others
    assert units(log) == {"1.avro": ["unit-0", "unit-2"] * 2 + ["unit-0"], "3.avro.part": ["unit-1", "unit-2"]}
    assert (log / "1.avro").stat().st_mode & 0o777 == 0o640
    assert "4 records removed, 1 left" in capsys.readouterr().out
    (log / "3.avro.part").rename(log / "3.avro")
    assert command.main(["forget", str(log), "--unit", "unit-1"]) == 0
    assert units(log)["3.avro"] == ["unit-2"]
    assert sorted(path.name for path in log.iterdir()) == ["1.avro", "3.avro"]


def test_several_units_are_forgotten_at_once(log):
    assert command.main(["forget", str(log), "--unit", "unit-0", "--unit", "unit-1"]) == command.LEFT
    assert units(log)["1.avro"] == ["unit-2"] * 2


def test_a_file_that_is_finished_meanwhile_is_not_missed(log, monkeypatch):
    listed = files.log_files(log)
    (log / "3.avro.part").rename(log / "3.avro")
    (log / "2.avro").unlink()
    monkeypatch.setattr(files, "log_files", lambda *_: listed)
    assert command.main(["forget", str(log), "--unit", "unit-1"]) == 0
    assert [record.unit for record in files.read(log / "3.avro")] == ["unit-2"]


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
@pytest.mark.parametrize("name", ["4.avro", "4.avro.part"])
@pytest.mark.parametrize("words", [["list"], ["forget", "--unit", "unit-1"]])
def test_what_is_no_plain_file_is_refused_by_name(log, capsys, make, name, words):
    make(log / name)
    assert command.main([words[0], str(log), *words[1:]]) == 1
    assert f"{log / name}: " in capsys.readouterr().err


@pytest.mark.parametrize("text", ["[" * 10**5, "9" * 5000], ids=["deep", "digits"])
@pytest.mark.parametrize("words", [["list"], ["forget", "--unit", "unit-1"]])
def test_hostile_metadata_is_refused_by_name(log, capsys, text, words):
    columns = files.feature_columns(log / "1.avro")
    content = header(columns, bytes(16))
    names = json.dumps(list(columns.names)).encode()
    assert names in content
    hostile = text.encode()
    before = content.index(names) - len(long_bytes(len(names)))
    rest = content[content.index(names) + len(names) :]
    (log / "4.avro").write_bytes(content[:before] + long_bytes(len(hostile)) + hostile + rest)
    assert command.main([words[0], str(log), *words[1:]]) == 1
    assert f"{log / '4.avro'}: " in capsys.readouterr().err


@pytest.mark.parametrize("blank", ["", " "])
def test_an_empty_salt_is_an_error_and_nothing_is_removed(log, monkeypatch, blank):
    monkeypatch.setenv("LISTWRIGHT_UNIT_SALT", blank)
    before = units(log)
    assert command.main(["forget", str(log), "--unit", "unit-1"]) == 2
    assert units(log) == before


def test_a_damaged_file_is_named_and_the_command_is_not_done(log, capsys):
    (log / "3.avro.part").unlink()
    (log / "2026").mkdir()
    (log / "2026" / "0.avro.damaged").write_bytes(b"half")
    assert command.main(["forget", str(log), "--unit", "unit-1"]) == command.LEFT
    assert "0.avro.damaged: damaged" in capsys.readouterr().out


def test_nothing_is_written_anew_for_a_unit_that_is_not_there(log):
    before = {path: path.stat().st_ino for path in log.iterdir()}
    assert command.main(["forget", str(log), "--unit", "nobody"]) == 0
    assert {path: path.stat().st_ino for path in log.iterdir()} == before


def test_the_salt_finds_what_was_hashed_and_what_was_not(log, monkeypatch):
    files.write(log / "4.avro", [served_record(20, unit=hashed("unit-1", SALT.encode())), served_record(21)])
    assert command.main(["forget", str(log), "--unit", "unit-1"]) == command.LEFT
    assert len(units(log)["4.avro"]) == 2
    monkeypatch.setenv("LISTWRIGHT_UNIT_SALT", f" {SALT}\n")  # as the service reads it
    assert command.main(["forget", str(log), "--unit", "unit-1"]) == command.LEFT
    assert units(log)["4.avro"] == ["unit-0"]


def test_the_list_counts_records_and_says_what_is_open(log, capsys):
    (log / "2.avro").write_bytes((log / "2.avro").read_bytes()[:-1])
    assert command.main(["list", str(log)]) == 1
    out, error = capsys.readouterr()
    lines = out.splitlines()
    assert f"{log / '2.avro'}: " in error
    assert [line.split()[:2] for line in lines[:3]] == [["1.avro", "7"], ["2.avro", "0"], ["3.avro.part", "2"]]
    assert lines[1].endswith("cut off")
    assert "open" in lines[2]
    assert lines[3].startswith("9 ")


def test_a_finished_file_that_is_cut_off_stops_the_removal_until_it_is_mended(log, capsys):
    (log / "3.avro.part").unlink()
    files.write(log / "2.avro", [served_record(number) for number in (1, 2)], block_records=1)
    end = files.frame(log / "2.avro").size
    (log / "2.avro").write_bytes((log / "2.avro").read_bytes()[:-1])
    assert command.main(["forget", str(log), "--unit", "unit-1"]) == 1
    error = capsys.readouterr().err
    assert f"{log / '2.avro'}: " in error
    kept = int(error.partition("truncate -s ")[2].partition(")")[0])
    assert 0 < kept < end
    os.truncate(log / "2.avro", kept)
    assert command.main(["forget", str(log), "--unit", "unit-1"]) == 0
    assert units(log) == {"1.avro": ["unit-0", "unit-2"] * 2 + ["unit-0"]}


def test_folders_are_searched_and_what_is_left_out_is_named(log, capsys):
    (log / "2026" / "11").mkdir(parents=True)
    (log / "2.avro").rename(log / "2026" / "11" / "2.avro")
    (log / "3.avro.part").rename(log / "3.avro.bak")
    assert command.main(["list", str(log)]) == 0
    out = capsys.readouterr().out
    assert "2026/11/2.avro  2 records" in out
    assert "\n9 records in " in out
    assert out.startswith(f"{log}: 1 left out")
    assert command.main(["forget", str(log), "--unit", "unit-1"]) == 0
    assert units(log) == {"1.avro": ["unit-0", "unit-2"] * 2 + ["unit-0"]}
    assert "3.avro.bak" in capsys.readouterr().out


def test_a_folder_or_file_that_cannot_be_read_is_named(log, capsys):
    assert command.main(["list", str(log / "gone")]) == 1
    (log / "1.avro").write_bytes(b"something else")
    assert command.main(["forget", str(log), "--unit", "x"]) == 1
    error = capsys.readouterr().err
    assert str(log / "gone") in error
    assert str(log / "1.avro") in error
