"""``python -m benchmarks.speed.floor``: what the service takes beyond what must be taken.

The floor of a request is the same ranking in process plus the round trip of a bare ASGI app under the same server,
which reads the same body and returns as many bytes. One client asks in every format, and for both parts of its floor,
in turn, on the same lists, beginning each round with another; both servers are started several times. A ratio is of
medians.
"""

from __future__ import annotations

import http.client
import io
import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
from jaxtyping import Float

from benchmarks.load.service import bodies, service
from benchmarks.wide_bundle import RANKER, build, check_route, rows
from listwright.ranking import bundle
from listwright.ranking.candidates import CandidateList
from listwright.ranking.reranker import Reranker
from listwright_lab import machine

ROUNDS = {10: 400, 100: 400, 1000: 60}
STARTS = 10
"""Starts of both servers: the speed of a process depends on the core that it runs on."""

WARM_UP = 20
LISTS = 20
"""Different lists of each length."""

JSON, NPY = "application/json", "application/x-npy"

Step = Callable[[], object]


def main() -> int:
    """Run the command line; write ``benchmarks/results/floor.json``."""
    with tempfile.TemporaryDirectory() as folder:
        served = build(Path(folder) / "wide" / "1")
        reranker = bundle.load(served).reranker
        times: dict[int, dict[str, list[float]]] = {length: {} for length in ROUNDS}
        for _ in range(STARTS):
            with service(served, ranker=RANKER) as (_, ours, _), bare_app() as bare:
                for length, rounds in ROUNDS.items():
                    ask(reranker, ours, bare, length, rounds // STARTS, times[length])
    table = [row for length in ROUNDS for row in summary(length, times[length])]
    print(machine.save("floor", "python -m benchmarks.speed.floor", {"features": len(reranker.schema), "table": table}))
    return 0


@contextmanager
def bare_app() -> Iterator[http.client.HTTPConnection]:
    """Start the bare app under uvicorn as the service has it, and yield a connection to it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options = ["--port", str(port), "--log-level", "error", "--http", "httptools", "--loop", "uvloop"]
    process = subprocess.Popen([sys.executable, "-m", "uvicorn", "benchmarks.speed.bare_app:app", *options])
    try:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        for _ in range(1000):
            try:
                connection.connect()
                break
            except OSError:
                time.sleep(0.02)
        yield connection
    finally:
        process.terminate()
        process.wait(timeout=30)


def ask(
    reranker: Reranker,
    ours: http.client.HTTPConnection,
    bare: http.client.HTTPConnection,
    length: int,
    rounds: int,
    times: dict[str, list[float]],
) -> None:
    """Add the milliseconds of so many rounds, by what was asked."""
    rng = np.random.default_rng(length)
    lists = [rows(rng, length) for _ in range(LISTS)]
    sent = [formats(reranker, features) for features in lists]
    for idle in (ours, bare):
        idle.close()  # writing the bodies may take longer than a server keeps a connection; the next request opens one
    for number in range(WARM_UP + rounds):
        features, bodies = lists[number % LISTS], sent[number % LISTS]
        steps: list[tuple[str, Step]] = [("in process", partial(_rank, reranker, features))]
        for request_format, (body, kind) in bodies.items():
            size = len(post(ours, body, kind, {}))
            steps += [
                (request_format, partial(post, ours, body, kind, {})),
                (f"{request_format}, bare", partial(post, bare, body, kind, {"X-Answer": str(size)})),
            ]
        turn = number % len(steps)
        for name, step in steps[turn:] + steps[:turn]:
            began = time.perf_counter()
            step()
            if number >= WARM_UP:
                times.setdefault(name, []).append((time.perf_counter() - began) * 1e3)


def summary(length: int, times: dict[str, list[float]]) -> list[dict[str, object]]:
    """Return a row for every format."""
    return [_row(length, request_format, times) for request_format in times if f"{request_format}, bare" in times]


def formats(reranker: Reranker, features: Float[np.ndarray, "L D"]) -> dict[str, tuple[bytes, str]]:
    """Return one list in every format, with its media type."""
    forms = bodies(reranker, features)
    file = io.BytesIO()
    np.save(file, features)
    return {
        "npy": (file.getvalue(), NPY),
        "columnar JSON": (forms["matrix"], JSON),
        "rows by name": (forms["rows_by_name"], JSON),
    }


def _rank(reranker: Reranker, features: Float[np.ndarray, "L D"]) -> object:
    return check_route(reranker.rerank(CandidateList(features)))


def post(connection: http.client.HTTPConnection, body: bytes, kind: str, more: dict[str, str]) -> bytes:
    """Send a request and return the answer; exit if it is no ranking."""
    connection.request("POST", "/rerank", body, {"Content-Type": kind, "Accept": kind, **more})
    response = connection.getresponse()
    answer = response.read()
    if response.status != http.HTTPStatus.OK:
        raise SystemExit(f"answered {response.status}: {answer[:500].decode('utf-8', 'replace')}")
    return answer


def _row(length: int, request_format: str, times: dict[str, list[float]]) -> dict[str, object]:
    ours, bare, inside = (
        float(np.median(times[name])) for name in (request_format, f"{request_format}, bare", "in process")
    )
    row: dict[str, object] = {
        "candidates": length,
        "format": request_format,
        "p50_ms": round(ours, 3),
        "p99_ms": round(float(np.percentile(times[request_format], 99)), 3),
        "in_process_ms": round(inside, 3),
        "bare_round_trip_ms": round(bare, 3),
        "over_floor": round(ours / (inside + bare), 3),
    }
    print(json.dumps(row))
    return row


if __name__ == "__main__":
    sys.exit(main())
