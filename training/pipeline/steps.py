"""The steps of a run that its bundle depends on: the schema, and the fits.

The schema has a given model's categories, the recipe's defaults, and no constant columns. The fits are first stage,
choice, networks, anomaly score and specialists, one after the other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from listwright.ranking.atomic_file import atomic_write
from listwright.ranking.errors import DataError, RecipeError, ScoringError
from listwright.ranking.manifest import MAX_MANIFEST_BYTES, Comparison
from listwright.ranking.relative import KINDS
from listwright.training.console.progress import SILENT, Progress, Stopwatch
from listwright.training.data import load as reading
from listwright.training.data.dataset import Splits
from listwright.training.data.load import with_defaults, without_constant
from listwright.training.data.split import informative
from listwright.training.evaluation.probability import obstacle_to
from listwright.training.first_stage import boosting, bring_your_own, lambdamart, pointwise
from listwright.training.first_stage import fit as first_stage
from listwright.training.first_stage.boosting import Grower, LocalGrower
from listwright.training.first_stage.data_parallel import ParallelGrower
from listwright.training.first_stage.fit import FittedFirstStage
from listwright.training.first_stage.pointwise import Pointwise
from listwright.training.first_stage.relative import candidates, widened
from listwright.training.pipeline import choice
from listwright.training.pipeline.budget import Budget
from listwright.training.pipeline.choice import (
    ENOUGH,
    DefaultChoice,
    Strategy,
    better_first_stage,
    compare,
    compared_networks,
    count_informative,
    estimate_epoch,
    first_stage_ndcg,
)
from listwright.training.pipeline.goals import FittedGoal, fit_goals
from listwright.training.pipeline.specialists import FittedSpecialists, fit_specialists
from listwright.training.pipeline.workspace import RunContext
from listwright.training.recipe.config import GivenColumn, GivenModel, LambdaMart, Recipe
from listwright.training.recipe.model import FirstStageAlone, NetworkSpec
from listwright.training.search import TimeOverError
from listwright.training.second_stage import fit as second_stage
from listwright.training.second_stage.loop import FittedNetwork
from listwright.training.specialists.router import FittedAnomaly, fit_anomaly

BOOSTING = 0.6
"""Share of the time that the plan spends on LightGBM at most."""

FOLD = 0.75
"""LightGBM fits that the fit of one fold takes: the number of trees is known."""

LATER_TRIALS = 2.5
"""LightGBM fits that a trial after the first takes about: it may try many leaves, or a low learning rate."""

_LADDER = ((1, 2), (1, 3), (2, 3), (3, 4), (3, 5), (5, 5), (8, 5), (12, 5), (20, 5), (50, 5))
"""Settings tried and folds of out-of-fold scores, from the cheapest plan to the dearest."""

COLUMNS = "list-relative columns"
"""Name of that work in plans and reports."""

PROBABILITIES = "probabilities"
"""Name of that work in plans and reports."""

FIRST_TREES = "trees of the first LightGBM fit"
"""Name of that work, where the clock ends it."""

FEWEST_EPOCHS, FEWEST_STEPS = 4, 500
"""Fewest epochs worth fitting a network for; or steps, where an epoch has many."""

USUAL_EPOCHS = 30
"""Epochs after which most networks have stopped."""

MOST_ROWS = 10_000
"""Most rows of a query that LightGBM fits a ranker to."""


@dataclass(frozen=True, slots=True)
class Fitted:
    """All fits of a run.

    Args:
        first: First stage.
        plain: First stage without list-relative columns, where ``first`` has some and was compared with it.
        anomaly: Anomaly score; None where there is nothing to compute it from.
        default: Choice of the default strategy; None for the first network, or the first stage.
        networks: Second stages, the recipe's own or the chosen one first.
        specialists: Specialists; None if the recipe has none.
        pointwise: Pointwise model, or why there is none; empty where labels are choices, which need none.
        goals: Rankers for the goals besides the label.
    """

    first: FittedFirstStage
    plain: FittedFirstStage | None = None
    anomaly: FittedAnomaly | None = None
    default: DefaultChoice | None = None
    networks: Sequence[FittedNetwork] = ()
    specialists: FittedSpecialists | None = None
    pointwise: Pointwise | str = ""
    goals: Sequence[FittedGoal] = ()

    @property
    def generalist(self) -> FittedNetwork | None:
        """The second stage for all queries."""
        return self.networks[0] if self.networks else None


def fit(run: RunContext, watch: Stopwatch) -> Fitted:
    """Run every fit of a run, one after the other.

    Args:
        run: Context of the run.
        watch: Stopwatch of the steps.
    """
    with watch.step("first stage"):
        first, plain, comparisons = fit_first_stage(run)
    goals: tuple[FittedGoal, ...] = ()
    if run.splits.train.goals:
        with watch.step("goals"):
            goals = fit_goals(run, first)
    with watch.step("probabilities"):
        probabilities = fit_pointwise(run, first)
    with watch.step("anomaly score"):
        anomaly = fit_anomaly_score(run, first)
    with watch.step("choice"):
        default = choose(run, first, comparisons)
    with watch.step("second stage"):
        networks = fit_networks(run, first, default)
    fitted = Fitted(first, plain, anomaly, default, networks, pointwise=probabilities, goals=goals)
    if run.recipe.specialists is None:
        return fitted
    with watch.step("specialists"):
        return replace(fitted, specialists=fit_mixture(run, first, anomaly, fitted.generalist))


def fit_pointwise(run: RunContext, first: FittedFirstStage) -> Pointwise | str:
    """Fit the pointwise model to the first stage's columns, or return why not: no usable labels, or no time."""
    budget, file, scores_file = run.budget, run.state / "pointwise.txt", run.state / "pointwise_scores.npy"
    if (obstacle := obstacle_to(run.splits)) is not None:
        return obstacle
    if not budget.plan(PROBABILITIES, 1, lambda: float(budget.unspent() >= (budget.unit or 0.0))):
        budget.leave_out(PROBABILITIES)
        return "there was no time for another LightGBM fit"
    if file.exists():
        return Pointwise(file.read_text("utf-8"), np.load(scores_file) if scores_file.exists() else None)
    task = run.progress.begin("LightGBM for probabilities", pointwise.MOST_TREES, name="pointwise")

    def watch(trees: int, loss: float) -> None:
        task.reach(trees)
        task.measure(trees, {"log_loss": loss})
        if not budget.goes_on(f"trees for {PROBABILITIES}", trees, 0.0):
            raise TimeOverError

    goes_on = partial(budget.goes_on, f"folds for {PROBABILITIES}")
    wide, seed = widened(run.splits, first.relative), run.recipe.seed
    fitted = pointwise.fit_pointwise(wide.train, wide.valid, seed=seed, report=watch, goes_on=goes_on)
    if fitted.train_scores is not None:
        np.save(scores_file, fitted.train_scores)
    atomic_write(file, fitted.model)  # last: it marks the scores as finished
    return fitted


def fit_first_stage(run: RunContext) -> tuple[FittedFirstStage, FittedFirstStage | None, tuple[Comparison, ...]]:
    """Fit the first stage of a recipe.

    Returns:
        The first stage; the one without list-relative columns where it has some and was compared with that; and the
        comparison.
    """
    recipe, splits, state, progress = run.recipe, run.splits, run.state, run.progress
    spec = recipe.first_stage
    if not isinstance(spec, LambdaMart):
        run.budget.skip_lightgbm()
        progress.remark(bring_your_own.WARNING)
        fitted = first_stage.fit(spec, splits, seed=recipe.seed, state=state)
        for note in fitted.notes:
            progress.remark(note)
        return fitted, None, ()
    progress.say("Loss of LightGBM: {}, because {}".format(*lambdamart.loss_of(splits.train, spec.settings)))
    if spec.relative == "auto" and not candidates(splits.train.schema, KINDS):
        spec = spec.model_copy(update={"relative": "none"})  # the same would be fitted twice
    grower = LocalGrower() if run.workers is None else ParallelGrower(run.workers)
    spec, reserved = _plan_first_stage(run, spec, grower)
    more: dict[str, Any] = {"seed": recipe.seed, "state": state, "progress": progress, "grower": grower}
    if run.budget.bounded:
        unit = run.budget.unit or 0.0
        more["goes_on"] = lambda name, done, pace: run.budget.goes_on(name, done, max(pace, unit) + reserved)
    if spec.relative != "auto":
        return first_stage.fit(spec, splits, **more), None, ()
    specs = (spec.model_copy(update={"relative": kinds}) for kinds in ("none", KINDS))
    plain, relative = (first_stage.fit(each, splits, **more) for each in specs)
    return better_first_stage(plain, relative, splits, spec.ndcg_at)


def _plan_first_stage(run: RunContext, spec: LambdaMart, grower: Grower) -> tuple[LambdaMart, float]:
    """Return as much of the first stage as there is time for, and the seconds that must be left after its settings."""
    budget, splits, recipe = run.budget, run.splits, run.recipe
    if not budget.bounded:
        return spec, 0.0
    seconds = None if budget.unit is not None else _time_lightgbm(run, spec, grower)
    schema = splits.train.schema
    width = 1.0 + len(candidates(schema, KINDS)) / len(schema) if spec.relative == "auto" else 1.0
    networks = compared_networks(recipe)
    network, then = 0.0, ""
    if not isinstance(recipe.model, FirstStageAlone):
        title = (networks[0] if networks else recipe.model).title
        then = "the second stages in the time that is left" if networks else title
        if not budget.replayed and FIRST_TREES not in budget.ends:
            network_spec = networks[0] if networks else recipe.model
            network = estimate_epoch(run, network_spec) * min(network_spec.max_epochs, USUAL_EPOCHS)
    level = 0.5 * (1.0 + width) * (float(obstacle_to(splits) is None) + len(splits.train.goals))  # LightGBM fits
    if seconds is not None:
        few = networks and count_informative(splits.valid) < ENOUGH
        fits = recipe.choice.folds if few and recipe.choice is not None else 1
        budget.set_unit(seconds, _boosting_seconds(seconds, spec, width) + fits * network + level * seconds)
    foldless = bool(networks) or isinstance(recipe.model, FirstStageAlone)
    blind = not informative(splits.valid)
    network += level * (budget.unit or 0.0)
    plan = _plan_boosting(budget, spec, width=width, network=network, blind=blind, foldless=foldless)
    run.progress.say(budget.plan_text(spec.trials, plan.relative == "auto", then if plan.folds else ""))
    return plan, network + FOLD * (budget.unit or 0.0) * (plan.folds - 1)


def _boosting_seconds(unit: float, spec: LambdaMart, width: float, *, trials: int = 1, folds: int = 2) -> float:
    """Estimate the seconds of a first stage from those of one LightGBM fit."""
    # a fit with list-relative columns stops earlier, and takes about half as much longer as there are more columns; it
    # is repeated with those that the trees use
    by_folds = spec.select_on == "folds"
    trial = FOLD * spec.folds if by_folds else 1.0
    settings = trial * (1.0 + LATER_TRIALS * (trials - 1)) + (FOLD if by_folds else 0.0)
    both = settings + FOLD * ((spec.folds if by_folds else folds) - 1)
    return unit * (both + (0.0 if width == 1.0 else 0.5 * (1.0 + width) * (both + FOLD * trial)))


def _plan_boosting(
    budget: Budget, spec: LambdaMart, *, width: float, network: float, blind: bool = False, foldless: bool = False
) -> LambdaMart:
    """Return as much of a first stage as the time affords after every kind of ranker is fitted once."""
    # list-relative columns come before more settings; without the time for any fold, there are no out-of-fold scores.
    # ``width``: all columns as a multiple of those of the data; ``blind``: the validation queries can choose nothing;
    # ``foldless``: a bundle without out-of-fold scores is of use
    unit, unspent = budget.unit or 0.0, budget.unspent()
    most = min(BOOSTING * budget.seconds, unspent - network)
    ladder = [rung for rung in _LADDER if rung[0] <= spec.trials and rung[1] <= spec.folds]
    ladder.append((spec.trials, spec.folds))
    on_valid = spec if blind else spec.model_copy(update={"select_on": "valid"})
    ways = [(width, spec), (width, on_valid), (1.0, on_valid)]
    tried, parts = 1, 0 if foldless else 2
    for columns, selection in ways:
        costs = [_boosting_seconds(unit, selection, columns, trials=rung[0], folds=rung[1]) for rung in ladder]
        affordable = [rung for rung, cost in zip(ladder, costs, strict=True) if cost <= most]
        if affordable or costs[0] <= unspent:
            tried, parts = affordable[-1] if affordable else ladder[0]
            break
    by_folds = bool(budget.plan("selection by folds", int(spec.select_on == "folds"), lambda: selection is spec))
    changes: dict[str, object] = {
        "trials": budget.plan("settings", spec.trials, lambda: tried),
        "folds": budget.plan(
            "folds", spec.folds, lambda: spec.folds if parts and selection.select_on == "folds" else parts
        ),
        "select_on": "folds" if by_folds else "valid",
    }
    if spec.relative == "auto" and not budget.plan(COLUMNS, 1, lambda: columns > 1.0 or width == 1.0):
        changes["relative"] = "none"
        budget.leave_out(COLUMNS)
    if not by_folds and spec.select_on == "folds":
        budget.leave_out("settings chosen by folds")
    return spec.model_copy(update=changes)


def _time_lightgbm(run: RunContext, spec: LambdaMart, grower: Grower) -> float:
    """Return the seconds of one LightGBM fit, the first trial, which the clock may end."""
    budget, kinds = run.budget, first_stage.kinds_of(spec)

    def watch(trees: int, _value: float) -> None:
        if not budget.goes_on(FIRST_TREES, trees, 0.0):
            raise TimeOverError

    wide = widened(run.splits, candidates(run.splits.train.schema, kinds))
    task = run.progress.begin("One LightGBM fit", 1, name=first_stage.name_of(kinds))
    search = lambdamart.search_settings(
        wide.train,
        wide.valid,
        spec.model_copy(update={"trials": 1, "select_on": "valid"}),
        seed=run.recipe.seed,
        journal=run.state / first_stage.trials_file(kinds, "valid"),
        prune=True,
        task=task,
        grower=grower,
        watch=watch,
    )
    task.end(1)
    if FIRST_TREES in budget.ends:
        run.progress.remark(f"the time limit ended the first LightGBM fit after {search.fact} trees")
    return search.first_seconds


def choose(run: RunContext, first: FittedFirstStage, comparisons: tuple[Comparison, ...]) -> DefaultChoice:
    """Choose what ``auto`` will mean, by queries that are not test queries.

    Args:
        run: Context of the run, whose recipe has the rankers to compare.
        first: First stage below the second stages.
        comparisons: Comparisons of first stages, for the reason and the list of all comparisons.
    """
    recipe, splits, budget = run.recipe, run.splits, run.budget
    specs = compared_networks(recipe)
    if not specs:  # a network that is not compared is the default for no reason
        alone = isinstance(recipe.model, FirstStageAlone) and comparisons
        return DefaultChoice(recipe.model.kind, choice.reason(comparisons, {}) if alone else None, comparisons)
    current: Strategy = "first_stage"
    values: dict[str, Float[np.ndarray, " N"]] = {current: first_stage_ndcg(first, splits, specs[0].ndcg_at)}
    all_comparisons, undecided, networks = list(comparisons), [], {}
    for spec in specs:
        if not budget.plan(spec.title, 1, partial(_has_time_for, run, spec)):
            budget.leave_out(spec.title)
            continue
        networks[spec.kind] = network = _fit_network(run, spec, first)
        result = compare(run, spec, network, first, (current, values[current]))
        if result is not None:
            values[spec.kind] = result.values
            all_comparisons.append(result.comparison)
        if result is not None and choice.pays(result.comparison):
            current = spec.kind
        elif result is None or not result.in_time:
            undecided.append(spec.kind)
    titles: dict[str, str] = {spec.kind: spec.title for spec in specs}
    budget.undecided = tuple(undecided)
    reason = choice.reason(all_comparisons, titles, undecided) if all_comparisons else choice.NO_TIME
    return DefaultChoice(current, reason, tuple(all_comparisons), networks)


def _has_time_for(run: RunContext, spec: NetworkSpec) -> bool:
    """Return whether there is time for so many epochs of a network that it is worth fitting."""
    if not run.budget.planned.get("folds", 1):
        return False
    steps = len(run.splits.train) / spec.batch_size
    epochs = min(spec.max_epochs, FEWEST_EPOCHS, math.ceil(FEWEST_STEPS / steps))
    return run.budget.unspent() >= epochs * estimate_epoch(run, spec)


def fit_networks(run: RunContext, first: FittedFirstStage, default: DefaultChoice) -> list[FittedNetwork]:
    """Fit the second stages of the bundle, except those without enough time.

    They are the chosen one, which answers, the recipe's own, and QILCM if it was compared.
    """
    recipe = run.recipe
    if isinstance(recipe.model, FirstStageAlone):
        return []
    specs = {spec.kind: spec for spec in (*compared_networks(recipe), recipe.model)}
    kinds = dict.fromkeys((default.strategy, recipe.model.kind, *(("qilcm",) if "qilcm" in specs else ())))
    kept_specs = [specs[kind] for kind in kinds if kind != "first_stage"]
    return [
        default.networks.get(spec.kind) or _fit_network(run, spec, first)
        for spec in kept_specs
        if spec.title not in run.budget.left_out
    ]


def _fit_network(run: RunContext, spec: NetworkSpec, first: FittedFirstStage) -> FittedNetwork:
    task = run.progress.begin(f"Training {spec.title}", spec.max_epochs, name=spec.kind)
    fitted = second_stage.fit(
        spec,
        run.splits,
        first,
        seed=run.recipe.seed,
        checkpoint=run.state / f"{spec.kind}.pt",
        device=run.device,
        task=task,
        workers=run.workers,
        goes_on=partial(run.budget.goes_on, f"epochs of {spec.title}"),
    )
    assert fitted is not None
    epochs = len(fitted.history)
    task.end(epochs, f"best epoch {fitted.best_epoch} of {epochs}")
    return fitted


def fit_anomaly_score(run: RunContext, first: FittedFirstStage) -> FittedAnomaly | None:
    """Fit the anomaly score; rankings depend on it only through a router, so that a bundle can lack it."""
    if not run.budget.planned.get("folds", 1):  # the scores are not out-of-fold
        return None
    try:
        return fit_anomaly(run.splits.train, first.train_scores, seed=run.recipe.seed)
    except ScoringError as error:
        if run.recipe.router is not None:
            raise
        run.progress.remark(f"no anomaly score can be computed from these features: {error}")
        return None


def fit_mixture(
    run: RunContext, first: FittedFirstStage, anomaly: FittedAnomaly | None, generalist: FittedNetwork | None
) -> FittedSpecialists | None:
    """Fit the specialists of a recipe, and their router."""
    fitted = fit_specialists(run, first, anomaly, None if generalist is None else generalist.spec)
    assert fitted is not None
    idle = [k for k, specialist in enumerate(fitted.stage.specialists) if specialist.queries == 0]
    if idle:
        run.progress.remark(
            f"specialist {', '.join(map(str, idle))} is the most likely one of no training query: lower specialists in "
            "the recipe"
        )
    if not fitted.srm.converged:
        run.progress.remark(f"EM had not converged after {len(fitted.srm.steps)} iterations (max_iterations)")
    return fitted


def load(recipe: Recipe, sources: Sequence[str], *, progress: Progress = SILENT) -> Splits:
    """Read the data of a recipe, see :func:`listwright.training.data.load.load`, under the schema of the bundle."""
    return with_bundle_schema(recipe, reading.load(recipe, sources, progress=progress))


def with_bundle_schema(recipe: Recipe, splits: Splits) -> Splits:
    """Return splits under the schema of the bundle.

    Args:
        recipe: Recipe with the first stage and the options of features.
        splits: Splits under the schema that the training queries fix.

    Raises:
        RecipeError: if a default or a monotone constraint does not fit; see
            :func:`listwright.training.data.load.with_defaults` and
            :func:`listwright.training.first_stage.boosting.check_monotone`. If there are weights that a part of the
            recipe cannot honour. If a given ONNX graph does not fit the data.
        SchemaMismatchError: if a given model does not fit the data.
        DataError: if all columns are constant, a label has no gain, no weight of a split is above 0, a query has
            more rows than LambdaMART takes, or a manifest cannot hold the features.
    """
    needed: frozenset[str] = frozenset()
    splits = splits.with_gains(recipe.data.gains).with_normalised_weights()
    _check_weights(recipe, splits)
    match recipe.first_stage:
        case GivenModel(path=path):
            model = bring_your_own.read_model(Path(path), splits.train.schema)
            if isinstance(model, str):
                splits = splits.with_schema(bring_your_own.with_model_categories(model, splits.train.schema))
            needed = bring_your_own.columns_of(model, splits.train.schema)
        case GivenColumn(column=column):
            needed = frozenset([column])
        case LambdaMart(monotone=directions):
            boosting.check_monotone(directions, splits.train.schema)
            _check_lengths(splits)
    splits = splits.described_by(with_defaults(splits.train.schema, recipe.data.defaults))
    splits = without_constant(splits, needed) if recipe.data.drop_constant else splits
    if len(splits.train.schema.model_dump_json(indent=1).encode()) > MAX_MANIFEST_BYTES * 3 // 4:
        widest = max(splits.train.schema.features, key=lambda feature: len(feature.categories))
        counts = f"{len(splits.train.schema):,} features, this one with {len(widest.categories):,} categories,"
        fault = f"{counts} are too many for a bundle's manifest of {MAX_MANIFEST_BYTES} bytes"
        raise DataError(splits.how, f"{fault}: {splits.remedies.exclusion(widest.name)}", column=widest.name)
    return splits


def _check_lengths(splits: Splits) -> None:
    """Raise DataError for queries that are too long for LightGBM: in its training and early-stopping data."""
    for name, part in (("training", splits.train), ("validation", splits.valid)):
        longest, more = int(np.argmax(part.lengths)), int((part.lengths > MOST_ROWS).sum()) - 1
        if more >= 0:
            others = f", and {more} more {name} queries have more than {MOST_ROWS:,}" if more else ""
            raise DataError(
                f"query {part.qids[longest]}",
                f"{part.lengths[longest]:,} rows{others}: LightGBM's LambdaMART takes {MOST_ROWS:,} a query at most. "
                "Keep the best of each query by a simple rule, or give listwright fit a first stage: --first-stage and "
                "--first-stage-column have no such limit",
            )


def _check_weights(recipe: Recipe, splits: Splits) -> None:
    """Raise RecipeError for a part of the recipe that does not support row weights."""
    train, weights = splits.train, splits.train.weights
    if weights is None:
        return
    if recipe.router is not None:
        raise RecipeError("a [router] does not support weights: leave out [router], or the weights")
    by_query = "[specialists]" if recipe.specialists is not None else None
    networks = [spec for spec in (recipe.model, *compared_networks(recipe)) if not isinstance(spec, FirstStageAlone)]
    if any(spec.rank_loss == "plackett_luce" for spec in networks):
        by_query = 'rank_loss = "plackett_luce"'
    for n in range(len(train) if by_query else 0):
        low, high = (end(weights[train.slice(n)]) for end in (np.min, np.max))
        if low < high:
            ratio = "inf" if low == 0.0 else f"{high / low:.3g}"
            raise RecipeError(
                f"{by_query} weighs whole queries, and rows of query {train.qids[n]!r} have different weights (largest "
                f"over smallest: {ratio}): give the rows of a query one weight, or fit by another loss"
            )
