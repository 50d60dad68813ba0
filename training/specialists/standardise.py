"""Raw features as z-scores, for linear rankers: the first layer of the specialists' graph."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from listwright.ranking.features import FeatureSchema
from listwright.training.networks.preprocess import CLIP_QUANTILES, symmetric_log1p
from listwright.training.stored.rows import Features, columns

FIRST_STAGE_SCORE = "first-stage score"
"""Name of the column that is no feature."""

SMALLEST, LARGEST = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)
"""A spread below the one, or a span above the other, has no z-scores in float32: they would be infinite."""


class Standardise(nn.Module):
    """Raw feature rows to dense inputs: z-scores, missing-value indicators, one 0/1 column per category.

    Numbers are clipped at the 0.1 % and 99.9 % quantiles of training, so that one absurd value cannot outweigh all
    others. A missing number becomes the mean where training data had missing values, with an indicator of 1, and
    counts as 0.0 where they had none, because LightGBM treats it so. Indicators and categories stay 0/1: scaled to
    unit variance, rare ones would hardly be held by the prior.

    Args:
        schema: of the first D columns.
        rows: ``(R, E)`` training rows to take the statistics from; E is D, or D + 1 with the first stage's score last.
        transform: ``none``, or ``log`` for symmetric log1p before everything else; or ``raw``, which leaves numbers as
            they are, a missing one 0.

    Convention: a column that is constant in training (or has no value at all, or a spread that float32 cannot scale)
    becomes 0, without an indicator if it never had a value; an unknown category is 0 in every column of its feature.
    """

    lows: Tensor
    highs: Tensor
    means: Tensor
    scales: Tensor
    optional: Tensor

    def __init__(self, schema: FeatureSchema, rows: Features, transform: Literal["none", "log", "raw"]) -> None:
        super().__init__()
        self.transform = transform
        self.numeric = [d for d in range(rows.shape[1]) if d not in schema.categorical]
        self.indicated: list[int] = []
        found: list[tuple[float, float, float, float]] = []
        for d, column in enumerate(columns(rows)):
            if d not in self.numeric:
                continue
            if d < len(schema) and schema.features[d].missing_in_training and not np.isnan(column).all():
                self.indicated.append(len(found))
            found.append(_statistics(column, transform))
        self.register_buffer(
            "optional", torch.tensor([i in self.indicated for i in range(len(self.numeric))], dtype=torch.bool)
        )
        self.categorical = [(d, len(schema.features[d].categories)) for d in schema.categorical]
        statistics = np.array(found, dtype=np.float32)
        for name, values in zip(("lows", "highs", "means", "scales"), statistics.reshape(-1, 4).T, strict=True):
            self.register_buffer(name, torch.from_numpy(values.copy()))
        names = (*schema.names, FIRST_STAGE_SCORE)
        self.names = tuple(names[d] for d in self.numeric)
        self.names += tuple(f"{self.names[i]} missing" for i in self.indicated)
        for d in schema.categorical:
            self.names += tuple(f"{schema.names[d]} = {category}" for category in schema.features[d].categories)

    @property
    def width(self) -> int:
        """P, columns of the output."""
        return len(self.names)

    def forward(self, raw: Float[Tensor, "*batch E"]) -> Float[Tensor, "*batch P"]:
        """``(..., E)`` raw rows to ``(..., P)`` dense inputs; NaN is a missing value."""
        numbers = raw if len(self.numeric) == raw.shape[-1] else raw[..., self.numeric]
        missing = torch.isnan(numbers)
        values = torch.where(missing, 0.0, numbers)
        if self.transform == "log":
            values = symmetric_log1p(values)
        z = (torch.minimum(torch.maximum(values, self.lows), self.highs) - self.means) * self.scales
        parts = [z]
        if self.indicated:
            parts = [torch.where(missing & self.optional, 0.0, z), missing[..., self.indicated].to(z.dtype)]
        for column, size in self.categorical:
            codes = torch.arange(1, size + 1, dtype=raw.dtype, device=raw.device)
            parts.append((raw[..., column : column + 1] == codes).to(z.dtype))
        return torch.cat(parts, dim=-1)


def _statistics(column: Float[np.ndarray, " R"], transform: str) -> tuple[float, float, float, float]:
    """Low, high, mean and 1 / standard deviation of one transformed and clipped column."""
    present = column[~np.isnan(column)].astype(np.float64)
    if len(present) == 0:
        return 0.0, 0.0, 0.0, 0.0
    if transform == "raw":
        return -LARGEST, LARGEST, 0.0, 1.0
    if transform == "log":
        present = np.sign(present) * np.log1p(np.abs(present))
    low, high = np.quantile(present, CLIP_QUANTILES)
    clipped = np.clip(present, low, high)
    spread = float(clipped.std())
    constant = spread <= max(1e-12 * float(np.abs(clipped).max()), SMALLEST)
    if constant or high - low > LARGEST:
        return 0.0, 0.0, 0.0, 0.0
    return float(low), float(high), float(clipped.mean()), 1.0 / spread
