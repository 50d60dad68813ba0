"""``python -m benchmarks.load.swaps``: a real service swaps bundles a hundred times while it is asked; does its memory
grow?

The versions are copies of one bundle under other version numbers, three in turn, so that each swap is a load. Resident
memory is read after every tenth swap; the first tens fill the allocator, so growth is counted from the middle on.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import psutil

from benchmarks.load.drain import Callers, free_port, golden_body, lost, until_ready
from listwright.ranking import bundle
from listwright.ranking.manifest import parse
from listwright.service.bundles import folder
from listwright_lab.machine import save

VERSIONS = ("1", "2", "3")
KEY = "benchmarks.load.swaps"
MAY_GROW_MB = 10.0


def fill(root: Path, source: Path) -> str:
    """Put the versions into a models folder; the bundle's name."""
    for version in VERSIONS:
        name = bundle.load(source).manifest.name
        copy = shutil.copytree(source, root / name / version)
        manifest = parse((copy / "manifest.json").read_bytes(), copy)
        files = [entry.name for entry in manifest.files]
        bundle.seal(copy, manifest.model_copy(update={"version": version}), files)
    folder.point(root, name, VERSIONS[0])
    return name


def swap(port: int) -> None:
    """Let the service look at its folder, and wait until it has swapped."""
    url = f"http://127.0.0.1:{port}/admin/reload"
    request = urllib.request.Request(url, method="POST", headers={"Authorization": f"Bearer {KEY}"})
    with urllib.request.urlopen(request, timeout=60) as response:
        response.read()


def measure(root: Path, name: str, swaps: int, body: bytes) -> dict[str, object]:
    """Swap under the traffic of two callers; resident megabytes and what was lost."""
    port = free_port()
    names = {"MODELS": root, "PORT": port, "ADMIN_KEY": KEY, "POLL_S": 0, "LOG_LEVEL": "error"}
    environment = os.environ | {f"LISTWRIGHT_{key}": str(value) for key, value in names.items()}
    process = subprocess.Popen([sys.executable, "-m", "service"], env=environment)
    try:
        until_ready(port)
        callers = Callers(port, body, 2)
        resident, seconds = [], []
        for number in range(1, swaps + 1):
            folder.point(root, name, VERSIONS[number % len(VERSIONS)])
            started = time.perf_counter()
            swap(port)
            seconds.append(time.perf_counter() - started)
            if number % 10 == 0:
                resident.append(round(psutil.Process(process.pid).memory_info().rss / 1e6, 1))
        outcomes = callers.end(0)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)
    return {
        "swaps": swaps,
        "requests": outcomes.total(),
        "outcomes": dict(outcomes),
        "median_swap_ms": round(sorted(seconds)[len(seconds) // 2] * 1000),
        "resident_mb_after_each_ten": resident,
        "grown_mb_in_the_second_half": round(resident[-1] - resident[len(resident) // 2 - 1], 1),
    }


def main() -> int:
    """Write the result; 1 if a request was lost or the memory grew."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.load.swaps", description=__doc__)
    parser.add_argument("--bundle", type=Path, default=Path("models/demo/1"))
    parser.add_argument("--swaps", type=int, default=100)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as root:
        name = fill(Path(root), options.bundle)
        result = measure(Path(root), name, options.swaps, golden_body(options.bundle))
    print(json.dumps(result, indent=1))
    print(save("swaps", "python -m benchmarks.load.swaps", result))
    grown = result["grown_mb_in_the_second_half"]
    assert isinstance(grown, float)
    return int(lost(result) > 0 or grown > MAY_GROW_MB)


if __name__ == "__main__":
    sys.exit(main())
