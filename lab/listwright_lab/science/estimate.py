"""``python -m listwright_lab.science.estimate --out FOLDER``: how right ``listwright estimate`` is, on simulated logs.

A weak ranker, LightGBM on a tenth of the training queries, serves five candidates of training queries again and again;
people click by a position-based model from the true labels. What another order of the same five would gain in clicks is
known, and estimated from the log: with swaps in four of five lists, and propensities of the same log; or without swaps,
and with propensities of another log. Further logs have trust bias: at the first places people click irrelevant
candidates, too (Agarwal et al. 2019). The attraction is fitted on the first 4,000 lists of a log. Then ten rankers are
put in order: see :mod:`listwright_lab.science.bundle_order`. The logs of a cell have the seeds from 0.

``--out`` keeps each finished log: the same command goes on, with ``--seconds`` a while at a time.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import fields
from functools import partial
from itertools import product
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.stats import binomtest

from listwright_lab import machine
from listwright_lab.science import bundle_order
from listwright_lab.science.click_logs import (
    BY_PLACE,
    CLIPS,
    MODEL_LISTS,
    PLACES,
    WITH_TRUST,
    Served,
    draw_log,
    estimate_log,
    propensities_of,
    serve,
    splits_of,
)

STRENGTHS = (1.0, 1.5)
LISTS = 20_000


def measure(served: Served, strength: float, clicks: str, *, swaps: bool, count: int, seed: int) -> dict[str, Any]:
    """Return the true gain of a simulated log, and its estimates."""
    rng = np.random.default_rng([seed, round(10 * strength), swaps, clicks == WITH_TRUST])
    log = draw_log(served, strength, clicks, swaps=swaps, count=count, rng=rng)
    explored = log if swaps else draw_log(served, strength, clicks, swaps=True, count=count, rng=rng)
    holds, (estimates,) = estimate_log(log, [0], propensities_of(explored.rows), CLIPS)
    return {"true": round(float(served.gains(strength, clicks)[0]), 6), "check": holds, "estimates": estimates}


def cells(sets: list[str]) -> Iterator[tuple[str, str, float, bool, str]]:
    """Yield the key, set, strength, whether lists are swapped, and click model; trust bias is checked with swaps."""
    for name, strength in product(sets, STRENGTHS):
        for swaps, clicks in ((True, BY_PLACE), (False, BY_PLACE), (True, WITH_TRUST)):
            key = f"{name}, strength {strength:g}, {'with' if swaps else 'without'} swaps, clicks {clicks}"
            yield key, name, strength, swaps, clicks


def jobs(
    sets: dict[str, Served], logs: int, lists: int, orders: int
) -> list[tuple[str, int, Callable[[], dict[str, Any]]]]:
    """Return the work of each log with its cell and seed, so that all cells grow alike."""
    result = []
    for cell, name, strength, swaps, clicks in cells(list(sets)):
        for seed in range(logs):
            work = partial(measure, sets[name], strength, clicks, swaps=swaps, count=lists, seed=seed)
            result.append((seed / logs, cell, seed, work))
    for name, seed in product((name for name in sets if name != "tafeng"), range(orders)):
        work = partial(bundle_order.interleaved, sets[name], seed)
        result.append((seed / orders, f"{name}, order, interleaved", seed, work))
        for count in bundle_order.COUNTS:
            work = partial(bundle_order.from_log, sets[name], count, seed)
            result.append((seed / orders, f"{name}, order, {count} lists", seed, work))
    return [job[1:] for job in sorted(result, key=itemgetter(0))]


def share(hits: int, count: int) -> list[float]:
    """Return a share with its 95 % interval (Clopper-Pearson)."""
    interval = binomtest(hits, count).proportion_ci()
    return [round(float(number), 4) for number in (hits / count, interval.low, interval.high)]


def error_of(errors: Float[np.ndarray, " logs"], base: Float[np.ndarray, " logs"]) -> dict[str, Any]:
    """Return root mean squared error, bias, and the mean squared error over that of a base, with a paired interval."""
    squares, squares_of_base = np.square(errors), np.square(base)
    ratio = float(squares.mean() / squares_of_base.mean())
    deviation = (squares - ratio * squares_of_base).std(ddof=1) / squares_of_base.mean() / math.sqrt(len(errors))
    return {
        "rmse": round(float(squares.mean() ** 0.5), 5),
        "bias": round(float(errors.mean()), 5),
        "squared_error_over_dr": [round(ratio + sign * 1.96 * float(deviation), 4) for sign in (0.0, -1.0, 1.0)],
    }


def summary(logs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return coverage and error by estimator, and how often the check fires."""
    true, count = logs[0]["true"], len(logs)
    table = {name: np.array([log["estimates"][name] for log in logs]).T for name in logs[0]["estimates"]}
    held = {name: (ends[1] <= true) & (true <= ends[2]) for name, ends in table.items() if len(ends) == 3}
    result: dict[str, Any] = {"logs": count, "true": true}
    result["covered"] = {name: share(int(hits.sum()), count) for name, hits in held.items()}
    result["errors"] = {name: error_of(ends[0] - true, table["dr"][0] - true) for name, ends in table.items()}
    if logs[0]["check"] is not None:
        alarms, misses = np.array([not log["check"] for log in logs]), ~held["dr"]
        result["check_fires"], result["misses"] = share(int(alarms.sum()), count), int(misses.sum())
        result["fires_if_missed"] = share(int(alarms[misses].sum()), int(misses.sum())) if misses.any() else None
    return result


def load_served(folder: Path, mq2008: Path | None, tafeng: Path | None) -> dict[str, Served]:
    """Return the served queries of each set, which a folder keeps."""
    names = ["planted", *(["mq2008"] if mq2008 else []), *(["tafeng"] if tafeng else [])]
    if not all((folder / f"{name}.npz").exists() for name in names):
        for name, splits in splits_of(mq2008, tafeng).items():
            served = serve(splits)
            np.savez(folder / f"{name}.npz", **{field.name: getattr(served, field.name) for field in fields(served)})
    return {name: Served(**np.load(folder / f"{name}.npz")) for name in names}


def main() -> None:
    """Run the command line; write ``benchmarks/results/estimate.json``."""
    parser = argparse.ArgumentParser(prog="python -m listwright_lab.science.estimate", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="folder for what is finished")
    parser.add_argument("--mq2008", type=Path, metavar="PATH", help="folder of MQ2008")
    parser.add_argument("--tafeng", type=Path, metavar="PATH", help="as for listwright fit tafeng --data")
    parser.add_argument("--logs", type=int, default=100, help="of each cell (default: 100)")
    parser.add_argument("--lists", type=int, default=LISTS, help=f"of a log (default: {LISTS})")
    parser.add_argument("--orders", type=int, default=20, help="logs for the order of rankers (default: 20)")
    parser.add_argument("--seconds", type=float, default=math.inf, help="time after which no log is begun")
    options = parser.parse_args()
    began, file = time.perf_counter(), options.out / "logs.jsonl"
    options.out.mkdir(parents=True, exist_ok=True)
    sets = load_served(options.out, options.mq2008, options.tafeng)
    done: dict[str, dict[int, dict[str, Any]]] = {}
    for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
        log = json.loads(line)
        done.setdefault(log.pop("cell"), {})[log.pop("seed")] = log
    for cell, seed, work in jobs(sets, options.logs, options.lists, options.orders):
        if seed not in done.get(cell, {}) and time.perf_counter() - began < options.seconds:
            done.setdefault(cell, {})[seed] = log = work()
            with file.open("a", encoding="utf-8") as to:
                to.write(json.dumps({"cell": cell, "seed": seed, **log}) + "\n")
    paths = "".join(f"--{name} PATH " for name in sets if name != "planted")
    command = f"python -m listwright_lab.science.estimate --out FOLDER {paths}--logs {options.logs}"
    finished = {key: list(done.get(key, {}).values()) for key, *_ in cells(list(sets))}
    result: dict[str, object] = {
        "lists": options.lists,
        "places": PLACES,
        "model_lists": MODEL_LISTS,
        "cells": {key: summary(logs) for key, logs in finished.items() if len(logs) > 1},
        "order": {name: bundle_order.summary(name, done) for name in sets if name != "tafeng"},
    }
    machine.save("estimate", f"{command} --lists {options.lists} --orders {options.orders}", result)
    print({key: len(logs) for key, logs in done.items()}, flush=True)


if __name__ == "__main__":
    main()
