"""What LightGBM is told for a LambdaMART, how it is listened to, and who grows the trees."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, runtime_checkable
from weakref import WeakKeyDictionary

import lightgbm
import numpy as np
from jaxtyping import Float, Int

from listwright.ranking.errors import RecipeError
from listwright.ranking.metrics import QueryNdcg
from listwright.ranking.relative import KINDS, RelativeColumn
from listwright.training.data.dataset import Dataset
from listwright.training.first_stage.binning import lightgbm_dataset
from listwright.training.first_stage.monotone import Directions, constraints
from listwright.training.recipe.config import LambdaMart
from listwright.training.search import Objective, StepReport, Value

REPORT_EVERY = 10
"""Trees: the median of trials is asked every few."""

Parts = Sequence[tuple[Int[np.ndarray, " M"], Int[np.ndarray, " H"]]]
"""Queries to fit on, and those that are held out then."""


@runtime_checkable
class Grower(Protocol):
    """Grows trees: here, or on several workers."""

    def trial_of(
        self, train: Dataset, valid: Dataset, spec: LambdaMart, *, seed: int, parts: Parts | None = None
    ) -> Objective:
        """What one setting is worth on held-out queries; the fact is its number of trees.

        Args:
            train, valid: under one schema.
            spec: bounds of a trial.
            seed: of boosting.
            parts: of a cross-validation over the training queries; None for the validation queries.
        """

    def boost(
        self,
        train: Dataset,
        params: Mapping[str, Any],
        *,
        seed: int,
        trees: int,
        queries: Int[np.ndarray, " M"] | None = None,
    ) -> str:
        """One model of so many trees, as LightGBM's text, fitted on some of the training queries, or on all."""


class LocalGrower:
    """Grows trees in this process; a training set is put into bins once, for all that is fitted on it."""

    def __init__(self) -> None:
        self._train: Dataset | None = None
        self._binned: lightgbm.Dataset | None = None
        self._best: tuple[float, Mapping[str, Any], str] | None = None

    def trial_of(
        self, train: Dataset, valid: Dataset, spec: LambdaMart, *, seed: int, parts: Parts | None = None
    ) -> Objective:
        """See the protocol; the model of the best trial is kept for :meth:`boost`."""
        train_set = self._bins_of(train)
        rows = None if parts is None else [(train.rows_of(rest), train.rows_of(part)) for rest, part in parts]
        valid_sets = [lightgbm_dataset(valid, reference=train_set)] if rows is None else []

        def try_setting(_number: int, values: dict[str, Value], report: StepReport) -> tuple[float, int]:
            settings = settings_of({**values, **bounds_of(train, spec.monotone)}, seed)
            measure = HeldOutNdcg(spec.ndcg_at, settings.get("label_gain"))
            stop = lightgbm.early_stopping(spec.patience, verbose=False)
            options: dict[str, Any] = {"feval": measure, "callbacks": [stop, reporting(report)]}
            unmeasured = settings | {"metric": "None"}
            with clear_refusal():
                if rows is not None:
                    curves = lightgbm.cv(unmeasured, train_set, spec.max_trees, folds=rows, **options)
                    curve = np.array(curves[f"valid {measure.name}-mean"])
                    return float(np.max(curve)), int(np.argmax(curve)) + 1
                booster = lightgbm.train(unmeasured, train_set, spec.max_trees, valid_sets=valid_sets, **options)
            trees = booster.best_iteration or booster.current_iteration()
            value = float(booster.best_score["valid_0"][measure.name])
            if self._best is None or value > self._best[0]:
                self._best = value, {**settings, "trees": trees}, _cut(booster, trees)
            return value, trees

        return try_setting

    def boost(
        self,
        train: Dataset,
        params: Mapping[str, Any],
        *,
        seed: int,
        trees: int,
        queries: Int[np.ndarray, " M"] | None = None,
    ) -> str:
        """See the protocol."""
        settings, binned = settings_of(params, seed), self._bins_of(train)
        if queries is not None:
            binned = binned.subset(train.rows_of(queries).tolist())
            binned.free_raw_data = True  # it asks for no row: they may lie on disk
        elif self._best is not None and self._best[1] == {**settings, "trees": trees}:
            return self._best[2]  # as a trial has grown it
        with clear_refusal():
            text: str = lightgbm.train(settings, binned, num_boost_round=trees).model_to_string()
        return text

    def _bins_of(self, train: Dataset) -> lightgbm.Dataset:
        if self._train is not train:
            self._train, self._binned, self._best = train, lightgbm_dataset(train), None
        assert self._binned is not None
        return self._binned


def _cut(booster: lightgbm.Booster, trees: int) -> str:
    """The model of the first trees, letter by letter as if LightGBM had been told to grow no more."""
    text = booster.model_to_string(num_iteration=trees)
    text = re.sub(r"^\[num_iterations: \d+\]$", f"[num_iterations: {trees}]", text, flags=re.MULTILINE)
    return text.replace("\n[metric: custom]\n", "\n[metric: ndcg]\n")


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


def bounds_of(train: Dataset, monotone: Directions) -> dict[str, Any]:
    """What LightGBM is told beside its hyperparameters; a list-relative column is bound as its feature is."""
    derived = {RelativeColumn(feature=name, kind=kind).name: name for name, _ in monotone for kind in KINDS}
    directions = constraints(monotone, train.schema.names, derived)
    bound: dict[str, Any] = {"monotone_constraints": directions} if any(directions) else {}
    return bound if train.gains is None else bound | {"label_gain": list(train.gains)}


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
