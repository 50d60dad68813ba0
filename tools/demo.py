"""Show a bundle at work: start the service, rerank one real held-out query over HTTP, stop cleanly.

usage: python tools/demo.py BUNDLE      (a bundle of the demo recipe; `make demo` fits one)
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from listwright.ranking import bundle
from listwright.ranking.errors import ListwrightError
from listwright.ranking.features import FeatureSchema
from listwright.training.data.dataset import Dataset
from listwright.training.pipeline.steps import load
from listwright.training.recipe.config import Recipe

READY_WITHIN_S = 30.0
_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a proxy has no business on this machine
PLACES = 12


def main() -> int:
    """Run the demonstration; return 0 if the service answered and stopped cleanly."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path, metavar="BUNDLE")
    options = parser.parse_args()
    folder = options.bundle
    console = Console(highlight=False)
    try:
        manifest = bundle.load(folder).manifest
        report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
        test = load(Recipe.model_validate(manifest.recipe), []).test
    except ListwrightError as error:
        console.print(f"error: {error}", markup=False)
        return 1
    features, labels = _query(test)
    address = f"http://127.0.0.1:{_free_port()}"
    environment = {**os.environ, "LISTWRIGHT_BUNDLE": str(folder), "LISTWRIGHT_PORT": address.rpartition(":")[2]}
    started = time.perf_counter()
    service = subprocess.Popen([sys.executable, "-m", "service"], env=environment, stderr=subprocess.DEVNULL)
    try:
        _wait_until_ready(address, service)
        console.print(f"service ready in {time.perf_counter() - started:.1f} s at {address}")
        body = _body(features, manifest.feature_schema)
        answer = _post(address + "/rerank", body)
        _show(answer, labels, body, report["rankers"], console)
    finally:
        service.send_signal(signal.SIGTERM)
        code = service.wait(timeout=20)
    _show_metrics(report, manifest.strategy, console)
    console.print(f"service stopped (exit {code})")
    return code


def _query(test: Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Return the first held-out query whose length fits a screen and that has a good candidate."""
    for features, labels in test.lists():
        if PLACES - 2 <= len(labels) <= PLACES and labels.max() > 1:
            return features, labels
    return next(iter(test.lists()))


def _body(features: np.ndarray, schema: FeatureSchema) -> dict[str, Any]:
    candidates = []
    for position, row in enumerate(features):
        values: dict[str, float | str | None] = {}
        for feature, value in zip(schema.features, row, strict=True):
            if feature.kind == "categorical":
                values[feature.name] = feature.categories[int(value) - 1] if value else None
            else:
                values[feature.name] = None if np.isnan(value) else round(float(value), 6)
        candidates.append({"id": f"offer-{position + 1}", "features": values})
    return {"id": "demo-query", "candidates": candidates}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_until_ready(address: str, service: subprocess.Popen[bytes]) -> None:
    deadline = time.perf_counter() + READY_WITHIN_S
    while time.perf_counter() < deadline:
        if service.poll() is not None:
            raise SystemExit(f"the service stopped with exit code {service.returncode}; run `make serve` to see why")
        try:
            with _direct.open(address + "/readyz", timeout=1):
                return
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.05)
    raise SystemExit(f"the service was not ready within {READY_WITHIN_S:.0f} s")


def _post(url: str, body: dict[str, Any]) -> dict[str, Any]:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with _direct.open(request, timeout=10) as response:
        answer: dict[str, Any] = json.load(response)
        return answer


def _show(
    answer: dict[str, Any], labels: np.ndarray, body: dict[str, Any], names: dict[str, str], console: Console
) -> None:
    first = dict(list(body["candidates"][0]["features"].items())[:3])
    console.print(f"\nPOST /rerank with {len(labels)} candidates, e.g. {json.dumps(first)[:-1]}, …}}", markup=False)
    strategy = answer["route"]["strategy"]
    place = "index" if strategy == "first_stage" else "first_stage_rank"
    before = sorted(answer["results"], key=lambda result: result[place])
    heading = "before (as sent)" if strategy == "first_stage" else f"before ({names['first_stage']})"
    table = Table(box=box.SIMPLE_HEAD)
    for name in ("rank", heading, "score", "label", f"after ({names[strategy]})", "relevance", "label"):
        table.add_column(name, justify="left" if name.startswith(("before", "after")) else "right")
    for first, second in zip(before, answer["results"], strict=True):
        table.add_row(
            str(second["rank"]),
            first["id"],
            f"{first['first_stage_score']:+.2f}",
            _stars(labels[first["index"]]),
            second["id"],
            f"{second['relevance_score']:.4f}",
            _stars(labels[second["index"]]),
        )
    console.print(table)
    console.print(f"route   {json.dumps(answer['route'])}", markup=False)
    console.print(f"timings {json.dumps(answer['meta']['timings_ms'])} ms", markup=False)


def _stars(label: int) -> str:
    return "*" * int(label) or "-"


def _show_metrics(report: dict[str, Any], strategy: str, console: Console) -> None:
    console.print("\nHeld-out NDCG@10, mean [95 % interval]:")
    for metric in report["metrics"]:
        if metric["name"] == "ndcg@10":
            mean, interval = metric["mean"], f"[{metric['low']:.4f}, {metric['high']:.4f}]"
            served = "  <- auto" if metric["ranker"] == strategy else ""
            line = f"  {report['rankers'][metric['ranker']]:<20} {mean:.4f} {interval}, {metric['n']} queries{served}"
            console.print(line, markup=False)
    console.print(f"  protocol: {report['protocol']}", markup=False)


if __name__ == "__main__":
    sys.exit(main())
