"""The file of experiments and the kill switch, looked at again and again."""

import os
import threading
from contextlib import contextmanager

import pytest

from listwright.service import watched_file
from listwright.service.experiments import experiment_file
from listwright.service.experiments.experiment_file import Watch
from listwright.service.settings import Settings
from support.experiments import experiment, written
from support.stand_ins import Clock
from support.waiting import PATIENCE_S, until


@pytest.fixture
def file(tmp_path):
    return tmp_path / "experiments.toml"


def of(file, **settings):
    return Watch(Settings(bundle="models/demo/1", experiments=file, **settings), lambda: None)


def look_twice(one):
    """A change counts once two looks find the same."""
    one.look()
    one.look()


def names(one):
    return [found.name for found in one.file.content.experiment]


def test_a_file_comes_changes_and_goes(file):
    one = of(file)
    one.look()
    assert (names(one), one.file.refused) == ([], None)
    written(file, experiment("split"))
    look_twice(one)
    before = one.file.content
    assert names(one) == ["first"]
    look_twice(one)
    assert one.file.content is before, "an unchanged file is not read again"
    written(file, experiment("shadow", name="second"))
    look_twice(one)
    assert names(one) == ["second"]
    file.unlink()
    look_twice(one)
    assert (names(one), one.file.refused) == ([], None)


def test_a_file_that_is_being_written_changes_nothing(file):
    whole = written(file, experiment("split")).read_bytes()
    one = of(file)
    one.look()
    for size in (0, len(whole) // 2, len(whole)):
        with file.open("r+b") as opened:
            opened.truncate(0)
            opened.write(whole.replace(b"first", b"other")[:size])
        one.look()
        assert (names(one), one.file.refused) == (["first"], None)
    one.look()
    assert names(one) == ["other"]


def test_the_same_words_written_again_are_another_file(file):
    one = of(written(file, experiment("split")))
    one.look()
    before = one.file.content
    written(file, experiment("split"))
    look_twice(one)
    assert one.file.content is not before


@pytest.mark.parametrize("spoil", ["words", "folder", "fifo", "large"])
def test_what_is_wrong_is_refused_and_the_last_one_stays(file, spoil, caplog):
    one = of(written(file, experiment("split")))
    one.look()
    file.unlink()
    if spoil == "folder":
        file.mkdir()
    elif spoil == "fifo":
        os.mkfifo(file)
    else:
        file.write_bytes(b"[[experiment]" if spoil == "words" else b"#" * (experiment_file.MOST_BYTES + 1))
    for _ in range(3):
        one.look()
    assert names(one) == ["first"]
    assert one.file.refused.startswith("experiments.toml ")
    assert [record.levelname for record in caplog.records].count("ERROR") == 1


def test_a_file_that_may_be_read_by_now_is_taken(file, monkeypatch):
    one = of(written(file, experiment("split")))

    def refused(*_):
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patched:
        patched.setattr(watched_file.plain_file, "read", refused)
        one.look()
    assert "Permission denied" in one.file.refused
    file.chmod(0o640)
    look_twice(one)
    assert (names(one), one.file.refused) == (["first"], None)


def test_a_file_that_could_not_be_read_for_a_moment_is_taken(file, monkeypatch, caplog):
    """Nothing of the file shows that it can be read again: a full table of open files, a network drive."""
    clock = Clock()
    one = Watch(Settings(bundle="x", experiments=written(file, experiment("split"))), lambda: None, clock)

    def refused(*_):
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(watched_file.plain_file, "read", refused)
        for _ in range(5):
            one.look()
            clock.now += 10.0
    assert "Too many open files" in one.file.refused
    assert [record.levelname for record in caplog.records].count("ERROR") == 1
    clock.now += 60.0
    one.look()
    assert (names(one), one.file.refused) == (["first"], None)


def test_a_right_file_after_a_wrong_one_is_taken(file):
    file.write_bytes(b"[[experiment]")
    one = of(file)
    one.look()
    assert one.file.refused is not None
    written(file, experiment("split"))
    look_twice(one)
    assert (names(one), one.file.refused) == (["first"], None)


def test_the_kill_switch(file, tmp_path):
    switch = tmp_path / "off"
    one = of(file, experiments_off_file=switch)
    one.look()
    assert one.reason_killed() is None
    switch.touch()
    one.look()
    assert one.reason_killed() == "the file of LISTWRIGHT_EXPERIMENTS_OFF_FILE exists"
    switch.unlink()
    one.look()
    assert one.reason_killed() is None
    assert of(file).reason_killed() is None


def test_a_switch_that_cannot_be_looked_for_counts_as_there(file, tmp_path):
    one = of(file, experiments_off_file=tmp_path / ("x" * 5000))
    one.look()
    assert "File name too long" in one.reason_killed()


@contextmanager
def watching(one):
    one.start()
    yield one
    one.stop()


def test_a_thread_looks(file, monkeypatch):
    monkeypatch.setattr(watched_file, "LOOK_S", 0.01)
    with watching(of(file)) as one:
        written(file, experiment("split"))
        until(lambda: names(one) == ["first"])


def test_a_file_system_that_hangs_holds_nobody_and_kills_experiments(file, tmp_path, monkeypatch):
    monkeypatch.setattr(experiment_file, "STALE_S", 0.2)
    monkeypatch.setattr(watched_file, "LOOK_S", 0.01)
    hang, let_go = threading.Event(), threading.Event()

    def hanging(_):
        if hang.is_set():
            let_go.wait(PATIENCE_S)

    monkeypatch.setattr(experiment_file, "_switch", hanging)
    with watching(of(file, experiments_off_file=tmp_path / "off")) as one:
        until(lambda: one.reason_killed() is None)
        hang.set()
        until(lambda: one.reason_killed() is not None and "does not answer" in one.reason_killed())
        hang.clear()
        let_go.set()
        until(lambda: one.reason_killed() is None)


def test_an_error_while_looking_is_logged_and_the_thread_goes_on(file, monkeypatch, caplog):
    monkeypatch.setattr(watched_file, "LOOK_S", 0.01)
    calls = []

    def looked():
        calls.append(1)
        raise RuntimeError("boom")

    one = Watch(Settings(bundle="models/demo/1", experiments=file), looked)
    with watching(one):
        until(lambda: len(calls) > 2)
    assert "boom" in caplog.text
