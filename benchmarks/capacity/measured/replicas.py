"""Real replicas on cores of their own, a real balancer in front of them, and the load on it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from jaxtyping import Float

from benchmarks.capacity.measured.shape import Shape
from benchmarks.capacity.simulated.balancers import HAPROXY, Balancer
from benchmarks.load.drain import free_port, until_ready
from benchmarks.load.generator import Plan
from benchmarks.load.service import service
from benchmarks.rivals.cores import on

CONNECTIONS = 512
"""Most connections of the generator; none should ever be lacking."""

_CONFIGURATION = """
global
    maxconn 2000
    nbthread 1
defaults
    mode http
    retries 0
    timeout connect 5s
    timeout client 60s
    timeout server 60s
frontend front
    bind 127.0.0.1:{port}
    default_backend replicas
backend replicas
    balance {rule}
    http-reuse always
{servers}
"""
"""A weight of 256 gives each replica many places in the hash ring that ``random`` draws from: with the default of 1 the
ring itself favours one."""


@dataclass(frozen=True, slots=True)
class Replica:
    """A running service of one worker.

    Args:
        port: on this machine.
        process: of the worker.
        ready_s: from its start until ``/readyz`` answered 200.
        log: the file that its log goes to.
    """

    port: int
    process: psutil.Process
    ready_s: float
    log: Path


@dataclass(frozen=True, slots=True)
class Seen:
    """What the generator saw of a load, and CPU seconds meanwhile.

    Args:
        seconds: ``(N,)`` of answers of 200.
        refused: answers of 429.
        other: any other end of a request.
        began_s: by the machine's clock.
        took_s: from the first request to the last.
        cpu_s: of each server that was watched.
        generator_cpu_s: of the generator.
    """

    seconds: Float[np.ndarray, " N"]
    refused: int
    other: int
    began_s: float
    took_s: float
    cpu_s: tuple[float, ...]
    generator_cpu_s: float

    @property
    def asked(self) -> int:
        """Requests."""
        return len(self.seconds) + self.refused + self.other


@contextmanager
def replicas(shape: Shape, cores: Sequence[int], folder: Path) -> Iterator[list[Replica]]:
    """A replica on each of these cores, with the settings that a replica has by default."""
    with ExitStack() as stack:
        started = []
        for number, core in enumerate(cores):
            log = folder / f"replica-{number}.log"
            file = stack.enter_context(log.open("wb"))
            with on(frozenset({core})):
                process, connection, ready_s = stack.enter_context(
                    service(
                        shape.bundle, log=file.fileno(), log_level="info", max_candidates=max(1000, shape.candidates)
                    )
                )
            connection.close()
            with suppress(PermissionError):  # other work of this machine waits; where it may not, it disturbs
                os.setpriority(os.PRIO_PROCESS, process.pid, -20)
            started.append(Replica(connection.port, process, ready_s, log))
        yield started


@contextmanager
def haproxy(ports: Sequence[int], balancer: Balancer, cores: frozenset[int]) -> Iterator[tuple[int, psutil.Process]]:
    """Port and process of a haproxy of one thread in front of these ports."""
    port = free_port()
    servers = "\n".join(f"    server s{number} 127.0.0.1:{there} weight 256" for number, there in enumerate(ports))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "haproxy.cfg"
        file.write_text(_CONFIGURATION.format(port=port, rule=HAPROXY[balancer], servers=servers), encoding="utf-8")
        with on(cores):
            proxy = subprocess.Popen(["haproxy", "-q", "-db", "-f", str(file)])
        _goes_first(proxy)
        try:
            until_ready(port)
            yield port, psutil.Process(proxy.pid)
        finally:
            proxy.terminate()
            proxy.wait()


def _goes_first(process: subprocess.Popen[bytes]) -> None:
    """Ahead of replicas on its core, as if it had one of its own; in turn where the system does not permit it."""
    with suppress(PermissionError, ProcessLookupError):
        os.sched_setscheduler(process.pid, os.SCHED_FIFO, os.sched_param(1))


class Generator:
    """The load of one shape, from a process on given cores.

    Args:
        shape: what is asked.
        cores: of the generator.
        folder: for its files.
    """

    def __init__(self, shape: Shape, cores: frozenset[int], folder: Path) -> None:
        self._shape, self._cores, self._folder = shape, cores, folder
        (folder / "body").write_bytes(shape.body)

    def callers(self, port: int, count: int, seconds: float, watched: Sequence[psutil.Process]) -> Seen:
        """So many callers for so long; each asks for a list once its last one is answered."""
        return self._run(watched, Plan(port, str(self._folder / "body"), seconds, count, **self._common()))

    def at(self, port: int, due: Float[np.ndarray, " N"], watched: Sequence[psutil.Process]) -> Seen:
        """Lists at these times, in seconds from the beginning, whatever becomes of the earlier ones."""
        np.save(self._folder / "due.npy", due)
        plan = Plan(
            port, str(self._folder / "body"), 0.0, CONNECTIONS, due=str(self._folder / "due.npy"), **self._common()
        )
        return self._run(watched, plan)

    def _common(self) -> dict[str, Any]:
        return {"media_type": self._shape.media_type, "answers": str(self._folder / "answers.npy")}

    def _run(self, watched: Sequence[psutil.Process], plan: Plan) -> Seen:
        path = plan.save(self._folder / "plan.json")
        before = [_cpu_s(process) for process in watched]
        with on(self._cores):
            command = [sys.executable, "-m", "benchmarks.load.generator", str(path)]
            process = subprocess.Popen(command, stdout=subprocess.PIPE)
        _goes_first(process)
        said, _ = process.communicate()
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, command)
        time.sleep(0.2)  # what comes after the last answer, the log line, has its time too
        cpu_s = tuple(_cpu_s(process) - used for process, used in zip(watched, before, strict=True))
        seen = json.loads(said)
        answers, took_s = seen["answers"], seen["seconds"]
        refused = answers.pop("429", 0)
        answers.pop("200", 0)
        return Seen(
            seconds=np.load(self._folder / "answers.npy", allow_pickle=False)[:, 1],
            refused=refused,
            other=sum(answers.values()) + sum(seen["faults"].values()),
            began_s=seen["began"],
            took_s=took_s,
            cpu_s=cpu_s,
            generator_cpu_s=seen["generator_cpu_share"] * took_s,
        )


def _cpu_s(process: psutil.Process) -> float:
    used = process.cpu_times()
    return used.user + used.system
