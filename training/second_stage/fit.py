"""The second stage of a run, given its first stage: a network, or a search for its hyperparameters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from listwright.ranking.errors import ScoringError
from listwright.training.cluster import Workers
from listwright.training.console.progress import NO_TASK, Task
from listwright.training.data.dataset import Splits
from listwright.training.first_stage.fit import FittedFirstStage
from listwright.training.first_stage.relative import widened
from listwright.training.recipe.model import FirstStageAlone, Model, NetworkSpec
from listwright.training.search import (
    GoesOn,
    Pruned,
    Rounds,
    SearchResult,
    StepReport,
    Value,
    own_values,
    search,
    space_of,
)
from listwright.training.second_stage.loop import FittedNetwork, fit_network

PRUNE_AFTER = 3
"""Epochs that a network gets before it is compared with the median."""


def fit(
    spec: Model,
    splits: Splits,
    first: FittedFirstStage,
    *,
    seed: int,
    checkpoint: Path | None = None,
    device: str = "cpu",
    task: Task = NO_TASK,
    report: StepReport = lambda _epoch, _value: None,
    workers: Workers | None = None,
    goes_on: GoesOn = lambda _epochs, _seconds: True,
) -> FittedNetwork | None:
    """Fit the second stage.

    Args:
        spec: Second stage of the recipe.
        splits: Splits under the schema that the bundle will have.
        first: First stage, fitted on these splits.
        seed, checkpoint, device, task, report, goes_on: See :func:`listwright.training.second_stage.loop.fit_network`.
        workers: Workers of a data-parallel fit; None for this process.

    Returns:
        None if the first stage stands alone.

    Raises:
        RecipeError: if the network needs the first stage's score and has none.
        ScoringError: if training diverges.
    """
    if isinstance(spec, FirstStageAlone):
        return None
    spec = as_fitted(spec, first)
    wide = widened(splits, first.relative) if spec.relative else splits
    return fit_network(
        spec,
        wide.train,
        wide.valid,
        first.train_scores,
        first.valid_scores,
        seed=seed,
        score_feature=first.score_feature,
        checkpoint=checkpoint,
        device=device,
        task=task,
        report=report,
        workers=workers,
        goes_on=goes_on,
    )


def as_fitted(spec: NetworkSpec, first: FittedFirstStage) -> NetworkSpec:
    """Adapt a network to the first stage: append no score that is a feature, and read no columns that do not exist."""
    score, relative = first.score_feature is None, bool(first.relative)
    changes = {"first_stage_score": spec.first_stage_score and score, "relative": spec.relative and relative}
    return spec.model_copy(update=changes)


@dataclass(frozen=True, slots=True)
class NetworkTrial:
    """One trial, in this process or, pickled, in another one.

    Args:
        model, first, seed, state, device: See :func:`search_network`.
        read: Function that returns the splits.
        at_a_time: Number of trials in a round, whose checkpoints exist together.
    """

    model: NetworkSpec
    read: Callable[[], Splits]
    first: FittedFirstStage
    seed: int
    state: Path
    device: str = "cpu"
    at_a_time: int = 1

    def __call__(self, done: int, values: dict[str, Value], report: StepReport) -> tuple[float, int]:
        """Run one trial, the objective of a search; the fact is its best epoch."""
        checkpoint = self.state / f"trial-{done + 1}.pt"  # the same values again after a kill, so it goes on from there
        current = {self.state / f"trial-{done + 1 + k}.pt" for k in range(1 - self.at_a_time, self.at_a_time)}
        for old in set(self.state.glob("trial-*.pt")) - current:
            old.unlink(missing_ok=True)
        try:
            fitted = fit(
                with_values(self.model, values),
                self.read(),
                self.first,
                seed=self.seed,
                checkpoint=checkpoint,
                device=self.device,
                report=report,
            )
        except ScoringError as error:  # it diverged: these values are as bad as any
            raise Pruned from error
        assert fitted is not None
        return fitted.valid_ndcg, fitted.best_epoch


def search_network(
    model: NetworkSpec,
    splits: Splits,
    first: FittedFirstStage,
    *,
    trials: int,
    seed: int,
    journal: Path,
    state: Path,
    device: str = "cpu",
    task: Task = NO_TASK,
    rounds: Rounds | None = None,
    goes_on: GoesOn | None = None,
) -> SearchResult:
    """Search for the values that rank the validation queries best; the fact of a trial is its best epoch.

    Args:
        model: Second stage whose own values are the first trial.
        splits, first: See :func:`listwright.training.second_stage.fit.fit`; test queries are never used.
        trials: Number of trials, those of the journal included.
        seed: Seed of the proposals and of every fit.
        journal: File that remembers finished trials.
        state: Folder for the checkpoint of the trial under way.
        device: Name of the torch device.
        task: Task that gets the finished trials, and every epoch of the running one.
        rounds: Rounds of a :class:`NetworkTrial` in other processes.
        goes_on: Function that is called before each trial but the first; False ends the search.

    Raises:
        RecipeError: if no trial finishes.
    """
    trial = NetworkTrial(model, lambda: splits, first, seed, state, device)

    def try_values(done: int, values: dict[str, Value], report: StepReport) -> tuple[float, int]:
        def after_epoch(number: int, value: float) -> None:
            task.reach(done, f"trial {done + 1}, epoch {number}: {value:.4f}")
            report(number, value)

        return trial(done, values, after_epoch)

    space = space_of(model)
    return search(
        space,
        try_values,
        first=own_values(model, space),
        trials=trials,
        seed=seed,
        journal=journal,
        prune_after=PRUNE_AFTER,
        task=task,
        rounds=rounds,
        goes_on=goes_on,
    )


def with_values(model: NetworkSpec, values: dict[str, Value]) -> NetworkSpec:
    """Return a network's part of a recipe with other values."""
    changed: NetworkSpec = type(model).model_validate({**model.model_dump(), **values})
    return changed
