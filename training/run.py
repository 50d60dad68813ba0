"""One run: from ranking data to a sealed bundle and its figures on the test split, as one straight line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from rich.console import Console

from listwright.ranking import bundle
from listwright.ranking.errors import RecipeError
from listwright.ranking.reranker import Reranker
from listwright.training.bars import progress_bars
from listwright.training.budget import Budget
from listwright.training.cluster.group import Workers
from listwright.training.data.dataset import Splits
from listwright.training.data.load import Shards, announce, load
from listwright.training.evaluation.evaluate import Evaluation, evaluate
from listwright.training.evaluation.routing import RoutingEvaluation, evaluate_routing
from listwright.training.recipe.config import GivenModel, Recipe
from listwright.training.reporting.measures.details import alone, default_of, details, repeat
from listwright.training.reporting.measures.explained import explained
from listwright.training.reporting.measures.latency import measured_here
from listwright.training.reporting.measures.scores import score_details
from listwright.training.reporting.report import HEADLINE, Report
from listwright.training.run_context import RunContext
from listwright.training.specialists.srm import check_enough
from listwright.training.steps import fitting
from listwright.training.steps.bundle_schema import under_bundle_schema
from listwright.training.steps.bundling import write_bundle
from listwright.training.steps.fitting import Fitted
from listwright.training.stopwatch import Stopwatch
from listwright.training.workspace import Workspace


def run(
    recipe: Recipe,
    sources: Sequence[str],
    out: Path,
    *,
    resume: bool = False,
    device: str = "auto",
    command: str = "",
    shards: Shards = "never",
    workers: Workers | None = None,
    budget: Budget | None = None,
    console: Console,
) -> Report:
    """Fit a recipe and publish the bundle at ``out``.

    Args:
        recipe: what to fit.
        sources: files, folders or archives with the data; see ``--data``.
        out: the bundle's folder, ``.../NAME/VERSION``; must not exist.
        resume: go on with an interrupted run for the same ``out``.
        device: ``auto`` takes CUDA where there is one; or a torch device.
        command: that repeats the run, for its report.
        shards: whether rows stay on disk, as for :func:`listwright.training.data.load.load`.
        workers: of a data-parallel fit; None for this process.
        budget: the time that there is; None for no bound.
        console: where progress and the table go.

    Returns:
        The result on the test split, measured through the sealed bundle.

    Raises:
        ListwrightError: with the place and the remedy; nothing is published, checkpoints stay.
    """
    usable = usable_device(device)
    budget = budget or Budget()
    with Workspace(out, recipe, resume=resume, mode=budget.mode) as workspace, progress_bars(console) as bars:
        watch = Stopwatch(bars)
        with watch.step("data"):
            read = load(recipe, sources, shards=shards, progress=bars)
            splits, fingerprint = _checked(recipe, read, workspace)
        context = RunContext(recipe, splits, workspace.state, bars, usable, workers, _keep_decisions(budget, workspace))
        return _fit_and_publish(context, workspace, watch, fingerprint, command)


def run_on(
    recipe: Recipe,
    read: Splits,
    out: Path,
    *,
    device: str = "auto",
    command: str = "",
    budget: Budget | None = None,
    console: Console,
) -> Report:
    """The same on splits that are there; of the data, the recipe then says no more than what their features are.

    Args:
        recipe, out, device, command, budget, console: as of :func:`run`.
        read: under the schema that the training queries fix.

    Raises:
        ListwrightError: as :func:`run`.
    """
    usable = usable_device(device)
    budget = budget or Budget()
    with Workspace(out, recipe, resume=False, mode=budget.mode) as workspace, progress_bars(console) as bars:
        watch = Stopwatch(bars)
        with watch.step("data"):
            splits, fingerprint = _checked(recipe, read, workspace)
        context = RunContext(recipe, splits, workspace.state, bars, usable, budget=_keep_decisions(budget, workspace))
        return _fit_and_publish(context, workspace, watch, fingerprint, command)


def _keep_decisions(budget: Budget, workspace: Workspace) -> Budget:
    """The budget with the decisions of the interrupted run, if one goes on."""
    budget.keep_in(workspace.state / "budget.json")
    return budget


def _checked(recipe: Recipe, read: Splits, workspace: Workspace) -> tuple[Splits, str]:
    """Splits under the schema that the bundle will have, those of the interrupted run if one goes on; their digest."""
    splits = under_bundle_schema(recipe, read)
    if recipe.specialists is not None:  # now rather than after the generalist
        informative = sum(len(np.unique(labels)) > 1 for labels in splits.train.label_lists())
        check_enough(recipe.specialists, informative)
    given = recipe.first_stage
    return splits, workspace.belongs_to(splits, Path(given.path) if isinstance(given, GivenModel) else None)


def _fit_and_publish(
    context: RunContext, workspace: Workspace, watch: Stopwatch, fingerprint: str, command: str
) -> Report:
    """From checked data to the published bundle: fit, export, measure, report, seal, publish."""
    recipe, splits = context.recipe, context.splits
    notes = announce(recipe, splits, context.progress)
    fitted = fitting.fit(context, watch)
    with watch.step("export and parity"):
        write_bundle(workspace.bundle, workspace.out, recipe, splits, fitted)
    with watch.step("evaluation"):
        served = bundle.load(workspace.bundle)
        plain = None if fitted.plain is None else fitted.plain.scores_of(splits.test)
        task = context.progress.begin("Scoring the test split", len(splits.test))
        evaluation = evaluate(served.reranker, splits.test, plain=plain, task=task)
        router = recipe.router
        routing = None if router is None else evaluate_routing(workspace.bundle, splits.test, ndcg_at=router.ndcg_at)
    manifest = served.manifest
    with watch.step("report"):
        again = repeat(manifest, command, fingerprint)
        report = _report(context, fitted, served.reranker, evaluation, routing, notes, again)
    report = replace(report, seconds=watch.seconds)  # those of the report among them
    files = [*(file.name for file in manifest.files), *report.write(workspace.bundle)]
    bundle.seal(workspace.bundle, manifest.model_copy(update=report.sealed), files)
    bundle.publish(workspace.bundle, workspace.out)
    workspace.discard()
    return report


def _report(
    context: RunContext,
    fitted: Fitted,
    reranker: Reranker,
    evaluation: Evaluation,
    routing: RoutingEvaluation | None,
    notes: tuple[str, ...],
    again: Mapping[str, object],
) -> Report:
    """What the run found, through its sealed bundle."""
    splits, generalist, specialists = context.splits, fitted.generalist, fitted.specialists
    seen = (
        alone(splits)
        if generalist is None
        else details(reranker, splits, evaluation, generalist.module, generalist.history, HEADLINE)
    )
    return Report(
        evaluation=evaluation,
        metrics=evaluation.metrics(),
        data=splits.how,
        notes=notes,
        dropped=splits.dropped,
        first_stage=fitted.first.facts,
        model={"kind": "first_stage"} if generalist is None else generalist.facts,
        titles={network.spec.kind: network.spec.title for network in fitted.networks},
        specialists=None if specialists is None else specialists.facts,
        routing=routing,
        default=default_of(reranker.manifest),
        budget=context.budget.facts,
        recipe=context.recipe.model_dump(mode="json"),
        seconds={},
        details=seen
        | score_details(reranker, context.recipe, splits)
        | explained(reranker, splits.test, evaluation, HEADLINE),
        repeat=again,
        measured_here=measured_here(reranker, splits.test, evaluation.generalist),
    )


def usable_device(name: str) -> str:
    """The device of that name, tried out now rather than after the first stage.

    Raises:
        RecipeError: if it cannot be used; says why.
    """
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        return str(torch.zeros(1, device=name).device)
    except (RuntimeError, AssertionError) as error:
        raise RecipeError(f"--device {name!r} cannot be used: {str(error).splitlines()[0]}") from error
