"""``python -m benchmarks.speed.goals``: what probabilities and a second goal cost, in CPU time.

Two bundles of 100 candidates' lists: the demo's, and one of 136 features with 500 trees of 63 leaves. Each gets a
pointwise model as large as a fit makes it, and a second goal whose forest is as large as the first stage. ``rerank()``
and a service are asked the same lists, in turns of one request for each list. CPU time is that of the thread that
answers. A ratio is the median of ratios of turns that follow each other.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np

from benchmarks.load.service import bodies, service
from benchmarks.speed.rules import turn_ms
from benchmarks.wide_bundle import build, rows
from listwright.ranking import bundle
from listwright.ranking.bundle import Bundle
from listwright.ranking.candidates import CandidateList, lightgbm_input
from listwright.ranking.features import FeatureSchema
from listwright.ranking.manifest import FORMAT_VERSION
from listwright.ranking.stages import MANIFEST, GoalsStage, GoalStage, LightGbmStage, ProbabilityStage
from listwright.training.first_stage.pointwise import MOST_TREES, SETTINGS
from listwright_lab import machine

LENGTH, LISTS, TURNS, STARTS = 100, 20, 30, 3
DEMO = Path("models/demo/1")
WAYS: dict[str, dict[str, Any]] = {
    "one goal": {},
    "probabilities": {"probabilities": True},
    "two goals": {"weights": {"second": 1}},
    "both": {"probabilities": True, "weights": {"second": 1}},
}


def main() -> int:
    """Run the command line; write ``benchmarks/results/serving_goals.json``."""
    argparse.ArgumentParser(prog="python -m benchmarks.speed.goals", description=__doc__).parse_args()
    table = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wide = _extended(build(folder / "plain" / "wide" / "1"), folder / "wide" / "1")
        for served, strategy in (
            (_extended(DEMO, folder / "demo" / "1"), "first_stage"),
            (wide, "first_stage"),
            (wide, "qilcm"),
        ):
            loaded = bundle.load(served)
            lists = _lists(loaded)
            for what, ms in (("rerank()", _library(loaded, lists, strategy)), ("HTTP", _http(loaded, lists, strategy))):
                facts = {"bundle": loaded.manifest.name, "strategy": strategy, "what": what}
                table += [facts | _row(way, ms) for way in WAYS]
    for row in table:
        print(json.dumps(row))
    print(machine.save("serving_goals", "python -m benchmarks.speed.goals", {"candidates": LENGTH, "table": table}))
    return 0


def _extended(plain: Path, out: Path) -> Path:
    """Publish the bundle with probabilities, and a second goal that counts only where a request says so."""
    folder = out.parent / "unsealed"
    shutil.copytree(plain, folder)
    (folder / MANIFEST).unlink()
    manifest = bundle.read_manifest(plain)
    first, schema, strategies = manifest.first_stage, manifest.feature_schema, manifest.strategies
    assert isinstance(first, LightGbmStage)
    probability = ProbabilityStage(
        slope=1.0, intercept=0.0, temperatures=dict.fromkeys(strategies, 1.0), lists=1, mean=0.5
    )
    second = GoalStage(name="second", file="second.txt", spread=1.0, weight=0.0)
    goals = GoalsStage(label="first", spreads=dict.fromkeys(strategies, 1.0), others=(second,), relative=first.relative)
    shutil.copy(folder / first.file, folder / second.file)
    (folder / probability.file).write_text(_pointwise(schema), encoding="utf-8")
    files = [*(file.name for file in manifest.files), second.file, probability.file]
    more = {"format_version": FORMAT_VERSION, "probability": probability, "goals": goals, "files": ()}
    bundle.seal(folder, manifest.model_copy(update=more), files)
    bundle.publish(folder, out)
    return out


def _pointwise(schema: FeatureSchema) -> str:
    """Return a model of noise, as large as a fit's may be."""
    rng = np.random.default_rng(1)
    values = lightgbm_input(_noise(schema, rng, 20_000), schema)
    data = lightgbm.Dataset(values, rng.random(20_000) < 0.3, categorical_feature=list(schema.categorical))
    return lightgbm.train(SETTINGS | {"num_threads": 1}, data, num_boost_round=MOST_TREES).model_to_string()


def _noise(schema: FeatureSchema, rng: np.random.Generator, count: int) -> np.ndarray:
    values = rows(rng, count, len(schema))
    for column in schema.categorical:
        values[:, column] = rng.integers(0, 1 + len(schema.features[column].categories), count)
    return values


def _lists(loaded: Bundle) -> list[CandidateList]:
    rng = np.random.default_rng(0)
    return [CandidateList(_noise(loaded.manifest.feature_schema, rng, LENGTH)) for _ in range(LISTS)]


def _library(loaded: Bundle, lists: list[CandidateList], strategy: str) -> dict[str, list[float]]:
    ms: dict[str, list[float]] = {way: [] for way in WAYS}
    for number in range(1 + STARTS * TURNS):
        for way in _from(number):
            options = WAYS[way]
            began = time.thread_time()
            for candidates in lists:
                loaded.reranker.rerank(
                    candidates,
                    strategy=strategy,
                    probability=options.get("probabilities", False),
                    weights=options.get("weights"),
                )
            if number:
                ms[way].append((time.thread_time() - began) * 1000.0 / len(lists))
    return ms


def _http(loaded: Bundle, lists: list[CandidateList], strategy: str) -> dict[str, list[float]]:
    plain = [json.loads(bodies(loaded.reranker, candidates.features)["matrix"]) for candidates in lists]
    sent = {
        way: [json.dumps(body | more | {"strategy": strategy}).encode() for body in plain] for way, more in WAYS.items()
    }
    ms: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in range(STARTS):
        with service(loaded.path) as running:
            for number in range(1 + TURNS):
                for way in _from(number):
                    spent = turn_ms(running, sent[way])
                    if number:
                        ms[way].append(spent)
    return ms


def _from(number: int) -> list[str]:
    turn = number % len(WAYS)
    return [*WAYS][turn:] + [*WAYS][:turn]


def _row(way: str, ms: dict[str, list[float]]) -> dict[str, object]:
    low, middle, high = np.percentile(np.array(ms[way]) / np.array(ms["one goal"]), (25, 50, 75))
    return {
        "way": way,
        "cpu_ms": round(float(np.median(ms[way])), 3),
        "times": round(float(middle), 4),
        "times_quartiles": [round(float(low), 4), round(float(high), 4)],
    }


if __name__ == "__main__":
    sys.exit(main())
