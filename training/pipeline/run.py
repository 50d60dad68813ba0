"""One run: from ranking data to a sealed bundle and its figures on the test split, as one straight line."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from rich.console import Console

from listwright.ranking import bundle, golden
from listwright.ranking.compiled import linear as packed_linear
from listwright.ranking.errors import RecipeError
from listwright.ranking.manifest import Manifest
from listwright.ranking.reranker import Reranker
from listwright.ranking.stages import GOLDEN, ColumnStage, GoalsStage, NetworkStage
from listwright.training.cluster import Workers
from listwright.training.console.bars import progress_bars
from listwright.training.console.progress import Stopwatch
from listwright.training.data.dataset import Dataset, Splits
from listwright.training.data.load import Shards, announce, load
from listwright.training.evaluation.calibration import temperatures
from listwright.training.evaluation.probability import NO_BETTER, calibrate
from listwright.training.evaluation.protocol import HEADLINE, Evaluation, evaluate
from listwright.training.evaluation.routing import RoutingEvaluation, evaluate_routing
from listwright.training.export.parity import check_parity
from listwright.training.export.second_stages import ranker_graph, to_onnx
from listwright.training.networks.ranker import Unbatched
from listwright.training.pipeline import steps
from listwright.training.pipeline.budget import Budget
from listwright.training.pipeline.choice import DefaultChoice, compared_networks, without_worse
from listwright.training.pipeline.goals import goals_stage
from listwright.training.pipeline.steps import Fitted, with_bundle_schema
from listwright.training.pipeline.tracking import Tracker
from listwright.training.pipeline.workspace import RunContext, Workspace
from listwright.training.recipe.config import GivenModel, Recipe
from listwright.training.reporting.measures.behaviour import measure_second_stage
from listwright.training.reporting.measures.coverage import measure_coverage
from listwright.training.reporting.measures.explained import explain_queries, measure_importance
from listwright.training.reporting.measures.latency import measure_here
from listwright.training.reporting.measures.scores import measure_scores
from listwright.training.reporting.report import Report, default_facts, repeat_facts
from listwright.training.specialists.srm import check_enough

GOLDEN_LISTS = 8

GOLDEN_LENGTH = 15
"""Golden lists are cut to this length: enough to notice a fault, small enough for a repository."""


def run(
    recipe: Recipe,
    sources: Sequence[str] | Splits,
    out: Path,
    *,
    resume: bool = False,
    device: str = "auto",
    command: str = "",
    shards: Shards = "never",
    workers: Workers | None = None,
    budget: Budget | None = None,
    tracker: Tracker | None = None,
    console: Console,
) -> Report:
    """Fit a recipe and publish the bundle at ``out``.

    Args:
        recipe: Recipe of the fit.
        sources: Files, folders or archives with the data, see ``--data``; or splits under the schema that the training
            queries fix, of which the recipe's data part has the options of features.
        out: Folder of the bundle, ``.../NAME/VERSION``; must not exist.
        resume: Whether an interrupted run for the same ``out`` goes on.
        device: ``auto``, which takes CUDA where there is one, or the name of a torch device.
        command: Command that repeats the run, for its report.
        shards: Whether rows stay on disk, as for :func:`listwright.training.data.load.load`.
        workers: Workers of a data-parallel fit; None for this process.
        budget: Budget of time; None for no bound.
        tracker: Tracker that logs the fit; None logs nothing.
        console: Console for progress and the table.

    Returns:
        The result on the test split, measured through the sealed bundle.

    Raises:
        ListwrightError: with the place and the remedy; nothing is published, checkpoints stay.
    """
    usable = usable_device(device)
    budget = budget or Budget()
    bars = progress_bars(console, recorder=None if tracker is None else tracker.log)
    with Workspace(out, recipe, resume=resume, mode=budget.mode) as workspace, bars:
        watch = Stopwatch(bars)
        with watch.step("data"):
            read = sources if isinstance(sources, Splits) else load(recipe, sources, shards=shards, progress=bars)
            splits, fingerprint = _checked(recipe, read, workspace)
        budget.keep_in(workspace.state / "budget.json")
        context = RunContext(recipe, splits, workspace.state, bars, usable, workers, budget)
        fit = partial(_fit_and_publish, context, workspace, watch, fingerprint, command)
        if tracker is None:
            return fit()
        return tracker.follow(fit, out, recipe, fingerprint, folder=workspace.folder, progress=bars)


def _checked(recipe: Recipe, read: Splits, workspace: Workspace) -> tuple[Splits, str]:
    """Return splits under the bundle's schema, and their digest, which must equal that of an interrupted run."""
    splits = with_bundle_schema(recipe, read)
    if recipe.specialists is not None:  # now rather than after the generalist
        informative = sum(len(np.unique(labels)) > 1 for labels in splits.train.label_lists())
        check_enough(recipe.specialists, informative)
    first = recipe.first_stage
    return splits, workspace.belongs_to(splits, Path(first.path) if isinstance(first, GivenModel) else None)


def _fit_and_publish(
    context: RunContext, workspace: Workspace, watch: Stopwatch, fingerprint: str, command: str
) -> Report:
    """Fit, export, measure, report, seal and publish, from checked data."""
    recipe, splits = context.recipe, context.splits
    notes = announce(recipe, splits, context.progress)
    fitted = steps.fit(context, watch)
    with watch.step("export and parity"):
        manifest = write_bundle(workspace.bundle, workspace.out, recipe, splits, fitted)
        if missing := _no_probability(manifest, fitted):
            context.progress.remark(f"no probabilities of being relevant: {missing}")
    with watch.step("evaluation"):
        served = bundle.load(workspace.bundle)
        alone = served.manifest.model_copy(update={"goals": None})
        reranker = served.reranker if not fitted.goals else bundle.open_unsealed(workspace.bundle, alone)
        plain = None if fitted.plain is None else fitted.plain.scores_of(splits.test)
        task = context.progress.begin("Scoring the test split", len(splits.test))
        evaluation = evaluate(reranker, splits.test, plain=plain, task=task)
        router = recipe.router
        routing = None if router is None else evaluate_routing(workspace.bundle, splits.test, ndcg_at=router.ndcg_at)
    manifest = served.manifest
    with watch.step("report"):
        again = repeat_facts(manifest, command, fingerprint)
        report = _report(context, fitted, reranker, manifest.goals, evaluation, routing, notes, again)
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
    goals: GoalsStage | None,
    evaluation: Evaluation,
    routing: RoutingEvaluation | None,
    notes: tuple[str, ...],
    again: Mapping[str, object],
) -> Report:
    """Measure the run's results through its sealed bundle, and return the report."""
    splits, generalist, specialists = context.splits, fitted.generalist, fitted.specialists
    details: dict[str, object] = {}
    if generalist is not None:
        details = measure_second_stage(reranker, splits.test, evaluation, generalist, HEADLINE)
    if missing := _no_probability(reranker.manifest, fitted):
        details["no_probability"] = missing
    if goals is not None:
        details["goals"] = goals.model_dump(mode="json", include={"label", "weight", "others", "front"})
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
        default=default_facts(reranker.manifest),
        budget=context.budget.facts,
        recipe=context.recipe.model_dump(mode="json"),
        seconds={},
        details=details
        | {"features": measure_coverage(splits.train, splits.test)}
        | measure_scores(reranker, context.recipe, splits)
        | measure_importance(reranker, fitted.first.model, splits.test)
        | explain_queries(reranker, splits.test, evaluation, HEADLINE),
        repeat=again,
        measured_here=measure_here(reranker, splits.test, evaluation.generalist),
    )


def _no_probability(manifest: Manifest, fitted: Fitted) -> str:
    """Return why the bundle has no probabilities of being relevant; empty if it has, or labels are choices."""
    if isinstance(fitted.pointwise, str):
        return fitted.pointwise
    return NO_BETTER if manifest.probability is None else ""


def usable_device(name: str) -> str:
    """Return the device of that name, tested before the first stage is fitted.

    Raises:
        RecipeError: if it cannot be used; with the reason.
    """
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        return str(torch.zeros(1, device=name).device)
    except (RuntimeError, AssertionError) as error:
        raise RecipeError(f"--device {name!r} cannot be used: {str(error).splitlines()[0]}") from error


def write_bundle(folder: Path, out: Path, recipe: Recipe, splits: Splits, fitted: Fitted) -> Manifest:
    """Export into a folder, pass the parity gate, record golden lists, seal (without metrics yet).

    Args:
        folder: Empty folder for the files.
        out: Folder of the bundle once it is published: the parent's name and its own are the bundle's name and version.
        recipe, splits: Recipe and splits of the run.
        fitted: Fits of the run; no network where the first stage stands alone.

    Returns:
        The manifest as sealed.

    Raises:
        ScoringError: if the exported graph does not compute what was trained.
    """
    manifest = _manifest(out, recipe, splits, fitted)
    files = [GOLDEN, *_write_stages(folder, manifest, fitted)]
    reranker = bundle.open_unsealed(folder, manifest)
    longest = int(max(part.lengths.max() for part in (splits.train, splits.valid, splits.test)))
    rng = np.random.default_rng(recipe.seed)
    rows = splits.valid.features
    lengths: tuple[int, ...] = ()
    for stage, network in zip(manifest.second_stages, fitted.networks, strict=True):
        lengths = check_parity(Unbatched(network.module), reranker, stage, rows, longest=longest, rng=rng)
    if (specialists := fitted.specialists) is not None:
        check_parity(specialists.srm.module, reranker, specialists.stage, rows, longest=longest, rng=rng)
    if manifest.second_stage is not None and not compared_networks(recipe):
        cutoff = fitted.networks[0].spec.ndcg_at if recipe.router is None else recipe.router.ndcg_at
        manifest = without_worse(folder, manifest, splits.valid, cutoff)
        reranker = bundle.open_unsealed(folder, manifest)
    facts: dict[str, Any] = {"validated_lengths": lengths, "temperatures": temperatures(reranker, splits)}
    if not isinstance(fitted.pointwise, str):
        facts["probability"] = calibration = calibrate(reranker, splits, fitted.pointwise)
        if calibration is not None:
            (folder / calibration.file).write_text(fitted.pointwise.model, encoding="utf-8")
            files.append(calibration.file)
    if fitted.goals:
        for goal in fitted.goals:
            (folder / goal.file).write_text(goal.model, encoding="utf-8")
            files.append(goal.file)
        facts["goals"] = goals_stage(reranker, recipe, splits, fitted.first, fitted.goals)
    manifest = manifest.model_copy(update=facts)
    served = bundle.open_unsealed(folder, manifest)
    (folder / GOLDEN).write_bytes(golden.record(served, _golden_lists(splits.valid)))
    return bundle.seal(folder, manifest, files)


def _manifest(out: Path, recipe: Recipe, splits: Splits, fitted: Fitted) -> Manifest:
    """Return the manifest of these fits' bundle."""
    schema, first, specialists = splits.train.schema, fitted.first, fitted.specialists
    stages = [
        NetworkStage(
            kind=spec.kind,
            file=f"{spec.kind}.onnx",
            cutoff=spec.cutoff,
            first_stage_score=spec.first_stage_score,
            relative=spec.relative,
        )
        for spec in (network.spec for network in fitted.networks)
    ]
    default = fitted.default or DefaultChoice(stages[0].kind if stages else "first_stage")
    return Manifest(
        name=out.absolute().parent.name,
        version=out.name,
        created_at=datetime.now(UTC).replace(microsecond=0),
        recipe=recipe.model_dump(mode="json"),
        data=splits.how,
        feature_schema=schema,
        fingerprint=schema.fingerprint,
        relative=first.relative,
        first_stage=first.entry,
        second_stages=tuple(stages),
        strategy=default.strategy,
        default_reason=default.reason,
        choice=default.comparisons,
        anomaly=None if fitted.anomaly is None else fitted.anomaly.stage,
        srm=None if specialists is None else specialists.stage,
        router=None if specialists is None or specialists.router is None else specialists.router.stage,
        made_with=_versions(),
    )


def _write_stages(folder: Path, manifest: Manifest, fitted: Fitted) -> list[str]:
    """Write every stage to a file; return the files' names."""
    first, specialists, contents = fitted.first, fitted.specialists, dict[str, bytes]()
    for stage, network in zip(manifest.second_stages, fitted.networks, strict=True):
        contents[stage.file] = ranker_graph(network.module)
    if not isinstance(first.entry, ColumnStage) and first.model is not None:
        contents[first.entry.file] = first.model if isinstance(first.model, bytes) else first.model.encode()
    if fitted.anomaly is not None:
        contents[fitted.anomaly.stage.file] = fitted.anomaly.graph
    if specialists is not None:
        linear, width = specialists.srm.module.pack(), bundle.input_width(specialists.stage, manifest)
        metadata = None if linear is None else {packed_linear.METADATA: linear.to_text()}
        contents[specialists.stage.file] = to_onnx(specialists.srm.module, width, metadata)
        if specialists.router is not None:
            contents[specialists.router.stage.file] = specialists.router.graph
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return list(contents)


def _golden_lists(dataset: Dataset) -> Iterator[Float[np.ndarray, "L D"]]:
    """Yield lists of many lengths, from the shortest to the longest."""
    by_length = np.argsort(dataset.lengths, kind="stable")
    picks = dict.fromkeys(int(n) for n in by_length[np.linspace(0, len(by_length) - 1, GOLDEN_LISTS).astype(int)])
    for n in picks:
        yield dataset.features[dataset.slice(n)][:GOLDEN_LENGTH]


def _versions() -> dict[str, str]:
    names = ("listwright", "lightgbm", "numpy", "onnx", "onnxruntime", "torch")
    return {"python": platform.python_version(), **{name: version(name) for name in names}}
