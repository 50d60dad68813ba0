"""One unit of a suite: a seed and a fold, from the data to a frame of per-query results."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import polars as pl
from rich.console import Console

from listwright.training.data.load import measurable
from listwright.training.evaluation.routing import evaluate_routing
from listwright.training.experiments.specialised import oracle as oracle_suite
from listwright.training.experiments.specialised import routing as routing_suite
from listwright.training.progress import Task
from listwright.training.recipe.config import Recipe
from listwright.training.run import run
from listwright.training.steps.bundle_schema import load
from listwright.training.workspace import partial_of


def oracle(
    recipe: Recipe,
    sources: Sequence[str],
    counts: Sequence[int],
    state: Path,
    ndcg_at: int,
    task: Task,
) -> pl.DataFrame:
    """See :func:`listwright.training.experiments.specialised.oracle.measure`."""
    return oracle_suite.measure(recipe, measurable(load(recipe, sources)), counts, state, ndcg_at=ndcg_at, task=task)


def routing(recipe: Recipe, sources: Sequence[str], state: Path, task: Task) -> pl.DataFrame:
    """A whole run in a folder of its own, and what its bundle answers."""
    test = measurable(load(recipe, sources)).test
    unit = f"seed {recipe.seed}, fold {recipe.fold}"
    task.note(f"{unit}: first stage, QILCM, specialists, router")
    assert recipe.router is not None
    out = state / recipe.name / "1"
    if not out.exists():  # an interruption may come after the bundle was published
        quiet = Console(file=io.StringIO())
        run(recipe, sources, out, resume=partial_of(out).exists(), console=quiet)
    task.note(f"{unit}: testing")
    found = evaluate_routing(out, test, ndcg_at=recipe.router.ndcg_at)
    assert found is not None
    return routing_suite.to_frame(found, test.qids)
