"""``python -m benchmarks.load.scrapes``: metrics of several workers, merged by us and by prometheus_client.

prometheus_client merges through files: each process maps a file per type of metric into its memory, and a scrape reads
all files. Ours keeps the metrics in memory, and a scrape asks the workers. Both have the counters and histograms of
the service, filled alike. Measured in one run, medians of turns:

- the time of what one request counts;
- the time of one scrape of two workers, before and after fifty workers were replaced;
- the size of what the replaced workers leave behind.

``docs/decisions/0010-merged-metrics.md`` draws the conclusions.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

from listwright.service.telemetry.merge import drop_gauges, merge, pack, snapshot, text, unpack
from listwright.service.telemetry.metrics import Telemetry
from listwright_lab.machine import save

TURNS, REQUESTS, SCRAPES, REPLACED = 5, 3000, 20, 50

FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""Names the folder of prometheus_client's files; it is read at the import, so each way has a process of its own."""

Figures = dict[str, float]


def count(requests: int) -> tuple[float, Telemetry]:
    """Count so many requests as the service counts one JSON request: microseconds each, and the metrics."""
    telemetry = Telemetry()
    version = ("shop", "1")
    stages = [
        telemetry.seconds.labels(*version, stage, "ok")
        for stage in ("read", "wait", "first_stage", "routing", "second_stage", "encode")
    ]
    route = telemetry.route_seconds.labels(*version, "qilcm", "bundle", "ok")
    began = time.perf_counter()
    for number in range(requests):
        for stage in stages:
            stage.observe(0.001)
        route.observe(0.004)
        telemetry.candidates.observe(number % 1000)
        telemetry.routes.labels("qilcm", "bundle", "").inc()
        telemetry.requests.labels("/rerank", "200").inc()
    return (time.perf_counter() - began) / requests * 1e6, telemetry


def median_ms(scrape: Callable[[], bytes]) -> float:
    """Return the median milliseconds of some scrapes in a row."""
    times = []
    for _ in range(SCRAPES):
        began = time.perf_counter()
        scrape()
        times.append((time.perf_counter() - began) * 1e3)
    return statistics.median(times)


def by_files() -> Figures:
    """Measure prometheus_client's way: this process, and others that end, count into files; this one is scraped."""
    folder = Path(os.environ[FOLDER])

    def scrape() -> bytes:
        registry = CollectorRegistry()
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return generate_latest(registry)

    def worker() -> None:
        pid = os.fork()
        if pid == 0:
            count(10)
            os._exit(0)
        os.waitpid(pid, 0)
        mark_process_dead(pid)  # type: ignore[no-untyped-call]

    each_us, _ = count(REQUESTS)
    worker()
    fresh_ms = median_ms(scrape)
    for _ in range(REPLACED):
        worker()
    left = sum(file.stat().st_size for file in folder.iterdir())
    return {"request_us": each_us, "scrape_ms": fresh_ms, "scrape_after_ms": median_ms(scrape), "left_kib": left / 1024}


def by_messages() -> Figures:
    """Measure our way: two snapshots as they travel, and what replaced workers counted; without the pipes."""
    each_us, telemetry = count(REQUESTS)
    past = drop_gauges(snapshot(telemetry.registry))

    def scrape() -> bytes:
        live = [pack(snapshot(telemetry.registry)), pack(snapshot(telemetry.registry))]
        return text(merge([past, *map(unpack, live)]))

    fresh_ms = median_ms(scrape)
    for _ in range(REPLACED):
        past = merge([past, drop_gauges(snapshot(telemetry.registry))])
    return {
        "request_us": each_us,
        "scrape_ms": fresh_ms,
        "scrape_after_ms": median_ms(scrape),
        "left_kib": len(pack(past)) / 1024,
    }


WAYS = {"ours": by_messages, "prometheus_client": by_files}


def turn(way: str) -> Figures:
    """Measure one way, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {name: value for name, value in os.environ.items() if name != FOLDER}
        environment |= {FOLDER: folder} if way == "prometheus_client" else {}
        command = [sys.executable, "-m", "benchmarks.load.scrapes", "--way", way]
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
    figures: Figures = json.loads(done.stdout)
    return figures


def main() -> int:
    """Run the command line; write ``benchmarks/results/scrapes.json``."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.load.scrapes", description=__doc__)
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.way:
        print(json.dumps(WAYS[options.way]()))
        return 0
    turns = [{way: turn(way) for way in WAYS} for _ in range(TURNS)]
    ways = {
        way: {name: statistics.median(figures[way][name] for figures in turns) for name in turns[0][way]}
        for way in WAYS
    }
    print(json.dumps(ways, indent=1))
    result = {"turns": TURNS, "workers": 2, "replaced": REPLACED, "ways": ways}
    print(save("scrapes", "python -m benchmarks.load.scrapes", dict(result)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
