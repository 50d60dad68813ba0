"""Suites ``table2``, ``table3``, ``anomaly`` and ``lambda``: the QILCM paper's experiments, and its rivals.

Data and split are drawn once, by the recipe's seed; LambdaMART's settings are searched once on the same data. A seed of
the suite fixes everything that is fitted: the first stage, once per seed and fold, and all methods of that seed, which
rerank what it leaves. So its own deviation over seeds is as true as theirs, and every method is measured on every test
query under every seed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from listwright.ranking.errors import RecipeError
from listwright.training.bars import progress_bars
from listwright.training.data.load import announce, data_facts, measurable
from listwright.training.experiments.listwise import pages, plans
from listwright.training.experiments.listwise.fits import NDCG_AT, Fit
from listwright.training.experiments.listwise.measured import Measured, by_shift
from listwright.training.experiments.listwise.workers import run_all
from listwright.training.experiments.store import Store
from listwright.training.recipe.config import Recipe
from listwright.training.reporting.page import render
from listwright.training.steps.bundle_schema import load

TITLES = {
    "table2": "QILCM and its rivals",
    "table3": "QILCM and its variants",
    "anomaly": "QILCM on anomalous queries",
    "lambda": "The weight of the confusion loss",
}


@dataclass(frozen=True, slots=True)
class ListwiseOptions:
    """What the command line asks for.

    Args:
        suite: one of :data:`listwright.training.experiments.listwise.plans.SUITES`.
        recipe, sources: the data, LambdaMART's budget, and the model that all methods are fitted like.
        seeds: how many, from 0.
        folds: which.
        shifts: planted ones of table3; empty for its own.
        jobs: fits at a time; None for all cores.
        on: as ``--on`` says it; None for processes here.
        ndcg_at: cutoff of the NDCG that the sentences are about.
        trials: settings tried for every network and fold; 0 takes the recipe's.
        relative: whether table3 or anomaly stands on the first stage with list-relative columns.
        methods: rows of table2; none for all.
        command, made_with: for the page.
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


def run(asked: ListwiseOptions, out: Path, contents: Sequence[object], console: Console) -> str:
    """Fit what is not fitted yet, and write ``results.parquet``, ``summary.json`` and ``page.html``.

    Args:
        asked: what to do.
        out: folder; may hold results of the same suite, recipe and data, of any seeds, folds and shifts.
        contents: what tells the data from others.
        console: where the bar goes.

    Returns:
        The suite's first sentence.
    """
    if asked.ndcg_at not in NDCG_AT:
        raise RecipeError(f"--ndcg-at {asked.ndcg_at}: these suites measure NDCG at {', '.join(map(str, NDCG_AT))}")
    fits = planned(asked)
    about_data = []
    # wrong data are told of here, and text is parsed once, not once per process
    for of_fold in {fit.recipe.fold: fit.recipe for fit in reversed(fits)}.values():
        splits = measurable(load(of_fold, asked.sources))
        if of_fold.fold == asked.folds[0]:
            about_data = data_facts(splits, announce(of_fold, splits, progress_bars(console)))
    recipe = _recipe(asked)
    chosen = methods_of(asked)
    settings = {
        "suite": asked.suite,
        "recipe": recipe.model_dump(mode="json", exclude={"model", "rivals", "choice"}),  # the methods have these
        "data": list(contents),
        "relative": asked.relative,
        "trials": asked.trials,
        "methods": plans.facts(chosen),
    }
    with Store(out, settings) as store:
        frame = run_all(asked.suite, fits, store, asked.jobs, console, on=asked.on, keep=bool(asked.methods))
        results = by_shift(frame, list(chosen))
        first = next(iter(results.values()))
        match asked.suite:
            case "table2":
                told = pages.table2(first, asked.ndcg_at)
            case "table3":
                told = pages.table3(results, asked.ndcg_at)
            case "anomaly":
                told = pages.anomaly(first, asked.ndcg_at)
            case _:
                told = pages.confusion_weights(first, asked.ndcg_at)
        page = render(
            f"{TITLES[asked.suite]}: {asked.recipe.name}",
            told.verdicts,
            told.sections,
            command=asked.command,
            facts=[*_facts(asked, first), *about_data],
            settings=json.dumps(recipe.model_dump(mode="json"), indent=1),
        )
        (out / "page.html").write_text(page, encoding="utf-8")
        said = {"command": asked.command, "made_with": asked.made_with, "sentence": told.verdicts[0], **told.summary}
        (out / "summary.json").write_text(json.dumps(said, indent=1) + "\n", encoding="utf-8")
    return told.verdicts[0]


def methods_of(asked: ListwiseOptions) -> dict[str, plans.Method]:
    """What is fitted, by name."""
    return plans.methods(asked.suite, _recipe(asked), relative=asked.relative, only=asked.methods)


def _recipe(asked: ListwiseOptions) -> Recipe:
    """As given; or, where settings are searched, without those that it has."""
    return plans.untuned(asked.recipe) if asked.trials else asked.recipe


def planned(asked: ListwiseOptions) -> list[Fit]:
    """Every fit: seed by seed, so that whole seeds are done first."""
    recipe, methods = _recipe(asked), methods_of(asked)
    return [
        Fit(
            recipe=data.model_copy(update={"fold": fold}),
            sources=asked.sources,
            seed=seed,
            method=name,
            spec=method.spec,
            relative=method.relative,
            cutoff=plans.cutoff(recipe),
            trials=asked.trials,
            anomaly=asked.suite == "anomaly",
        )
        for seed in range(asked.seeds)
        for data in plans.data_sets(asked.suite, recipe, asked.shifts)
        for fold in asked.folds
        for name, method in methods.items()
    ]


def _facts(asked: ListwiseOptions, found: Measured) -> list[str]:
    first = plans.lambdamart_of(asked.recipe)
    cutoff = plans.cutoff(asked.recipe)
    versions = ", ".join(f"{name} {number}" for name, number in asked.made_with.items())
    scored = plans.sees_score(asked.recipe)
    choice = (
        "The QILCM paper has no first stage in user-choice ranking: recipe airline-paper leaves its score out, this "
        "one does not."
    )
    folds = ", ".join(map(str, asked.folds))
    return [
        f"Data: {asked.recipe.name}; folds: {folds}; {found.queries} test queries, {found.empty} without a relevant "
        "candidate. Splits are by query.",
        f"Seeds: 0 to {asked.seeds - 1}. A seed fixes whatever is fitted; data and split are the same for all "
        f"(recipe's seed {asked.recipe.seed}).",
        f"First stage: LambdaMART, {first.trials} settings tried per fold (selected on {first.select_on}; those below "
        "the median ended early), fitted once per seed and fold and shared by all methods on it, which see out-of-fold "
        f"scores in training and rerank the top {cutoff}. " + _which_first_stage(asked),
        _whose_settings(asked),
        "All networks share the encoder, AttRank unless the recipe says otherwise, the optimiser and early stopping on "
        "validation NDCG; baselines: " + pages.baselines() + ".",
        "NDCG: gain 2^y - 1, discount 1/log2(rank + 1), macro mean over queries; equal scores share their ranks.",
        *([choice] if found.is_choice and scored else []),
        f"Made with {versions}.",
    ]


def _which_first_stage(asked: ListwiseOptions) -> str:
    if asked.suite == "table2":
        return (
            "“+ relative”: LambdaMART sees list-relative columns (z-score and rank of every numeric feature within its "
            "list), searched with as many settings; a network of that name reranks what it leaves."
        )
    return f"It sees {'the features and list-relative columns' if asked.relative else 'the features alone'}."


def _whose_settings(asked: ListwiseOptions) -> str:
    if not asked.trials:
        return "Networks: the recipe's settings, for all folds and seeds."
    return (
        f"Networks: {asked.trials} settings tried per fold on its own validation queries, those below the median ended "
        "early; shared by the seeds. Every search begins with the defaults of its kind, not with the recipe's values."
    )
