"""What every step of a run is given."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from listwright.training.budget import Budget
from listwright.training.cluster.group import Workers
from listwright.training.data.dataset import Splits
from listwright.training.progress import Progress
from listwright.training.recipe.config import Recipe


@dataclass(frozen=True, slots=True)
class RunContext:
    """One run.

    Args:
        recipe: what to fit.
        splits: under the schema that the bundle will have.
        state: folder for checkpoints; what is finished there is not done again.
        progress: told how far it is.
        device: torch device of the networks.
        workers: of a data-parallel fit; None for this process.
        budget: the time that there is; by default no bound.
    """

    recipe: Recipe
    splits: Splits
    state: Path
    progress: Progress
    device: str = "cpu"
    workers: Workers | None = None
    budget: Budget = field(default_factory=Budget)
