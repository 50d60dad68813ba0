"""What LightGBM is told for a LambdaMART, and how it is listened to; and who else may grow the trees."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, runtime_checkable
from weakref import WeakKeyDictionary

import lightgbm
import numpy as np
from jaxtyping import Float

from listwright.ranking.errors import RecipeError
from listwright.ranking.metrics import QueryNdcg
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


class HeldOutNdcg:
    """LightGBM's evaluation function: mean NDCG over queries, equal scores sharing their ranks.

    LightGBM's own metric keeps them in row order, which may know the labels.

    Args:
        cutoff: of the NDCG.
        gains: of the labels; None for 2^y - 1.

    Convention: a query without a relevant candidate counts 0.
    """

    def __init__(self, cutoff: int, gains: Sequence[float] | None) -> None:
        self.name = f"ndcg@{cutoff}"
        self._cutoff, self._gains = cutoff, gains
        self._measures: WeakKeyDictionary[lightgbm.Dataset, tuple[QueryNdcg, Float[np.ndarray, " N"] | None]] = (
            WeakKeyDictionary()
        )

    def __call__(self, scores: Float[np.ndarray, " R"], data: lightgbm.Dataset) -> tuple[str, float, bool]:
        """Name and value, and that more is better."""
        if data not in self._measures:
            self._measures[data] = self._measure_of(data)
        measure, weights = self._measures[data]
        return self.name, float(np.average(measure.of(scores), weights=weights)), True

    def _measure_of(self, data: lightgbm.Dataset) -> tuple[QueryNdcg, Float[np.ndarray, " N"] | None]:
        lengths, of_rows = np.asarray(data.get_group()), data.get_weight()
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        labels = np.asarray(data.get_label()).astype(np.int64)
        weights = None if of_rows is None else np.add.reduceat(np.asarray(of_rows, np.float64), offsets[:-1]) / lengths
        return QueryNdcg(labels, offsets, cutoff=self._cutoff, gains=self._gains), weights


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
