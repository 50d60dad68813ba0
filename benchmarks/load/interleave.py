"""``python -m benchmarks.load.interleave``: what an interleaved list costs beside the sum of its two rankers.

One service has two bundles of the same size. Lists of 100 candidates with 136 features are asked three ways in turn: of
control and of the challenger by version, which no experiment touches, and interleaved. A list's cost is what
``Server-Timing`` has from the end of parsing and waiting to the ranking. The ratio is of medians.
"""

from __future__ import annotations

import argparse
import http.client
import json
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks.load.service import service
from benchmarks.speed.floor import formats
from benchmarks.wide_bundle import RANKER, build, rows
from listwright.ranking import bundle
from listwright.service.bundles import folder as models_folder
from listwright_lab import machine

CANDIDATES = 100
ROUNDS, QUICK_ROUNDS = 1500, 50

MOST = 1.15
"""Target: largest cost of an interleaved list, as a multiple of the sum of both rankers' costs."""

FILE = '[[experiment]]\nname = "next"\nkind = "interleave"\ncontrol = "wide"\nchallenger = "rival"\n'
WAYS = ("control", "challenger", "interleaved")


@contextmanager
def connect(folder: Path) -> Iterator[tuple[http.client.HTTPConnection, dict[str, bytes]]]:
    """Start a service; yield a connection to it, and the body of each way."""
    models = folder / "models"
    for name in ("wide", "rival"):
        build(models / name / "1")
        models_folder.point(models, name, "1")
    (folder / "experiments.toml").write_text(FILE, encoding="utf-8")
    features = rows(np.random.default_rng(3), CANDIDATES)
    body, _ = formats(bundle.load(models / "wide" / "1").reranker, features)["columnar JSON"]
    plain = json.loads(body)
    bodies = {
        "control": plain | {"model": "wide", "version": "1"},
        "challenger": plain | {"model": "rival", "version": "1"},
        "interleaved": plain | {"model": "wide"},
    }
    file = folder / "experiments.toml"
    with service(models / "wide" / "1", ranker=RANKER, models=models, experiments=file) as (_, connection, _):
        yield connection, {way: json.dumps(value).encode() for way, value in bodies.items()}


def cost(connection: http.client.HTTPConnection, body: bytes, way: str) -> float:
    """Return the milliseconds of one list.

    Raises:
        SystemExit: if it was not answered in this way.
    """
    connection.request("POST", "/rerank", body, {"Content-Type": "application/json"})
    response = connection.getresponse()
    answer = json.loads(response.read())
    if response.status != http.HTTPStatus.OK:
        raise SystemExit(f"answered {response.status}: {answer}")
    arm = (answer["meta"].get("experiment") or {}).get("kind")
    if (arm == "interleave") != (way == "interleaved"):
        raise SystemExit(f"{way}: answered with {answer['meta']}")
    steps = {name: float(ms) for name, ms in re.findall(r"(\w+);dur=([\d.]+)", response.headers["Server-Timing"])}
    return steps["total"] - steps["parse"] - steps["queue"]


def main() -> int:
    """Run the command line; write ``benchmarks/results/interleave.json``; return 1 if the target is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.load.interleave", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="seconds that show that it runs; writes no result")
    quick = parser.parse_args().quick
    costs: dict[str, list[float]] = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory() as name, connect(Path(name)) as (connection, bodies):
        for number in range(QUICK_ROUNDS if quick else ROUNDS):
            for way in np.roll(WAYS, number):
                costs[way].append(cost(connection, bodies[way], way))
    medians = {way: median(times[len(times) // 10 :]) for way, times in costs.items()}
    ratio = medians["interleaved"] / (medians["control"] + medians["challenger"])
    result: dict[str, object] = {
        "candidates": CANDIDATES,
        "rounds": len(costs["control"]),
        "median_ms": {way: round(value, 4) for way, value in medians.items()},
        "ratio": round(ratio, 3),
        "target": MOST,
    }
    print(json.dumps(result, indent=1))
    if quick:
        return 0
    print(machine.save("interleave", "python -m benchmarks.load.interleave", result))
    return int(ratio > MOST)


if __name__ == "__main__":
    raise SystemExit(main())
