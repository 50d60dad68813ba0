"""A server with all the processes that it starts: run, watched, and stopped to the last one, by id.

Servers leave processes behind when their first one is asked to stop. Each of them is known here by its descent, or by
a mark in the environment that it inherited.
"""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import psutil

from benchmarks.rivals.cores import on
from benchmarks.rivals.environments import ROOT

MARK = "RIVALS_RUN"

READY_WITHIN_S = 120
STOP_WITHIN_S = 10
SETTLE_WITHIN_S = 15

IDLE_CORES = 0.3
"""A server that uses less is done with what it was asked; Ray Serve uses a tenth with nothing to do."""


class NotServingError(Exception):
    """Error of a server that did not start, or stopped."""


def free_port() -> int:
    """Return a port of the loopback interface that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass(frozen=True, slots=True)
class Server:
    """Running server, with all of its processes."""

    process: subprocess.Popen[bytes]
    mark: str
    log: Path

    def family(self) -> list[psutil.Process]:
        """Return its living processes: its descendants and whoever else bears its mark."""
        members: dict[int, psutil.Process] = {}
        with suppress(psutil.NoSuchProcess):
            first = psutil.Process(self.process.pid)
            members = {member.pid: member for member in (first, *first.children(recursive=True))}
        for other in psutil.process_iter():
            with suppress(psutil.Error, OSError):
                if other.environ().get(MARK) == self.mark:
                    members.setdefault(other.pid, other)
        return list(members.values())

    def cpu_s(self) -> float:
        """Return the CPU seconds that its living processes have used."""
        total = 0.0
        for member in self.family():
            with suppress(psutil.Error):
                times = member.cpu_times()
                total += times.user + times.system
        return total

    def settle(self) -> None:
        """Return once it does nothing any more.

        Raises:
            NotServingError: if it stopped.
        """
        until = time.monotonic() + SETTLE_WITHIN_S
        while time.monotonic() < until:
            self.check()
            began, before = time.monotonic(), self.cpu_s()
            time.sleep(0.3)
            if (self.cpu_s() - before) / (time.monotonic() - began) < IDLE_CORES:
                return

    def check(self) -> None:
        """Raise what it said last if it has stopped."""
        if self.process.poll() is not None:
            lines = self.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
            last = next((line.strip() for line in reversed(lines) if line.strip()), "nothing")
            raise NotServingError(f"it stopped with exit code {self.process.returncode}, its last line: {last[:200]}")

    def stop(self) -> None:
        """Ask the first process to stop, then end whatever is left."""
        known = self.family()
        with suppress(ProcessLookupError):
            self.process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=STOP_WITHIN_S)
        until = time.monotonic() + STOP_WITHIN_S
        while time.monotonic() < until:
            left = [member for member in {*known, *self.family()} if _lives(member)]
            if not left:
                break
            for member in left:
                with suppress(psutil.Error):
                    member.kill()
            time.sleep(0.05)
        self.process.wait(timeout=STOP_WITHIN_S)


def _lives(member: psutil.Process) -> bool:
    try:
        return member.is_running() and member.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


@contextmanager
def running(
    command: Sequence[str], environment: Mapping[str, str], log: Path, cores: frozenset[int]
) -> Iterator[Server]:
    """Start the server on these cores; yield it once its process exists, and end all its processes."""
    mark = uuid4().hex
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **environment, MARK: mark}
    with log.open("wb") as written, on(cores):
        process = subprocess.Popen(
            command, env=variables, cwd=ROOT, stdout=written, stderr=subprocess.STDOUT, start_new_session=True
        )
    server = Server(process, mark, log)
    try:
        yield server
    finally:
        interrupted = signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C leaves nothing behind either
        try:
            server.stop()
        finally:
            signal.signal(signal.SIGINT, interrupted)


def first_answer(server: Server, port: int, path: str, content_type: str, body: bytes) -> bytes:
    """Send one request until there is a good answer, and return it.

    Raises:
        NotServingError: if the server stops or gives none in time.
    """
    last = "no answer"
    until = time.monotonic() + READY_WITHIN_S
    while time.monotonic() < until:
        server.check()
        try:
            status, answer = _post(port, path, content_type, body)
        except (OSError, http.client.HTTPException) as error:
            last = repr(error)
        else:
            if status == http.HTTPStatus.OK:
                return answer
            last = f"{status} {answer[:200].decode(errors='replace')}"
        time.sleep(0.1)
    raise NotServingError(f"not ready after {READY_WITHIN_S} s: {last}")


def _post(port: int, path: str, content_type: str, body: bytes) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("POST", path, body, {"Content-Type": content_type})
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()
