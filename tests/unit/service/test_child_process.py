"""Background processes: on time that nobody wants, ended with their parent, in a group of their own."""

import os
import subprocess
import sys
import time

import psutil
import pytest

from support.waiting import NEVER_S, until

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="signals of the parent's end are Linux's"),
    pytest.mark.nightly,  # processes, and waits
]

WORKER = """
import multiprocessing, time
from listwright.service.child_process import lower_priority

def work(pipe):
    lower_priority()
    pipe.send(None)
    time.sleep({never})

if __name__ == "__main__":
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(target=work, args=(theirs,), daemon=True)
    process.start()
    ours.recv()
    print(process.pid, flush=True)
    time.sleep({never})
"""

SUPERVISOR = """
import os, subprocess, sys, time
subprocess.Popen([sys.executable, {script!r}], preexec_fn=lambda: os.setpgid(0, 0))
time.sleep({never})
"""


def has_ended(process):
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


@pytest.fixture
def worker(tmp_path):
    """Its script."""
    script = tmp_path / "worker.py"
    script.write_text(WORKER.format(never=NEVER_S), encoding="utf-8")
    return script


def test_it_has_the_lowest_priority_and_ends_with_its_parent_even_while_it_is_stopped(worker):
    with subprocess.Popen([sys.executable, worker], stdout=subprocess.PIPE, text=True) as parent:
        child = psutil.Process(int(parent.stdout.readline()))
        assert os.sched_getscheduler(child.pid) == os.SCHED_IDLE
        child.suspend()
        until(lambda: child.status() == psutil.STATUS_STOPPED)
        parent.kill()
    until(lambda: has_ended(child))


def test_the_end_of_a_supervisor_does_not_end_the_worker_of_a_stopped_process(tmp_path, worker):
    supervisor = tmp_path / "supervisor.py"
    supervisor.write_text(SUPERVISOR.format(script=str(worker), never=NEVER_S), encoding="utf-8")
    command = [sys.executable, supervisor]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as parent:
        child = psutil.Process(int(parent.stdout.readline()))
        worker = child.parent()
        child.suspend()
        until(lambda: child.status() == psutil.STATUS_STOPPED)
        parent.kill()
        parent.wait()
        until(lambda: worker.ppid() != parent.pid)
        time.sleep(0.2)
        assert worker.status() not in {psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD}
        worker.kill()
    until(lambda: has_ended(child))
