"""What a search may try: the range of every hyperparameter, declared once, for LightGBM and for the networks.

A space always holds the values that the recipe has already: where these lie outside, the range is widened to them.
What changes which model is fitted, rather than how (the ranking loss, the cutoff, a variant), is not searched.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import optuna

from listwright.training.recipe.model import DcmSpec, DlcmSpec, NetworkSpec, Qilcm2Spec, QilcmSpec

Value = float | int | str | tuple[int, ...]
"""One hyperparameter, as the recipe has it."""


@dataclass(frozen=True, slots=True)
class Range:
    """Every number from ``low`` to ``high``; ``log`` spreads trials evenly over magnitudes, ``whole`` rounds."""

    low: float
    high: float
    log: bool = False
    whole: bool = False

    def widened(self, value: Value) -> Range:
        """The range with ``value`` in it."""
        assert isinstance(value, float | int)
        return Range(min(self.low, value), max(self.high, value), self.log, self.whole)

    def suggest(self, trial: optuna.trial.BaseTrial, name: str) -> Value:
        """A value for a trial."""
        if self.whole:
            return trial.suggest_int(name, int(self.low), int(self.high), log=self.log)
        return trial.suggest_float(name, self.low, self.high, log=self.log)


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of a few values."""

    values: tuple[Value, ...]

    def widened(self, value: Value) -> OneOf:
        """The choice with ``value`` in it."""
        return self if value in self.values else OneOf((*self.values, value))

    def suggest(self, trial: optuna.trial.BaseTrial, name: str) -> Value:
        """A value for a trial."""
        by_label = {stored(value): value for value in self.values}
        label = trial.suggest_categorical(name, list(by_label))
        assert label is not None
        return by_label[label]


Space = Mapping[str, Range | OneOf]

LAMBDAMART: Space = {
    "learning_rate": Range(0.01, 0.2, log=True),
    "num_leaves": Range(4, 128, log=True, whole=True),
    "min_data_in_leaf": Range(5, 200, log=True, whole=True),
    "lambdarank_truncation_level": Range(10, 100, log=True, whole=True),
    "feature_fraction": Range(0.3, 1.0),
    "bagging_fraction": Range(0.5, 1.0),
    "lambda_l2": Range(1e-3, 100.0, log=True),
    "cat_smooth": Range(10.0, 10_000.0, log=True),
}
"""LightGBM's own names. The number of trees is found by early stopping in every trial."""

NETWORK: Space = {
    "learning_rate": Range(2e-4, 5e-3, log=True),
    "batch_size": OneOf((20, 40, 80)),
    "encoder_width": OneOf((48, 100, 200)),
    "dropout": OneOf((0.0, 0.1, 0.2, 0.4)),
    "weight_decay": OneOf((0.0, 1e-5, 1e-4, 1e-3)),
}
"""What all networks have. The number of epochs is found by early stopping in every trial."""

HIDDEN: Space = {"hidden": OneOf(((64,), (256, 128), (512, 256)))}
CONFUSION: Space = {"confusion_weight": OneOf((0.0, 0.003, 0.01, 0.03, 0.1, 0.3))}
QILCM2: Space = {"seeds": OneOf((1, 2, 4, 8)), "input_noise": OneOf((0.0, 0.01, 0.02, 0.05))}
DLCM: Space = {"heads": OneOf((1, 3, 6))}
DCM: Space = {"state_width": OneOf((64, 128, 256))}


def space_of(spec: NetworkSpec) -> Space:
    """What a search may try for a network, the recipe's own values among it."""
    space = dict(NETWORK)
    match spec:
        case QilcmSpec():
            space |= HIDDEN if spec.variant in ("V2", "V3") else {**HIDDEN, **CONFUSION}
        case Qilcm2Spec():
            space |= {**HIDDEN, **QILCM2}
            if spec.context == "blocks":  # which pool nothing
                del space["seeds"]
        case DlcmSpec():
            space |= DLCM
        case DcmSpec():
            space |= DCM
        case _:
            space |= HIDDEN
    return widened(space, own_values(spec, space))


def own_values(spec: NetworkSpec, space: Space) -> dict[str, Value]:
    """What the recipe has for every hyperparameter of a space."""
    return {name: getattr(spec, name) for name in space}


def widened(space: Space, values: Mapping[str, Value]) -> Space:
    """A space with ``values`` in it."""
    return {name: part.widened(values[name]) for name, part in space.items()}


def stored(value: Value) -> float | int | str:
    """A value as a study's journal holds it: widths as ``256-128``."""
    return "-".join(map(str, value)) if isinstance(value, tuple) else value
