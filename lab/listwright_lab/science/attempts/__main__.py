"""``python -m listwright_lab.science.attempts --data FOLDER``: every attempt on every set, resumable."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch

from listwright_lab import machine
from listwright_lab.science.attempts import figures
from listwright_lab.science.attempts.problem import LARGE, PLANTED, PLANTED_QUERIES, REAL, Problem
from listwright_lab.science.attempts.registry import ATTEMPTS, measure

FOLDS = 5


def main() -> int:
    """Run the command line; write ``benchmarks/results/attempts.json`` and the tables of ``docs/attempts.md``."""
    parser = argparse.ArgumentParser(prog="python -m listwright_lab.science.attempts", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, metavar="FOLDER", help=f"with {', '.join(REAL)} in it")
    parser.add_argument("--sets", default=",".join((*REAL, *PLANTED)), metavar="A,B")
    parser.add_argument("--seeds", type=int, default=5, metavar="N", help="seeds 0 to N - 1 (default: 5)")
    parser.add_argument("--attempts", default=",".join(ATTEMPTS), metavar="A,B", help="(default: all)")
    parser.add_argument("--screen", type=int, default=1, metavar="N", help="seeds of screened attempts (default: 1)")
    parser.add_argument("--work", type=Path, default=Path("experiments/attempts"), metavar="DIR")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--tables", action="store_true", help="only make figures and tables of what is kept")
    how.add_argument("--no-tables", action="store_true", help="only measure and keep")
    options = parser.parse_args()
    sets, names = options.sets.split(","), options.attempts.split(",")
    if unknown := [name for name in names if name not in ATTEMPTS] + [
        name for name in sets if name not in REAL + PLANTED
    ]:
        parser.error(f"{', '.join(unknown)}: expected {', '.join(ATTEMPTS)}; sets are {', '.join(REAL + PLANTED)}")
    torch.set_num_threads(1)
    if not options.tables:
        for seed in range(options.seeds):
            for name in sets:
                for fold in (1,) if name in PLANTED + LARGE else range(1, FOLDS + 1):
                    _measure(Problem(name, fold, seed, options.data, options.work), names, options.screen)
    if options.no_tables:
        return 0
    result = {
        "interval": "95 % percentile bootstrap over queries; the seeds of a query are drawn together; gains are paired",
        "planted_queries": PLANTED_QUERIES,
        "sets": [figures.of_set(options.work, name) for name in (*REAL, *PLANTED) if (options.work / name).exists()],
    }
    command = (
        f"python -m listwright_lab.science.attempts --data FOLDER --seeds {options.seeds} --screen {options.screen}"
    )
    print(machine.save("attempts", command, result))
    print(figures.write_page(result))
    return 0


def _measure(problem: Problem, names: list[str], screened_seeds: int) -> None:
    for name in names:
        if not ATTEMPTS[name].screened or problem.seed < screened_seeds:
            measure(problem, name)
    print(problem.folder.relative_to(problem.work), "done", flush=True)


if __name__ == "__main__":
    sys.exit(main())
