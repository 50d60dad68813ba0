"""What a fit has attained after each epoch, and the file that remembers it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from listwright.training.networks.ranker import Ranker
from listwright.training.recipe.model import NetworkSpec
from listwright.training.second_stage.epoch import Epoch


@dataclass
class Attained:
    """What a checkpoint holds.

    Args:
        model, optimizer: after the last epoch.
        best: weights of the best epoch.
        best_epoch: its number; 0 where none is better than the start.
        history: every epoch.
        start_ndcg: what the first epoch has to beat.
        values: NDCG of every validation query after each epoch; before the first one, too, where ``start_ndcg`` counts.
    """

    model: dict[str, Tensor]
    optimizer: dict[str, Any]
    best: dict[str, Tensor]
    best_epoch: int
    history: list[Epoch]
    start_ndcg: float = -1.0
    values: list[Tensor] = field(default_factory=list)


def advance(
    attained: Attained,
    model: Ranker,
    optimizer: torch.optim.Optimizer,
    epoch: Epoch,
    values: Tensor,
    valid_ndcg: float,
) -> Attained:
    """The same after one more epoch, which ranks the validation queries so."""
    state = state_of(model)
    best_so_far = attained.history[-1].best_ndcg if attained.history else attained.start_ndcg
    better = valid_ndcg > best_so_far
    epoch = Epoch(**{**asdict(epoch), "valid_ndcg": valid_ndcg, "best_ndcg": max(valid_ndcg, best_so_far)})
    return Attained(
        model=state,
        optimizer=optimizer.state_dict(),
        best=state if better else attained.best,
        best_epoch=epoch.number if better else attained.best_epoch,
        history=[*attained.history, epoch],
        values=[*attained.values, values],
    )


def has_ended(history: Sequence[Epoch], best_epoch: int, spec: NetworkSpec) -> bool:
    """Whether the recipe's epochs, or its patience, are used up."""
    done = len(history)
    return done >= spec.max_epochs or (done > 0 and done - best_epoch >= spec.patience)


def state_of(model: Ranker) -> dict[str, Tensor]:
    """A copy of all weights, on the CPU."""
    return {name: value.detach().cpu().clone() for name, value in model.state_dict().items()}


def restore(checkpoint: Path | None, model: Ranker, optimizer: torch.optim.Optimizer) -> Attained | None:
    """What the file holds, taken over by model and optimizer; None if there is no file, or another release made it."""
    if checkpoint is None or not checkpoint.exists():
        return None
    saved = torch.load(checkpoint, weights_only=True, map_location="cpu")  # also where the GPU is gone
    if set(saved) != {one.name for one in fields(Attained)}:
        return None
    attained = Attained(**{**saved, "history": [Epoch(**epoch) for epoch in saved["history"]]})
    model.load_state_dict(attained.model)
    optimizer.load_state_dict(attained.optimizer)
    return attained


def save(checkpoint: Path, attained: Attained) -> None:
    """Write the file anew, in one step: an interruption leaves the epoch before."""
    temporary = checkpoint.with_suffix(".tmp")
    values = {**vars(attained), "history": [asdict(epoch) for epoch in attained.history]}
    torch.save(values, temporary)
    temporary.replace(checkpoint)
