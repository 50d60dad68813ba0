"""Work of the workers of ``benchmarks.speed.on_ray``, in a module of its own that they can import."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from listwright.ranking import bundle
from listwright.training.pipeline.steps import load
from listwright.training.recipe import config
from listwright.training.recipe.model import FirstStageAlone
from listwright.training.scoring.worker import rank_rows
from listwright.training.second_stage.loop import fit_network

BUNDLE = Path("models/demo/1")


def fit(seed: int, epochs: int) -> float:
    """Run one fit, long enough to be worth a task."""
    recipe = config.load("demo")
    splits = _splits()
    spec = config.changed(recipe, {"model": {"kind": "qilcm", "max_epochs": epochs, "patience": epochs}}).model
    zeros = [np.zeros(part.rows) for part in (splits.train, splits.valid)]
    assert not isinstance(spec, FirstStageAlone)
    return fit_network(spec, splits.train, splits.valid, *zeros, seed=seed).valid_ndcg


@cache
def _splits() -> Any:
    return load(config.load("demo"), ())


def score_part(source: str, target: str) -> int:
    """Score one part, read and written by the worker."""
    rows = pl.read_parquet(source)
    rank_rows(rows, demo_bundle(), "qid")[0].write_parquet(target)
    return rows.height


@cache
def demo_bundle() -> bundle.Bundle:
    """Load the demo bundle, once per process."""
    return bundle.load(BUNDLE)


class Scorer:
    """Actor of Ray Data that scores batches."""

    def __init__(self) -> None:
        demo_bundle()

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Score some parts."""
        return {"rows": [score_part(*names) for names in zip(batch["source"], batch["target"], strict=True)]}
