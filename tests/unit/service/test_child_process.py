"""Background processes: held while a request is ranked, and only then."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import psutil
import pytest

from listwright.service.child_process import HELD_S, LET_GO_S, Background
from support.waiting import NEVER_S, until

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing is held"),
    pytest.mark.nightly,  # processes, and waits
]

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

SUPERVISOR = """
import os, subprocess, sys, time
subprocess.Popen([sys.executable, {script!r}], preexec_fn=lambda: os.setpgid(0, 0))
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


def handles():
    """How many pidfds are open."""
    found = 0
    for one in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the folder's own descriptor has gone by now
            found += one.readlink().name.endswith("[pidfd]")
    return found


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
    before = handles()
    for _ in range(20):
        with background.computing(child):
            assert handles() == before + 1
    assert handles() == before


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
        assert os.sched_getscheduler(held.pid) == os.SCHED_IDLE
        parent.kill()
    until(lambda: not held.is_running() or held.status() == psutil.STATUS_ZOMBIE)


def test_where_requests_leave_no_pause_it_goes_on_now_and_then(child):
    now = 0.0
    background = Background(lambda: now)
    with background.computing(child), background.held():
        until(lambda: is_held(child))
        now = HELD_S + LET_GO_S / 2
        with background.held():
            until(lambda: not is_held(child))
        now = HELD_S + LET_GO_S
        with background.held():
            until(lambda: is_held(child))
    until(lambda: not is_held(child))


@pytest.mark.parametrize(("module", "name"), [(os, "pidfd_open"), (signal, "pidfd_send_signal")])
def test_a_python_without_handles_holds_nobody(child, background, monkeypatch, module, name):
    monkeypatch.delattr(module, name)
    with background.computing(child), background.held():
        time.sleep(0.05)
        assert not is_held(child)


def test_a_sandbox_that_forbids_signals_changes_no_answer_and_leaks_nothing(child, background, monkeypatch):
    def forbidden(handle, number):
        raise PermissionError

    monkeypatch.setattr(signal, "pidfd_send_signal", forbidden)
    before = handles()
    with background.computing(child), background.held():
        assert not is_held(child)
    assert handles() == before


def test_the_end_of_a_supervisor_does_not_end_the_worker_of_a_held_process(tmp_path):
    script = tmp_path / "worker.py"
    script.write_text(HELD_CHILD.format(never=NEVER_S), encoding="utf-8")
    supervisor = tmp_path / "supervisor.py"
    supervisor.write_text(SUPERVISOR.format(script=str(script), never=NEVER_S), encoding="utf-8")
    command = [sys.executable, supervisor]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as parent:
        held = psutil.Process(int(parent.stdout.readline()))
        worker = held.parent()
        until(lambda: held.status() == psutil.STATUS_STOPPED)
        parent.kill()
        parent.wait()
        until(lambda: worker.ppid() != parent.pid)
        time.sleep(0.2)
        assert worker.status() not in {psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD}
        worker.kill()
    until(lambda: not held.is_running() or held.status() == psutil.STATUS_ZOMBIE)
