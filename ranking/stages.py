"""The rankers of a bundle as its manifest lists them."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, FiniteFloat, model_validator

from listwright.ranking.features import Many

MANIFEST = "manifest.json"
GOLDEN = "golden.jsonl"

_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,100}")


def _is_inside(name: str) -> str:
    if not _FILE_NAME.fullmatch(name) or name == MANIFEST:
        raise ValueError(f"{name!r} is not the name of a file directly inside the bundle")
    return name


FileName = Annotated[str, AfterValidator(_is_inside)]


class Frozen(BaseModel):
    """An immutable part of a manifest, without unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


LightGbmEngine = Literal["compiled", "lightgbm"]


class LightGbmStage(Frozen):
    """First stage: a LightGBM model in LightGBM's own text format.

    Args:
        engine: Code that scores with the model: ``compiled``, which is equal to the last bit and several times as fast,
            or ``lightgbm`` itself.
        relative: Whether the model sees the manifest's list-relative columns behind the features.
    """

    kind: Literal["lightgbm"] = "lightgbm"
    file: FileName = "first_stage.txt"
    engine: LightGbmEngine = "compiled"
    relative: bool = False


class ColumnStage(Frozen):
    """First stage: scores that the caller already has, sent as the feature of this name."""

    kind: Literal["column"] = "column"
    feature: str


class OnnxStage(Frozen):
    """First stage: an ONNX graph over the numeric features, see
    :class:`listwright.ranking.first_stage.OnnxFirstStage`."""

    kind: Literal["onnx"] = "onnx"
    file: FileName = "first_stage.onnx"


NetworkKind = Literal["qilcm", "qilcm2", "dlcm", "dcm", "mlp"]
"""Networks that can be a second stage. The kind is also the strategy that requests name it by; to serving they differ
in nothing else, so a new one needs its name here and nothing more."""


class NetworkStage(Frozen):
    """Second stage: a network as an ONNX graph ``(C, E) -> (C,)``.

    Args:
        kind: Kind of network. A variant of a kind (QILCM without its query normalisation) stands in the recipe.
        cutoff: Number C of the first stage's candidates that the network scores.
        first_stage_score: Whether the first stage's score is the network's last input column.
        relative: Whether the network sees the manifest's list-relative columns behind the features.
    """

    kind: NetworkKind = "qilcm"
    file: FileName = "qilcm.onnx"
    cutoff: Annotated[int, Field(ge=1)]
    first_stage_score: bool
    relative: bool = False


class FeatureWeight(Frozen):
    """A column of a linear specialist, and what a standard deviation (of a 0/1 column: a 1) of it adds to the score."""

    feature: str
    weight: FiniteFloat


class Specialist(Frozen):
    """One ranker of the mixture.

    Args:
        weight: Pi_k, the share of queries that the mixture gives the specialist.
        queries: Number of training queries whose largest responsibility is this specialist's.
        top_features: Largest weights by size; empty unless the ranker is linear.
    """

    weight: Annotated[float, Field(ge=0.0, le=1.0)]
    queries: Annotated[int, Field(ge=0)]
    top_features: Many[FeatureWeight] = ()


class SrmStage(Frozen):
    """Second stage: SRM's K specialists as one ONNX graph ``(C, D or D+1) -> (C, K)``.

    Args:
        cutoff: C; None scores the whole list.
        first_stage_score: Whether the first stage's score is the specialists' last input column.
        relative: False: specialists see the features alone.
        specialists: K of them; a specialist's number is its place here, counted from 0.
    """

    kind: Literal["srm"] = "srm"
    file: FileName = "srm.onnx"
    cutoff: Annotated[int, Field(ge=1)] | None = None
    first_stage_score: bool = False
    relative: Literal[False] = False
    specialists: Annotated[tuple[Specialist, ...], Field(min_length=1, max_length=100)]

    @model_validator(mode="after")
    def _weights_are_shares(self) -> SrmStage:
        total = sum(specialist.weight for specialist in self.specialists)
        if abs(total - 1.0) > 1e-6:
            raise ValueError(f"the specialists' weights add up to {total:g}, not to 1")
        return self


SecondStage = NetworkStage | SrmStage

Divisor = Annotated[FiniteFloat, Field(ge=1e-100)]


class ProbabilityStage(Frozen):
    """Calibration of scores to probabilities of being relevant, see :mod:`listwright.ranking.probability`.

    Args:
        file: Name of the file of the pointwise LightGBM model of being relevant.
        relative: Whether the model sees the manifest's list-relative columns behind the features.
        slope, intercept: Log-odds of being relevant, as ``slope * score + intercept`` of the pointwise model's score.
        temperatures: Divisor of each strategy's scores that makes them log-odds but for a constant of the list.
        pointwise: Weight of the pointwise model's score in the log-odds of each strategy; 0 where there is none.
        lists: Number of validation lists that all of these were fitted on.
        mean: Share of these lists' candidates that are relevant.
    """

    file: FileName = "probability.txt"
    relative: bool = False
    slope: Annotated[FiniteFloat, Field(ge=0.0)]
    intercept: FiniteFloat
    temperatures: dict[str, Divisor]
    pointwise: dict[str, Annotated[FiniteFloat, Field(ge=0.0, le=1e3)]] = Field(default_factory=dict)
    lists: Annotated[int, Field(ge=1)]
    mean: Annotated[float, Field(ge=0.0, le=1.0)]


Weight = Annotated[FiniteFloat, Field(ge=0.0, le=1e6)]
GoalName = Annotated[str, Field(min_length=1, max_length=100)]

MOST_GOALS = 4
"""Goals of a bundle besides its label."""


class GoalStage(Frozen):
    """One goal besides the label: a LightGBM model that ranks for it.

    Args:
        name: Name of the goal: that of its column in the training data.
        file: Name of the model's file.
        spread: Mean standard deviation of the model's scores within a validation list, by which they are divided.
        weight: Weight of the goal where a request has none.
    """

    name: GoalName
    file: FileName
    spread: Divisor
    weight: Weight


class FrontPoint(Frozen):
    """NDCG that some weights reach.

    Args:
        weights: Weight of each goal, the label's first.
        valid, test: Mean NDCG@10 by each goal, in the same order, of the validation and of the test lists.
    """

    weights: Many[Weight]
    valid: Many[FiniteFloat]
    test: Many[FiniteFloat]


class GoalsStage(Frozen):
    """Several goals: candidates are ordered by the weighted sum of the scores for each, see
    :mod:`listwright.ranking.goals`.

    Args:
        label: Name of the first goal, which all other stages rank for.
        weight: Weight of the first goal where a request has none.
        spreads: Mean standard deviation of each strategy's scores within a validation list.
        others: Further goals.
        relative: Whether their models see the manifest's list-relative columns behind the features.
        front: NDCG that the weights of a grid reach.
    """

    label: GoalName
    weight: Weight = 1.0
    spreads: dict[str, Divisor]
    others: Annotated[tuple[GoalStage, ...], Field(min_length=1, max_length=MOST_GOALS)]
    relative: bool = False
    front: Many[FrontPoint] = ()

    @model_validator(mode="after")
    def _goals_differ(self) -> GoalsStage:
        if len(set(self.names)) != len(self.names):
            raise ValueError(f"goals are named twice: {', '.join(self.names)}")
        if not any(self.default_weights.values()):
            raise ValueError("the default weights of all goals are 0")
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all goals, the label first."""
        return (self.label, *(goal.name for goal in self.others))

    @property
    def default_weights(self) -> dict[str, float]:
        """Weight of each goal where a request has none."""
        return {self.label: self.weight, **{goal.name: goal.weight for goal in self.others}}


class AnomalyStage(Frozen):
    """Anomaly score of a query: an Isolation Forest over the mean features of the first stage's top ten.

    Args:
        quantiles: Quantiles of the training queries' scores, at
            :data:`listwright.ranking.features.QUANTILE_LEVELS`.
    """

    file: FileName = "anomaly.onnx"
    quantiles: Many[FiniteFloat] = ()


class RouterStage(Frozen):
    """Router, which picks a specialist for an unseen list, or abstains to the manifest's strategy.

    Args:
        file: Name of the graph's file, ``(1, A) -> (1, 2 K)``: list aggregates to each specialist's share and its gain
            over the generalist.
        temperature: Temperature of the calibrated probabilities, ``p ~ share^(1 / temperature)``.
        margin: Gain that a specialist's estimated gain must exceed for it to be taken; None: none ever is.
    """

    file: FileName = "router.onnx"
    temperature: Annotated[float, Field(ge=0.01, le=100.0)]
    margin: FiniteFloat | None


FirstStageEntry = Annotated[LightGbmStage | ColumnStage | OnnxStage, Field(discriminator="kind")]
