"""The steps of a run that take time: first stage, choice, networks, anomaly score, specialists."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Float

from listwright.ranking.errors import ScoringError
from listwright.ranking.manifest import Comparison
from listwright.ranking.relative import KINDS
from listwright.training import choice
from listwright.training.budget import boosting_plan
from listwright.training.choice import (
    Chosen,
    Strategy,
    better_first_stage,
    compare,
    compare_fitted,
    compared_networks,
    epoch_of,
    first_stage_ndcg,
    on_validation,
    time_for,
)
from listwright.training.data.split import informative
from listwright.training.first_stage import bring_your_own, lambdamart
from listwright.training.first_stage import fit as first_stage
from listwright.training.first_stage.boosting import Grower, LocalGrower
from listwright.training.first_stage.data_parallel import ParallelGrower
from listwright.training.first_stage.fit import FittedFirstStage
from listwright.training.first_stage.relative import candidates, widened
from listwright.training.recipe.config import LambdaMart
from listwright.training.recipe.model import FirstStageAlone, NetworkSpec
from listwright.training.router import FittedAnomaly, fit_anomaly
from listwright.training.run_context import RunContext
from listwright.training.second_stage import fit as second_stage
from listwright.training.second_stage.loop import FittedNetwork
from listwright.training.specialists.fit import FittedSpecialists, fit_specialists
from listwright.training.stopwatch import Stopwatch


@dataclass(frozen=True, slots=True)
class Fitted:
    """What a run has fitted.

    Args:
        first: the first stage.
        plain: the one without list-relative columns, where ``first`` has some and was compared with it.
        anomaly: how unusual a query is; None where that cannot be judged.
        chosen: what ``auto`` means; None for the first network, or the first stage.
        networks: second stages, the recipe's own or the chosen one first.
        specialists: None if the recipe has none.
    """

    first: FittedFirstStage
    plain: FittedFirstStage | None = None
    anomaly: FittedAnomaly | None = None
    chosen: Chosen | None = None
    networks: Sequence[FittedNetwork] = ()
    specialists: FittedSpecialists | None = None

    @property
    def generalist(self) -> FittedNetwork | None:
        """The second stage for all queries."""
        return self.networks[0] if self.networks else None


def fit(run: RunContext, watch: Stopwatch) -> Fitted:
    """Every fit of a run, one after the other.

    Args:
        run: what to fit.
        watch: times the steps.
    """
    with watch.step("first stage"):
        first, plain, comparisons = fit_first_stage(run)
    with watch.step("anomaly score"):
        anomaly = fit_anomaly_score(run, first)
    with watch.step("choice"):
        chosen = choose(run, first, comparisons)
    with watch.step("second stage"):
        networks = fit_networks(run, first, chosen)
    found = Fitted(first, plain, anomaly, chosen, networks)
    if run.recipe.specialists is None:
        return found
    with watch.step("specialists"):
        return replace(found, specialists=fit_mixture(run, first, anomaly, found.generalist))


def fit_first_stage(
    run: RunContext,
) -> tuple[FittedFirstStage, FittedFirstStage | None, tuple[Comparison, ...]]:
    """The first stage of a recipe.

    Returns:
        The first stage; the one without list-relative columns where it has some and was compared with that; and the
        comparison.
    """
    recipe, splits, state, progress = run.recipe, run.splits, run.state, run.progress
    spec = recipe.first_stage
    if not isinstance(spec, LambdaMart):
        run.budget.skip_lightgbm()
        progress.remark(bring_your_own.WARNING)
        given = first_stage.fit(spec, splits, seed=recipe.seed, state=state)
        for note in given.notes:
            progress.remark(note)
        return given, None, ()
    grower = LocalGrower() if run.workers is None else ParallelGrower(run.workers)
    spec = _plan_first_stage(run, spec, grower)
    more: dict[str, Any] = {"seed": recipe.seed, "state": state, "progress": progress, "grower": grower}
    if run.budget.bounded:
        unit = run.budget.unit or 0.0
        more["goes_on"] = lambda name, done, pace: run.budget.goes_on(name, done, max(pace, unit))
    if spec.relative != "auto":
        return first_stage.fit(spec, splits, **more), None, ()
    plain, relative = first_stage.with_and_without(spec, splits, **more)
    return better_first_stage(plain, relative, splits, spec.ndcg_at)


def _plan_first_stage(run: RunContext, spec: LambdaMart, grower: Grower) -> LambdaMart:
    """As much of the recipe's first stage as there is time for, once one LightGBM fit is timed."""
    budget, splits = run.budget, run.splits
    if not budget.bounded:
        return spec
    by_folds = spec.select_on == "folds"
    if budget.unit is None and not budget.replayed:
        task = run.progress.begin("One LightGBM fit", 1)
        kinds = first_stage.kinds_of(spec)
        wide = widened(splits, candidates(splits.train.schema, kinds))
        found = lambdamart.search_settings(
            wide.train,
            wide.valid,
            spec.model_copy(update={"trials": 1, "select_on": "valid"}),
            seed=run.recipe.seed,
            journal=None if by_folds else run.state / first_stage.trials_file(kinds),  # the first trial, if it is one
            prune=True,
            grower=grower,
            watch=budget.check_first_fit,
        )
        budget.set_unit(found.first_seconds)
        task.end(1)
    numeric = sum(feature.kind == "numeric" for feature in splits.train.schema.features)
    width = 1.0 + len(KINDS) * numeric / len(splits.train.schema) if spec.relative == "auto" else 1.0
    blind = not informative(splits.valid)
    plan = boosting_plan(budget, trials=spec.trials, folds=spec.folds, width=width, by_folds=by_folds, blind=blind)
    changes: dict[str, object] = {"trials": plan.trials, "folds": plan.folds}
    if by_folds and not plan.by_folds:
        budget.leave_out("settings chosen by folds")
        changes["select_on"] = "valid"
    if spec.relative == "auto" and not plan.columns:
        budget.leave_out("list-relative columns")
        changes["relative"] = "none"
    for line in budget.plan_text(spec.trials):
        run.progress.say(line)
    return spec.model_copy(update=changes)


def choose(run: RunContext, first: FittedFirstStage, comparisons: tuple[Comparison, ...]) -> Chosen:
    """What ``auto`` will mean, by queries that are not test queries.

    Args:
        run: the recipe says what is compared.
        first: that the second stages stand on.
        comparisons: of first stages, which only the reason tells.
    """
    recipe, splits, validation = run.recipe, run.splits, on_validation(run.splits)
    specs = compared_networks(recipe)
    if not specs:  # a network that is not compared is the default for no reason
        alone = isinstance(recipe.model, FirstStageAlone) and comparisons
        return Chosen(
            recipe.model.kind, choice.reason(comparisons, {}, validation=validation) if alone else None, comparisons
        )
    current: Strategy = "first_stage"
    values: dict[str, Float[np.ndarray, " N"]] = {current: first_stage_ndcg(first, splits, specs[0].ndcg_at)}
    found, undecided, networks = list(comparisons), [], {}
    for spec in specs:
        if validation:
            network = _fit_in_time(run, spec, first)
            if network is not None:
                networks[spec.kind] = network
            compared = None if network is None else compare_fitted(run, spec, network, (current, values[current]))
        else:
            compared = compare(run, spec, first, (current, values[current]))
        if compared is None:
            run.budget.leave_out(spec.title)
            continue
        values[spec.kind] = compared.values
        found.append(compared.comparison)
        if choice.pays(compared.comparison):
            current, run.budget.reserved = spec.kind, compared.seconds
        elif not compared.in_time:
            undecided.append(spec.kind)
    titles: dict[str, str] = {spec.kind: spec.title for spec in specs}
    run.budget.undecided = tuple(undecided)
    reason = choice.reason(found, titles, undecided, validation=validation) if found else None
    return Chosen(current, reason, tuple(found), networks)


def _fit_in_time(run: RunContext, spec: NetworkSpec, first: FittedFirstStage) -> FittedNetwork | None:
    """A network on all training queries, in its share of the time that is left; None if that is too little."""
    if run.budget.bounded and time_for(run, spec, first)[0] == 0:
        return None
    return _fit_network(run, spec, first)


def fit_networks(run: RunContext, first: FittedFirstStage, chosen: Chosen) -> list[FittedNetwork]:
    """The second stages of the bundle: the chosen one, which answers, the recipe's own, and QILCM if compared; without
    those that there is no time for.
    """
    recipe = run.recipe
    if isinstance(recipe.model, FirstStageAlone):
        return []
    specs = {spec.kind: spec for spec in (*compared_networks(recipe), recipe.model)}
    kinds = dict.fromkeys((chosen.strategy, recipe.model.kind, *(("qilcm",) if "qilcm" in specs else ())))
    wanted = [specs[kind] for kind in kinds if kind != "first_stage"]
    run.budget.reserved = 0.0  # it begins now
    return [
        chosen.networks.get(spec.kind) or _fit_network(run, spec, first)
        for spec in wanted
        if spec.title not in run.budget.left_out
    ]


def _fit_network(run: RunContext, spec: NetworkSpec, first: FittedFirstStage) -> FittedNetwork:
    most = run.budget.plan(
        f"epochs for {spec.title}", spec.max_epochs, lambda: max(1.0, run.budget.left() / epoch_of(run, spec, first))
    )
    task = run.progress.begin(f"Training {spec.title}", most)
    fitted = second_stage.fit(
        spec.model_copy(update={"max_epochs": most}),
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
    """A ranking does not depend on it but through a router: without one, a bundle can do without."""
    try:
        return fit_anomaly(run.splits.train, first.train_scores, seed=run.recipe.seed)
    except ScoringError as error:
        if run.recipe.router is not None:
            raise
        run.progress.remark(f"no anomaly score could be made of these features: {error}")
        return None


def fit_mixture(
    run: RunContext, first: FittedFirstStage, anomaly: FittedAnomaly | None, generalist: FittedNetwork | None
) -> FittedSpecialists | None:
    """The specialists of a recipe, and their router."""
    fitted = fit_specialists(run, first, anomaly, None if generalist is None else generalist.spec)
    assert fitted is not None
    idle = [k for k, specialist in enumerate(fitted.stage.specialists) if specialist.queries == 0]
    if idle:
        run.progress.remark(
            f"no training query is most likely specialist {', '.join(map(str, idle))}'s: lower specialists in the "
            "recipe"
        )
    if not fitted.srm.converged:
        run.progress.remark(f"EM had not converged after {len(fitted.srm.steps)} iterations (max_iterations)")
    return fitted
