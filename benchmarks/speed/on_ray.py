"""``python -m benchmarks.speed.on_ray``: what Ray costs to start, what a second node brings, tasks against Ray Data.

*Start*: seconds from ``--on ray`` to the first finished task, and what Ray's own processes keep in memory (PSS).
*Nodes*: equal fits of a network, one thread each, through the executor of ``--on``: on a cluster of one node with one
core, and of two. Beside it the same fits in one process and in two. Workers are warm: each has made a fit before.
*Scoring*: the same parts of whole lists, which each worker reads and writes itself, by tasks and by Ray Data with
actors that hold the bundle. Rounds take turns; the median of each counts.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, wait
from contextlib import contextmanager
from typing import Any

import numpy as np
import polars as pl
import psutil

from benchmarks.speed.on_ray_work import Scorer, demo_bundle, fit, score_part
from listwright.training.cluster import RayExecutor, connected, side_by_side
from listwright_lab import machine

PARTS, LENGTH = 8, 10
MIB = 2**20


def start() -> dict[str, float]:
    """Time the start of a local Ray with one core."""
    begun = time.perf_counter()
    with connected("ray", 1):
        ready = time.perf_counter() - begun
        children = psutil.Process().children(recursive=True)
        memory = sum(child.memory_full_info().pss for child in children) / MIB
        driver = psutil.Process().memory_full_info().pss / MIB
    return {"seconds": round(ready, 2), "processes_mib": round(memory), "command_mib": round(driver)}


def seconds(executor: Executor, jobs: int, fits: int, epochs: int) -> float:
    """Time all fits, at most ``jobs`` at once; every worker has made one before."""
    wait([executor.submit(fit, seed, epochs) for seed in range(jobs)])
    begun = time.perf_counter()
    for future in [executor.submit(fit, seed, epochs) for seed in range(fits)]:
        future.result()
    return time.perf_counter() - begun


@contextmanager
def nodes(count: int) -> Iterator[str]:
    """Start a cluster of nodes with one core each, and yield its address."""
    os.environ.update(RAY_worker_niceness="0")  # as processes have
    from ray.cluster_utils import Cluster  # noqa: PLC0415

    node = {"num_cpus": 1, "object_store_memory": 128 * MIB, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, connect=False, head_node_args=dict(node))
    try:
        for _ in range(count - 1):
            cluster.add_node(**node)
        yield cluster.address
    finally:
        cluster.shutdown()


def speed_up(rounds: int, fits: int, epochs: int) -> dict[str, Any]:
    """Measure seconds by number of workers, on Ray and in processes."""
    times: dict[str, list[float]] = {}
    for _ in range(rounds):
        for count in (1, 2):
            with nodes(count) as address, connected("auto", None, address=address) as (ray, _):
                executor = RayExecutor(ray)
                times.setdefault(f"ray {count}", []).append(seconds(executor, count, fits, epochs))
                executor.shutdown()
            with side_by_side(None, count, local_jobs=count) as (processes, _):
                times.setdefault(f"processes {count}", []).append(seconds(processes, count, fits, epochs))
    medians = {name: round(float(np.median(values)), 2) for name, values in times.items()}
    ratios = {kind: round(medians[f"{kind} 1"] / medians[f"{kind} 2"], 2) for kind in ("ray", "processes")}
    return {"fits": fits, "epochs": epochs, "seconds": medians, "speed_up": ratios}


def by_tasks(ray: Any, names: list[tuple[str, str]]) -> int:
    """Score by the executor of ``--on``."""
    executor = RayExecutor(ray)
    results = [executor.submit(score_part, *pair).result for pair in names]
    rows = sum(int(result()) for result in results)
    executor.shutdown()
    return rows


def by_data(_ray: Any, names: list[tuple[str, str]]) -> int:
    """Score by Ray Data: two actors, a part a batch."""
    from ray.data import DataContext, from_items  # noqa: PLC0415

    DataContext.get_current().enable_progress_bars = False
    items = [{"source": source, "target": target} for source, target in names]
    parts = from_items(items, override_num_blocks=len(items))
    scored = parts.map_batches(Scorer, batch_size=1, concurrency=2, num_cpus=1)
    return sum(int(row["rows"]) for row in scored.take_all())  # an aggregation would wait for a core of its own


def scoring(rounds: int, lists: int) -> dict[str, Any]:
    """Measure seconds by tasks and by Ray Data, on a local Ray with two cores."""
    rng = np.random.default_rng(0)
    schema = demo_bundle().manifest.feature_schema
    ways: dict[str, Callable[[Any, list[tuple[str, str]]], int]] = {"tasks": by_tasks, "ray_data": by_data}
    times: dict[str, list[float]] = {way: [] for way in ways}
    with tempfile.TemporaryDirectory() as folder, connected("ray", 2) as (ray, _):
        names = [(f"{folder}/{n}.parquet", f"{folder}/scored-{n}.parquet") for n in range(PARTS)]
        for n, (source, _target) in enumerate(names):
            rows = lists * LENGTH
            columns = {
                feature.name: rng.choice(feature.categories, rows)
                if feature.kind == "categorical"
                else rng.normal(size=rows)
                for feature in schema.features
            }
            pl.DataFrame({"qid": np.repeat(np.arange(lists) + n * lists, LENGTH), **columns}).write_parquet(source)
        for _ in range(rounds + 1):
            for way, run in ways.items():
                begun = time.perf_counter()
                assert run(ray, names) == PARTS * lists * LENGTH
                times[way].append(time.perf_counter() - begun)
    medians = {way: round(float(np.median(values[1:])), 2) for way, values in times.items()}
    return {
        "rows": PARTS * lists * LENGTH,
        "parts": PARTS,
        "seconds": medians,
        "first_round_seconds": {way: round(values[0], 2) for way, values in times.items()},
        "data_over_tasks": round(medians["ray_data"] / medians["tasks"], 2),
    }


def main() -> int:
    """Run the command line; write ``benchmarks/results/on_ray.json``."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed.on_ray", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="of each; the median counts (default: 3)")
    parser.add_argument("--fits", type=int, default=8, help="as many equal fits (default: 8)")
    parser.add_argument("--epochs", type=int, default=10, help="of each (default: 10)")
    parser.add_argument("--lists", type=int, default=4000, help="in each part that is scored (default: 4000)")
    options = parser.parse_args()
    result = {
        "rounds": options.rounds,
        "start": start(),
        "nodes": speed_up(options.rounds, options.fits, options.epochs),
        "scoring": scoring(options.rounds, options.lists),
    }
    print(result)
    arguments = " ".join(f"--{name} {getattr(options, name)}" for name in ("rounds", "fits", "epochs", "lists"))
    print(machine.save("on_ray", f"python -m benchmarks.speed.on_ray {arguments}", result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
