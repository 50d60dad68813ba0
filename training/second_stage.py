"""The second stage of a run: whichever network the recipe names, fitted on what the first stage leaves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from training.data.dataset import Splits
from training.epoch import Epoch
from training.first_stage import FittedFirstStage
from training.learn import FittedNetwork, fit_network
from training.model_config import FirstStageAlone, Model


def fit(
    spec: Model,
    splits: Splits,
    first: FittedFirstStage,
    *,
    seed: int,
    checkpoint: Path | None = None,
    device: str = "cpu",
    on_epoch: Callable[[Epoch], None] = lambda _epoch: None,
) -> FittedNetwork | None:
    """Fit the second stage.

    Args:
        spec: of the recipe.
        splits: under the schema that the bundle will have.
        first: what the first stage makes of them.
        seed, checkpoint, device, on_epoch: as for :func:`training.learn.fit_network`.

    Returns:
        None if the first stage stands alone.

    Raises:
        RecipeError: if the network needs the first stage's score and has none.
        ScoringError: if training diverges.
    """
    if isinstance(spec, FirstStageAlone):
        return None
    if first.score_feature is not None:  # the score is one of the features already
        spec = spec.model_copy(update={"first_stage_score": False})
    return fit_network(
        spec,
        splits.train,
        splits.valid,
        first.train_scores,
        first.valid_scores,
        seed=seed,
        score_feature=first.score_feature,
        checkpoint=checkpoint,
        device=device,
        on_epoch=on_epoch,
    )
