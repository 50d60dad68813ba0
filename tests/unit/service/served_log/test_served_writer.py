"""The writer: what is noted gets into files, and what cannot is dropped and counted."""

import errno
import os
import threading
from contextlib import ExitStack, suppress

import pytest

from listwright.ranking.served_log import files
from listwright.service.served_log import folder as open_files
from listwright.service.served_log import writer as module
from listwright.service.served_log.writer import in_share, size_of
from support.served import counted, log_entry, logging_to
from support.waiting import until


def note_one_by_one(writer, telemetry, several):
    """Each once the one before is written; yields after each."""
    for count, one in enumerate(several, start=1):
        writer.note(one)
        until(lambda written=count: counted(telemetry, "records", sink="file") == written)
        yield


def ids(folder, **which):
    return [record.query_id for record in files.records(files.log_files(folder, **which))]


def test_what_is_noted_stands_in_finished_files_after_the_end(tmp_path):
    with logging_to(tmp_path) as (writer, telemetry):
        for number in range(20):
            writer.note(log_entry(number))
    assert ids(tmp_path, unfinished=False) == [f"query-{number}" for number in range(20)]
    assert counted(telemetry, "records", sink="file") == 20
    assert 0 < counted(telemetry, "bytes", sink="file") <= sum(path.stat().st_size for path in tmp_path.iterdir())
    assert next(tmp_path.iterdir()).stat().st_mode & 0o777 == 0o600


def test_an_open_file_is_readable_after_the_flush(tmp_path):
    with logging_to(tmp_path) as (writer, _):
        writer.note(log_entry(1))
        assert until(lambda: ids(tmp_path)) == ["query-1"]
        assert ids(tmp_path, unfinished=False) == []


def test_files_are_rolled_by_size_and_by_schema(tmp_path):
    one = log_entry(0, length=500)
    other = one.manifest.model_copy(update={"fingerprint": "sha256:other"})
    with logging_to(tmp_path, served_file_bytes=2**16, served_max_bytes=2**20) as (writer, telemetry):
        several = (one._replace(query_id=f"query-{number}") for number in range(20))  # about 20 kB each
        assert len(list(note_one_by_one(writer, telemetry, several))) == 20
        writer.note(one._replace(query_id="other", manifest=other))
    found = files.log_files(tmp_path)
    assert len(found) >= 5, "one for three or four records, and one for the other schema"
    assert [ids_of(path) for path in found if "other" in ids_of(path)] == [["other"]]
    assert all(path.stat().st_size <= 2**16 + 25_000 for path in found)
    assert sorted(ids(tmp_path)) == sorted([*(f"query-{number}" for number in range(20)), "other"])


def ids_of(path):
    return [record.query_id for record in files.records([path])]


def test_blocks_are_written_while_more_comes_than_is_taken(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MOST_AT_ONCE", 2)
    with logging_to(tmp_path) as (writer, telemetry):
        for number in range(9):
            writer.note(log_entry(number))
        until(lambda: counted(telemetry, "records", sink="file") == 9)
    assert ids(tmp_path) == [f"query-{number}" for number in range(9)]


def test_a_full_block_is_written_before_its_time(tmp_path, monkeypatch):
    one = log_entry(0, length=500)
    monkeypatch.setattr(module, "BLOCK_BYTES", 3 * one.candidates.features.nbytes)  # two records
    monkeypatch.setattr(module, "IDLE_S", 1e6)
    with logging_to(tmp_path, served_flush_s=600.0) as (writer, telemetry):
        until(lambda: writer._sleeps)
        for _ in range(3):
            writer.note(one)
        until(lambda: counted(telemetry, "records", sink="file") == 2)
    assert len(ids(tmp_path)) == 3


@pytest.mark.parametrize("flush_s", [0.01, 0.3])
def test_a_record_wakes_the_thread_that_sleeps_and_its_block_is_written_in_time(tmp_path, monkeypatch, flush_s):
    monkeypatch.setattr(module, "IDLE_S", 1e6)
    with logging_to(tmp_path, served_flush_s=flush_s) as (writer, telemetry):
        for number in range(3):
            until(lambda: writer._sleeps)
            writer.note(log_entry(number))
            until(lambda written=number + 1: counted(telemetry, "records", sink="file") == written)


def test_files_are_rolled_by_age(tmp_path):
    with logging_to(tmp_path, served_file_s=0.02) as (writer, _):
        writer.note(log_entry(1))
        assert until(lambda: ids(tmp_path, unfinished=False)) == ["query-1"]


def size_of_folder(folder):
    """Bytes of all files; the writer may rename or remove one meanwhile."""
    total = 0
    for path in folder.iterdir():
        with suppress(FileNotFoundError):
            total += path.stat().st_size
    return total


def test_the_folder_stays_within_its_size(tmp_path):
    one = log_entry(0, length=500)
    with logging_to(tmp_path, served_file_bytes=2**16, served_max_bytes=2**18) as (writer, telemetry):
        several = (one._replace(query_id=f"query-{number}") for number in range(100))
        for _ in note_one_by_one(writer, telemetry, several):
            assert size_of_folder(tmp_path) <= 2**18
    assert ids(tmp_path)[-1] == "query-99"
    assert "query-0" not in ids(tmp_path)


def test_several_workers_keep_the_folder_within_its_size(tmp_path):
    """Each has an open file, which nobody else can remove; the limit is that of all."""
    one, limits = log_entry(0, length=500), {"served_file_bytes": 2**17, "served_max_bytes": 2**18, "workers": 3}
    with ExitStack() as stack:
        writers = [stack.enter_context(logging_to(tmp_path, **limits)) for _ in range(3)]
        for number in range(60):
            writer, telemetry = writers[number % 3]
            before = counted(telemetry, "records", sink="file") + counted(telemetry, "dropped", reason="disk_full")
            writer.note(one._replace(query_id=f"query-{number}"))
            until(
                lambda telemetry=telemetry, before=before: (
                    counted(telemetry, "records", sink="file") + counted(telemetry, "dropped", reason="disk_full")
                    > before
                )
            )
            assert size_of_folder(tmp_path) <= 2**18
    assert counted(writers[0][1], "records", sink="file") > 0


def test_a_stalled_disk_holds_up_nobody_and_is_counted(tmp_path, monkeypatch):
    stalled, goes_on, written = threading.Event(), threading.Event(), os.writev

    def stall(descriptor, parts):
        stalled.set()
        goes_on.wait()
        return written(descriptor, parts)

    one = log_entry(0, length=500)
    monkeypatch.setattr(module, "BLOCK_BYTES", 1)  # each record is a block
    with logging_to(tmp_path, served_buffer_bytes=2**16) as (writer, telemetry):
        monkeypatch.setattr(open_files.os, "writev", stall)
        writer.note(one)
        until(stalled.is_set)
        for _ in range(50):
            writer.note(one)
        fits = 2**16 // size_of(one)
        assert counted(telemetry, "dropped", reason="buffer_full") == 50 - fits
        goes_on.set()
        until(lambda: counted(telemetry, "records", sink="file") == 1 + fits)
    assert len(ids(tmp_path)) == 1 + fits


def test_a_full_disk_is_counted_and_left_behind(tmp_path, monkeypatch, caplog):
    full, written = threading.Event(), os.writev

    def fail(descriptor, parts):
        if full.is_set():
            raise OSError(errno.ENOSPC, "No space left on device")
        return written(descriptor, parts)

    monkeypatch.setattr(open_files.os, "writev", fail)
    monkeypatch.setattr(module, "RETRY_S", 0.05)
    with logging_to(tmp_path) as (writer, telemetry):
        writer.note(log_entry(0))
        until(lambda: counted(telemetry, "records", sink="file") == 1)
        full.set()
        writer.note(log_entry(1))
        until(lambda: counted(telemetry, "dropped", reason="disk_full") == 1)
        until(lambda: ids(tmp_path, unfinished=False) == ["query-0"])  # it is finished behind the count
        full.clear()

        def again():
            writer.note(log_entry(2))
            return "query-2" in ids(tmp_path)

        until(again)
    assert "No space left on device" in caplog.text
    assert sum("dropped" in line.message for line in caplog.records) == 1


def test_a_record_that_cannot_be_encoded_stops_nothing(tmp_path):
    with logging_to(tmp_path) as (writer, telemetry):
        writer.note(log_entry(0, query_id="\ud800"))
        writer.note(log_entry(1))
    assert ids(tmp_path) == ["query-1"]
    assert counted(telemetry, "dropped", reason="encode_failed") == 1


def test_the_end_is_bounded_and_what_is_lost_counted(tmp_path, monkeypatch):
    goes_on, written = threading.Event(), os.writev
    monkeypatch.setattr(module, "CLOSE_WITHIN_S", 0.2)
    monkeypatch.setattr(open_files.os, "writev", lambda *what: goes_on.wait() and written(*what))
    with logging_to(tmp_path) as (writer, telemetry):
        writer.note(log_entry(0))
        until(lambda: any(tmp_path.iterdir()))
        writer.close()
        assert counted(telemetry, "dropped", reason="closing") == 1
        writer.note(log_entry(1))
        assert counted(telemetry, "dropped", reason="closing") == 2
        goes_on.set()


def test_a_record_that_comes_while_the_thread_ends_is_counted(tmp_path):
    with logging_to(tmp_path) as (writer, telemetry):
        writer._stop.set()
        writer._wake.set()
        writer._thread.join()
        writer._buffer.put(log_entry(0))
        writer.close()
        assert counted(telemetry, "dropped", reason="closing") == 1


def test_the_share_is_that_of_the_query_ids(tmp_path):
    chosen = [number for number in range(2000) if in_share(f"query-{number}", round(0.3 * 2**64))]
    assert 540 <= len(chosen) <= 660  # three standard deviations of 2000 throws
    assert chosen[:3] == [number for number in range(chosen[2] + 1) if in_share(f"query-{number}", round(0.3 * 2**64))]
    more = {number for number in range(2000) if in_share(f"query-{number}", round(0.6 * 2**64))}
    assert set(chosen) < more, "a larger share has all queries of a smaller one"
    with logging_to(tmp_path, served_share=0.3) as (writer, _):
        for number in range(200):
            writer.note(log_entry(number))
    assert ids(tmp_path) == [f"query-{number}" for number in chosen if number < 200]


def test_a_failure_of_the_writer_itself_is_counted(tmp_path, monkeypatch):
    written = module.OpenFile.append
    fails = [RuntimeError("a defect")]

    def append(file, block):
        if fails:
            raise fails.pop()
        return written(file, block)

    monkeypatch.setattr(module.OpenFile, "append", append)
    monkeypatch.setattr(module, "RETRY_S", 0.01)
    with logging_to(tmp_path) as (writer, telemetry):
        writer.note(log_entry(0))
        until(lambda: counted(telemetry, "dropped", reason="write_failed") == 1)
        writer.note(log_entry(1))
    assert ids(tmp_path) == ["query-1"]


@pytest.mark.parametrize("workers", [1, 3])
def test_several_writers_share_a_folder(tmp_path, workers):
    with logging_to(tmp_path, workers=workers) as (one, _), logging_to(tmp_path, workers=workers) as (other, _):
        one.note(log_entry(1))
        other.note(log_entry(2))
        until(lambda: len(ids(tmp_path)) == 2)
    assert sorted(ids(tmp_path, unfinished=False)) == ["query-1", "query-2"]
