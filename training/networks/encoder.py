"""What every second stage begins with, and what it gives back."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

MASKED_LOGIT = -1e30
"""Logit of padding: finite, because -inf makes NaN of a row that is all padding, in torch and in ONNX Runtime."""


class Output(NamedTuple):
    """What a network makes of padded lists.

    Args:
        logits: ``(B, L)``, higher is better.
        representation: ``(B, L, W)`` what the confusion loss looks at; None where a model has no such thing.
        gain: ``(B, W / 2)`` where the representation is ``[gain * u ; u]``, for
            :func:`listwright.training.losses.confusion.confusion_loss`.
        members: ``(M, B, L)`` logits of the networks whose mean ``logits`` are; None where there is one network.
    """

    logits: Tensor
    representation: Tensor | None = None
    gain: Tensor | None = None
    members: Tensor | None = None


class Encoder(nn.Sequential):
    """Two ELU layers, eq. (1) of QILCM, beside the input itself, eq. (2): ``(..., X) -> (..., H)``.

    Args:
        width: X.
        size: of the two layers; H is the sum of both.
    """

    def __init__(self, width: int, size: int) -> None:
        super().__init__(nn.Linear(width, size), nn.ELU(), nn.Linear(size, size), nn.ELU())
        self.encoded = width + size

    def forward(self, x: Float[Tensor, "*batch X"]) -> Float[Tensor, "*batch H"]:
        """``[x ; encoded x]``."""
        encoded = x
        for layer in self:
            encoded = layer(encoded)
        return torch.cat([x, encoded], dim=-1)


def mlp(width: int, hidden: tuple[int, ...]) -> nn.Sequential:
    """ELU layers of the given widths and one linear output, as in QILCM's eqs. (3) and (9)."""
    layers: list[nn.Module] = []
    for size in hidden:
        layers += [nn.Linear(width, size), nn.ELU()]
        width = size
    return nn.Sequential(*layers, nn.Linear(width, 1))
