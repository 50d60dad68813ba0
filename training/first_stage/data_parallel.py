"""LambdaMART on several workers: LightGBM's data-parallel learner, whole queries per worker.

Trees grow in segments of :data:`SEGMENT`. A segment depends on the model before it and on its own seed, and on nothing
else; so a segment that is repeated after a worker is lost gives the same trees, and the model ends as without a loss.
Other numbers of workers give other models: sums of gradients are rounded in another order.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import lightgbm
import numpy as np
from jaxtyping import Int

from listwright.ranking.errors import RecipeError
from listwright.ranking.first_stage import lightgbm_input
from listwright.training.cluster import Group, Workers, packed
from listwright.training.data.dataset import Dataset
from listwright.training.first_stage.boosting import REPORT_EVERY, Parts, bounds_of, settings_of
from listwright.training.first_stage.tree_worker import Grown, HeldRows, TreeWorker
from listwright.training.recipe.config import LambdaMart
from listwright.training.search import Objective, StepReport, Value

SEGMENT = 25
"""Trees that the loss of a worker costs at most."""

_OF_THE_CLUSTER = re.compile(
    r"^\[(machines|num_machines|local_listen_port|time_out|tree_learner): .*\]\n", re.MULTILINE
)


class ParallelGrower:
    """See :class:`listwright.training.first_stage.boosting.Grower`.

    Args:
        workers: W of them.
    """

    def __init__(self, workers: Workers) -> None:
        self._workers = workers

    def trial_of(
        self, train: Dataset, valid: Dataset, spec: LambdaMart, *, seed: int, parts: Parts | None = None
    ) -> Objective:
        """Trials one after the other, each on all workers; held out are the validation queries.

        Raises:
            RecipeError: if the recipe chooses by cross-validation.
        """
        if parts is not None:
            raise RecipeError(
                'a data-parallel fit chooses LightGBM\'s settings by the validation queries: say select_on = "valid" '
                "under [first_stage], or leave --on out"
            )
        group = self._group(train, valid)

        def try_setting(number: int, values: dict[str, Value], report: StepReport) -> tuple[float, int]:
            settings = settings_of({**values, **bounds_of(train, spec.monotone)}, seed)
            settings |= {"metric": "None", "eval_at": [spec.ndcg_at]}
            curve = self._curve(group, settings, seed, spec, report)
            if number + 1 == spec.trials:
                group.release()
            return float(np.max(curve)), int(np.argmax(curve)) + 1

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
        group, model = self._group(train if queries is None else train.select(queries), None), None
        for start in range(0, trees, SEGMENT):
            model = self._grow(group, settings_of(params, seed), seed, start, min(SEGMENT, trees - start), model).model
        group.release()
        assert model is not None
        return lightgbm.Booster(model_str=_OF_THE_CLUSTER.sub("", model)).model_to_string()

    def _curve(
        self, group: Group, settings: dict[str, Any], seed: int, spec: LambdaMart, report: StepReport
    ) -> list[float]:
        """Held-out NDCG tree by tree, until the patience is used up."""
        curve: list[float] = []
        model = None
        while len(curve) < spec.max_trees and (not curve or len(curve) - 1 - int(np.argmax(curve)) < spec.patience):
            trees = min(SEGMENT, spec.max_trees - len(curve))
            grown = self._grow(group, settings, seed, len(curve), trees, model)
            for value in grown.curve[:trees]:
                curve.append(value)
                if len(curve) % REPORT_EVERY == 0:
                    report(len(curve), value)
            if len(grown.curve) < trees:  # no split gains anything any more
                break
            model = grown.model
        return curve

    def _grow(
        self, group: Group, settings: dict[str, Any], seed: int, start: int, trees: int, model: str | None
    ) -> Grown:
        own = seed if start == 0 else int(np.random.default_rng([seed, start]).integers(2**31))
        grown: Grown | None = group.step("grow", {**settings, "seed": own}, trees, model, addressed=True)[0]
        assert grown is not None
        return grown

    def _group(self, train: Dataset, valid: Dataset | None) -> Group:
        size = self._workers.size
        if len(train) < size:
            raise RecipeError(f"--workers {size}: there are {len(train)} training queries; take fewer workers")

        def work(rank: int) -> bytes:
            held_out = None if valid is None else _rows(valid)
            return packed(TreeWorker, _rows(train.select(np.arange(rank, len(train), size))), held_out)

        return self._workers.group(work)


def _rows(data: Dataset) -> HeldRows:
    features = lightgbm_input(data.features[:], data.schema)
    return HeldRows(features, data.labels, data.weights, data.lengths, tuple(data.schema.categorical))
