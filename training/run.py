"""One run: from ranking data to a sealed bundle and its figures on the test split, as one straight line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress

from ranking import bundle
from ranking.errors import RecipeError, ScoringError
from training import bring_your_own, bundle_schema, first_stage, second_stage
from training.anomaly import FittedAnomaly, fit_anomaly
from training.bundling import write_bundle
from training.config import LambdaMart, Recipe
from training.data.dataset import Splits
from training.data.load import announce, load
from training.epoch import Epoch
from training.first_stage import FittedFirstStage
from training.learn import FittedNetwork
from training.measuring import measure
from training.model_config import FirstStageAlone
from training.progress import Bars, progress_bars
from training.report import HEADLINE, Report
from training.reporting.details import alone, default_of, details, repeat
from training.reporting.latency import measured_here
from training.reporting.score_details import score_details
from training.specialists import FittedSpecialists, fit_specialists
from training.srm import EmProgress, check_enough
from training.stopwatch import Stopwatch
from training.workspace import Workspace


def run(
    recipe: Recipe,
    sources: Sequence[str],
    out: Path,
    *,
    resume: bool = False,
    device: str = "auto",
    command: str = "",
    as_fitted: bool = False,
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
        as_fitted: the second stage is the bundle's default even if the test split shows it to harm: for whoever
            measures on that split, and must not choose by it.
        console: where progress and the table go.

    Returns:
        The result on the test split, measured through the sealed bundle.

    Raises:
        ListwrightError: with the place and the remedy; nothing is published, checkpoints stay.
    """
    read = partial(load, recipe, sources)
    return run_on(
        recipe,
        lambda bars: read(progress=bars),
        out,
        resume=resume,
        device=device,
        command=command,
        as_fitted=as_fitted,
        console=console,
    )


def run_on(
    recipe: Recipe,
    read: Callable[[Progress], Splits],
    out: Path,
    *,
    resume: bool = False,
    device: str = "auto",
    command: str = "",
    as_fitted: bool = False,
    console: Console,
) -> Report:
    """The same on splits that ``read`` gives; of the data, the recipe then says no more than what their features are.

    Raises:
        ListwrightError: as :func:`run`.
    """
    usable = usable_device(device)
    with Workspace(out, recipe, resume=resume) as workspace, progress_bars(console) as bars:
        return _fit_and_publish(recipe, read, workspace, bars, usable, command, as_fitted=as_fitted)


def _fit_and_publish(
    recipe: Recipe,
    read: Callable[[Progress], Splits],
    workspace: Workspace,
    bars: Bars,
    device: str,
    command: str,
    *,
    as_fitted: bool,
) -> Report:
    watch = Stopwatch(bars.enter)
    with watch.step("data"):
        splits = bundle_schema.under_bundle_schema(recipe, read(bars))
        for file in bars.tasks:  # compressed text is longer than its file: only now is the end known
            bars.update(file.id, total=file.completed)
        if recipe.specialists is not None:  # now rather than after the generalist
            informative = sum(len(np.unique(labels)) > 1 for _, labels in splits.train.lists())
            check_enough(recipe.specialists, informative)
        fingerprint = workspace.belongs_to(splits)
    notes = announce(recipe, splits, bars.console)
    with watch.step("first stage"):
        first = _fit_first_stage(recipe, splits, workspace, bars)
    with watch.step("anomaly score"):
        anomaly = _fit_anomaly(recipe, splits, first, bars)
    with watch.step("second stage"):
        fitted = _fit_second_stage(recipe, splits, first, workspace, bars, device)
    specialists = None
    if recipe.specialists is not None:
        with watch.step("specialists"):
            specialists = _fit_specialists(recipe, splits, first, anomaly, fitted, workspace, bars, device)
    with watch.step("export and parity"):
        write_bundle(workspace.bundle, workspace.out, recipe, splits, first, fitted, anomaly, specialists)
    with watch.step("evaluation"):
        measured = measure(workspace.bundle, recipe, splits, metric=HEADLINE, as_fitted=as_fitted, bars=bars)
    reranker, manifest, evaluation = measured.served.reranker, measured.served.manifest, measured.evaluation
    with watch.step("report"):
        seen = (
            alone(splits)
            if fitted is None
            else details(reranker, splits, evaluation, fitted.module, fitted.history, HEADLINE)
        )
        seen |= score_details(reranker, recipe, splits)
        here = measured_here(reranker, splits.test, evaluation.generalist)
    report = Report(
        evaluation=evaluation,
        metrics=evaluation.metrics(),
        data=splits.how,
        notes=notes,
        dropped=splits.dropped,
        first_stage=first.facts,
        model={"kind": "first_stage"} if fitted is None else fitted.facts,
        specialists=None if specialists is None else specialists.facts,
        routing=measured.routing,
        default=default_of(manifest),
        recipe=recipe.model_dump(mode="json"),
        seconds=watch.seconds,
        details=seen,
        repeat=repeat(manifest, command, fingerprint),
        measured_here=here,
    )
    files = [*(file.name for file in manifest.files), *report.write(workspace.bundle)]
    bundle.seal(workspace.bundle, manifest.model_copy(update=report.sealed), files)
    bundle.publish(workspace.bundle, workspace.out)
    workspace.discard()
    return report


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


def _fit_first_stage(recipe: Recipe, splits: Splits, workspace: Workspace, bars: Bars) -> FittedFirstStage:
    spec = recipe.first_stage
    if not isinstance(spec, LambdaMart):
        bars.console.print(f"[yellow]Note:[/] {bring_your_own.WARNING}")
        return first_stage.fit(spec, splits, seed=recipe.seed, state=workspace.state)
    tuning = bars.add_task("Tuning LambdaMART", total=spec.trials)
    folding = bars.add_task("Out-of-fold scores", total=spec.folds)

    def on_trial(done: int, best: float) -> None:
        text = f"Tuning LambdaMART, held-out NDCG@{spec.ndcg_at} {best:.4f}"
        bars.update(tuning, completed=done, description=text)

    fitted = first_stage.fit(
        spec,
        splits,
        seed=recipe.seed,
        state=workspace.state,
        on_trial=on_trial,
        on_fold=lambda done: bars.update(folding, completed=done),
    )
    bars.update(tuning, completed=spec.trials)
    bars.update(folding, completed=spec.folds)
    return fitted


def _fit_second_stage(
    recipe: Recipe, splits: Splits, first: FittedFirstStage, workspace: Workspace, bars: Bars, device: str
) -> FittedNetwork | None:
    spec = recipe.model
    if isinstance(spec, FirstStageAlone):
        return None
    task = bars.add_task(f"Training {spec.title}", total=spec.max_epochs)

    def on_epoch(epoch: Epoch) -> None:
        text = f"Training {spec.title}, valid NDCG@{spec.ndcg_at} {epoch.valid_ndcg:.4f} (best {epoch.best_ndcg:.4f})"
        bars.update(task, completed=epoch.number, description=text)

    fitted = second_stage.fit(
        spec,
        splits,
        first,
        seed=recipe.seed,
        checkpoint=workspace.state / "second_stage.pt",
        device=device,
        on_epoch=on_epoch,
    )
    assert fitted is not None
    epochs, best = len(fitted.history), fitted.best_epoch
    bars.update(
        task, total=epochs, completed=epochs, description=f"Training {spec.title}, best epoch {best} of {epochs}"
    )
    return fitted


def _fit_anomaly(recipe: Recipe, splits: Splits, first: FittedFirstStage, bars: Bars) -> FittedAnomaly | None:
    """A ranking does not depend on it but through a router: without one, a bundle can do without."""
    try:
        return fit_anomaly(splits.train, first.train_scores, seed=recipe.seed)
    except ScoringError as error:
        if recipe.router is not None:
            raise
        bars.console.print(f"[yellow]Note:[/] no anomaly score could be made of these features: {escape(str(error))}")
        return None


def _fit_specialists(
    recipe: Recipe,
    splits: Splits,
    first: FittedFirstStage,
    anomaly: FittedAnomaly | None,
    generalist: FittedNetwork | None,
    workspace: Workspace,
    bars: Bars,
    device: str,
) -> FittedSpecialists | None:
    spec = recipe.specialists
    assert spec is not None
    task = bars.add_task("Specialists", total=spec.max_iterations)
    folding = None if recipe.router is None else bars.add_task("Router, by folds", total=recipe.router.folds)

    def on_step(progress: EmProgress) -> None:
        step = progress.step
        shares = " ".join(f"{weight:.2f}" for weight in step.weights)
        text = f"EM {progress.start}/{progress.starts}, log P {step.objective:.1f}, pi {shares}, H {step.entropy:.2f}"
        bars.update(task, completed=step.number, description=text)

    def on_fold(done: int) -> None:
        if folding is not None:
            bars.update(folding, completed=done)

    fitted = fit_specialists(
        recipe,
        splits,
        first,
        anomaly,
        None if generalist is None else generalist.spec,
        state=workspace.state,
        device=device,
        on_step=on_step,
        on_fold=on_fold,
    )
    assert fitted is not None
    done = len(fitted.srm.steps)
    text = f"{spec.specialists} specialists, log P {fitted.srm.steps[-1].objective:.1f}"
    bars.update(task, total=done, completed=done, description=text)
    idle = [k for k, specialist in enumerate(fitted.stage.specialists) if specialist.queries == 0]
    if idle:
        bars.console.print(
            f"[yellow]Note:[/] no training query is most likely specialist {', '.join(map(str, idle))}'s: lower "
            "specialists in the recipe"
        )
    if not fitted.srm.converged:
        bars.console.print(f"[yellow]Note:[/] EM had not converged after {done} iterations (max_iterations)")
    return fitted
