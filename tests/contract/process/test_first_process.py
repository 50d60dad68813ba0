"""The service as the first process of a container, which the system protects from signals that it does not heed."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from support.waiting import PATIENCE_S, until

pytestmark = pytest.mark.nightly  # processes start and stop

NAMESPACE = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child"]

if shutil.which("unshare") is None or subprocess.run([*NAMESPACE, "true"], check=False, capture_output=True).returncode:
    pytest.skip("this system gives no process numbers of our own", allow_module_level=True)


@pytest.fixture
def started(bundle_folder, tmp_path):
    """The service as process 1; it says "importing" and then hangs in the import of its hook."""
    (tmp_path / "slow_hook.py").write_text("import time\nprint('importing', flush=True)\ntime.sleep(3600)\n")
    environment = {
        **os.environ,
        "LISTWRIGHT_BUNDLE": str(bundle_folder),
        "LISTWRIGHT_PORT": "0",
        "PYTHONPATH": str(tmp_path),
    }
    processes = []

    def start(*command, **settings):
        argv = [*NAMESPACE, *(command or (sys.executable, "-m", "service"))]
        process = subprocess.Popen(argv, env=environment | settings, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.wait()
        process.stdout.close()


def first_of(process):
    """Process 1 of the namespace, by the number that it has here."""
    until(lambda: psutil.Process(process.pid).children())
    return psutil.Process(process.pid).children()[0]


def test_sigterm_while_it_starts_ends_it(started):
    process = started(LISTWRIGHT_HOOK="slow_hook:choose")
    assert process.stdout.readline() == b"importing\n"
    first_of(process).send_signal(signal.SIGTERM)
    assert process.wait(timeout=PATIENCE_S) == 128 + signal.SIGTERM


def test_sigterm_before_anything_is_imported_ends_it(started):
    """It heeds the signal from its first line on: nothing but Python's own start comes before."""
    process = started()
    one = first_of(process)
    until(lambda: "service" in one.cmdline() and int(heeds(one), 16) & 1 << (signal.SIGTERM - 1))
    one.send_signal(signal.SIGTERM)
    assert process.wait(timeout=PATIENCE_S) in (0, 128 + signal.SIGTERM), "0 if it served already"


def heeds(process):
    """The signals that a process handles, as bits."""
    status = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return next(line.split()[1] for line in status if line.startswith("SigCgt"))
