"""All specialists as one torch module: the form that is exported."""

from __future__ import annotations

import copy

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from listwright.ranking.compiled.linear import PackedLinear
from listwright.training.specialists.em import Component
from listwright.training.specialists.linear import LinearRanker
from listwright.training.specialists.neural import NetworkRanker
from listwright.training.specialists.standardise import Standardise


class SrmNetwork(nn.Module):
    """Raw features to the scores of all K specialists.

    Args:
        standardise: fitted on the training rows.
        rankers: fitted, K of them.
    """

    def __init__(self, standardise: Standardise, rankers: list[Component]) -> None:
        super().__init__()
        self.standardise = standardise
        linear = [ranker.w for ranker in rankers if isinstance(ranker, LinearRanker)]
        self.heads = _stacked(torch.stack(linear)) if len(linear) == len(rankers) else _Beside(rankers)
        self.heads.float()

    def forward(self, features: Float[Tensor, "*batch E"]) -> Float[Tensor, "*batch K"]:
        """``(..., K)`` scores; NaN is a missing value."""
        scores: Tensor = self.heads(self.standardise(features))
        return scores

    def packed(self) -> PackedLinear | None:
        """The same rankers for the compiled product; None if they are networks, or take logarithms first."""
        layer = self.standardise
        if not isinstance(self.heads, nn.Linear) or layer.transform != "none":
            return None
        optional = layer.optional.numpy()
        weights, of_missing, of_categories = np.split(
            self.heads.weight.detach().numpy(), np.cumsum([len(optional), len(layer.indicated)]), axis=1
        )
        missing_weights = np.zeros_like(weights)
        missing_weights[:, layer.indicated] = of_missing
        means = layer.means.numpy()
        return PackedLinear(
            columns=np.array(layer.numeric, dtype=np.int32),
            fills=np.where(optional, means, np.float32(0.0)),
            lows=layer.lows.numpy(),
            highs=layer.highs.numpy(),
            means=means,
            scales=layer.scales.numpy(),
            weights=np.ascontiguousarray(weights),
            missing_weights=missing_weights,
            category_columns=np.array([column for column, _ in layer.categorical], dtype=np.int32),
            category_starts=np.cumsum([0, *(size for _, size in layer.categorical)], dtype=np.int32),
            category_weights=np.ascontiguousarray(of_categories),
        )


def _stacked(weights: Float[Tensor, "K P"]) -> nn.Linear:
    """All linear rankers in one product."""
    heads = nn.Linear(weights.shape[1], len(weights), bias=False)
    with torch.no_grad():
        heads.weight.copy_(weights)
    return heads


class _Beside(nn.Module):
    """Networks, each with one output."""

    def __init__(self, rankers: list[Component]) -> None:
        super().__init__()
        self.networks = nn.ModuleList(
            copy.deepcopy(ranker.network) for ranker in rankers if isinstance(ranker, NetworkRanker)
        )

    def forward(self, x: Float[Tensor, "*batch P"]) -> Float[Tensor, "*batch K"]:
        return torch.cat([network(x) for network in self.networks], dim=-1)
