"""Suites ``oracle`` and ``routing`` from their units to their page."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from pathlib import Path

import polars as pl
from rich.console import Console
from rich.progress import MofNCompleteColumn, TextColumn, TimeRemainingColumn

from listwright.training.bars import BAR, progress_bars
from listwright.training.cluster.executor import side_by_side
from listwright.training.data.load import announce, data_facts
from listwright.training.experiments.specialised import oracle, pages, routing, units
from listwright.training.experiments.store import Store
from listwright.training.progress import NO_TASK, Task
from listwright.training.recipe.config import Recipe, Router, Srm
from listwright.training.reporting.report import verdict
from listwright.training.steps.bundle_schema import load

ROUTING_COUNT = 3


@dataclass(frozen=True, slots=True)
class SpecialisedOptions:
    """What the command line asks for.

    Args:
        suite: ``oracle`` or ``routing``.
        recipe, sources: what is fitted, on what.
        counts: every K of the oracle; the router's K, or none for the recipe's.
        seeds: how many, from 0.
        folds: which.
        ndcg_at: cutoff of the NDCG.
        command, made_with: for the page.
        on: as ``--on`` says it; None for one unit after the other in this process.
        jobs: units at a time on Ray; None for its cores.
    """

    suite: str
    recipe: Recipe
    sources: Sequence[str]
    counts: tuple[int, ...]
    seeds: int
    folds: tuple[int, ...]
    ndcg_at: int
    command: str
    made_with: dict[str, str]
    on: str | None = None
    jobs: int | None = None


def run(asked: SpecialisedOptions, out: Path, settings: dict[str, object], console: Console) -> str:
    """Measure what is not measured yet, write the results, and return the suite's sentence.

    Args:
        asked: what to do.
        out: folder; may hold results of the same settings.
        settings: what tells this experiment from others.
        console: where the bar goes.
    """
    first = asked.recipe.model_copy(update={"seed": 0, "fold": asked.folds[0]})
    splits = load(first, asked.sources)  # wrong data are told of before a folder is made
    about_data = data_facts(splits, announce(first, splits, progress_bars(console)))
    del splits  # each unit reads its own
    with Store(out, settings) as store:
        return _tell(asked, _measure_all(asked, store, console), store, about_data)


def _measure_all(asked: SpecialisedOptions, store: Store, console: Console) -> pl.DataFrame:
    """Every unit that is not done yet, then all of them together."""
    work = {f"seed-{seed}-fold-{fold}": (seed, fold) for seed in range(asked.seeds) for fold in asked.folds}
    todo = [unit for unit in work if not store.has(unit)]
    columns = (TextColumn("{task.description}"), BAR, MofNCompleteColumn(), TimeRemainingColumn())
    with progress_bars(console, *columns) as bar:
        task = bar.begin(asked.suite, len(work))
        task.reach(len(work) - len(todo))
        for done, (unit, found) in enumerate(_found(asked, {unit: work[unit] for unit in todo}, store, task), start=1):
            store.add(unit, found)
            shutil.rmtree(store.state(unit))
            task.reach(len(work) - len(todo) + done)
        task.end(len(work), "")
    return store.join(list(work))


def _found(
    asked: SpecialisedOptions, todo: dict[str, tuple[int, int]], store: Store, task: Task
) -> Iterator[tuple[str, pl.DataFrame]]:
    """The units as they are measured: in this process one after the other, on Ray side by side."""
    if asked.on is None or not todo:
        for unit, which in todo.items():
            yield unit, _measure(asked, which, store.state(unit), task)
        return
    with side_by_side(asked.on, asked.jobs, local_jobs=1) as (executor, jobs):
        queue, running = list(todo), dict[Future[pl.DataFrame], str]()
        while queue or running:
            while queue and len(running) < jobs:
                unit = queue.pop(0)
                running[executor.submit(_measure, asked, todo[unit], store.state(unit), NO_TASK)] = unit
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                yield running.pop(future), future.result()


def _measure(asked: SpecialisedOptions, which: tuple[int, int], state: Path, task: Task) -> pl.DataFrame:
    """One seed and fold."""
    seed, fold = which
    part = asked.recipe.model_copy(update={"seed": seed, "fold": fold})
    if asked.suite == "oracle":
        found = units.oracle(part, asked.sources, asked.counts, state, asked.ndcg_at, task)
    else:
        routed = _with_router(part, asked.counts, asked.ndcg_at)
        found = units.routing(routed, asked.sources, state, task)
    return found.with_columns(pl.lit(seed).alias("seed"), pl.lit(fold).alias("fold"))


def _with_router(recipe: Recipe, counts: tuple[int, ...], ndcg_at: int) -> Recipe:
    specialists = recipe.specialists or Srm(specialists=ROUTING_COUNT)
    if counts:
        specialists = specialists.model_copy(update={"specialists": counts[0]})
    router = (recipe.router or Router()).model_copy(update={"ndcg_at": ndcg_at})
    return Recipe.model_validate({**recipe.model_dump(), "specialists": specialists, "router": router})


def _tell(asked: SpecialisedOptions, results: pl.DataFrame, store: Store, about_data: list[str]) -> str:
    """The page and the summary."""
    facts = [
        f"Data: {asked.recipe.name}; folds: {results['fold'].n_unique()}; seeds: {results['seed'].n_unique()}.",
        f"NDCG@{asked.ndcg_at}: gain 2^y - 1, full ideal; a query without a relevant candidate counts 0.",
        "Intervals: 95 % percentile bootstrap over queries.",
        "Made with " + ", ".join(f"{name} {number}" for name, number in asked.made_with.items()) + ".",
        *about_data,
    ]
    settings = json.dumps(asked.recipe.model_dump(mode="json"), indent=1)
    repeat = {"command": asked.command, "facts": facts, "settings": settings}
    if asked.suite == "oracle":
        summary = oracle.summarise(results)
        page = pages.oracle_page(asked.recipe.name, summary, ndcg_at=asked.ndcg_at, **repeat)
        said, sentence = summary.facts(), pages.oracle_sentence(summary)
    else:
        found = routing.from_frame(results)
        page = pages.routing_page(asked.recipe.name, found, ndcg_at=asked.ndcg_at, **repeat)
        said = found.facts() | {"calibration_error": routing.calibration(found).error}
        sentence = verdict(found)
    (store.folder / "page.html").write_text(page, encoding="utf-8")
    head = {"command": asked.command, "made_with": asked.made_with, "sentence": sentence}
    (store.folder / "summary.json").write_text(json.dumps({**head, **said}, indent=1) + "\n", encoding="utf-8")
    return sentence
