"""``python -m benchmarks.speed.join``: a served log of a million records joined with its events: time and peak memory.

Two logs are joined, the second a tenth of the first: memory that does not grow with the log is about the same in both.
The events are three in four of the records, some of them late, sent again, or of unknown queries. The join runs as a
command of its own. Its memory is the largest resident set of that process.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import polars as pl

from listwright.ranking.served_log.files import write
from listwright.ranking.served_log.record import ServedRecord
from listwright_lab import machine

RECORDS, CANDIDATES, FEATURES = 1_000_000, 20, 20
SHARES = (0.1, 1.0)
"""Sizes of the logs as shares of the records, the smaller one first."""

FILE_RECORDS = 10_000
A_SECOND = 100
"""Records a second in the log."""

BEGAN = datetime(2026, 5, 1, tzinfo=UTC)
NAMES = tuple(f"feature_{d + 1}" for d in range(FEATURES))
LABELS = "[labels]\npurchase = 3\nclick = 1\n"
JOIN_PROCESSES = 2
"""Processes that write the log; the join itself is one process."""


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; write ``benchmarks/results/join.json``."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed.join", description="The join of a served log.")
    parser.add_argument("--records", type=int, default=RECORDS, metavar="N", help="of the larger log")
    parser.add_argument("--folder", type=Path, metavar="DIR", help="for the logs (default: a temporary one)")
    options = parser.parse_args(arguments)
    table = []
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        for share in SHARES:
            files = max(1, round(options.records * share / FILE_RECORDS))
            table.append(_measured(Path(name) / f"{files}", files))
            print(json.dumps(table[-1]), file=sys.stderr)
    result = {"candidates": CANDIDATES, "features": FEATURES, "table": table}
    print(machine.save("join", "python -m benchmarks.speed.join", result))
    return 0


def _measured(folder: Path, files: int) -> dict[str, object]:
    """Write a log and its events, and join them."""
    for part in ("served", "events"):
        (folder / part).mkdir(parents=True)
    (folder / "labels.toml").write_text(LABELS)
    began = time.perf_counter()
    with ProcessPoolExecutor(JOIN_PROCESSES, mp_context=get_context("spawn")) as pool:
        events = sum(pool.map(partial(_write_file, folder), range(files)))
    written_s = time.perf_counter() - began
    options = ["--served", "served", "--events", "events", "--labels", "labels.toml", "--out", "rows.parquet"]
    began = time.perf_counter()
    command = [sys.executable, "-m", "listwright", "join", *options]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    output = process.stdout.read()
    peak_kib = _peak_kib(process)
    seconds = time.perf_counter() - began
    if process.returncode:
        raise SystemExit(f"listwright join failed:\n{output}")
    rows = pl.scan_parquet(folder / "rows.parquet").select(pl.len(), (pl.col("label") > 0).sum()).collect().row(0)
    return {
        "records": files * FILE_RECORDS,
        "events": events,
        "rows": rows[0],
        "rows with a label": rows[1],
        "bytes of the log": sum(path.stat().st_size for path in (folder / "served").iterdir()),
        "seconds to write the log": round(written_s, 1),
        "seconds": round(seconds, 1),
        "records per second": round(files * FILE_RECORDS / seconds),
        "peak rss mib": round(peak_kib / 1024),
    }


def _peak_kib(process: subprocess.Popen[str]) -> int:
    """Wait for the end of the process; its largest resident set, of itself alone."""
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    own_usage: resource.struct_rusage = usage
    return own_usage.ru_maxrss


def _write_file(folder: Path, number: int) -> int:
    """Write the records of a file, and the events of their queries; how many events."""
    rng = np.random.default_rng(number)
    write(folder / "served" / f"{number:05}.avro", _records(number, rng))
    query = rng.integers(0, FILE_RECORDS, size=3 * FILE_RECORDS // 4)
    place = np.minimum(rng.geometric(0.3, size=len(query)) - 1, CANDIDATES - 1)
    delay = rng.exponential(300.0, size=len(query))  # the window is 1,800 s
    lines = []
    for n, (q, at, late) in enumerate(zip(query.tolist(), place.tolist(), delay.tolist(), strict=True)):
        served = number * FILE_RECORDS + q
        event = {
            "event_id": f"e-{number}-{n // 2 * 2 if n % 50 == 1 else n}",  # one in fifty is sent again
            "query_id": f"q-{served if n % 100 else -n}",  # one in a hundred is unknown
            "action_name": "purchase" if n % 10 == 0 else "click",
            "client_id": f"c-{q % 997}",
            "timestamp": (BEGAN + timedelta(seconds=served / A_SECOND + late)).isoformat(),
            "event_attributes": {"object": {"object_id": f"sku-{(q * 7 + at) % 9973}"}},
        }
        lines.append(json.dumps(event))
    (folder / "events" / f"{number:05}.jsonl").write_text("\n".join(lines) + "\n")
    return len(lines)


def _records(number: int, rng: np.random.Generator) -> Iterator[ServedRecord]:
    features = rng.normal(size=(FILE_RECORDS, CANDIDATES, FEATURES)).astype(np.float32)
    scores = np.sort(rng.normal(size=(FILE_RECORDS, CANDIDATES)), axis=1)[:, ::-1]
    order = np.arange(CANDIDATES)
    for n in range(FILE_RECORDS):
        served = number * FILE_RECORDS + n
        yield ServedRecord(
            query_id=f"q-{served}",
            served_at=BEGAN + timedelta(seconds=served / A_SECOND),
            unit=f"u-{served % 50_021}",
            bundle="shop/7",
            fingerprint="sha256:0",
            candidate_ids=tuple(f"sku-{(n * 7 + place) % 9973}" for place in range(CANDIDATES)),
            features=features[n],
            first_stage_scores=scores[n],
            scores=scores[n],
            order=order,
            strategy="qilcm",
            feature_names=NAMES,
            request_id=f"r-{served}",
            timings_ms={"total": 2.0},
        )


if __name__ == "__main__":
    raise SystemExit(main())
