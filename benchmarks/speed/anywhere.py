"""``python -m benchmarks.speed.anywhere``: an exported file in ONNX Runtime, beside its bundle in the same process.

Two bundles, each with trees alone and with QILCM: the demo, and one of the size that people serve. The same lists of
10, 100 and 1000 candidates are ranked in turns, on one thread: by ``Reranker.rerank``, as the service does after
reading a request; by the file; and, for trees, by LightGBM's own ``predict`` alone, on columns that are there already.
Times are CPU time, which other processes lengthen less. A ratio is the median over turns, with quartiles. Peak memory
is that of a process that loads one of them and ranks a list.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from benchmarks.wide_bundle import build
from listwright.ranking import bundle
from listwright.ranking.bundle import Bundle
from listwright.ranking.candidates import CandidateList
from listwright.ranking.first_stage import LightGbmFirstStage
from listwright.ranking.plain_file import to_text
from listwright.ranking.ranker_file import RankerFile
from listwright.training.export.ranker_file import write_ranker
from listwright_lab import machine

DEMO = machine.CHECKOUT / "models" / "demo" / "1"
RANKERS = ("first_stage", "qilcm")
TURNS = {10: 60, 100: 40, 1000: 20}
"""Turns at each list length."""

LISTS = 10
"""Lists that each way ranks in a turn."""

_PEAK = "print(next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')))"
_PROCESSES = {
    "NumPy": "import numpy",
    "file": """import sys
import numpy as np
import onnxruntime
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
session = onnxruntime.InferenceSession(sys.argv[1], options)
session.run(None, {
    entry.name: np.zeros((100, entry.shape[1]), np.float32)
    if entry.name != "categories" else np.full((100, entry.shape[1]), "", object)
    for entry in session.get_inputs()
})""",
    "bundle": """import sys
from pathlib import Path
import numpy as np
from listwright.ranking import bundle
from listwright.ranking.candidates import CandidateList
reranker = bundle.load(Path(sys.argv[1])).reranker
reranker.rerank(CandidateList(np.zeros((100, len(reranker.schema)))), strategy=sys.argv[2], routing=False)""",
}
"""Programs whose peak memory is measured."""

Way = Callable[[int], Any]
"""Ranks the list of a number."""


def main() -> int:
    """Run the command line; write ``benchmarks/results/anywhere.json``."""
    argparse.ArgumentParser(prog="python -m benchmarks.speed.anywhere", description=__doc__).parse_args()
    table, sizes = [], []
    with tempfile.TemporaryDirectory() as folder:
        for name, path in (("demo", DEMO), ("wide", build(Path(folder) / "wide" / "1"))):
            whole = bundle.load(path)
            for strategy in RANKERS:
                out = Path(folder) / f"{name}-{strategy}.onnx"
                file = write_ranker(whole, out, strategy=strategy)
                for length in TURNS:
                    row = {"bundle": name, "ranker": strategy, "candidates": length}
                    table.append(row | _row(whole, file, strategy, length))
                    print(json.dumps(table[-1]), flush=True)
                sizes.append(
                    {
                        "bundle": name,
                        "ranker": strategy,
                        "file_mb": _megabytes(out.stat().st_size),
                        "bundle_mb": _megabytes(sum(part.stat().st_size for part in path.iterdir())),
                        "peak_mb": {
                            process: _peak_mb(code, out if process == "file" else path, strategy)
                            for process, code in _PROCESSES.items()
                        },
                    }
                )
                print(json.dumps(sizes[-1]), flush=True)
    print(
        machine.save(
            "anywhere", "python -m benchmarks.speed.anywhere", {"lists": LISTS, "table": table, "sizes": sizes}
        )
    )
    return 0


def _row(whole: Bundle, file: RankerFile, strategy: str, length: int) -> dict[str, object]:
    lists = _lists(file, length)
    candidates = [CandidateList(rows) for rows in lists]
    rankings = [whole.reranker.rerank(each, strategy=strategy, routing=False) for each in candidates]
    answers = [file.rank(rows) for rows in lists]
    ways: dict[str, Way] = {
        "bundle": lambda n: whole.reranker.rerank(candidates[n], strategy=strategy, routing=False),
        "file": _runs(file, lists),
    }
    if strategy == "first_stage":
        ways["LightGBM"] = _trees(whole, candidates)
    ms = _turns(ways, TURNS[length])
    base = ms["bundle"]
    return {
        "equal_orders": all(
            np.array_equal(ranking.order, answer.order) for ranking, answer in zip(rankings, answers, strict=True)
        ),
        "cpu_ms": {name: round(float(np.median(values)), 4) for name, values in ms.items()},
        "times_of_bundle": {
            name: [round(float(q), 2) for q in np.percentile(values / base, (50, 25, 75))]
            for name, values in ms.items()
            if name != "bundle"
        },
    }


def _lists(file: RankerFile, length: int) -> list[np.ndarray]:
    """Return lists of the golden candidates, each with some noise on its numbers."""
    rng = np.random.default_rng(0)
    rows = np.concatenate([np.array(golden.features, dtype=np.float64) for golden in file.facts.golden_lists])
    numeric = list(file.facts.feature_schema.numeric)
    lists = []
    for _ in range(LISTS):
        candidates = rows[rng.integers(len(rows), size=length)]
        candidates[:, numeric] += 0.1 * rng.normal(size=(length, len(numeric)))
        lists.append(candidates)
    return lists


def _runs(file: RankerFile, lists: list[np.ndarray]) -> Way:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(file.path), options, providers=["CPUExecutionProvider"])
    inputs = [file.inputs(rows) for rows in lists]
    return lambda n: session.run(["scores", "order"], inputs[n])


def _trees(whole: Bundle, candidates: list[CandidateList]) -> Way:
    relative = whole.reranker.relative
    model = to_text((whole.path / "first_stage.txt").read_bytes())
    stage = LightGbmFirstStage(model, whole.reranker.schema if relative is None else relative.schema)
    columns = [each.features if relative is None else relative.widened(each.features) for each in candidates]
    return lambda n: stage.score(columns[n])


def _turns(ways: dict[str, Way], turns: int) -> dict[str, np.ndarray]:
    """Return the mean CPU milliseconds of a list in each turn, by way."""
    ms: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(-2, turns):  # the first two warm up
        first = number % len(ways)
        for name in [*ways][first:] + [*ways][:first]:
            began = time.thread_time()
            for n in range(LISTS):
                ways[name](n)
            if number >= 0:
                ms[name].append((time.thread_time() - began) / LISTS * 1e3)
    return {name: np.array(values) for name, values in ms.items()}


def _peak_mb(code: str, path: Path, strategy: str) -> float:
    command = [sys.executable, "-c", f"{code}\n{_PEAK}", str(path), strategy]
    return _megabytes(int(subprocess.run(command, check=True, capture_output=True, text=True).stdout) * 1024)


def _megabytes(size: int) -> float:
    return round(size / 1e6, 2)


if __name__ == "__main__":
    sys.exit(main())
