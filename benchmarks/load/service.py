"""``python -m benchmarks.load.service [--bundle DIR]``: what serving costs, beside the same computation in this
process.

Starts ``listwright serve`` and asks it over one kept-alive connection, one request at a time. Requests in every JSON
form and the in-process call take turns on the same lists, so that whatever else the machine does meets all of them;
the ratios are of medians and 99th percentiles of the same run. Start-up and memory are measured with the demo bundle.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from jaxtyping import Float

from benchmarks.wide_bundle import RANKER, build, rows
from listwright.ranking import bundle
from listwright.ranking.candidates import CandidateList
from listwright.ranking.errors import ListwrightError
from listwright.ranking.reranker import Reranker
from listwright_lab import machine

REQUESTS = {10: 300, 100: 300, 1000: 60}
"""Requests per form at each list length."""

WARM_UP = 10

MOST_DEGRADED = 0.01
"""Share of the rankings that an earlier stage may have made because the machine paused."""

Row = dict[str, float | str]


def main() -> int:
    """Run the command line; write ``benchmarks/results/service.json``."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.load.service", description=__doc__)
    parser.add_argument("--bundle", type=Path, help="numeric bundle to ask; default: one of 136 features, made here")
    parser.add_argument("--demo", type=Path, default=Path("models/demo/1"), help="bundle whose start-up is measured")
    parser.add_argument("--rounds", type=float, default=1.0, help="multiplies the number of requests")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        try:
            served = options.bundle or build(Path(folder) / "wide" / "1")
            reranker = bundle.load(served).reranker
            bundle.load(options.demo)
        except ListwrightError as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
        started = start_up(options.demo)
        table = latency(served, reranker, options.rounds, None if options.bundle else RANKER)
    second = reranker.manifest.second_stage
    result: dict[str, object] = {
        "start_up": {"bundle": "/".join(options.demo.absolute().parts[-2:]), **started},
        "latency": {
            "features": len(reranker.schema),
            "second_stage_cutoff": None if second is None else second.cutoff,
            "client": "one connection, one request at a time, same machine; body ready, answer read but not parsed",
            "in_process": "CandidateList and Reranker.rerank on the same float32 arrays",
            "rows": table,
        },
    }
    command = "python -m benchmarks.load.service" + (" --bundle DIR" if options.bundle else "")
    show(started, table)
    print(machine.save("service", command, result))
    return 0


@contextmanager
def service(
    folder: Path,
    *,
    module: str = "service",
    log: int | None = None,
    cwd: Path | None = None,
    ranker: str | None = None,
    **more: object,
) -> Iterator[tuple[psutil.Process, http.client.HTTPConnection, float]]:
    """Start a module; yield its process, a connection, and the seconds until it was ready.

    Its log goes to the open file ``log``; by default, where that of this process goes. It runs in the folder ``cwd``;
    by default, in that of this process. With a ``ranker``, all that it ranked is checked by :func:`check_routes`.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = {"bundle": folder, "port": port, "log_level": "warning", **more}
    environment = {**os.environ, **{f"LISTWRIGHT_{name.upper()}": str(value) for name, value in settings.items()}}
    began = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", module], env=environment, stderr=log, cwd=cwd)
    try:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        while not _is_ready(connection):
            if process.poll() is not None:
                raise SystemExit(f"the service stopped with exit code {process.returncode}")
            time.sleep(0.01)
        yield psutil.Process(process.pid), connection, time.perf_counter() - began
        if ranker is not None:
            check_routes(metrics_of(port), ranker)
    finally:
        process.terminate()
        process.wait(timeout=30)


def check_routes(metrics: str, ranker: str = RANKER) -> None:
    """Check that a service ranked, and by the ranker that the benchmark's page names.

    Raises:
        SystemExit: if it ranked nothing, or by another; if an earlier stage had to answer more than seldom.
    """
    ranked = re.findall(r'^listwright_routes_total\{.*strategy="(\w+)".*\} (\S+)$', metrics, flags=re.MULTILINE)
    rankers = {strategy for strategy, count in ranked if float(count)}
    if rankers != {ranker}:
        raise SystemExit(f"ranked by {', '.join(sorted(rankers)) or 'nothing'}: this benchmark measures {ranker}")
    degraded = sum(map(float, re.findall(r"^listwright_degraded_total\{.*\} (\S+)$", metrics, flags=re.MULTILINE)))
    if degraded > MOST_DEGRADED * sum(float(count) for _, count in ranked):
        raise SystemExit(f"{degraded:.0f} answers are an earlier stage's: this benchmark measures {ranker}")


def metrics_of(port: int) -> str:
    """Return ``GET /metrics`` of a service."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    return text


def _is_ready(connection: http.client.HTTPConnection) -> bool:
    try:
        connection.request("GET", "/readyz")
        response = connection.getresponse()
        response.read()
    except OSError:
        connection.close()
        return False
    return response.status == http.HTTPStatus.OK


def start_up(folder: Path, *, runs: int = 5) -> dict[str, float]:
    """Measure the seconds until ready, and the resident memory, of a worker; medians over fresh processes."""
    seconds, idle_mb, busy_mb = [], [], []
    rng = np.random.default_rng(1)
    reranker = bundle.load(folder).reranker
    body = json.dumps({"features": _spelled(reranker, rng.normal(size=(1000, len(reranker.schema))))}).encode()
    for _ in range(runs):
        with service(folder) as (process, connection, ready_s):
            seconds.append(ready_s)
            idle_mb.append(process.memory_info().rss / 1e6)
            for _ in range(20):
                _post(connection, body)
            busy_mb.append(process.memory_info().rss / 1e6)
    return {
        "runs": runs,
        "ready_s": round(float(np.median(seconds)), 3),
        "ready_s_worst": round(max(seconds), 3),
        "resident_mb_when_ready": round(float(np.median(idle_mb)), 1),
        "resident_mb_after_lists_of_1000": round(float(np.median(busy_mb)), 1),
    }


def latency(folder: Path, reranker: Reranker, rounds: float, ranker: str | None) -> list[dict[str, object]]:
    """Measure each list length and way of sending, all by one ranker unless that is None; return a row for each."""
    rng = np.random.default_rng(2)
    table: list[dict[str, object]] = []
    with service(folder, ranker=ranker) as (_, connection, _):
        for length, requests in REQUESTS.items():
            times: dict[str, list[float]] = {}
            server: dict[str, list[float]] = {}
            for number in range(WARM_UP + max(1, round(requests * rounds))):
                features = rows(rng, length)
                took, reported = _take_turns(connection, reranker, features, first=number)
                if number >= WARM_UP:
                    for name, value in took.items():
                        times.setdefault(name, []).append(value)
                    for name, value in reported.items():
                        server.setdefault(name, []).append(value)
            for name, values in times.items():
                table.append(_row(length, name, values, times["in_process"], server.get(name)))
    return table


def _take_turns(
    connection: http.client.HTTPConnection, reranker: Reranker, features: Float[np.ndarray, "L D"], *, first: int
) -> tuple[dict[str, float], dict[str, float]]:
    """Time the in-process call and each form on one list, in milliseconds; and what the service says it took.

    Each round begins with another one, as the first after a pause is slower.
    """
    ways: list[tuple[str, Callable[[], Any]]] = [("in_process", lambda: reranker.rerank(CandidateList(features)))]
    ways += [(name, partial(_post, connection, body)) for name, body in bodies(reranker, features).items()]
    turn = first % len(ways)
    took, answers = {}, {}
    for name, ask in ways[turn:] + ways[:turn]:
        began = time.perf_counter()
        answers[name] = ask()
        took[name] = (time.perf_counter() - began) * 1e3
    reported, expected = {}, answers.pop("in_process")
    for name, answer in answers.items():
        parsed = json.loads(answer)
        assert parsed["ranks"] == expected.ranks.tolist(), "the service and the kernel disagree"
        reported[name] = float(parsed["meta"]["timings_ms"]["total"])
    return took, reported


def bodies(reranker: Reranker, features: Float[np.ndarray, "L D"]) -> dict[str, bytes]:
    """Build one list in every form of a request."""
    values = _spelled(reranker, features)
    names = reranker.schema.names
    ids = [f"sku-{n}" for n in range(len(values))]
    forms: dict[str, dict[str, Any]] = {
        "matrix": {"feature_names": names, "features": values, "ids": ids},
        "rows_by_position": {"candidates": [{"id": i, "features": row} for i, row in zip(ids, values, strict=True)]},
        "rows_by_name": {
            "candidates": [
                {"id": i, "features": dict(zip(names, row, strict=True))} for i, row in zip(ids, values, strict=True)
            ]
        },
    }
    return {name: json.dumps(body).encode() for name, body in forms.items()}


def _spelled(reranker: Reranker, features: Float[np.ndarray, "L D"]) -> list[list[float | str | None]]:
    """Return rows as JSON values, with the digits of float32; categories are left out."""
    categorical = set(reranker.schema.categorical)
    return [
        [None if column in categorical else float(str(value)) for column, value in enumerate(row)]
        for row in features.astype(np.float32)
    ]


def _post(connection: http.client.HTTPConnection, body: bytes) -> bytes:
    connection.request("POST", "/rerank", body, {"Content-Type": "application/json"})
    response = connection.getresponse()
    answer = response.read()
    if response.status != http.HTTPStatus.OK:
        raise SystemExit(f"the service answered {response.status}: {answer[:500].decode()}")
    return answer


def _row(
    length: int, name: str, values: list[float], base: list[float], server: list[float] | None
) -> dict[str, object]:
    p50, p99 = np.percentile(values, (50, 99))
    base50, base99 = np.percentile(base, (50, 99))
    return {
        "candidates": length,
        "way": name,
        "requests": len(values),
        "p50_ms": round(float(p50), 3),
        "p99_ms": round(float(p99), 3),
        "p50_over_in_process": round(float(p50 / base50), 2),
        "p99_over_in_process": round(float(p99 / base99), 2),
        "service_reports_p50_ms": None if server is None else round(float(np.median(server)), 3),
    }


def show(started: dict[str, float], table: list[dict[str, object]]) -> None:
    """Print what was measured."""
    print("  ".join(f"{name} {value}" for name, value in started.items()))
    print(f"{'candidates':>10}  {'way':<16} {'p50 ms':>8} {'p99 ms':>8} {'p50 ratio':>10} {'p99 ratio':>10}")
    for row in table:
        print(
            f"{row['candidates']:>10}  {row['way']:<16} {row['p50_ms']:>8} {row['p99_ms']:>8} "
            f"{row['p50_over_in_process']:>10} {row['p99_over_in_process']:>10}"
        )


if __name__ == "__main__":
    sys.exit(main())
