"""Runner of the suites ``oracle`` and ``routing``: units of work, results and page."""

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

from listwright.training.cluster import side_by_side
from listwright.training.console.bars import BAR, progress_bars
from listwright.training.console.progress import NO_TASK, Task
from listwright.training.data.load import announce
from listwright.training.pipeline.steps import load
from listwright.training.recipe.config import Recipe, Router, Srm
from listwright.training.reporting.report import verdict
from listwright_lab.suites import oracle, routing
from listwright_lab.suites.results_folder import ResultsFolder
from listwright_lab.suites.splits import data_facts

ROUTING_COUNT = 3
"""K of the routing suite where neither recipe nor options name it."""


@dataclass(frozen=True, slots=True)
class SpecialisedOptions:
    """Options of a suite of specialists.

    Args:
        suite: ``oracle`` or ``routing``.
        recipe: Recipe with the first stage, the specialists and the router.
        sources: Paths of the data; none for synthetic data.
        counts: Numbers K of specialists: all for the oracle; the router's, or empty for the recipe's.
        seeds: Number of seeds, from 0.
        folds: Numbers of the folds to run, from 1.
        ndcg_at: Cutoff of the NDCG.
        command: Command line that repeats the run, for the page.
        made_with: Versions of the libraries by name, for the page.
        on: Value of ``--on``; None for one unit after the other in this process.
        jobs: Number of units at a time on Ray; None for one per core.
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


def run(options: SpecialisedOptions, out: Path, settings: dict[str, object], console: Console) -> str:
    """Run the missing measurements, write the results, and return the suite's sentence.

    Args:
        options: Suite, data and settings.
        out: Folder of the results; may hold those of the same settings.
        settings: Settings that the results depend on, as JSON.
        console: Console that shows the progress bar.
    """
    first = options.recipe.model_copy(update={"seed": 0, "fold": options.folds[0]})
    with ResultsFolder(out, settings) as folder:
        splits = load(first, options.sources)
        about_data = data_facts(splits, announce(first, splits, progress_bars(console)))
        del splits  # each unit reads its own
        return _write(options, _measure_all(options, folder, console), folder, about_data)


def _measure_all(options: SpecialisedOptions, folder: ResultsFolder, console: Console) -> pl.DataFrame:
    """Run the missing units, and return the results of all."""
    work = {f"seed-{seed}-fold-{fold}": (seed, fold) for seed in range(options.seeds) for fold in options.folds}
    todo = [unit for unit in work if not folder.has(unit)]
    columns = (TextColumn("{task.description}"), BAR, MofNCompleteColumn(), TimeRemainingColumn())
    with progress_bars(console, *columns) as bar:
        task = bar.begin(options.suite, len(work))
        task.reach(len(work) - len(todo))
        for done, (unit, results) in enumerate(
            _measure_in_turn(options, {unit: work[unit] for unit in todo}, folder, task), start=1
        ):
            folder.add(unit, results)
            shutil.rmtree(folder.state(unit))
            task.reach(len(work) - len(todo) + done)
        task.end(len(work), "")
    return folder.join(list(work))


def _measure_in_turn(
    options: SpecialisedOptions, todo: dict[str, tuple[int, int]], folder: ResultsFolder, task: Task
) -> Iterator[tuple[str, pl.DataFrame]]:
    """Measure the units: in this process one after the other, on Ray side by side."""
    if options.on is None or not todo:
        for unit, seed_and_fold in todo.items():
            yield unit, _measure(options, seed_and_fold, folder.state(unit), task)
        return
    with side_by_side(options.on, options.jobs, local_jobs=1) as (executor, jobs):
        queue, running = list(todo), dict[Future[pl.DataFrame], str]()
        while queue or running:
            while queue and len(running) < jobs:
                unit = queue.pop(0)
                running[executor.submit(_measure, options, todo[unit], folder.state(unit), NO_TASK)] = unit
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                yield running.pop(future), future.result()


def _measure(options: SpecialisedOptions, seed_and_fold: tuple[int, int], state: Path, task: Task) -> pl.DataFrame:
    seed, fold = seed_and_fold
    part = options.recipe.model_copy(update={"seed": seed, "fold": fold})
    if options.suite == "oracle":
        results = oracle.measure(part, options.sources, options.counts, state, ndcg_at=options.ndcg_at, task=task)
    else:
        routed = _with_router(part, options.counts, options.ndcg_at)
        results = routing.measure(routed, options.sources, state, task)
    return results.with_columns(pl.lit(seed).alias("seed"), pl.lit(fold).alias("fold"))


def _with_router(recipe: Recipe, counts: tuple[int, ...], ndcg_at: int) -> Recipe:
    specialists = recipe.specialists or Srm(specialists=ROUTING_COUNT)
    if counts:
        specialists = specialists.model_copy(update={"specialists": counts[0]})
    router = (recipe.router or Router()).model_copy(update={"ndcg_at": ndcg_at})
    return Recipe.model_validate({**recipe.model_dump(), "specialists": specialists, "router": router})


def _write(options: SpecialisedOptions, results: pl.DataFrame, folder: ResultsFolder, about_data: list[str]) -> str:
    """Write the page and the summary, and return the sentence."""
    facts = [
        f"Data: {options.recipe.name}; folds: {results['fold'].n_unique()}; seeds: {results['seed'].n_unique()}.",
        f"NDCG@{options.ndcg_at}: gain 2^y - 1, full ideal; a query without a relevant candidate counts 0.",
        "Intervals: 95 % percentile bootstrap over queries.",
        "Made with " + ", ".join(f"{name} {number}" for name, number in options.made_with.items()) + ".",
        *about_data,
    ]
    settings = json.dumps(options.recipe.model_dump(mode="json"), indent=1)
    repeat = {"command": options.command, "facts": facts, "settings": settings}
    if options.suite == "oracle":
        summary = oracle.summarise(results)
        page = oracle.page(options.recipe.name, summary, ndcg_at=options.ndcg_at, **repeat)
        suite_facts, sentence = summary.facts(), oracle.sentence(summary)
    else:
        evaluation = routing.from_frame(results)
        page = routing.page(options.recipe.name, evaluation, ndcg_at=options.ndcg_at, **repeat)
        suite_facts = evaluation.facts() | {"calibration_error": routing.calibration(evaluation).error}
        sentence = verdict(evaluation)
    (folder.path / "page.html").write_text(page, encoding="utf-8")
    head = {"command": options.command, "made_with": options.made_with, "sentence": sentence}
    (folder.path / "summary.json").write_text(json.dumps({**head, **suite_facts}, indent=1) + "\n", encoding="utf-8")
    return sentence
