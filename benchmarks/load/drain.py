"""``python -m benchmarks.load.drain``: stop and kill services behind haproxy, under traffic, and count what is lost.

Two services of two workers each stand behind haproxy, which asks ``/readyz``, and retries nothing: a request that a
service loses is lost. Needs haproxy on the PATH.

1. Rolling restart: each service in turn is stopped with SIGTERM, waited for, and started again, while callers ask.
   Nothing may fail.
2. SIGKILL of one worker: at most what it was working on may fail, which is one request per caller.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import psutil

from listwright_lab.machine import save

CALLERS = 8
DRAIN_S = 1.0
CHECK_MS = 100

HAPROXY = """
global
    maxconn 1000
defaults
    mode http
    {retries}
    timeout connect 5s
    timeout client 60s
    timeout server 60s
    timeout check 5s
frontend front
    bind 127.0.0.1:{front}
    default_backend services
backend services
    option httpchk GET /readyz
    default-server check inter {check} fall 1 rise 1
{servers}
"""


def free_port() -> int:
    """Return a port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


PATIENT_MS = 60_000
"""While one of two is away the other may be full: its refusals are no loss of a restart's."""


class Listener(Protocol):
    """Process that listens on a port of this machine."""

    port: int


class Service:
    """``listwright serve`` with two workers, which can be stopped and started again."""

    def __init__(self, bundle: Path) -> None:
        self.port, self._bundle = free_port(), bundle
        self.start()

    def start(self) -> None:
        """Start, and wait until it is ready."""
        names = {"BUNDLE": self._bundle, "PORT": self.port, "WORKERS": 2, "DRAIN_S": DRAIN_S, "LOG_LEVEL": "error"}
        names["QUEUE_MS"] = PATIENT_MS
        environment = os.environ | {f"LISTWRIGHT_{name}": str(value) for name, value in names.items()}
        self.process = subprocess.Popen([sys.executable, "-m", "service"], env=environment)
        until_ready(self.port)

    def stop(self) -> int:
        """Send SIGTERM and return the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=60)

    def workers(self) -> list[psutil.Process]:
        """Return its worker processes."""
        children = psutil.Process(self.process.pid).children()
        return [child for child in children if "spawn_main" in " ".join(child.cmdline())]


def until_ready(port: int) -> None:
    """Wait until a port answers 200 to ``/readyz``."""
    for _ in range(1200):
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            connection.request("GET", "/readyz")
            status = connection.getresponse().status
            connection.close()
            if status == 200:
                return
        except OSError:
            pass
        time.sleep(0.05)
    raise TimeoutError(f"port {port} is not ready within a minute")


class Callers:
    """Threads that send requests to one port, each over a connection that it holds while it can."""

    def __init__(self, port: int, body: bytes, count: int = CALLERS) -> None:
        self.outcomes: Counter[str] = Counter()
        self.lost_began: list[float] = []
        """When each lost request was begun, by the monotonic clock."""
        self._port, self._body, self._end = port, body, threading.Event()
        self._threads = [threading.Thread(target=self._ask) for _ in range(count)]
        for thread in self._threads:
            thread.start()

    @property
    def requests(self) -> int:
        """Number of requests so far."""
        return self.outcomes.total()

    def end(self, at_least: int) -> Counter[str]:
        """Wait until there were enough requests, stop, and count how many had which outcome."""
        while self.requests < at_least:
            time.sleep(0.01)
        self._end.set()
        for thread in self._threads:
            thread.join()
        return self.outcomes

    def _ask(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        while not self._end.is_set():
            began = time.monotonic()
            try:
                connection.request("POST", "/rerank", self._body, {"Content-Type": "application/json"})
                response = connection.getresponse()
                response.read()
                said_by = "" if response.getheader("X-Request-ID") else " by haproxy"
                outcome = f"{response.status}{said_by}"
            except (OSError, http.client.HTTPException) as error:
                outcome = type(error).__name__
                connection.close()
            if outcome != "200":
                self.lost_began.append(began)
            self.outcomes[outcome] += 1
        connection.close()


@contextmanager
def behind_haproxy(services: Sequence[Listener], retries: str = "retries 0") -> Iterator[int]:
    """Start a haproxy in front of services and yield its port; ``retries`` are lines of its configuration."""
    port = free_port()
    servers = "\n".join(f"    server s{n} 127.0.0.1:{service.port}" for n, service in enumerate(services))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "haproxy.cfg"
        file.write_text(HAPROXY.format(front=port, check=CHECK_MS, servers=servers, retries=retries))
        proxy = subprocess.Popen(["haproxy", "-q", "-f", str(file)])
        try:
            until_ready(port)
            yield port
        finally:
            proxy.terminate()
            proxy.wait()


def rolling_restart(services: list[Service], port: int, body: bytes, requests: int) -> dict[str, object]:
    """Stop and start each service in turn, under traffic."""
    callers = Callers(port, body)
    codes = []
    for service in services:
        codes.append(service.stop())
        service.start()
        time.sleep(5 * CHECK_MS / 1000)  # haproxy has to see it before the next one goes
    outcomes = callers.end(requests)
    return {"requests": outcomes.total(), "outcomes": dict(outcomes), "exit_codes": codes}


def kill_a_worker(service: Service, body: bytes, requests: int) -> dict[str, object]:
    """Kill one of two workers by SIGKILL, under traffic that nothing stands in front of."""
    while len(service.workers()) < 2:
        time.sleep(0.05)
    callers = Callers(service.port, body)
    while callers.requests < requests // 4:
        time.sleep(0.01)
    service.workers()[0].kill()
    outcomes = callers.end(requests)
    return {"requests": outcomes.total(), "outcomes": dict(outcomes), "callers": CALLERS}


def measure(bundle: Path, body: bytes, requests: int) -> dict[str, dict[str, object]]:
    """Measure both parts."""
    services: list[Service] = []
    try:
        services += [Service(bundle), Service(bundle)]
        with behind_haproxy(services) as port:
            restart = rolling_restart(services, port, body, requests)
        killed = kill_a_worker(services[0], body, requests)
    finally:
        for service in services:
            service.stop()
    return {"rolling_restart": restart, "killed_worker": killed}


def lost(part: dict[str, object]) -> int:
    """Count the requests without an answer of 200."""
    outcomes = part["outcomes"]
    assert isinstance(outcomes, dict)
    return sum(count for outcome, count in outcomes.items() if outcome != "200")


def golden_body(bundle: Path) -> bytes:
    """Return the longest golden list of a bundle, as a request."""
    lists = [json.loads(line)["features"] for line in (bundle / "golden.jsonl").read_text().splitlines()]
    return json.dumps({"features": max(lists, key=len)}).encode()


def main() -> int:
    """Write the result; 1 if more was lost than may be."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.load.drain", description=__doc__)
    parser.add_argument("--bundle", type=Path, default=Path("models/demo/1"))
    parser.add_argument("--requests", type=int, default=2000, help="at least so many in each part")
    options = parser.parse_args()
    if shutil.which("haproxy") is None:
        print("haproxy is not on the PATH: install it, e.g. apt-get install haproxy", file=sys.stderr)
        return 2
    parts = measure(options.bundle, golden_body(options.bundle), options.requests)
    print(json.dumps(parts, indent=1))
    print(save("drain", "python -m benchmarks.load.drain", dict(parts)))
    return int(lost(parts["rolling_restart"]) > 0 or lost(parts["killed_worker"]) > CALLERS)


if __name__ == "__main__":
    sys.exit(main())
