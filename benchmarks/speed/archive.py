"""``python -m benchmarks.speed.archive``: what a served log takes to keep and to learn from: bytes and CPU seconds.

Lists of 20 candidates with 10 features, of which ten are shown, come over ten days. Four in five lists have two
neighbours swapped, and people click by a position-based model. The product's encoder writes the log. Its commands join
the log with the events, estimate propensities, estimate one bundle of LightGBM and three, and score one, all from
Parquet by day. Each command is a process. Its seconds are those of the CPU, as the machine may have other work.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from jaxtyping import Float, Int

from listwright.ranking.served_log.files import write
from listwright.ranking.served_log.record import Intervention, ServedRecord
from listwright_lab import machine
from listwright_lab.synthetic_traffic import clicked, examination

LISTS = (10_000, 100_000, 1_000_000)
CANDIDATES, FEATURES, PLACES, DAYS = 20, 10, 10, 10
SWAP_SHARE = 0.8
UNIT_LISTS = 2
"""Lists of a unit, about."""

FILE_LISTS = 10_000
JUDGED = 500
"""Judged lists that the bundle is fitted on."""

BEGAN = datetime(2026, 5, 1, tzinfo=UTC)
NAMES = tuple(f"feature_{d + 1}" for d in range(FEATURES))
MODELS = ("models/shop-next/1", "models/shop-next/2", "models/shop-next/3")

ARCHIVE = """
import polars as pl

day = pl.col("served_at").dt.date().alias("day")
parts = pl.PartitionBy("archive", key=day, include_key=False)
pl.scan_parquet("rows.parquet").sink_parquet(parts, metadata=pl.read_parquet_metadata("rows.parquet"), mkdir=True)
"""

FIT = "fit --data judged.parquet --qid query --label label --model first_stage --quick --seed {seed} --out {model}"
JOIN = "join --served served --events events --labels labels.toml --unshown --out rows.parquet"
ESTIMATE = "estimate {models} --data archive --propensities propensities.json --json {out}.json"
SCORE = f"score {MODELS[0]} --data archive --qid query_id --columns position --out scored.parquet"

STEPS = {
    "join": ("-m", "listwright", *JOIN.split()),
    "archive": ("-c", ARCHIVE),
    "propensity": ("-m", "listwright", "propensity", "archive", "--out", "propensities.json"),
    "estimate": ("-m", "listwright", *ESTIMATE.format(models=MODELS[0], out="estimate").split()),
    "estimate of three": ("-m", "listwright", *ESTIMATE.format(models=" ".join(MODELS), out="three").split()),
    "score": ("-m", "listwright", *SCORE.split()),
}
"""Arguments of Python by step."""


class ShopLists(NamedTuple):
    """Some lists of the shop.

    Args:
        features: ``(N, 20, D)`` features.
        attraction: ``(N, 20)`` probability of a click on a candidate that is looked at.
        scores: ``(N, 20)`` scores of the served ranker, which knows one feature.
    """

    features: Float[np.ndarray, "N L D"]
    attraction: Float[np.ndarray, "N L"]
    scores: Float[np.ndarray, "N L"]


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; write ``benchmarks/results/archive.json``."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed.archive", description="A served log, kept.")
    parser.add_argument("--lists", type=int, nargs="+", default=LISTS, metavar="N", help="numbers of lists of the logs")
    parser.add_argument("--folder", type=Path, metavar="DIR", help="for the logs (default: a temporary one)")
    options = parser.parse_args(arguments)
    table = []
    for lists in options.lists:
        with tempfile.TemporaryDirectory(dir=options.folder) as name:
            table.append(_measured(Path(name), lists))
        print(json.dumps(table[-1]), file=sys.stderr)
    result = {"candidates": CANDIDATES, "features": FEATURES, "shown": PLACES, "days": DAYS, "swap_share": SWAP_SHARE}
    print(machine.save("archive", "python -m benchmarks.speed.archive", {**result, "table": table}))
    return 0


def _measured(folder: Path, lists: int) -> dict[str, Any]:
    """Write a log and its events, and measure what is made of them."""
    for part in ("served", "events"):
        (folder / part).mkdir()
    (folder / "labels.toml").write_text("[labels]\nclick = 1\n")
    _judged(JUDGED).write_parquet(folder / "judged.parquet")
    for seed, model in enumerate(MODELS):
        _run(folder, ("-m", "listwright", *FIT.format(seed=seed, model=model).split()))
    files = range(0, lists, FILE_LISTS)
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:  # a child begins with its parent's peak
        clicks = sum(pool.map(partial(_write_file, folder, lists), files))
    seconds, peaks = {}, {}
    for name, arguments in STEPS.items():
        seconds[name], peaks[name] = _run(folder, arguments)
    estimated = json.loads((folder / "estimate.json").read_text())
    return {
        "lists": lists,
        "clicks": clicks,
        "bytes": {
            "served log": _size(folder / "served"),
            "served log, gzipped": sum(len(gzip.compress(path.read_bytes())) for path in (folder / "served").iterdir()),
            "events": _size(folder / "events"),
            "archive": _size(folder / "archive"),
        },
        "cpu seconds": seconds,
        "peak rss mib of one process": peaks,
        "change": estimated["bundles"][0]["estimates"]["dr"],
    }


def _run(folder: Path, arguments: Sequence[str]) -> tuple[float, int]:
    """Run Python; return the CPU seconds of all its processes, and the largest resident set of one, in MiB."""
    process = subprocess.Popen(
        [sys.executable, *arguments], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(arguments)} failed:\n{output}")
    return round(usage.ru_utime + usage.ru_stime, 1), round(usage.ru_maxrss / 1024)


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _shop_lists(count: int, rng: np.random.Generator) -> ShopLists:
    shape = (count, CANDIDATES)
    counts, ratios, wide = rng.poisson(4.0, (*shape, 3)), rng.random((*shape, 3)), rng.lognormal(3.0, 2.0, (*shape, 4))
    features = np.round(np.concatenate([counts, ratios, wide], axis=2), 6).astype(np.float32)
    liking = features[..., 0] / 2.0 + 3.0 * features[..., 3] - 4.5  # a count and a ratio
    scores = features[..., 0] + rng.random(liking.shape)
    return ShopLists(features, 1.0 / (1.0 + np.exp(-liking)), scores)


def _judged(count: int) -> pl.DataFrame:
    rng = np.random.default_rng([0, 1])
    lists = _shop_lists(count, rng)
    columns = dict(zip(NAMES, lists.features.reshape(-1, FEATURES).T, strict=True))
    labels = (rng.random(lists.attraction.shape) < lists.attraction).astype(np.int32).ravel()
    return pl.DataFrame({"query": np.repeat(np.arange(count), CANDIDATES), "label": labels, **columns})


def _write_file(folder: Path, lists: int, first: int) -> int:
    """Write the records of a file, and events of the clicks on their lists; return the number of clicks."""
    count, gap = min(FILE_LISTS, lists - first), timedelta(days=DAYS) / lists
    rng = np.random.default_rng([first, 2])
    shop = _shop_lists(count, rng)
    order = np.argsort(-shop.scores, axis=1)[:, :PLACES]
    upper = np.where(rng.random(count) < SWAP_SHARE, rng.integers(0, PLACES - 1, count), -1)
    swapped = np.flatnonzero(upper >= 0)
    pairs = np.stack([upper[swapped], upper[swapped] + 1], axis=1)
    order[swapped[:, None], pairs] = order[swapped[:, None], pairs[:, ::-1]]
    attraction = np.take_along_axis(shop.attraction, order, axis=1)
    clicks = clicked(attraction, np.broadcast_to(examination(PLACES, 0.7), attraction.shape), rng)
    units = rng.integers(0, max(1, lists // UNIT_LISTS), count)
    write(folder / "served" / f"{first:07}.avro", _records(shop, order, upper, units, first, gap))
    lines = [
        json.dumps(
            {
                "event_id": f"e-{first + n}-{place}",
                "query_id": f"q-{first + n}",
                "action_name": "click",
                "client_id": f"c-{units[n]}",
                "timestamp": (BEGAN + (first + n) * gap + timedelta(seconds=int(place) + 1)).isoformat(),
                "event_attributes": {"object": {"object_id": _candidate(first + n, order[n, place])}},
            }
        )
        for n, place in zip(*np.nonzero(clicks), strict=True)
    ]
    (folder / "events" / f"{first:07}.jsonl").write_text("\n".join(lines) + "\n")
    return len(lines)


def _records(
    shop: ShopLists,
    order: Int[np.ndarray, "N shown"],
    upper: Int[np.ndarray, " N"],
    units: Int[np.ndarray, " N"],
    first: int,
    gap: timedelta,
) -> Iterator[ServedRecord]:
    for n, (features, scores) in enumerate(zip(shop.features, shop.scores, strict=True)):
        places = (int(upper[n]), int(upper[n]) + 1)
        yield ServedRecord(
            query_id=f"q-{first + n}",
            served_at=BEGAN + (first + n) * gap,
            unit=f"u-{units[n]}",
            bundle="shop/7",
            fingerprint="sha256:0",
            candidate_ids=tuple(_candidate(first + n, index) for index in range(CANDIDATES)),
            features=features,
            first_stage_scores=scores,
            scores=scores,
            order=order[n],
            strategy="first_stage",
            feature_names=NAMES,
            request_id=f"r-{first + n}",
            top_n=PLACES,
            experiment="places",
            intervention=Intervention("swap", places, SWAP_SHARE / (PLACES - 1)) if upper[n] >= 0 else None,
            timings_ms={"total": 2.0},
        )


def _candidate(query: int, index: int) -> str:
    """Return the id of a candidate, of a hundred thousand that come again."""
    return f"sku-{(query * 7919 + int(index) * 104729) % 99_991}"


if __name__ == "__main__":
    sys.exit(main())
