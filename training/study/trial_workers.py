"""Other processes for the fits of a search: an executor, and how they get the data."""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass
from functools import lru_cache

from listwright.training.data.dataset import Splits
from listwright.training.recipe.config import Recipe
from listwright.training.steps.bundle_schema import load


@dataclass(frozen=True, slots=True)
class SplitsReader:
    """Gives the splits of a recipe in any process, which reads them once."""

    recipe: Recipe
    sources: tuple[str, ...]

    def __call__(self) -> Splits:
        """Under the schema that the bundle would have."""
        return _read(self)


@lru_cache(maxsize=1)
def _read(reader: SplitsReader) -> Splits:
    return load(reader.recipe, reader.sources)


@dataclass(frozen=True, slots=True)
class TrialWorkers:
    """Other processes for the fits of a study.

    Args:
        executor: runs them.
        jobs: trials at a time; what is proposed depends on it.
        read: gives them the splits.
    """

    executor: Executor
    jobs: int
    read: SplitsReader
