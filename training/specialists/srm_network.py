"""All specialists as one torch module: the form that is exported."""

from __future__ import annotations

import copy

import torch
from jaxtyping import Float
from torch import Tensor, nn

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
