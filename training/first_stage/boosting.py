"""What LightGBM is told for a LambdaMART, and how it is listened to; and who else may grow the trees."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol, runtime_checkable

import lightgbm

from listwright.ranking.errors import RecipeError
from listwright.training.data.dataset import Dataset
from listwright.training.recipe.config import LambdaMart
from listwright.training.search.optuna_search import Objective, StepReport

REPORT_EVERY = 10
"""Trees: the median of trials is asked every few."""


@runtime_checkable
class Grower(Protocol):
    """Grows trees elsewhere."""

    def trial_of(self, train: Dataset, valid: Dataset, spec: LambdaMart, *, seed: int) -> Objective:
        """As :func:`listwright.training.first_stage.lambdamart.trial_of`."""

    def boost(self, train: Dataset, params: Mapping[str, Any], *, seed: int, trees: int) -> lightgbm.Booster:
        """One model of so many trees."""


def reporting(report: StepReport) -> Callable[[lightgbm.callback.CallbackEnv], None]:
    """A callback that says every few trees how the held-out queries are ranked."""

    def after_tree(env: lightgbm.callback.CallbackEnv) -> None:
        trees = env.iteration + 1
        if trees % REPORT_EVERY == 0 and env.evaluation_result_list:
            report(trees, float(env.evaluation_result_list[0][2]))

    return after_tree


def settings_of(params: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """All that LightGBM is told, from hyperparameters and seed."""
    return {
        **params,
        "objective": "lambdarank",
        "bagging_freq": 1,
        "seed": seed,
        "deterministic": True,
        "force_row_wise": True,
        "num_threads": 0,  # OpenMP decides, so that OMP_NUM_THREADS counts
        "feature_pre_filter": False,
        "verbosity": -1,
    }


@contextmanager
def clear_refusal() -> Iterator[None]:
    """LightGBM's errors as ours."""
    try:
        yield
    except lightgbm.basic.LightGBMError as error:
        raise RecipeError(f"LightGBM refused the training data: {error}") from error
