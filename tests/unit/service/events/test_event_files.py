"""The files of the log of events: whole lines, rolled, bounded, and finished when their writer is gone."""

import errno
import os
import stat
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from listwright.service import events as files
from listwright.service.events import EventFiles
from support.stand_ins import Clock
from support.strategies import scale_examples

MIB = 2**20


@pytest.fixture
def clock():
    return Clock(1_790_000_000.0)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def lines(folder):
    return [line for path in sorted(folder.iterdir()) for line in path.read_bytes().splitlines()]


def test_lines_stand_in_an_open_file_at_once(tmp_path, clock):
    log = EventFiles(tmp_path / "log", most_bytes=100 * MIB, clock=clock)
    log.append(b"one\ntwo\n")
    (name,) = names(tmp_path / "log")
    assert name.endswith(".jsonl.part")
    assert lines(tmp_path / "log") == [b"one", b"two"]
    assert stat.S_IMODE((tmp_path / "log" / name).stat().st_mode) == 0o600
    log.finish()
    assert names(tmp_path / "log") == [name.removesuffix(".part")]


def test_a_file_is_finished_by_size_and_by_age(tmp_path, clock):
    log = EventFiles(tmp_path, most_bytes=8 * MIB, clock=clock)
    log.append(b"x" * MIB + b"\n")
    log.append(b"second\n")
    assert [name.endswith(".part") for name in names(tmp_path)] == [False, True]
    clock.now += files.ROLL_S
    log.roll_if_due()
    assert [name.endswith(".part") for name in names(tmp_path)] == [False, False]
    log.roll_if_due()
    assert len(names(tmp_path)) == 2


def test_the_oldest_go_beyond_the_bytes(tmp_path, clock):
    removed = []
    log = EventFiles(tmp_path, most_bytes=3 * MIB, removed=removed.append, clock=clock)
    for number in range(5):
        log.append(bytes([65 + number]) * (MIB + 1) + b"\n")
        clock.now += 1.0
    log.finish()
    assert [line[:1] for line in lines(tmp_path)] == [b"D", b"E"]
    assert sum(removed) == 3


@pytest.mark.parametrize("limit", [MIB, 3 * MIB, 64 * MIB])
@pytest.mark.parametrize("writers", [1, 3])
@settings(deadline=None, max_examples=scale_examples(20))
@given(sizes=st.lists(st.integers(1, 100), min_size=1, max_size=40), order=st.randoms(use_true_random=False))
def test_the_folder_never_exceeds_its_bytes(tmp_path_factory, limit, writers, sizes, order):
    """However large the bodies are, and whoever writes: nothing is written first and removed then."""
    folder = tmp_path_factory.mktemp("events")
    logs = [EventFiles(folder, most_bytes=limit, writers=writers) for _ in range(writers)]
    for size in sizes:
        content = b"x" * (size * limit // 100) + b"\n"
        with suppress(OSError):
            order.choice(logs).append(content)
        assert sum(path.stat().st_size for path in folder.iterdir()) <= limit
    for log in logs:
        log.roll_if_due()
    logs[0].append(b"y\n" * 100)
    assert b"y" in lines(folder)


def test_the_old_go_beyond_the_days(tmp_path, clock):
    log = EventFiles(tmp_path, most_bytes=100 * MIB, most_s=100.0, clock=clock)
    log.append(b"old\n")
    log.finish()
    (name,) = names(tmp_path)
    os.utime(tmp_path / name, (clock.now, clock.now))
    clock.now += 99.0
    log.tidy()
    assert names(tmp_path) == [name]
    clock.now += 2.0
    log.tidy()
    assert names(tmp_path) == []


def test_a_file_without_a_writer_is_finished_and_one_with_a_writer_is_not(tmp_path, clock):
    writing = EventFiles(tmp_path, most_bytes=100 * MIB, clock=clock)
    writing.append(b"mine\n")
    (tmp_path / f"events-20200101T000000000000-{files._host()}-1-000000.jsonl.part").write_bytes(b"theirs\nto")
    other = EventFiles(tmp_path, most_bytes=100 * MIB, clock=clock)
    other.tidy()
    assert [name.endswith(".part") for name in names(tmp_path)] == [False, True]
    writing.append(b"more\n")
    assert lines(tmp_path) == [b"theirs", b"to", b"mine", b"more"]


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("/dev/zero")])
@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.part"])
def test_what_is_no_plain_file_holds_up_nobody_and_stays(tmp_path, clock, make, suffix):
    theirs = tmp_path / f"events-20200101T000000000000-{files._host()}-1-000000{suffix}"
    make(theirs)
    log = EventFiles(tmp_path, most_bytes=MIB, most_s=1.0, clock=clock)
    for _ in range(20):
        clock.now += 1e6
        log.append(b"x" * (MIB // 10) + b"\n")
    log.finish()
    assert theirs in tmp_path.iterdir()


def test_a_file_of_another_host_is_left_alone_until_nobody_can_be_writing_it(tmp_path, clock):
    theirs = tmp_path / "events-20200101T000000000000-another-host-1-000000.jsonl.part"
    theirs.write_bytes(b"theirs\n")
    os.utime(theirs, (clock.now, clock.now))
    log = EventFiles(tmp_path, most_bytes=100 * MIB, clock=clock)
    clock.now += files.STALE_S
    log.tidy()
    assert names(tmp_path) == [theirs.name]
    clock.now += 1.0
    log.tidy()
    assert names(tmp_path) == [theirs.name.removesuffix(".part")]


def test_a_disk_without_locks_takes_events_and_nobody_finishes_the_file_of_another(tmp_path, clock, monkeypatch):
    def no_locks(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(files.fcntl, "flock", no_locks)
    log, other = (EventFiles(tmp_path, most_bytes=100 * MIB, clock=clock) for _ in range(2))
    log.append(b"one\n")
    other.tidy()
    assert [name.endswith(".part") for name in names(tmp_path)] == [True]
    log.append(b"two\n")
    log.finish()
    assert lines(tmp_path) == [b"one", b"two"]


def test_a_failed_write_leaves_no_torn_line(tmp_path, clock, monkeypatch):
    log = EventFiles(tmp_path, most_bytes=100 * MIB, clock=clock)
    log.append(b"whole\n")
    write = os.write
    calls = []

    def full(descriptor, data):
        calls.append(len(data))
        if len(calls) == 1:
            return write(descriptor, bytes(data[:3]))
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(files.os, "write", full)
    with pytest.raises(OSError, match="no space"):
        log.append(b"torn line\n")
    monkeypatch.undo()
    log.append(b"next\n")
    assert lines(tmp_path) == [b"whole", b"next"]
