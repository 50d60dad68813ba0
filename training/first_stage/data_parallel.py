"""LambdaMART on several workers: LightGBM's data-parallel learner, whole queries per worker.

Trees grow in segments of :data:`SEGMENT`. A segment depends on the model before it and on its own seed, and on nothing
else; so a segment that is repeated after a worker is lost gives the same trees, and the model ends as without a loss.
Other numbers of workers give other models: sums of gradients are rounded in another order.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import lightgbm
import numpy as np
from jaxtyping import Float, Int

from listwright.ranking.candidates import lightgbm_input
from listwright.ranking.errors import RecipeError
from listwright.training.cluster import Group, Workers, pickle_call
from listwright.training.data.dataset import Dataset
from listwright.training.first_stage.boosting import (
    REPORT_EVERY,
    HeldOutNdcg,
    Parts,
    Queries,
    clear_refusal,
    has_ended,
    silence_lightgbm,
)
from listwright.training.recipe.config import LambdaMart
from listwright.training.search import Objective, StepReport, TimeOverError

SEGMENT = 25
"""Trees per step: the most that the loss of a worker costs."""

_OF_THE_CLUSTER = re.compile(
    r"^\[(machines|num_machines|local_listen_port|time_out|tree_learner): .*\]\n", re.MULTILINE
)


class ParallelGrower:
    """A grower of trees on several workers; see :class:`listwright.training.first_stage.boosting.Grower`."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers

    def trial_of(self, train: Dataset, valid: Dataset, spec: LambdaMart, parts: Parts | None = None) -> Objective:
        """Return an objective whose trials run one after the other on all workers; validation queries are held out.

        Raises:
            RecipeError: if the recipe chooses by cross-validation.
        """
        if parts is not None:
            raise RecipeError(
                'a data-parallel fit chooses LightGBM\'s settings by the validation queries: say select_on = "valid" '
                "under [first_stage], or leave --on out"
            )
        group = self._group(train, valid)

        def try_setting(number: int, settings: dict[str, Any], report: StepReport) -> tuple[float, int]:
            curve = self._curve(group, settings | {"metric": "None", "eval_at": [spec.ndcg_at]}, spec, report)
            if number + 1 == spec.trials:
                group.release()
            return float(np.max(curve)), int(np.argmax(curve)) + 1

        return try_setting

    def boost(self, train: Dataset, settings: Mapping[str, Any], trees: int, queries: Queries | None = None) -> str:
        """Return one model, see :meth:`listwright.training.first_stage.boosting.Grower.boost`."""
        group, model = self._group(train if queries is None else train.select(queries), None), None
        for start in range(0, trees, SEGMENT):
            model = self._grow(group, settings, start, min(SEGMENT, trees - start), model).model
        group.release()
        assert model is not None
        return lightgbm.Booster(model_str=_OF_THE_CLUSTER.sub("", model)).model_to_string()

    def _curve(self, group: Group, settings: dict[str, Any], spec: LambdaMart, report: StepReport) -> list[float]:
        """Return the held-out NDCG tree by tree, until the patience is used up."""
        curve: list[float] = []
        model = None
        with suppress(TimeOverError):
            while len(curve) < spec.max_trees and not (
                curve and has_ended(len(curve), int(np.argmax(curve)) + 1, spec.patience)
            ):
                trees = min(SEGMENT, spec.max_trees - len(curve))
                grown = self._grow(group, settings, len(curve), trees, model)
                for value in grown.curve[:trees]:
                    curve.append(value)
                    if len(curve) % REPORT_EVERY == 0:
                        report(len(curve), value)
                if len(grown.curve) < trees:  # no split gains anything any more
                    break
                model = grown.model
        return curve

    def _grow(self, group: Group, settings: Mapping[str, Any], start: int, trees: int, model: str | None) -> GrownTrees:
        seed = settings["seed"]
        own = seed if start == 0 else int(np.random.default_rng([seed, start]).integers(2**31))
        grown: GrownTrees | None = group.step("grow", {**settings, "seed": own}, trees, model, addressed=True)[0]
        assert grown is not None
        return grown

    def _group(self, train: Dataset, valid: Dataset | None) -> Group:
        size = self._workers.size
        if len(train) < size:
            raise RecipeError(f"--workers {size}: there are {len(train)} training queries; take fewer workers")

        def work(rank: int) -> bytes:
            held_out = None if valid is None else _rows(valid)
            return pickle_call(TreeWorker, _rows(train.select(np.arange(rank, len(train), size))), held_out)

        return self._workers.group(work)


def _rows(data: Dataset) -> HeldRows:
    features = lightgbm_input(data.features[:], data.schema)
    return HeldRows(features, data.labels, data.weights, data.lengths, tuple(data.schema.categorical))


@dataclass(frozen=True, slots=True)
class HeldRows:
    """Rows of whole queries for LightGBM.

    Args:
        features: ``(R, D)``, categories as numbers.
        labels, weights: ``(R,)``; weights None where there are none.
        lengths: ``(N,)`` lengths of the lists.
        categorical: Numbers of the categorical columns.
    """

    features: Float[np.ndarray, "R D"]
    labels: Int[np.ndarray, " R"]
    weights: Float[np.ndarray, " R"] | None
    lengths: Int[np.ndarray, " N"]
    categorical: tuple[int, ...]

    def dataset(self, reference: lightgbm.Dataset | None = None) -> lightgbm.Dataset:
        """Return a dataset that is not binned yet: binning takes all workers."""
        silence_lightgbm()
        return lightgbm.Dataset(
            self.features,
            label=self.labels,
            weight=self.weights,
            group=self.lengths,
            reference=reference,
            categorical_feature=list(self.categorical),
            params={"feature_pre_filter": False, "verbosity": -1},
            free_raw_data=False,
        )


class GrownTrees(NamedTuple):
    """The model after some trees.

    Args:
        model: LightGBM's text, which is the same in all workers.
        curve: Held-out metric after each new tree; empty without held-out rows.
    """

    model: str
    curve: list[float]


class TreeWorker:
    """A worker's part of the training set.

    Args:
        train: Training queries of this worker.
        valid: Held-out queries, the same for every worker, so that all see one curve; None for none.
    """

    def __init__(self, train: HeldRows, valid: HeldRows | None) -> None:
        self._train = train.dataset()
        self._valid = None if valid is None else valid.dataset(self._train)
        self._rank = 0

    def join(self, rank: int, _addresses: list[tuple[str, int]]) -> None:
        """Set the rank; LightGBM connects anew for every step, at the ports passed to :meth:`grow`."""
        self._rank = rank

    def grow(
        self, settings: dict[str, Any], trees: int, model: str | None, addresses: list[tuple[str, int]]
    ) -> GrownTrees | None:
        """Grow trees on top of a model, or the first ones; only rank 0 returns them."""
        network = {
            "tree_learner": "data",
            "machines": ",".join(f"{host}:{port}" for host, port in addresses),
            "num_machines": len(addresses),
            "local_listen_port": addresses[self._rank][1],
            "time_out": 2,  # minutes
        }
        curves: dict[str, dict[str, list[float]]] = {}
        valid = [] if self._valid is None else [self._valid]
        with _refusals():
            booster = lightgbm.train(
                {**settings, **(network if len(addresses) > 1 else {})},
                self._train,
                num_boost_round=trees,
                valid_sets=valid,
                feval=HeldOutNdcg(settings["eval_at"][0], settings.get("label_gain")) if valid else None,
                init_model=None if model is None else lightgbm.Booster(model_str=model),
                callbacks=[lightgbm.record_evaluation(curves)],
            )
        booster.free_network()
        curve = next(iter(curves["valid_0"].values())) if curves else []
        return GrownTrees(booster.model_to_string(), curve) if self._rank == 0 else None


@contextmanager
def _refusals() -> Iterator[None]:
    """Convert LightGBM's errors, except those of its sockets: then a worker is lost, and the step is repeated."""
    try:
        with clear_refusal():
            yield
    except RecipeError as error:
        if any(word in str(error).lower() for word in ("socket", "binding port", "connect", "linkers", "recv", "send")):
            raise ConnectionError(str(error)) from error
        raise
