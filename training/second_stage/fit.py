"""The second stage of a run: whichever network the recipe names, fitted on what the first stage leaves."""

from __future__ import annotations

from pathlib import Path

from listwright.training.cluster import Workers
from listwright.training.data.dataset import Splits
from listwright.training.first_stage.fit import FittedFirstStage
from listwright.training.first_stage.relative import widened
from listwright.training.progress import NO_TASK, Task
from listwright.training.recipe.model import FirstStageAlone, Model, NetworkSpec
from listwright.training.search import GoesOn, StepReport
from listwright.training.second_stage.data_parallel import on_workers
from listwright.training.second_stage.loop import FittedNetwork, fit_network


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
        spec: of the recipe.
        splits: under the schema that the bundle will have.
        first: what the first stage makes of them.
        seed, checkpoint, device, task, report, goes_on: as for
            :func:`listwright.training.second_stage.loop.fit_network`.
        workers: of a data-parallel fit; None for this process.

    Returns:
        None if the first stage stands alone.

    Raises:
        RecipeError: if the network needs the first stage's score and has none.
        ScoringError: if training diverges.
    """
    if isinstance(spec, FirstStageAlone):
        return None
    spec = as_fitted(spec, first)
    seen = widened(splits, first.relative) if spec.relative else splits
    return fit_network(
        spec,
        seen.train,
        seen.valid,
        first.train_scores,
        first.valid_scores,
        seed=seed,
        score_feature=first.score_feature,
        checkpoint=checkpoint,
        device=device,
        task=task,
        report=report,
        elsewhere=on_workers(workers),
        goes_on=goes_on,
    )


def as_fitted(spec: NetworkSpec, first: FittedFirstStage) -> NetworkSpec:
    """A network as this first stage lets it be: it appends no score that is a feature, and sees no columns of none."""
    score, relative = first.score_feature is None, bool(first.relative)
    changes = {"first_stage_score": spec.first_stage_score and score, "relative": spec.relative and relative}
    return spec.model_copy(update=changes)
