"""A trial of LightGBM's settings in a process that reads the data itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from listwright.training.data.dataset import Splits
from listwright.training.first_stage import lambdamart
from listwright.training.recipe.config import LambdaMart
from listwright.training.search import Objective, StepReport, Value


@dataclass(frozen=True, slots=True)
class SettingsTrial:
    """:func:`listwright.training.first_stage.lambdamart.trial_of`, which can be pickled.

    Args:
        read: gives the splits; equal ones are asked once in a process.
        spec: the budget.
        seed: of boosting.
    """

    read: Callable[[], Splits]
    spec: LambdaMart
    seed: int

    def __call__(self, number: int, values: dict[str, Value], report: StepReport) -> tuple[float, int]:
        """One trial."""
        return _objective(self)(number, values, report)


@lru_cache(maxsize=1)
def _objective(trial: SettingsTrial) -> Objective:
    splits = trial.read()
    return lambdamart.trial_of(splits.train, splits.valid, trial.spec, seed=trial.seed)
