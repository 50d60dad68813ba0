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
