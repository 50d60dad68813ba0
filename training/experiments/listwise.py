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

from ranking.errors import RecipeError
from training.bundle_schema import load
from training.config import LambdaMart, Recipe
from training.data.load import announce, data_facts, measurable
from training.experiments import listwise_pages as pages
from training.experiments import plans
from training.experiments.fits import NDCG_AT, Fit
from training.experiments.measured import Measured, by_shift
from training.experiments.store import Store
from training.experiments.workers import run_all
from training.reporting.page import render

TITLES = {
    "table2": "QILCM and its rivals",
    "table3": "QILCM and its variants",
    "anomaly": "QILCM on anomalous queries",
    "lambda": "The weight of the confusion loss",
}


@dataclass(frozen=True, slots=True)
class Asked:
    """What the command line asks for.

    Args:
        suite: one of :data:`training.experiments.plans.SUITES`.
        recipe, sources: the data, LambdaMART's budget, and the model that all methods are fitted like.
        seeds: how many, from 0.
        folds: which.
        shifts: planted ones of table3; empty for its own.
        jobs: fits at a time.
        ndcg_at: cutoff of the NDCG that the sentences are about.
        command, made_with: for the page.
    """

    suite: str
    recipe: Recipe
    sources: tuple[str, ...]
    seeds: int
    folds: tuple[int, ...]
    shifts: tuple[float, ...]
    jobs: int
    ndcg_at: int
    command: str
    made_with: dict[str, str]


def run(asked: Asked, out: Path, contents: Sequence[object], console: Console) -> str:
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
    for recipe in {fit.recipe.fold: fit.recipe for fit in reversed(fits)}.values():
        splits = measurable(load(recipe, asked.sources))
        if recipe.fold == asked.folds[0]:
            about_data = data_facts(splits, announce(recipe, splits, console))
    methods = plans.methods(asked.suite, asked.recipe)
    settings = {
        "suite": asked.suite,
        "recipe": asked.recipe.model_dump(mode="json"),
        "data": list(contents),
        "methods": plans.facts(methods),
    }
    with Store(out, settings) as store:
        results = by_shift(run_all(asked.suite, fits, store, asked.jobs, console), list(methods))
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
            settings=json.dumps(asked.recipe.model_dump(mode="json"), indent=1),
        )
        (out / "page.html").write_text(page, encoding="utf-8")
        said = {"command": asked.command, "made_with": asked.made_with, "sentence": told.verdicts[0], **told.summary}
        (out / "summary.json").write_text(json.dumps(said, indent=1) + "\n", encoding="utf-8")
    return told.verdicts[0]


def planned(asked: Asked) -> list[Fit]:
    """Every fit: seed by seed, so that whole seeds are done first."""
    return [
        Fit(
            recipe=data.model_copy(update={"fold": fold}),
            sources=asked.sources,
            seed=seed,
            method=name,
            spec=spec,
            cutoff=plans.cutoff(asked.recipe),
            anomaly=asked.suite == "anomaly",
        )
        for seed in range(asked.seeds)
        for data in plans.data_sets(asked.suite, asked.recipe, asked.shifts)
        for fold in asked.folds
        for name, spec in plans.methods(asked.suite, asked.recipe).items()
    ]


def _facts(asked: Asked, found: Measured) -> list[str]:
    first = asked.recipe.first_stage
    assert isinstance(first, LambdaMart)
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
        f"First stage: LambdaMART, {first.trials} settings tried per fold (selected on {first.select_on}), fitted once "
        "per seed and fold and shared by all methods, which see out-of-fold scores in training and rerank the top "
        f"{cutoff}.",
        "All networks share the encoder, AttRank unless the recipe says otherwise, the optimiser and early stopping on "
        "validation NDCG; baselines that QILCM has to beat: " + pages.baselines() + ".",
        "NDCG: gain 2^y - 1, discount 1/log2(rank + 1), macro mean over queries; equal scores keep input order.",
        *([choice] if found.is_choice and scored else []),
        f"Made with {versions}.",
    ]
