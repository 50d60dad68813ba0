"""LightGBM for LambdaMART: bins of training rows, settings, monotone constraints, held-out NDCG, growers of trees."""

from __future__ import annotations

import difflib
import logging
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable
from weakref import WeakKeyDictionary

import lightgbm
import numpy as np
from jaxtyping import Float, Int

from listwright.ranking.candidates import lightgbm_input
from listwright.ranking.errors import RecipeError
from listwright.ranking.features import FeatureSchema
from listwright.ranking.metrics import QueryNdcg, gains_of
from listwright.ranking.relative import NUMBER_KINDS, WITHIN_KINDS, RelativeColumn
from listwright.ranking.threads import threads
from listwright.training.data.dataset import Dataset
from listwright.training.data.shards.rows import CHUNK_ROWS, Features
from listwright.training.recipe.config import LambdaMart
from listwright.training.search import Objective, StepReport, TimeOverError

FEWEST_WAITS = 2
"""Trees that are grown at least, as a multiple of the patience."""

REPORT_EVERY = 10
"""Trees between two reports to the pruning by medians."""

Queries = Int[np.ndarray, " M"]
"""Numbers of queries."""

Parts = Sequence[tuple[Queries, Int[np.ndarray, " held"]]]
"""Queries to fit on, and those held out."""

MOST_SAMPLED = 200_000
"""Rows up to which LightGBM takes the bins from all of them: its ``bin_construct_sample_cnt``."""

TIMED_TREES, COMPARED_S = 3, 60.0
"""Trees that are timed by one thread, and by all; seconds until they are compared again."""

_LIGHTGBM: Any = vars(lightgbm.basic)["_LIB"]  # with the OpenMP that it uses: torch may have another one

_LOGGER = logging.getLogger("listwright.lightgbm")

Directions = Sequence[tuple[str, int]]
"""Names of features with 1, -1 or 0, as :attr:`listwright.training.recipe.config.LambdaMart.monotone` has them."""


@runtime_checkable
class Grower(Protocol):
    """Protocol for growing trees: in this process, or on several workers."""

    def trial_of(self, train: Dataset, valid: Dataset, spec: LambdaMart, parts: Parts | None = None) -> Objective:
        """Return an objective that scores LightGBM's parameters on held-out queries; its fact is the number of trees.

        Args:
            train, valid: Training and validation split, under one schema.
            spec: Limits of a trial.
            parts: Parts of a cross-validation over the training queries; None to hold out the validation queries.
        """

    def boost(self, train: Dataset, settings: Mapping[str, Any], trees: int, queries: Queries | None = None) -> str:
        """Fit one model, on all training queries or on those with the given numbers, and return LightGBM's text."""


class LocalGrower:
    """Grower of trees in this process, which bins a training set once for all fits."""

    def __init__(self) -> None:
        self._train: Dataset | None = None
        self._binned: lightgbm.Dataset | None = None
        self._best: tuple[float, Mapping[str, Any], str] | None = None
        self._threads = FasterThreads()

    def trial_of(self, train: Dataset, valid: Dataset, spec: LambdaMart, parts: Parts | None = None) -> Objective:
        """Return an objective, see :meth:`Grower.trial_of`; the model of the best trial is reused by :meth:`boost`."""
        train_set = self._bins_of(train)
        rows = None if parts is None else [(train.rows_of(rest), train.rows_of(part)) for rest, part in parts]
        valid_sets = [lightgbm_dataset(valid, reference=train_set)] if rows is None else []

        def try_setting(_number: int, settings: dict[str, Any], report: StepReport) -> tuple[float, int]:
            measure = HeldOutNdcg(spec.ndcg_at, settings.get("label_gain"))
            callbacks: list[Any] = [stopping(spec.patience), reporting(report), self._threads]
            options: dict[str, Any] = {"feval": measure, "callbacks": callbacks}
            unmeasured = settings | {"metric": "None", "num_threads": self._threads.count}
            with clear_refusal(), self._threads.bounded():
                if rows is not None:
                    curves = lightgbm.cv(unmeasured, train_set, spec.max_trees, folds=rows, **options)
                    curve = np.array(curves[f"valid {measure.name}-mean"])
                    return float(np.max(curve)), int(np.argmax(curve)) + 1
                booster = lightgbm.train(unmeasured, train_set, spec.max_trees, valid_sets=valid_sets, **options)
            trees = booster.best_iteration or booster.current_iteration()
            value = float(booster.best_score["valid_0"][measure.name])
            if self._best is None or value > self._best[0]:
                self._best = value, {**settings, "trees": trees}, model_text(booster, trees)
            return value, trees

        return try_setting

    def boost(self, train: Dataset, settings: Mapping[str, Any], trees: int, queries: Queries | None = None) -> str:
        """Return one model, see :meth:`Grower.boost`."""
        binned = self._bins_of(train)
        if queries is not None:
            binned = binned.subset(train.rows_of(queries).tolist())
            binned.free_raw_data = True  # it needs no rows, which may be on disk
        elif self._best is not None and self._best[1] == {**settings, "trees": trees}:
            return self._best[2]  # as a trial has grown it
        with_threads = {**settings, "num_threads": self._threads.count}
        with clear_refusal(), self._threads.bounded():
            return model_text(
                lightgbm.train(with_threads, binned, num_boost_round=trees, callbacks=[self._threads]), trees
            )

    def _bins_of(self, train: Dataset) -> lightgbm.Dataset:
        if self._train is not train:
            self._train, self._binned, self._best = train, lightgbm_dataset(train), None
        assert self._binned is not None
        return self._binned


class FasterThreads:
    """LightGBM's callback that grows trees by one thread or by all, whichever was faster a moment ago.

    Both grow a few trees; the faster goes on. They are compared again after :data:`COMPARED_S`, or once a tree takes
    longer than the slower one. The trees are the same: LightGBM divides its work among all threads, and OpenMP has one
    do all parts. Changing ``num_threads`` instead would leave most of LightGBM's loops as they are.
    """

    before_iteration = True

    def __init__(self) -> None:
        self.count, self.all_threads = threads(), False
        self._began = self._compared = self._slower = 0.0
        self._seconds, self._to_time = {True: 0.0, False: 0.0}, list[bool]()

    def __call__(self, env: lightgbm.callback.CallbackEnv) -> None:
        """Set the threads of the next tree; with one core there is nothing to choose."""
        if self.count > 1:
            now = time.perf_counter()
            if env.iteration > env.begin_iteration + 1:  # the first tree prepares what the others use
                self._learn(now - self._began, now)
            _LIGHTGBM.omp_set_max_active_levels(int(self.all_threads))
            self._began = now

    def _learn(self, seconds: float, now: float) -> None:
        if self._to_time:
            self._seconds[self._to_time.pop()] += seconds
            if not self._to_time:
                self._compared, self._slower = now, max(self._seconds.values()) / TIMED_TREES
                self.all_threads = self._seconds[True] < self._seconds[False]
        elif seconds > self._slower or now > self._compared + COMPARED_S:
            self._seconds, self._to_time = {True: 0.0, False: 0.0}, [True, False] * TIMED_TREES
        if self._to_time:
            self.all_threads = self._to_time[-1]

    @contextmanager
    def bounded(self) -> Iterator[None]:
        """Leave OpenMP's limit as it was before the fit."""
        levels = _LIGHTGBM.omp_get_max_active_levels()
        try:
            yield
        finally:
            _LIGHTGBM.omp_set_max_active_levels(levels)


def model_text(booster: lightgbm.Booster, trees: int) -> str:
    """Return the model of the first trees, byte for byte as if LightGBM had grown no more, and with any threads."""
    text = booster.model_to_string(num_iteration=trees)
    text = re.sub(r"^\[num_iterations: \d+\]$", f"[num_iterations: {trees}]", text, flags=re.MULTILINE)
    text = re.sub(r"^\[num_threads: \d+\]$", "[num_threads: 0]", text, flags=re.MULTILINE)
    return text.replace("\n[metric: custom]\n", "\n[metric: ndcg]\n")


@dataclass(frozen=True)
class SoftmaxLoss:
    """LightGBM's objective function: the cross entropy between the softmax of a list's scores and its gains.

    Definition: :func:`listwright.training.losses.softmax_cross_entropy`, in sum over the queries. Over a list, with
    ``p = softmax(scores)``, ``t_i = w_i g_i / sum_j w_j g_j`` and c the mean of its weights w, the gradient is
    ``c (p - t)``, and the diagonal of the Hessian ``c p (1 - p)``.

    Args:
        gains: Gain of label 0, 1 and so on; None for 2^y - 1.

    Convention: a list without a relevant candidate has no gradient.
    """

    gains: tuple[float, ...] | None = None

    def __call__(
        self, scores: Float[np.ndarray, " R"], data: lightgbm.Dataset
    ) -> tuple[Float[np.ndarray, " R"], Float[np.ndarray, " R"]]:
        """Return gradient and Hessian of every row."""
        starts, query, target, weight = _softmax_target(data, self.gains)
        share = np.exp(scores - np.maximum.reduceat(scores, starts)[query])
        share /= np.add.reduceat(share, starts)[query]
        return weight * (share - target), weight * np.maximum(share * (1.0 - share), _LEAST_HESSIAN)


_LEAST_HESSIAN = 1e-16

_TARGETS: WeakKeyDictionary[lightgbm.Dataset, dict[tuple[float, ...] | None, tuple[Any, ...]]] = WeakKeyDictionary()


def _softmax_target(
    data: lightgbm.Dataset, gains: tuple[float, ...] | None
) -> tuple[Int[np.ndarray, " N"], Int[np.ndarray, " R"], Float[np.ndarray, " R"], Float[np.ndarray, " R"]]:
    """Return where lists begin, and each row's list, target and weight; computed once for a dataset and its gains."""
    targets = _TARGETS.setdefault(data, {})
    if gains not in targets:
        lengths, of_rows = np.asarray(data.get_group()), data.get_weight()
        starts, query = np.cumsum(lengths) - lengths, np.repeat(np.arange(len(lengths)), lengths)
        rows = np.ones(len(query)) if of_rows is None else np.asarray(of_rows, np.float64)
        gain = rows * gains_of(np.asarray(data.get_label()).astype(np.int64), gains)
        total = np.add.reduceat(gain, starts)
        weight = np.where(total > 0.0, np.add.reduceat(rows, starts) / lengths, 0.0)
        targets[gains] = starts, query, gain / np.where(total > 0.0, total, 1.0)[query], weight[query]
    target: tuple[Any, Any, Any, Any] = targets[gains]
    return target


class HeldOutNdcg:
    """LightGBM's evaluation function: mean NDCG over queries, equal scores sharing their ranks.

    LightGBM's own metric keeps them in row order, which may know the labels.

    Args:
        cutoff: Cutoff of the NDCG.
        gains: Gain of label 0, 1 and so on; None for 2^y - 1.

    Convention: a query without a relevant candidate counts 0.
    """

    def __init__(self, cutoff: int, gains: Sequence[float] | None) -> None:
        self.name = f"ndcg@{cutoff}"
        self._cutoff, self._gains = cutoff, gains
        self._measures: WeakKeyDictionary[lightgbm.Dataset, tuple[QueryNdcg, Float[np.ndarray, " N"] | None]] = (
            WeakKeyDictionary()
        )

    def __call__(self, scores: Float[np.ndarray, " R"], data: lightgbm.Dataset) -> tuple[str, float, bool]:
        """Return name and value, and that more is better."""
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


def has_ended(trees: int, best: int, patience: int) -> bool:
    """Return whether boosting stops after so many trees, of which the first ``best`` rank held-out queries best.

    The first few trees can rank better than the next fifty: :data:`FEWEST_WAITS` times the patience are grown at least.
    """
    return trees - best >= patience and trees >= FEWEST_WAITS * patience


def stopping(patience: int) -> Callable[[lightgbm.callback.CallbackEnv], None]:
    """Return a callback that ends boosting by :func:`has_ended`, with the best tree."""
    best: tuple[float, int, Any] = -math.inf, 0, None

    def after_tree(env: lightgbm.callback.CallbackEnv) -> None:
        nonlocal best
        assert env.evaluation_result_list
        value, trees = float(env.evaluation_result_list[0][2]), env.iteration + 1
        if best[2] is None or value > best[0]:
            best = value, trees, env.evaluation_result_list
        if trees == env.end_iteration or has_ended(trees, best[1], patience):
            raise lightgbm.callback.EarlyStopException(best[1] - 1, best[2])

    after_tree.order = 30  # type: ignore[attr-defined] # behind the others, as LightGBM's own
    return after_tree


def reporting(report: StepReport) -> Callable[[lightgbm.callback.CallbackEnv], None]:
    """Return a callback that reports every few trees how the held-out queries are ranked."""

    def after_tree(env: lightgbm.callback.CallbackEnv) -> None:
        trees = env.iteration + 1
        if trees % REPORT_EVERY == 0 and env.evaluation_result_list:
            try:
                report(trees, float(env.evaluation_result_list[0][2]))
            except TimeOverError:
                raise lightgbm.callback.EarlyStopException(env.iteration, env.evaluation_result_list) from None

    return after_tree


def bounds_of(train: Dataset, monotone: Directions) -> dict[str, Any]:
    """Return LightGBM's monotone constraints and gains; a list-relative column is bound as its feature is."""
    groups = [train.schema.names[place] for place in train.schema.categorical]
    derived = {
        RelativeColumn(feature=name, kind=kind, within=group).name: name
        for name, _ in monotone
        for kinds, within in ((NUMBER_KINDS, [None]), (WITHIN_KINDS, groups))
        for kind in kinds
        for group in within
    }
    directions = _monotone_constraints(monotone, train.schema.names, derived)
    bound: dict[str, Any] = {"monotone_constraints": directions} if any(directions) else {}
    return bound if train.gains is None else bound | {"label_gain": list(train.gains)}


def settings_of(params: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Return all of LightGBM's parameters, from hyperparameters and seed."""
    own: dict[str, Any] = {"objective": "lambdarank"}
    if params.get("objective") == "softmax":
        gains = params.get("label_gain")
        own = {"objective": SoftmaxLoss(None if gains is None else tuple(gains)), "metric": "ndcg"}
    return {
        **params,
        **own,
        "bagging_freq": 1,
        "seed": seed,
        "deterministic": True,
        "force_row_wise": True,
        "feature_pre_filter": False,
        "verbosity": -1,
    }


@contextmanager
def clear_refusal() -> Iterator[None]:
    """Convert LightGBM's errors to RecipeError."""
    try:
        yield
    except lightgbm.basic.LightGBMError as error:
        raise RecipeError(f"LightGBM refused the training data: {error}") from error


class RowSequence(lightgbm.Sequence):
    """Rows for LightGBM's binning, which first reads single ones in order, and then all."""

    batch_size = CHUNK_ROWS

    def __init__(self, features: Features, schema: FeatureSchema) -> None:
        self._features, self._schema = features, schema
        self._first, self._held = 0, np.empty((0, len(schema)), dtype=np.float32)

    def __len__(self) -> int:
        return len(self._features)

    def __getitem__(self, key: Any) -> Float[np.ndarray, "*rows D"]:
        if isinstance(key, slice):
            return lightgbm_input(self._features[key], self._schema)
        if np.ndim(key) == 1:  # a part of a cross-validation
            return lightgbm_input(self._features[np.asarray(key, dtype=np.int64)], self._schema)
        if not self._first <= key < self._first + len(self._held):
            self._first, self._held = key, self[key : key + CHUNK_ROWS]
        row: Float[np.ndarray, " D"] = self._held[key - self._first].astype(np.float64)
        return row  # LightGBM refuses a sample of float32


def _binned_from(data: Dataset) -> Float[np.ndarray, "R D"] | RowSequence:
    """Return the matrix that LightGBM bins."""
    # up to MOST_SAMPLED rows, a matrix and a sequence of rows give the same bins; beyond, LightGBM samples the two
    # differently: there it is always given a sequence, so that a fit does not depend on where the rows are
    if isinstance(data.features, np.ndarray) and data.rows <= MOST_SAMPLED:
        return lightgbm_input(data.features, data.schema)
    return RowSequence(data.features, data.schema)


_LOGGER.setLevel(logging.ERROR)


def silence_lightgbm() -> None:
    """Drop what LightGBM logs: its threads, but for the first, know nothing of verbosity. Errors are raised."""
    lightgbm.register_logger(_LOGGER)


def lightgbm_dataset(data: Dataset, reference: lightgbm.Dataset | None = None) -> lightgbm.Dataset:
    """Return the queries as a LightGBM dataset: binned, like ``reference`` if it is given."""
    silence_lightgbm()
    return lightgbm.Dataset(
        _binned_from(data),
        label=data.labels,
        weight=data.weights,
        group=data.lengths,
        reference=reference,
        categorical_feature=list(data.schema.categorical),
        params={"feature_pre_filter": False, "verbosity": -1, "num_threads": threads()},  # min_data_in_leaf differs
        free_raw_data=False,
    )


def check_monotone(monotone: Directions, schema: FeatureSchema) -> None:
    """Raise RecipeError for a feature that the data lack, or that is a category and so has no direction."""
    for name, value in monotone:
        if name not in schema.index:
            near = difflib.get_close_matches(name, schema.names, n=1)
            listed = ", ".join(schema.names[:20]) + (" …" if len(schema) > 20 else "")
            hint = f"did you mean {near[0]!r}? The" if near else "the"
            raise RecipeError(f"monotone: {name} = {value}: no feature {name!r}; {hint} features are {listed}")
        if schema.features[schema.index[name]].kind == "categorical":
            raise RecipeError(
                f"monotone: {name} = {value}: {name!r} is a category, and categories have no order: leave it out, or "
                "give its values as numbers"
            )


def _monotone_constraints(
    monotone: Directions, columns: Sequence[str], derived_from: Mapping[str, str] | None = None
) -> list[int]:
    """Return the direction of every column, its own or that of the feature it rises with; 0 where it is free."""
    direction, sources = dict(monotone), derived_from or {}
    return [direction.get(column, direction.get(sources.get(column, column), 0)) for column in columns]
