"""``python -m benchmarks.speed.explain``: how long an explanation takes on one core, and how precise a budget makes it.

- **Time**: each of several candidates of a list of 100 with 136 features, on the bundle of ``benchmarks.wide_bundle``;
  by part, for the network, for one specialist and for the mixture.
- **Accuracy**: contributions to the final score at several budgets, beside a reference: on the demo bundle all
  coalitions of its 12 features, on the wide one a run of :data:`LONG` evaluations. Errors are in shares of the largest
  contribution. ``claimed`` is what the standard errors say.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from unittest.mock import patch

import numpy as np
from jaxtyping import Float

from benchmarks.wide_bundle import FEATURES, LEAVES, TREES, build, check_route, rows
from listwright.ranking import bundle
from listwright.ranking.candidates import CandidateList, Ranking
from listwright.ranking.explaining import contributions
from listwright.ranking.explaining.contributions import Clock, ListExplainer
from listwright.ranking.explaining.explain import DEFAULT_BUDGET
from listwright.ranking.explaining.explanation import StageContributions
from listwright.ranking.reranker import Reranker
from listwright_lab import machine

CANDIDATES, SPECIALISTS = 100, 4
PLACES = (2, 10, 25, 50, 75, 100)
"""Places in the answer whose candidates are explained."""

GOAL_S = 2.0
BUDGETS = (600, 1000, 2000, 4000, 8000)
LONG = 60_000
SEEDS = 5
DEMO = Path(__file__).parents[2] / "models" / "demo" / "1"

WAYS: Mapping[str, dict[str, object]] = {
    "QILCM": {"strategy": "qilcm"},
    "one specialist": {"specialist": 1},
    "mixture": {"strategy": "srm"},
}


def main() -> int:
    """Run the command line; write ``benchmarks/results/explain.json``."""
    one_core()
    with tempfile.TemporaryDirectory() as name:
        wide = bundle.load(build(Path(name) / "wide" / "1", specialists=SPECIALISTS)).reranker
        listed = CandidateList(rows(np.random.default_rng(3), CANDIDATES))
        times = [timed(wide, listed, way) for way in WAYS]
        accuracy = list(precision("wide", wide, listed, exhaustive=False))
    demo = bundle.load(DEMO).reranker
    (features, *_) = golden_lists(DEMO)
    accuracy += precision("demo", demo, CandidateList(features), exhaustive=True)
    result: dict[str, object] = {
        "candidates": CANDIDATES,
        "features": FEATURES,
        "trees": TREES,
        "leaves": LEAVES,
        "specialists": SPECIALISTS,
        "places": list(PLACES),
        "default_budget": DEFAULT_BUDGET,
        "tolerance": contributions.TOLERANCE,
        "goal_s": GOAL_S,
        "times": times,
        "long": LONG,
        "seeds": SEEDS,
        "accuracy": accuracy,
    }
    print(machine.save("explain", "python -m benchmarks.speed.explain", result))
    return 0


def one_core() -> None:
    """Pin this process and its threads to one core, where the system can do so."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def golden_lists(folder: Path) -> list[Float[np.ndarray, "L D"]]:
    """Return real rows of a bundle, the longest list first."""
    lines = (folder / "golden.jsonl").read_text(encoding="utf-8").splitlines()
    lists = [np.array(json.loads(line)["features"], dtype=np.float32) for line in lines]
    return sorted(lists, key=len, reverse=True)


def timed(reranker: Reranker, listed: CandidateList, way: str) -> dict[str, object]:
    """Return the seconds of whole explanations and of their parts, over the places."""
    options = WAYS[way]
    order = check_route(reranker.rerank(listed, **options), str(options.get("strategy", "srm"))).order  # type: ignore[arg-type]
    reranker.explain(listed, int(order[0]), budget=1, **options)  # reads the trees once
    times, parts = [], dict[str, list[float]]()
    evaluations, tried, largest = [], [], []
    for place in PLACES:
        started = perf_counter()
        explanation = reranker.explain(listed, int(order[place - 1]), **options)
        times.append(perf_counter() - started)
        for part, seconds in explanation.seconds.items():
            parts.setdefault(part, []).append(seconds)
        second = explanation.second_stage
        assert second is not None
        assert explanation.passing is not None
        evaluations.append(second.evaluations)
        tried.append(explanation.passing.tried)
        largest.append(claimed(second))
    row: dict[str, object] = {
        "ranker": way,
        "median_s": round(float(np.median(times)), 3),
        "slowest_s": round(max(times), 3),
        "parts_s": {part: round(float(np.median(seconds)), 4) for part, seconds in parts.items()},
        "evaluations": int(np.median(evaluations)),
        "tried": int(np.median(tried)),
        "claimed": round(max(largest), 4),
    }
    print(json.dumps(row), flush=True)
    return row


def precision(name: str, reranker: Reranker, listed: CandidateList, *, exhaustive: bool) -> Iterator[dict[str, object]]:
    """Yield the error at each budget, over candidates and seeds."""
    ranking = reranker.rerank(listed, strategy="qilcm")
    explained = [int(ranking.order[place]) for place in (1, len(listed) // 2)]
    budget = 2 ** len(reranker.schema) if exhaustive else LONG
    with sampled(budget if exhaustive else 0):
        truth = {c: contributions_of(reranker, listed, ranking, c, budget, seed=1000)[0] for c in explained}
    for budget in BUDGETS:
        errors, claims, within, seconds = [], [], [], []
        for candidate in explained:
            largest = np.abs(truth[candidate]).max()
            for seed in range(SEEDS):
                started = perf_counter()
                with sampled(0):
                    values, error = contributions_of(reranker, listed, ranking, candidate, budget, seed=seed)
                seconds.append(perf_counter() - started)
                apart = np.abs(values - truth[candidate])
                errors.append(apart.max() / largest)
                claims.append(error.max() / largest)
                within.append((apart <= 3.0 * error + 1e-6 * largest).mean())
        row: dict[str, object] = {
            "bundle": name,
            "budget": budget,
            "error": round(float(np.median(errors)), 4),
            "largest_error": round(float(max(errors)), 4),
            "claimed": round(float(np.median(claims)), 4),
            "within_three": round(float(np.mean(within)), 4),
            "second_stage_s": round(float(np.median(seconds)), 3),
        }
        print(json.dumps(row), flush=True)
        yield row


@contextmanager
def sampled(exhaustive: int) -> Iterator[None]:
    """Spend every budget meanwhile; try all coalitions where there are no more than so many."""
    with patch.object(contributions, "TOLERANCE", -1.0), patch.object(contributions, "EXHAUSTIVE", exhaustive):
        yield


def contributions_of(
    reranker: Reranker, listed: CandidateList, ranking: Ranking, candidate: int, budget: int, *, seed: int
) -> tuple[Float[np.ndarray, " D"], Float[np.ndarray, " D"]]:
    """Return the second stage's contributions in the order of the schema, and their standard errors."""
    (stage,) = (
        ListExplainer(reranker, listed, ranking, [candidate], budget=budget, seed=seed, clock=Clock.until())
        .explain_second_stage()
        .explanations
    )
    assert stage is not None
    by_name = {c.feature: (c.contribution, c.standard_error or 0.0) for c in stage.contributions}
    values, errors = np.array([by_name[name] for name in reranker.schema.names]).T
    return values, errors


def claimed(stage: StageContributions) -> float:
    """Return the largest standard error, in shares of the largest contribution."""
    largest = max(contribution.standard_error or 0.0 for contribution in stage.contributions)
    return largest / max(abs(stage.contributions[0].contribution), 1e-12)


if __name__ == "__main__":
    sys.exit(main())
