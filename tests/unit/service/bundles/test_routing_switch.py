"""The switch that turns routing off: a file, looked for by a thread that nobody waits for."""

import os
import threading
from contextlib import contextmanager

import pytest

from listwright.service.bundles import routing_switch
from listwright.service.bundles.routing_switch import RoutingSwitch, look
from listwright.service.settings import Settings
from support.waiting import PATIENCE_S, until


@contextmanager
def switch(**changes):
    one = RoutingSwitch(Settings(bundle="models/demo/1", **changes))
    one.start()
    yield one
    one.stop()


def test_routing_is_on_unless_somebody_turned_it_off():
    with switch() as one:
        assert one.off() is None
    with switch(routing="false") as one:
        assert one.off() == "LISTWRIGHT_ROUTING is false"


def test_the_file_is_looked_for_again_and_again(tmp_path):
    file = tmp_path / "off"
    with switch(routing_off_file=file) as one:
        assert one.off() is None
        file.touch()
        until(lambda: one.off() == "the file of LISTWRIGHT_ROUTING_OFF_FILE exists")
        file.unlink()
        until(lambda: one.off() is None)
    with switch(routing_off_file=tmp_path) as one:
        assert one.off() is not None, "a folder, as Kubernetes mounts them, counts"


def test_a_fifo_counts_as_there(tmp_path):
    os.mkfifo(tmp_path / "off")
    with switch(routing_off_file=tmp_path / "off") as one:
        assert one.off() == "the file of LISTWRIGHT_ROUTING_OFF_FILE exists"


def test_a_file_that_cannot_be_there_is_not(tmp_path):
    (tmp_path / "file").touch()
    assert look(tmp_path / "file" / "off") is None


def test_a_file_that_cannot_be_looked_for_counts_as_there(tmp_path):
    """A name that is too long stands for every other reason, as root may read everything."""
    reason = look(tmp_path / ("x" * 5000))
    assert reason == "the file of LISTWRIGHT_ROUTING_OFF_FILE cannot be looked for: File name too long"


@pytest.mark.parametrize("from_the_start", [True, False])
def test_a_file_system_that_hangs_holds_nobody(tmp_path, monkeypatch, from_the_start):
    monkeypatch.setattr(routing_switch, "STALE_S", 0.2)
    hang, let_go = threading.Event(), threading.Event()

    def hanging(_):
        if hang.is_set():
            let_go.wait(PATIENCE_S)

    monkeypatch.setattr(routing_switch, "look", hanging)
    if from_the_start:
        hang.set()
    with switch(routing_off_file=tmp_path / "off") as one:
        if not from_the_start:
            until(lambda: one.off() is None)
            hang.set()
        until(lambda: one.off() is not None and "does not answer" in one.off())
        hang.clear()
        let_go.set()
        until(lambda: one.off() is None)
