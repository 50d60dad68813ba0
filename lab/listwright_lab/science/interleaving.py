"""``python -m listwright_lab.science.interleaving``: queries that interleaving and a split need.

A simulated shop is served by two rankers that see the attraction of candidates with different noise. The same visits
are interleaved, and split by unit. Each comparison gives the ratio z of its estimate to its standard error. Queries for
a power of 80 % at one look are ``n (2.80 / z)^2`` with the mean z over the runs.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import asdict
from pathlib import Path
from statistics import NormalDist, mean, stdev
from typing import Any

import numpy as np

from listwright.training.traffic.compare.compare import compare
from listwright_lab import machine
from listwright_lab.synthetic_traffic import Shop, interleaved_rows, ranked, split_rows, visits

POWER = NormalDist().inv_cdf(0.975) + NormalDist().inv_cdf(0.8)

SHOPS = {
    "people alike": Shop(liking=0.2, returns=1.0),
    "people differ": Shop(liking=1.0, returns=2.0),
    "people differ, few clicks": Shop(liking=1.0, returns=2.0, rate=0.03),
}

NOISES = ((1.5, 1.2), (1.5, 1.0))
"""Standard deviations of the noise of control and challenger."""

METRICS = ("hit", "mrr", "ndcg@10")


def one_run(shop: Shop, noises: tuple[float, float], queries: int, seed: int, folder: Path) -> dict[str, float]:
    """Return z of interleaving, and of a split by every metric."""
    rng = np.random.default_rng(seed)
    visit_log = visits(shop, queries, rng)
    orders = [ranked(visit_log, noise, rng) for noise in noises]
    z = NormalDist().inv_cdf(0.975)
    result = {}
    for name, rows_of in (("interleaving", interleaved_rows), ("split", split_rows)):
        path = folder / f"{name}.parquet"
        rows_of(shop, visit_log, orders, rng).write_parquet(path)
        for effect in compare(path).effects:
            key = "interleaving" if name == "interleaving" else effect.metric
            result[key] = z * effect.look.estimate / effect.look.fixed
    return result


def measure(shop: Shop, noises: tuple[float, float], *, queries: int, runs: int) -> dict[str, Any]:
    """Return the number of queries needed, and how many times as many a split needs."""
    with tempfile.TemporaryDirectory() as folder:
        results = [one_run(shop, noises, queries, seed, Path(folder)) for seed in range(runs)]
    z = {name: mean(run[name] for run in results) for name in ("interleaving", *METRICS)}
    error = {name: stdev(run[name] for run in results) / runs**0.5 if runs > 1 else 1.0 for name in z}
    needed = {name: queries * (POWER / value) ** 2 for name, value in z.items() if value > 0.0}
    return {
        "noise": noises,
        "z": {name: round(value, 3) for name, value in z.items()},
        "standard_error": {name: round(value, 3) for name, value in error.items()},
        "needed": {name: round(value) for name, value in needed.items()},
        "times": {name: round(needed[name] / needed["interleaving"], 1) for name in METRICS if name in needed},
    }


def main() -> None:
    """Run the command line; write ``benchmarks/results/interleaving.json``."""
    parser = argparse.ArgumentParser(prog="python -m listwright_lab.science.interleaving", description=__doc__)
    parser.add_argument("--runs", type=int, default=20, help="of each difference (default: 20)")
    parser.add_argument("--queries", type=int, default=10_000, help="of each run (default: 10000)")
    options = parser.parse_args()
    rows = []
    for name, shop in SHOPS.items():
        for noises in NOISES:
            figures = measure(shop, noises, queries=options.queries, runs=options.runs)
            rows.append({"shop": name, **asdict(shop), **figures})
            print(rows[-1], flush=True)
    command = f"python -m listwright_lab.science.interleaving --runs {options.runs} --queries {options.queries}"
    result: dict[str, object] = {"runs": options.runs, "queries": options.queries, "rows": rows}
    print(machine.save("interleaving", command, result))


if __name__ == "__main__":
    main()
