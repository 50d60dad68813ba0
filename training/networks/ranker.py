"""A complete second stage: preprocessing and network over padded batches of raw lists, or over one list.

Preprocessing is the first layer, so that the exported graph takes raw features. Numeric features are scaled to [0, 1]
as the QILCM paper asks ("Item Encoder"), globally, by statistics of the training rows; how is ours: symmetric log1p,
clip at the 0.1 % and 99.9 % quantiles, min-max. Categorical features are embedded.
"""

from __future__ import annotations

from importlib import import_module

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from listwright.ranking.errors import RecipeError
from listwright.ranking.features import UNKNOWN_CODE, FeatureSchema
from listwright.training.data.shards.rows import Features, columns
from listwright.training.networks.qilcm import MASKED_LOGIT, Encoder, Output, Qilcm2Network, QilcmNetwork, mlp
from listwright.training.recipe.config import LAB
from listwright.training.recipe.model import DcmSpec, DlcmSpec, MlpSpec, NetworkSpec, Qilcm2Spec, QilcmSpec

CLIP_QUANTILES = (0.001, 0.999)

MAX_EMBEDDING = 16


class Ranker(nn.Module):
    """Preprocessing and network.

    Args:
        schema: Schema of the first D input columns.
        rows: ``(R, E)`` training rows that fix the scaling.
        spec: Network of the recipe.
        score_column: Number of the column, of all E, with the first stage's score; None where there is none.
    """

    def __init__(
        self,
        schema: FeatureSchema,
        rows: Features,
        spec: NetworkSpec,
        score_column: int | None = None,
    ) -> None:
        super().__init__()
        self.preprocess = Preprocess(schema, rows)
        self.score_column = score_column
        scores = None if score_column is None else np.ascontiguousarray(rows[:, score_column])
        self.network = _network(spec, self.preprocess.width, scores)

    def forward(self, raw: Float[Tensor, "B L E"], mask: Bool[Tensor, "B L"]) -> Output:
        """Return the logits of a padded batch.

        Args:
            raw: ``(B, L, E)`` raw features; NaN means missing. Padding may hold anything, NaN included.
            mask: ``(B, L)`` True = real candidate.

        Returns:
            ``(B, L)`` logits, :data:`listwright.training.networks.qilcm.MASKED_LOGIT` on padding, and ``(B, L, width)``
            representations for the confusion loss, to be used under the same mask; None from all but QILCM.
        """
        raw = raw.masked_fill(~mask[..., None], 0.0)  # masking only the output would let NaN into the gradients
        output: Output = self.network(self.preprocess(raw), mask, self.first_scores(raw))
        return output._replace(logits=output.logits.masked_fill(~mask, MASKED_LOGIT))

    def first_scores(self, raw: Float[Tensor, "*batch E"]) -> Float[Tensor, "*batch"] | None:
        """Return the first stage's scores, where they are among the columns."""
        return None if self.score_column is None else raw[..., self.score_column]


class Unbatched(nn.Module):
    """One list without padding, ``(L, E) -> (L,)``, for export. Shares the weights of ``model``."""

    def __init__(self, model: Ranker) -> None:
        super().__init__()
        self.model = model

    def forward(self, features: Float[Tensor, "L E"]) -> Float[Tensor, " L"]:
        """Return ``(L,)`` logits of one list."""
        raw = features[None]
        output: Output = self.model.network(self.model.preprocess(raw), None, self.model.first_scores(raw))
        return output.logits[0]


def _network(spec: NetworkSpec, width: int, scores: Float[np.ndarray, " R"] | None) -> nn.Module:
    match spec:
        case QilcmSpec():
            return QilcmNetwork(width, spec)
        case Qilcm2Spec():
            return Qilcm2Network(width, spec, scores)
        case MlpSpec():
            return PointwiseNetwork(width, spec)
        case DlcmSpec() | DcmSpec():
            if scores is None and spec.order == "first_stage":
                raise RecipeError('order = "first_stage" needs the first stage\'s scores among the inputs')
            network: nn.Module = import_module(f"{LAB}.recurrent").network_of(spec, width)
            return network


class PointwiseNetwork(nn.Module):
    """``score_i = MLP([x_i ; encoded x_i])``; a candidate's score depends on nothing else.

    Args:
        width: X, columns of the dense input.
        spec: Network of the recipe.
    """

    def __init__(self, width: int, spec: MlpSpec) -> None:
        super().__init__()
        self.encoder = Encoder(width, spec.encoder_width)
        self.ranking = mlp(self.encoder.encoded, spec.hidden)
        self.dropout = nn.Dropout(spec.dropout)

    def forward(
        self, x: Float[Tensor, "B L X"], _mask: Bool[Tensor, "B L"] | None, _first: Float[Tensor, "B L"] | None
    ) -> Output:
        """Return ``(B, L)`` logits."""
        return Output(self.ranking(self.dropout(self.encoder(x))).squeeze(-1))


class Preprocess(nn.Module):
    """Raw feature rows to dense inputs in one layout: scaled numbers, missing-value indicators, embeddings.

    A missing number becomes the median of its transformed training values plus an indicator of 1 where training data
    had missing values, and counts as 0.0 where they had none, because LightGBM treats it so.

    Args:
        schema: Schema of the first D columns.
        rows: ``(R, E)`` training rows to take the statistics from; E is D, or D + 1 with the first stage's score last.

    Convention: a column that is constant in training becomes 0, and so does, without an indicator, one that has no
    value at all: whatever is sent there changes nothing. A category code outside the schema counts as unknown; the
    embedding of the unknown category starts at 0 and stays there if training has none.
    """

    lows: Tensor
    ranges: Tensor
    fills: Tensor

    def __init__(self, schema: FeatureSchema, rows: Features) -> None:
        super().__init__()
        self.numeric = [d for d in range(rows.shape[1]) if d not in schema.categorical]
        self.categorical = list(schema.categorical)
        self.indicated: list[int] = []
        statistics: list[tuple[float, float, float]] = []
        for d, column in enumerate(columns(rows)):
            if d not in self.numeric:
                continue
            # where every value is missing the indicator would be 1 for ever, until a request sends one
            optional = d < len(schema) and schema.features[d].missing_in_training and not np.isnan(column).all()
            if optional:
                self.indicated.append(len(statistics))
            statistics.append(_statistics(column, fill_median=optional))
        fills, lows, highs = np.array(statistics, dtype=np.float32).reshape(-1, 3).T
        self.register_buffer("fills", torch.from_numpy(fills.copy()))
        self.register_buffer("lows", torch.from_numpy(lows.copy()))
        self.register_buffer("ranges", torch.from_numpy(highs - lows))
        self.sizes = [len(schema.features[d].categories) for d in self.categorical]
        self.embeddings = nn.ModuleList(nn.Embedding(size + 1, embedding_width(size)) for size in self.sizes)
        with torch.no_grad():
            for embedding in self.embeddings:
                embedding.weight[UNKNOWN_CODE].zero_()  # type: ignore[index]

    @property
    def width(self) -> int:
        """Columns of the output."""
        return len(self.numeric) + len(self.indicated) + sum(embedding_width(size) for size in self.sizes)

    def forward(self, raw: Float[Tensor, "*batch E"]) -> Float[Tensor, "*batch X"]:
        """Transform ``(..., E)`` raw rows to ``(..., X)`` dense inputs; NaN is a missing value."""
        numbers = raw if len(self.numeric) == raw.shape[-1] else raw[..., self.numeric]
        missing = torch.isnan(numbers)
        values = torch.where(missing, self.fills, symmetric_log1p(numbers))
        values = torch.clamp(values - self.lows, min=0.0).minimum(self.ranges)
        parts = [values / torch.where(self.ranges > 0, self.ranges, 1.0)]
        if self.indicated:
            parts.append(missing[..., self.indicated].to(numbers.dtype))
        for column, size, embedding in zip(self.categorical, self.sizes, self.embeddings, strict=True):
            code = raw[..., column]
            known = (code >= 1) & (code <= size)  # False for NaN too
            parts.append(embedding(torch.where(known, code, float(UNKNOWN_CODE)).long()))
        return torch.cat(parts, dim=-1)


def embedding_width(categories: int) -> int:
    """Return the width of the embedding of a feature with so many categories."""
    return min(MAX_EMBEDDING, (categories + 3) // 2)


def symmetric_log1p(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Return ``sign(x) log(1 + |x|)``, accurate near 0 too.

    ONNX has no log1p, and ``log(1 + x)`` loses every digit of a feature that lives below 1e-7; Kahan's correction
    ``log(u) x / (u - 1)`` with ``u = fl(1 + x)`` keeps them and exports as plain operations.
    """
    size = x.abs()
    u = 1.0 + size
    step = u - 1.0
    exact = step == 0
    return torch.sign(x) * torch.where(exact, size, torch.log(u) * (size / torch.where(exact, 1.0, step)))


def _statistics(column: Float[np.ndarray, " R"], *, fill_median: bool) -> tuple[float, float, float]:
    """Return fill value, low and high of one transformed column."""
    present = column[~np.isnan(column)].astype(np.float64)
    if len(present) == 0:
        return 0.0, 0.0, 0.0
    transformed = np.sign(present) * np.log1p(np.abs(present))
    low, high = np.quantile(transformed, CLIP_QUANTILES)
    return (float(np.median(transformed)) if fill_median else 0.0), float(low), float(high)
