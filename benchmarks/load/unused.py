"""``python -m benchmarks.load.unused --before COMMIT``: what code that is not used costs a service.

Two trees stand side by side: a commit, which is checked out into a temporary folder, and this one. The service of each
starts in turns with the same bundle and default settings. Figures are medians of the differences within the pairs:
seconds until ``/readyz`` answers 200, memory that is resident then, and modules that are loaded.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from benchmarks.load.service import service
from listwright_lab import machine

PAIRS = 12
ROOT = Path(__file__).parents[2]

COUNT = "import sys, listwright.service.app; print(len(sys.modules))"


@contextmanager
def tree_of(commit: str) -> Iterator[Path]:
    """Yield the files of a commit, with compiled modules of this tree where their sources are the same."""
    with tempfile.TemporaryDirectory() as name:
        tree = Path(name) / "before"
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", tree, commit], cwd=ROOT, check=True)
        try:
            for built in (*ROOT.glob("ranking/compiled/*.so"), *ROOT.glob("service/wire/*.so")):
                source = built.with_name(built.name.partition(".")[0] + ".pyx").relative_to(ROOT)
                if (tree / source).exists() and (tree / source).read_bytes() == (ROOT / source).read_bytes():
                    shutil.copy(built, tree / source.parent)
            yield tree
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", tree], cwd=ROOT, check=True)


def started(tree: Path, bundle: Path) -> tuple[float, float]:
    """Start a fresh service; return the seconds until it is ready, and its MB."""
    with service(bundle, cwd=tree) as (process, _, ready_s):
        return ready_s, process.memory_info().rss / 1e6


def modules(tree: Path) -> int:
    """Count the modules that the service's app loads."""
    done = subprocess.run([sys.executable, "-c", COUNT], cwd=tree, check=True, capture_output=True, text=True)
    return int(done.stdout)


def main() -> int:
    """Run the command line; write ``benchmarks/results/unused.json``."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.load.unused",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--before", required=True, metavar="COMMIT", help="without the code in question")
    parser.add_argument("--bundle", type=Path, default=Path("models/demo/1"), help="what is served (models/demo/1)")
    parser.add_argument("--pairs", type=int, default=PAIRS, help=f"of starts ({PAIRS})")
    options = parser.parse_args()
    bundle = options.bundle.resolve()
    with tree_of(options.before) as before:
        trees = {"before": before, "now": ROOT}
        start_ups: dict[str, list[tuple[float, float]]] = {name: [] for name in trees}
        for tree in trees.values():
            started(tree, bundle)  # once, so that all files are in memory
        for pair in range(options.pairs):
            for name in sorted(trees, reverse=pair % 2 == 1):
                start_ups[name].append(started(trees[name], bundle))
        imported = {name: modules(tree) for name, tree in trees.items()}
    pairs = {name: np.array(values) for name, values in start_ups.items()}
    more = pairs["now"] - pairs["before"]
    low, high = np.percentile(more, (25, 75), axis=0)
    result: dict[str, object] = {
        "before": options.before,
        "pairs": options.pairs,
        "ready_s": {name: round(float(np.median(values[:, 0])), 3) for name, values in pairs.items()},
        "resident_mb": {name: round(float(np.median(values[:, 1])), 1) for name, values in pairs.items()},
        "modules": imported,
        "more_s": round(float(np.median(more[:, 0])), 4),
        "more_s_quartiles": [round(float(low[0]), 4), round(float(high[0]), 4)],
        "more_mb": round(float(np.median(more[:, 1])), 2),
        "more_mb_quartiles": [round(float(low[1]), 2), round(float(high[1]), 2)],
    }
    for name, value in result.items():
        print(f"{name}: {value}")
    print(
        machine.save(
            "unused", f"python -m benchmarks.load.unused --before {options.before} --pairs {options.pairs}", result
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
