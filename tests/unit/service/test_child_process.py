"""Background processes: held while a request is ranked, and only then."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack

import psutil
import pytest

from listwright.service.child_process import Background
from support.waiting import NEVER_S, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing is held")

HELD_CHILD = """
import multiprocessing, os, time
from listwright.service.child_process import Background, step_back

def work(pipe):
    step_back()
    pipe.send(None)
    time.sleep({never})

if __name__ == "__main__":
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(target=work, args=(theirs,), daemon=True)
    process.start()
    ours.recv()
    background = Background()
    with background.computing(process), background.held():
        print(process.pid, flush=True)
        time.sleep({never})
"""


@pytest.fixture
def child():
    process = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(NEVER_S,), daemon=True)
    process.start()
    yield process
    process.kill()
    process.join()


@pytest.fixture
def background():
    return Background()


def is_held(process):
    return psutil.Process(process.pid).status() == psutil.STATUS_STOPPED


def test_it_is_held_until_the_last_request_has_ended(child, background):
    with background.computing(child):
        with ExitStack() as first, ExitStack() as second:
            first.enter_context(background.held())
            until(lambda: is_held(child))
            second.enter_context(background.held())
            first.close()
            time.sleep(0.05)
            assert is_held(child)
        until(lambda: not is_held(child))


def test_it_is_held_if_it_begins_while_a_request_is_ranked_and_goes_on_at_its_end(child, background):
    with background.held():
        with background.computing(child):
            until(lambda: is_held(child))
        until(lambda: not is_held(child))


def test_who_does_not_compute_is_left_alone(child, background):
    with background.held():
        time.sleep(0.05)
        assert not is_held(child)


def test_a_request_that_fails_holds_nobody(child, background):
    with background.computing(child):
        with pytest.raises(ValueError, match="a fault"), background.held():
            raise ValueError("a fault")
        until(lambda: not is_held(child))


def test_a_process_that_has_ended_is_no_fault(child, background):
    with background.computing(child):
        child.kill()
        child.join()
        with background.held():
            assert child.exitcode == -signal.SIGKILL
    with background.computing(child), background.held():
        assert not child.is_alive()


def test_no_handle_stays_open(child, background):
    before = psutil.Process().num_fds()
    for _ in range(20):
        with background.computing(child):
            assert psutil.Process().num_fds() == before + 1
    assert psutil.Process().num_fds() == before


def test_a_kernel_without_handles_holds_nobody(child, background, monkeypatch):
    def unknown(pid):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(os, "pidfd_open", unknown)
    with background.computing(child), background.held():
        time.sleep(0.05)
        assert not is_held(child)


def test_who_is_held_ends_with_its_parent(tmp_path):
    script = tmp_path / "parent.py"
    script.write_text(HELD_CHILD.format(never=NEVER_S), encoding="utf-8")
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True) as parent:
        held = psutil.Process(int(parent.stdout.readline()))
        until(lambda: held.status() == psutil.STATUS_STOPPED)
        parent.kill()
    until(lambda: not held.is_running() or held.status() == psutil.STATUS_ZOMBIE)
