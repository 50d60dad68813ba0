"""What a killed worker left is recovered, and the oldest files go first."""

import os
import time
from datetime import UTC, datetime, timedelta

import pytest

from listwright.ranking.served_log import files
from listwright.ranking.served_log.record import columns_of
from listwright.service.served_log.folder import LogFolder, OpenFile, new_stem
from listwright.service.telemetry.metrics import Telemetry
from support.served import served_record


@pytest.fixture
def telemetry():
    return Telemetry()


def folder(path, telemetry=None, **limits):
    removed = (telemetry or Telemetry()).log_removed_files
    return LogFolder(
        path, **{"most_bytes": 10**9, "most_age_s": 10**9, "stale_s": 3600.0, "removed": removed, **limits}
    )


def stem(ago_s=0.0, host=None):
    began = datetime.now(UTC) - timedelta(seconds=ago_s)
    name = new_stem().split("Z-", 1)[1] if host is None else f"{host}-7"
    return f"served-{began.strftime('%Y%m%dT%H%M%S.%f')}Z-{name}"


def left(path, count=3, cut=0, host=None, suffix=".avro.part"):
    """A file as a killed worker leaves it."""
    made = path / (stem(host=host) + suffix)
    files.write(made, [served_record(number) for number in range(count)], block_records=1)
    made.write_bytes(made.read_bytes()[: made.stat().st_size - cut])
    return made


def names(path):
    return sorted(file.name for file in path.iterdir())


@pytest.mark.parametrize(("cut", "stay"), [(0, 3), (1, 2), (400, 1)])
def test_a_file_that_was_left_is_cut_behind_its_last_whole_block(tmp_path, cut, stay):
    made = left(tmp_path, cut=cut)
    folder(tmp_path).tidy()
    (path,) = tmp_path.iterdir()
    assert path.name == made.name.removesuffix(".part")
    assert files.frame(path).records == stay
    assert not files.frame(path).cut_off


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("/dev/zero")])
@pytest.mark.parametrize("suffix", [".avro", ".avro.part"])
def test_what_is_no_plain_file_holds_up_nobody_and_stays(tmp_path, make, suffix):
    made = tmp_path / (stem() + suffix)
    make(made)
    folder(tmp_path, most_bytes=1, most_age_s=0.0).tidy()
    assert names(tmp_path) == [made.name]


@pytest.mark.parametrize("content", [b"", b"Obj", b"Obj\x01\x04"])
def test_a_file_without_a_whole_block_is_removed(tmp_path, content):
    (tmp_path / (stem() + ".avro.part")).write_bytes(content)
    folder(tmp_path).tidy()
    assert names(tmp_path) == []


def test_a_damaged_file_is_kept_under_another_name(tmp_path):
    made = left(tmp_path)
    made.write_bytes(made.read_bytes() + b"\x02\x04ab" + bytes(range(40)))
    folder(tmp_path).tidy()
    assert names(tmp_path) == [made.name.removesuffix(".part") + ".damaged"]


def test_a_file_that_is_written_is_left_alone(tmp_path):
    file = OpenFile(tmp_path, columns_of(served_record()), 0o600)
    folder(tmp_path, most_bytes=1, most_age_s=0.0).tidy()
    assert names(tmp_path) == [file.path.name]
    file.finish()


def test_a_file_of_another_machine_is_left_until_it_is_stale(tmp_path):
    made = left(tmp_path, host="other")
    folder(tmp_path).tidy()
    assert names(tmp_path) == [made.name]
    long_ago = time.time() - 3700
    os.utime(made, (long_ago, long_ago))
    folder(tmp_path).tidy()
    assert names(tmp_path) == [made.name.removesuffix(".part")]


def test_the_oldest_go_first_until_the_rest_fits(tmp_path):
    for ago in (300, 200, 100):
        (tmp_path / (stem(ago) + ".avro")).write_bytes(bytes(1000))
    kept = names(tmp_path)
    folder(tmp_path, most_bytes=3000).tidy()
    assert names(tmp_path) == kept
    folder(tmp_path, most_bytes=2999).tidy()
    assert names(tmp_path) == kept[1:]
    folder(tmp_path, most_age_s=150.0).tidy()
    assert names(tmp_path) == kept[2:]


def test_what_is_removed_is_counted_and_logged(tmp_path, telemetry, caplog):
    """As when the machine's clock is ahead."""
    caplog.set_level("INFO", "listwright.served")
    for ago in (500, 400, 300, 200, 100):
        (tmp_path / (stem(ago) + ".avro")).write_bytes(bytes(1000))
    folder(tmp_path, telemetry, most_bytes=2000, most_age_s=350.0).tidy()
    assert len(names(tmp_path)) == 2
    found = {sample.labels["reason"]: sample.value for sample in removals(telemetry)}
    assert found == {"age": 2.0, "bytes": 1.0}
    assert [record.facts for record in caplog.records] == [{"files": 2, "bytes": 2000}, {"files": 1, "bytes": 1000}]
    caplog.clear()
    folder(tmp_path, telemetry, most_bytes=2000, most_age_s=350.0).tidy()
    assert caplog.records == []


def removals(telemetry):
    (metric,) = telemetry.log_removed_files.collect()
    return [sample for sample in metric.samples if sample.name.endswith("_total")]


def test_other_files_are_neither_counted_nor_removed(tmp_path):
    for name in ("notes.txt", "other.avro", "x.avro.part"):
        (tmp_path / name).write_bytes(bytes(5000))
    folder(tmp_path, most_bytes=1, most_age_s=0.0).tidy()
    assert names(tmp_path) == ["notes.txt", "other.avro", "x.avro.part"]


@pytest.mark.parametrize("ending", [".new", ".avro.without", ".avro.without.part"])
def test_a_hidden_file_that_was_never_finished_goes_once_it_is_stale(tmp_path, ending):
    for name in (f".served-x{ending}", ".served-notes", f".other{ending}"):
        (tmp_path / name).touch()
    folder(tmp_path).tidy()
    assert len(names(tmp_path)) == 3
    long_ago = time.time() - 3700
    for path in tmp_path.iterdir():
        os.utime(path, (long_ago, long_ago))
    folder(tmp_path).tidy()
    assert names(tmp_path) == [f".other{ending}", ".served-notes"]
