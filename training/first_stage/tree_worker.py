"""A worker of a data-parallel LightGBM: holds the rows of some queries, and talks to the others over sockets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import lightgbm
import numpy as np
from jaxtyping import Float, Int

from listwright.ranking.errors import RecipeError
from listwright.training.first_stage.binning import silence_lightgbm
from listwright.training.first_stage.boosting import HeldOutNdcg, clear_refusal


@dataclass(frozen=True, slots=True)
class HeldRows:
    """Rows of whole queries as LightGBM takes them.

    Args:
        features: ``(R, D)``, categories as numbers.
        labels, weights: ``(R,)``; weights None where there are none.
        lengths: ``(N,)`` of the lists.
        categorical: columns.
    """

    features: Float[np.ndarray, "R D"]
    labels: Int[np.ndarray, " R"]
    weights: Float[np.ndarray, " R"] | None
    lengths: Int[np.ndarray, " N"]
    categorical: tuple[int, ...]

    def dataset(self, reference: lightgbm.Dataset | None = None) -> lightgbm.Dataset:
        """Not binned yet: that takes all workers."""
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


class Grown(NamedTuple):
    """After some trees.

    Args:
        model: LightGBM's text, which is the same in all workers.
        curve: held-out metric after each new tree; empty without held-out rows.
    """

    model: str
    curve: list[float]


class TreeWorker:
    """What a worker holds.

    Args:
        train: its own queries.
        valid: all held-out queries, the same for every worker, so that all see one curve; None for none.
    """

    def __init__(self, train: HeldRows, valid: HeldRows | None) -> None:
        self._train = train.dataset()
        self._valid = None if valid is None else valid.dataset(self._train)
        self._rank = 0

    def join(self, rank: int, _addresses: list[tuple[str, int]]) -> None:
        """LightGBM meets anew for every step, at ports that :meth:`grow` is told."""
        self._rank = rank

    def grow(
        self, settings: dict[str, Any], trees: int, model: str | None, addresses: list[tuple[str, int]]
    ) -> Grown | None:
        """Some more trees upon a model, or the first ones; rank 0 answers."""
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
        return Grown(booster.model_to_string(), curve) if self._rank == 0 else None


@contextmanager
def _refusals() -> Iterator[None]:
    """LightGBM's errors as ours, but for those of its sockets: a worker is lost then, and the step is done again."""
    try:
        with clear_refusal():
            yield
    except RecipeError as error:
        if any(word in str(error).lower() for word in ("socket", "connect", "linkers", "recv", "send")):
            raise ConnectionError(str(error)) from error
        raise
