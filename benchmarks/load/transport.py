"""``python -m benchmarks.load.transport``: what each hand-made part of the transport is worth, beside the plain way.

Parts and rivals: the connection beside uvicorn's two; the limit on connections beside uvicorn's ``limit_concurrency``;
taking connections in turns beside taking them at once; refusing early beside refusing in the application. Rates are
medians of turns in one run, over loopback. ``docs/decisions/0005-transport.md`` draws the conclusions.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from benchmarks.load.generator import Plan
from benchmarks.load.service import check_routes, metrics_of, service
from benchmarks.speed.floor import formats
from benchmarks.wide_bundle import build, rows
from listwright.ranking import bundle
from listwright_lab import machine

TURNS = 5
MOST, FILES, HELD, TRIES = 100, 140, 200, 20
"""Sizes for the limit: connections that are served, files that the process may open for them, connections that idle
callers hold, and connections that are tried."""

WAIT_S = 5.0
FLOOD = 32 * 2**20
"""Largest number of bytes of a head or of trailers."""

CHUNKED = b"Host: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n"
HEAD, NO_MORE = b"POST /livez HTTP/1.1\r\nHost: x\r\n", b"\r\n\r\n0\r\n\r\n"
SENT = {
    "Transfer-Encoding: gzip, chunked": HEAD + b"Transfer-Encoding: gzip, chunked" + NO_MORE,
    "Host twice": b"GET /livez HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
    "no Host": b"GET /livez HTTP/1.1\r\n\r\n",
    "Content-Length and chunked": HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked" + NO_MORE,
    "Upgrade: h2c": b"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
}


class Bench:
    """Folders and files of a run.

    Args:
        folder: Folder for bodies and plans.
        served: Folder of the bundle.
    """

    def __init__(self, folder: Path, served: Path) -> None:
        self.folder, self.served = folder, served

    @contextmanager
    def variant(self, name: str, **settings: Any) -> Iterator[tuple[psutil.Process, int]]:
        """Start the service with a part replaced; yield its process and port."""
        os.environ["TRANSPORT"] = name
        with service(self.served, module="benchmarks.load.transport_variant", log=None, cwd=None, **settings) as (
            process,
            connection,
            _,
        ):
            port = connection.port
            connection.close()
            yield process, port

    def rate(self, port: int, callers: int, seconds: float, candidates: int, *, patient: bool = True) -> dict[str, Any]:
        """Load it by callers in a closed loop and return the outcome."""
        body = str(self.folder / f"body-{candidates}")
        plan = Plan(port, body, seconds, callers, patient=patient).save(self.folder / "plan.json")
        command = [sys.executable, "-m", "benchmarks.load.generator", str(plan)]
        outcome: dict[str, Any] = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
        check_routes(metrics_of(port))
        return outcome

    def in_turns(self, names: tuple[str, ...], ask: dict[str, Any], **settings: object) -> dict[str, Any]:
        """Measure the accepted requests a second of each variant, and the ratio to the first."""
        rates: dict[str, list[float]] = {name: [] for name in names}
        with ExitStack() as stack:
            ports = {name: stack.enter_context(self.variant(name, **settings))[1] for name in names}
            for turn in range(TURNS + 1):
                for name in names:
                    rate = self.rate(ports[name], **ask)["accepted_per_second"]
                    if turn:  # the first is for warming up
                        rates[name].append(rate)
        medians = {name: float(np.median(values)) for name, values in rates.items()}
        return {n: {"per_second": round(m, 1), "of_ours": round(m / medians[names[0]], 3)} for n, m in medians.items()}


def main() -> int:
    """Run the command line; write ``benchmarks/results/transport.json``."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.load.transport", description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0, help="of a turn")
    seconds = parser.parse_args().seconds
    with tempfile.TemporaryDirectory() as name:
        bench = Bench(Path(name), build(Path(name) / "wide" / "1"))
        reranker = bundle.load(bench.served).reranker
        for count in (10, 100):
            body, _ = formats(reranker, rows(np.random.default_rng(3), count))["columnar JSON"]
            (bench.folder / f"body-{count}").write_bytes(body)
        short, flood = {"candidates": 10, "callers": 4}, {"candidates": 100, "callers": 64, "patient": False}
        facts: dict[str, object] = {
            "connection": bench.in_turns(("ours", "httptools", "h11"), {**short, "seconds": seconds}),
            "answers": {name: answers(bench, name) for name in ("ours", "httptools", "h11")},
            "limit": {name: at_the_limit(bench, name) for name in ("ours", "limit_concurrency", "httptools")},
            "accept": {name: shared(bench, name, seconds) for name in ("ours", "plain_accept")},
            "shedding": bench.in_turns(("ours", "no_shedding"), {**flood, "seconds": seconds}),
        }
    print(json.dumps(facts, indent=1))
    print(machine.save("transport", f"python -m benchmarks.load.transport --seconds {seconds:g}", facts))
    return 0


def answers(bench: Bench, name: str) -> dict[str, object]:
    """Send requests that are wrong, without end, or never complete; return statuses, seconds and MB."""
    with bench.variant(name, timeout_ms=1000) as (process, port):
        outcomes: dict[str, object] = {what: exchange(port, sent)[0] for what, sent in SENT.items()}
        outcomes["body cut off"] = exchange(port, b"POST /rerank HTTP/1.1\r\n" + CHUNKED + b"\r\n5\r\n{", ends=True)[0]
        outcomes["half a head, seconds until it is closed"] = exchange(port, b"GET /livez HTTP/1.1\r\nHost: x\r\n")[1]
        head = b"GET /livez HTTP/1.1\r\nHost: x\r\n"
        outcomes["head without end, MB held"] = flooded(process, port, head)
        head = b"POST /rerank HTTP/1.1\r\n" + CHUNKED + b"\r\n2\r\n{}\r\n0\r\n"
        outcomes["trailers without end, MB held"] = flooded(process, port, head)
        return outcomes


def exchange(port: int, sent: bytes, *, ends: bool = False) -> tuple[int | None, float | None]:
    """Return the status of the first answer, and the seconds until the connection was closed, None if never."""
    began = time.perf_counter()
    with socket.create_connection(("127.0.0.1", port), timeout=WAIT_S) as caller:
        caller.sendall(sent)
        if ends:
            caller.shutdown(socket.SHUT_WR)
        received = b""
        try:
            while piece := caller.recv(65536):
                received += piece
                if b"\r\n\r\n" in received and not ends and sent.endswith(b"\r\n\r\n"):
                    return int(received.split()[1]), None
        except TimeoutError:
            return int(received.split()[1]) if received else None, None
    return int(received.split()[1]) if received else None, round(time.perf_counter() - began, 1)


def flooded(process: psutil.Process, port: int, head: bytes) -> float:
    """Return the megabytes that the process grows by while fields are sent without end.

    It ends when the service ends it or has all of them.
    """
    before, line = process.memory_info().rss, b"".join(b"X-%d: %s\r\n" % (n, b"x" * 1000) for n in range(64))
    most = before
    with socket.create_connection(("127.0.0.1", port), timeout=WAIT_S) as caller, suppress(OSError):
        caller.sendall(head)
        for _ in range(FLOOD // len(line)):
            caller.sendall(line)
            most = max(most, process.memory_info().rss)
    return round((most - before) / 1e6, 1)


def at_the_limit(bench: Bench, name: str) -> dict[str, object]:
    """Count answers to a present caller and to newcomers, while others hold more connections than are served."""
    with bench.variant(name, max_connections=MOST, log_level="critical") as (process, port), ExitStack() as stack:
        files = process.num_fds() + FILES
        process.rlimit(psutil.RLIMIT_NOFILE, (files, files))
        present = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_S)
        present.connect()
        present.auto_open = 0  # once it is closed, it stays closed
        old, new = Counter[str](), Counter[str]()
        for _ in range(HELD):
            idle = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=WAIT_S))
            idle.sendall(b"GET /v2 HTTP/1.1\r\nHost: x\r\n\r\n")
            old[status_of(present)] += 1
        time.sleep(1.5)
        slowest = 0.0
        for _ in range(TRIES):
            old[status_of(present)] += 1
            began = time.perf_counter()
            new[status_of(http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_S))] += 1
            slowest = max(slowest, time.perf_counter() - began)
        return {"who is there": dict(old), "newcomers": dict(new), "slowest newcomer, seconds": round(slowest, 2)}


def status_of(connection: http.client.HTTPConnection) -> str:
    """Return the status of an answer over a connection, or why there is none."""
    try:
        connection.request("GET", "/v2")
        answer = connection.getresponse()
        answer.read()
    except (OSError, http.client.HTTPException):
        return "closed"
    return str(answer.status)


def shared(bench: Bench, name: str, seconds: float) -> dict[str, object]:
    """Measure how evenly two workers share four callers who hold their connections, over fresh services."""
    rates, shares = [], []
    for _ in range(TURNS):
        with bench.variant(name, workers=2) as (process, port):
            time.sleep(1.0)  # the other worker is ready a little later
            children = process.children()
            before = [sum(child.cpu_times()[:2]) for child in children]
            rates.append(bench.rate(port, 4, seconds, 100)["accepted_per_second"])
            spent = [sum(child.cpu_times()[:2]) - earlier for child, earlier in zip(children, before, strict=True)]
            shares.append(max(spent) / sum(spent))
    return {
        "per_second": round(float(np.median(rates)), 1),
        "busiest_worker": round(float(np.median(shares)), 3),
        "busiest_worker_at_worst": round(max(shares), 3),
    }


if __name__ == "__main__":
    sys.exit(main())
