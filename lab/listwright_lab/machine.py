"""Facts about the machine and the libraries, saved with every measured figure."""

from __future__ import annotations

import json
import os
import platform
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_AROUND = Path(__file__).resolve().parents[2]
CHECKOUT = _AROUND if (_AROUND / "benchmarks").is_dir() else Path()
"""Root of the checkout; the current folder where the laboratory is installed elsewhere."""

RESULTS = CHECKOUT / "benchmarks" / "results"

_WORK = b"".join(sha256(str(n).encode()).hexdigest().encode() for n in range(500))

_LIBRARIES = ("lightgbm", "numpy", "onnxruntime", "torch", "fastapi", "uvicorn", "pydantic", "scikit-learn")


def facts() -> dict[str, object]:
    """Return CPU, memory, Python and library versions."""
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "omp_num_threads": os.environ.get("OMP_NUM_THREADS"),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "python": platform.python_version(),
        "system": platform.system(),
        "libraries": {name: _version(name) for name in _LIBRARIES},
    }


def _version(name: str) -> str | None:
    """Return the version of a package; None if it is not installed: a machine for training needs no service."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def speed(seconds: float = 0.4) -> float:
    """Measure how many rounds of a fixed piece of work all cores do per second, which varies on a shared machine."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    until = time.perf_counter() + seconds
    with ThreadPoolExecutor(cores) as threads:  # zlib lets go of the interpreter's lock
        return sum(threads.map(_rounds, [until] * cores)) / seconds


def _rounds(until: float) -> int:
    done = 0
    while time.perf_counter() < until:
        zlib.compress(_WORK, 6)
        done += 1
    return done


def _cpu_model() -> str:
    for line in (
        Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines() if Path("/proc/cpuinfo").exists() else []
    ):
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


def save(name: str, command: str, result: dict[str, object], *, folder: Path = RESULTS) -> Path:
    """Write ``FOLDER/NAME.json`` with the command that makes it and the machine that made it."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    path.write_text(json.dumps({"command": command, "machine": facts(), **result}, indent=1) + "\n", encoding="utf-8")
    return path
