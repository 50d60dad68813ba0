"""``python -m benchmarks.load.supervisor``: the supervisor of the service beside uvicorn's and gunicorn's, when
workers fail.

All look after two workers with the demo bundle. Each fault is made on purpose, in a service of its own:

1. a worker is killed;
2. a worker's event loop stalls while Python's global lock is free, as on a disk that is gone;
3. a worker is killed, and each one that follows is killed as it starts, as if for memory;
4. a stalled worker is told to end;
5. the supervisor itself is killed.

``docs/decisions/0009-supervisor.md`` draws the conclusions. Takes about ten minutes.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import psutil

from benchmarks.load.drain import free_port, until_ready
from benchmarks.load.supervisor_variant import FAILING, STALL, STARTS
from benchmarks.rivals.environments import prepare, versions
from listwright_lab.machine import save

WITHIN_S = 45.0
"""Seconds after which an event that has not happened counts as never."""

WATCHED_S = 20.0
"""Seconds for which workers that fail at their start are watched."""

HANG_S = 5.0
"""Seconds for which a worker may be silent, under every supervisor: uvicorn's default."""

SUPERVISORS = ("ours", "uvicorn", "gunicorn")

LOADED_S = 5.0
"""Seconds from the first worker's readiness until the other is ready, too."""

Figures = dict[str, float | None]


class SupervisedService:
    """Service of two workers under one of the supervisors."""

    def __init__(self, supervisor: str, folder: Path, bundle: Path) -> None:
        self.port, self._starts, self._failing = free_port(), folder / "starts", folder / "failing"
        settings = {"BUNDLE": bundle, "PORT": self.port, "WORKERS": 2, "HANG_S": HANG_S, "LOG_LEVEL": "critical"}
        environment = os.environ | {f"LISTWRIGHT_{name}": str(value) for name, value in settings.items()}
        environment |= {"SUPERVISOR": supervisor, STARTS: str(self._starts), FAILING: str(self._failing)}
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), gunicorns_packages()]))
        command = [sys.executable, "-m", "benchmarks.load.supervisor_variant"]
        self.process = psutil.Process(subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL).pid)
        until_ready(self.port)
        time.sleep(LOADED_S)

    @property
    def starts(self) -> int:
        """Number of workers that have started so far."""
        return len(self._starts.read_text().splitlines())

    def fail(self) -> None:
        """Kill every worker that starts from now on."""
        self._failing.touch()

    def listening(self) -> list[psutil.Process]:
        """Return the workers that run."""
        children = self.process.children() if self.process.is_running() else []
        return [child for child in children if _is_worker(child)]

    def end(self, workers: list[psutil.Process]) -> None:
        """Kill whatever is left."""
        self.process.suspend()  # it starts no other while its workers are killed
        for process in [*workers, *self.process.children(recursive=True), self.process]:
            if process.is_running():
                process.kill()
        self.process.wait()


def _is_worker(process: psutil.Process) -> bool:
    try:
        return "resource_tracker" not in " ".join(process.cmdline())
    except psutil.Error:  # it has ended meanwhile
        return False


@cache
def gunicorns_packages() -> str:
    """Install gunicorn and uvicorn's worker class for it, apart from the project's packages; return the folder."""
    (packages,) = prepare("gunicorn").parent.glob("lib/python*/site-packages")
    return str(packages)


@contextmanager
def supervised(supervisor: str, bundle: Path) -> Iterator[tuple[SupervisedService, psutil.Process]]:
    """Start a service; yield it, and one of its workers."""
    with tempfile.TemporaryDirectory() as folder:
        service = SupervisedService(supervisor, Path(folder), bundle)
        workers = service.listening()
        try:
            yield service, workers[0]
        finally:
            service.end(workers)


def after(happened: Callable[[], bool], within_s: float = WITHIN_S) -> float | None:
    """Wait until something has happened; return the seconds, None if it has not in time."""
    began = time.perf_counter()
    while time.perf_counter() - began < within_s:
        if happened():
            return time.perf_counter() - began
        time.sleep(0.01)
    return None


def killed(service: SupervisedService, worker: psutil.Process) -> Figures:
    """Kill a worker: seconds until another has started."""
    before = service.starts
    worker.kill()
    return {"another_starts_after_s": after(lambda: service.starts > before)}


def stalled(service: SupervisedService, worker: psutil.Process) -> Figures:
    """Stall a worker's event loop: seconds until another has started."""
    before = service.starts
    worker.send_signal(STALL)
    return {"another_starts_after_s": after(lambda: service.starts > before)}


def failing(service: SupervisedService, worker: psutil.Process) -> Figures:
    """Let every new worker fail: how many are started, and the processor time that they take."""
    before = service.starts
    service.fail()
    worker.kill()
    time.sleep(WATCHED_S)
    ended = service.process.cpu_times()
    return {"starts": service.starts - before, "processor_s": ended.children_user + ended.children_system}


def told_to_end(service: SupervisedService, worker: psutil.Process) -> Figures:
    """Stall a worker and send SIGTERM: seconds until the service has ended."""
    worker.send_signal(STALL)
    service.process.terminate()
    return {"ended_after_s": after(lambda: service.process.status() == psutil.STATUS_ZOMBIE)}


def orphaned(service: SupervisedService, _: psutil.Process) -> Figures:
    """Kill the supervisor: seconds until its port can be taken again."""
    service.process.kill()
    return {"port_is_free_after_s": after(lambda: is_free(service.port))}


def is_free(port: int) -> bool:
    """Return whether another service could begin here."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


FAULTS = (killed, stalled, failing, told_to_end, orphaned)


def main() -> int:
    """Run the command line; write ``benchmarks/results/supervisor.json``."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.load.supervisor", description=__doc__)
    parser.add_argument("--bundle", type=Path, default=Path("models/demo/1"))
    options = parser.parse_args()
    faults: dict[str, dict[str, Figures]] = {}
    for fault in FAULTS:
        for supervisor in SUPERVISORS:
            with supervised(supervisor, options.bundle) as (service, worker):
                figures = fault(service, worker)
            faults.setdefault(fault.__name__, {})[supervisor] = figures
            print(fault.__name__, supervisor, figures, flush=True)
    libraries = versions("gunicorn", "gunicorn", "uvicorn-worker")
    result = {
        "libraries": libraries,
        "never_is_after_s": WITHIN_S,
        "watched_s": WATCHED_S,
        "hang_s": HANG_S,
        "faults": faults,
    }
    print(save("supervisor", "python -m benchmarks.load.supervisor", dict(result)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
