"""Runner of the suites ``table2``, ``table3``, ``anomaly`` and ``lambda``, after the QILCM paper.

Data and split are drawn once, by the recipe's seed; LambdaMART's settings are searched once on the same data. A seed of
the suite fixes everything that is fitted: the first stage, once per seed and fold, and all methods of that seed, which
rerank what it leaves. So its own deviation over seeds is as true as theirs, and every method is measured on every test
query under every seed.

Fits run side by side, in one process per core with one thread each. They are resumable, and gone with their parent.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path

import polars as pl
from rich.console import Console
from rich.progress import MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from listwright.ranking.errors import ListwrightError, RecipeError
from listwright.ranking.threads import cores
from listwright.training.cluster import side_by_side
from listwright.training.console.bars import BAR, PACE, progress_bars
from listwright.training.data.load import announce
from listwright.training.pipeline.steps import load
from listwright.training.recipe.config import Recipe
from listwright.training.reporting.page import render
from listwright_lab.suites.listwise import methods, pages
from listwright_lab.suites.listwise.measurement import NDCG_AT, MethodFit, measure
from listwright_lab.suites.listwise.results import Results, by_shift
from listwright_lab.suites.results_folder import ResultsFolder, UnitFolders
from listwright_lab.suites.splits import data_facts, measurable

TITLES = {
    "table2": "QILCM and its rivals",
    "table3": "QILCM and its variants",
    "anomaly": "QILCM on anomalous queries",
    "lambda": "The weight of the confusion loss",
}


@dataclass(frozen=True, slots=True)
class ListwiseOptions:
    """Options of a listwise suite.

    Args:
        suite: One of :data:`listwright_lab.suites.listwise.methods.SUITES`.
        recipe: Recipe with the data, LambdaMART's budget, and the model whose settings all methods share.
        sources: Paths of the data; none for synthetic data.
        seeds: Number of seeds, from 0.
        folds: Numbers of the folds to run, from 1.
        shifts: Planted shifts of table3; empty for its defaults.
        jobs: Number of fits at a time; None for one per core.
        ndcg_at: Cutoff of the NDCG in the page's sentences.
        command: Command line that repeats the run, for the page.
        made_with: Versions of the libraries by name, for the page.
        trials: Settings to try for every network and fold; 0 takes the recipe's.
        relative: Whether table3 or anomaly reranks the first stage with list-relative columns.
        methods: Names of the rows of table2; empty for all.
        on: Value of ``--on``; None for processes on this machine.
    """

    suite: str
    recipe: Recipe
    sources: tuple[str, ...]
    seeds: int
    folds: tuple[int, ...]
    shifts: tuple[float, ...]
    jobs: int | None
    ndcg_at: int
    command: str
    made_with: dict[str, str]
    trials: int = 0
    relative: bool = False
    methods: tuple[str, ...] = ()
    on: str | None = None


def run(options: ListwiseOptions, out: Path, contents: Sequence[object], console: Console) -> str:
    """Run the missing fits, and write ``results.parquet``, ``summary.json`` and ``page.html``.

    Args:
        options: Suite, data and settings.
        out: Folder of the results; may hold those of the same suite, recipe and data, of any seeds, folds and shifts.
        contents: Name and digest of each source.
        console: Console that shows the progress bar.

    Returns:
        First sentence of the page.
    """
    if options.ndcg_at not in NDCG_AT:
        raise RecipeError(f"--ndcg-at {options.ndcg_at}: these suites measure NDCG at {', '.join(map(str, NDCG_AT))}")
    fits = _list_fits(options)
    recipe = _recipe(options)
    suite_methods = _methods(options)
    settings = {
        "suite": options.suite,
        "recipe": recipe.model_dump(mode="json", exclude={"model", "rivals", "choice"}),  # the methods have these
        "data": list(contents),
        "relative": options.relative,
        "trials": options.trials,
        "methods": methods.facts(suite_methods),
    }
    about_data = []
    with ResultsFolder(out, settings) as folder:
        # wrong data raise here, and text is parsed once, not once per process
        for fold_recipe in {fit.recipe.fold: fit.recipe for fit in reversed(fits)}.values():
            splits = measurable(load(fold_recipe, options.sources))
            if fold_recipe.fold == options.folds[0]:
                about_data = data_facts(splits, announce(fold_recipe, splits, progress_bars(console)))
        frame = run_all(options.suite, fits, folder, options.jobs, console, on=options.on, keep=bool(options.methods))
        results = by_shift(frame, list(suite_methods))
        first = next(iter(results.values()))
        match options.suite:
            case "table2":
                content = pages.table2(first, options.ndcg_at)
            case "table3":
                content = pages.table3(results, options.ndcg_at)
            case "anomaly":
                content = pages.anomaly(first, options.ndcg_at)
            case _:
                content = pages.confusion_weights(first, options.ndcg_at)
        page = render(
            f"{TITLES[options.suite]}: {options.recipe.name}",
            content.verdicts,
            content.sections,
            command=options.command,
            facts=[*_facts(options, first), *about_data],
            settings=json.dumps(recipe.model_dump(mode="json"), indent=1),
        )
        (out / "page.html").write_text(page, encoding="utf-8")
        summary = {
            "command": options.command,
            "made_with": options.made_with,
            "sentence": content.verdicts[0],
            **content.summary,
        }
        (out / "summary.json").write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    return content.verdicts[0]


def _methods(options: ListwiseOptions) -> dict[str, methods.Method]:
    return methods.select_methods(options.suite, _recipe(options), relative=options.relative, only=options.methods)


def _recipe(options: ListwiseOptions) -> Recipe:
    """Return the recipe, without its own settings if they are to be searched."""
    return methods.untuned(options.recipe) if options.trials else options.recipe


def _list_fits(options: ListwiseOptions) -> list[MethodFit]:
    """Return every fit: seed by seed, so that whole seeds are done first."""
    recipe = _recipe(options)
    return [
        MethodFit(
            recipe=data.model_copy(update={"fold": fold}),
            sources=options.sources,
            seed=seed,
            method=name,
            spec=method.spec,
            relative=method.relative,
            cutoff=methods.cutoff(recipe),
            trials=options.trials,
            anomaly=options.suite == "anomaly",
        )
        for seed in range(options.seeds)
        for data in methods.data_sets(options.suite, recipe, options.shifts)
        for fold in options.folds
        for name, method in _methods(options).items()
    ]


def _facts(options: ListwiseOptions, results: Results) -> list[str]:
    first = methods.lambdamart_of(options.recipe)
    cutoff = methods.cutoff(options.recipe)
    versions = ", ".join(f"{name} {number}" for name, number in options.made_with.items())
    scored = methods.sees_score(options.recipe)
    choice = (
        "The QILCM paper has no first stage in user-choice ranking: recipe airline-paper leaves its score out, this "
        "one does not."
    )
    folds = ", ".join(map(str, options.folds))
    return [
        f"Data: {options.recipe.name}; folds: {folds}; {results.queries} test queries, {results.empty} without a "
        "relevant candidate. Splits are by query.",
        f"Seeds: 0 to {options.seeds - 1}. A seed fixes whatever is fitted; data and split are the same for all "
        f"(recipe's seed {options.recipe.seed}).",
        f"First stage: LambdaMART, {first.trials} settings tried per fold (selected on {first.select_on}; those below "
        "the median ended early), fitted once per seed and fold and shared by all methods on it, which see out-of-fold "
        f"scores in training and rerank the top {cutoff}. " + _which_first_stage(options),
        _whose_settings(options),
        "All networks share the encoder, AttRank unless the recipe says otherwise, the optimiser and early stopping on "
        "validation NDCG; baselines: " + pages.baselines() + ".",
        "NDCG: gain 2^y - 1, discount 1/log2(rank + 1), macro mean over queries; equal scores share their ranks.",
        *([choice] if results.is_choice and scored else []),
        f"Made with {versions}.",
    ]


def _which_first_stage(options: ListwiseOptions) -> str:
    if options.suite == "table2":
        return (
            "“+ relative”: LambdaMART sees list-relative columns (z-score and rank of every numeric feature within its "
            "list), searched with as many settings; a network of that name reranks what it leaves."
        )
    return f"It sees {'the features and list-relative columns' if options.relative else 'the features alone'}."


def _whose_settings(options: ListwiseOptions) -> str:
    if not options.trials:
        return "Networks: the recipe's settings, for all folds and seeds."
    return (
        f"Networks: {options.trials} settings tried per fold on its own validation queries, those below the median "
        "ended early; shared by the seeds. Every search begins with the defaults of its kind, not with the recipe's "
        "values."
    )


def run_all(
    title: str,
    fits: Sequence[MethodFit],
    folder: ResultsFolder,
    jobs: int | None,
    console: Console,
    *,
    on: str | None = None,
    keep: bool = False,
) -> pl.DataFrame:
    """Run the missing fits, ``jobs`` at a time, in processes or on Ray; return the results of all.

    Settings are searched once on the same data, before other seeds need them; a first stage is fitted once, before
    the methods that share it. With ``keep`` first stages stay, for methods of later runs.

    Raises:
        RecipeError: If a worker was stopped from outside; finished fits are kept.
        ListwrightError: If a fit fails: the error of the first.
    """
    todo = [fit for fit in fits if not folder.has(fit.name)]
    columns = (
        TextColumn("{task.description}"),
        BAR,
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with progress_bars(console, *columns, pace=PACE) as bar:
        task = bar.add_task(title, total=len(fits), completed=len(fits) - len(todo))
        try:
            if todo:
                most = len(todo) if jobs is None else min(jobs, len(todo))
                with side_by_side(on, None if jobs is None else most, local_jobs=min(cores(), most)) as (
                    workers,
                    at_once,
                ):
                    for done in _in_order(todo, folder, at_once, workers, keep=keep):
                        bar.update(task, description=f"{title}: {done.method}", advance=1)
        except BrokenProcessPool as error:
            raise RecipeError(
                "a worker was stopped from outside, perhaps because memory ran out: finished fits are kept; the same "
                "command goes on, with --jobs N for fewer at a time"
            ) from error
        bar.update(task, description=title)
    if not keep:  # an interrupted run may have left some
        for name in {fit.state_name for fit in fits}:
            folder.remove_state(name)
    return folder.join([fit.name for fit in fits])


def _in_order(
    todo: Sequence[MethodFit], folder: ResultsFolder, jobs: int, workers: Executor, *, keep: bool
) -> Iterator[MethodFit]:
    """Yield fits as they finish, started in their order except those that need another's results."""
    makers = _makers(todo, folder)
    left = Counter(fit.state_name for fit in todo)
    queue, running = list(todo), dict[Future[pl.DataFrame], MethodFit]()
    while queue or running:
        while len(running) < jobs and (ready := _next(queue, makers, left, folder)) is not None:
            queue.remove(ready)
            running[workers.submit(measure_fit, ready, folder.unit_folders(ready.state_name))] = ready
        done, _ = wait(running, return_when=FIRST_COMPLETED)
        for future in sorted(done, key=lambda future: future.exception() is not None):  # keep finished results first
            fit = running.pop(future)
            folder.add(fit.name, future.result())
            makers = {name: maker for name, maker in makers.items() if maker != fit.name}
            left[fit.state_name] -= 1
            if left[fit.state_name] == 0 and not keep:
                folder.remove_state(fit.state_name)
            yield fit


def _makers(todo: Sequence[MethodFit], folder: ResultsFolder) -> dict[str, str]:
    """Map each first stage and search to the first fit that needs it, which makes it whatever the number of jobs."""
    makers: dict[str, str] = {}
    for fit in todo:
        for name in _shared(fit, folder):
            makers.setdefault(name, fit.name)
    return makers


def _next(
    queue: Sequence[MethodFit], makers: Mapping[str, str], left: Mapping[str, int], folder: ResultsFolder
) -> MethodFit | None:
    """Return the first fit of the queue whose shared results exist or are its own to make."""
    for fit in queue:
        waits = any(makers.get(name, fit.name) != fit.name for name in _shared(fit, folder))
        comes_last = fit.chooses and left[fit.state_name] > 1
        if not waits and not comes_last:
            return fit
    return None


def _shared(fit: MethodFit, folder: ResultsFolder) -> list[str]:
    """Return the names of the shared results that a fit needs: first stages, and unfinished searches."""
    stages = [f"{fit.state_name}-{stage}" for stage in fit.first_stages]
    return stages + [search for search in fit.searches if not folder.has_settings(search)]


def measure_fit(fit: MethodFit, folders: UnitFolders) -> pl.DataFrame:
    """Call :func:`listwright_lab.suites.listwise.measurement.measure`, and name the fit in its errors."""
    try:
        return measure(fit, folders)
    except ListwrightError as error:  # of a class that any process can make again from its message
        raise RecipeError(f"{fit.name}: {error}") from None
