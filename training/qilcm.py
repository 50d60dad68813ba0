"""QILCM, the Query-Invariant Listwise Context Model (Zhu, Chen, He, AAAI 2019), equations (1) to (9).

Every query is a domain, and the network removes what differs between queries. Three things to know before trusting it:

- **Query normalisation erases every input that is constant over a list.** Query-level features act only through the
  encoder's non-linearity, the attention weights and the sign of the context.
- **It also cancels the size of the context**: it works per dimension, so normalised ``c * h`` is ``sign(c)`` times
  normalised ``h`` up to epsilon. Half of the refined representation is nearly a signed copy of the other half, and
  logits jump where a component of ``c`` crosses 0.
- With one candidate the normalised representation is 0 and the score says nothing, as it should.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from ranking.features import FeatureSchema
from training.config import Qilcm as QilcmSpec
from training.preprocess import Preprocess

MASKED_LOGIT = -1e30
"""Logit of padding: finite, because -inf makes NaN of a row that is all padding, in torch and in ONNX Runtime."""

STABLE_EPSILON = 1e-3
"""In ``1 / sqrt(var + eps^2)``: float32 leaves a residue of 3e-8 in ``h - c``; 1e-8 would amplify it to O(1)."""

PAPER_EPSILON = 1e-6
"""In ``1 / (sigma + eps)``; the paper gives no value."""


class Representation(NamedTuple):
    """What the network makes of a list on the way to its logits; ``(B, L, .)`` but for ``context``, ``(B, .)``."""

    encoded: Tensor  # h, eq. (2)
    attention: Tensor  # a, eq. (3), (B, L)
    context: Tensor  # c, eq. (4)
    refined: Tensor  # h tilde, eq. (5)
    normalised: Tensor  # h bar, eq. (8)


class QilcmNetwork(nn.Module):
    """Equations (1) to (9) over dense inputs.

    Args:
        width: X, columns of the dense input.
        spec: widths and switches of the recipe.
    """

    def __init__(self, width: int, spec: QilcmSpec) -> None:
        super().__init__()
        self.query_norm = spec.query_norm
        self.encoder = nn.Sequential(
            nn.Linear(width, spec.encoder_width), nn.ELU(), nn.Linear(spec.encoder_width, spec.encoder_width), nn.ELU()
        )
        encoded = width + spec.encoder_width
        self.width = 2 * encoded
        self.attention = mlp(encoded, spec.hidden)
        self.ranking = mlp(self.width, spec.hidden)
        self.dropout = nn.Dropout(spec.dropout)

    def represent(self, x: Float[Tensor, "B L X"], mask: Bool[Tensor, "B L"] | None = None) -> Representation:
        """Everything up to the normalised representation.

        Args:
            x: ``(B, L, X)`` dense inputs; finite, padding included.
            mask: ``(B, L)`` True = real candidate; None if there is no padding.
        """
        h = torch.cat([x, self.encoder(x)], dim=-1)  # (B, L, H)
        logits = self.attention(h).squeeze(-1)  # (B, L)
        if mask is not None:
            logits = logits.masked_fill(~mask, MASKED_LOGIT)
        a = torch.softmax(logits, dim=-1)  # (B, L) exactly 0 on padding
        c = (a[..., None] * h).sum(dim=-2)  # (B, H)
        refined = torch.cat([c[..., None, :] * h, h], dim=-1)  # (B, L, 2H)
        return Representation(h, a, c, refined, self._normalise(refined, a))

    def _normalise(self, refined: Float[Tensor, "B L W"], a: Float[Tensor, "B L"]) -> Float[Tensor, "B L W"]:
        """Query normalisation, eqs. (6) to (8)."""
        centred = refined - (a[..., None] * refined).sum(dim=-2, keepdim=True)
        # attention sums to 1 only up to rounding: what that leaves of a constant dimension would be blown up by
        # 1 / epsilon (measured: logits off by 1e-3 on constant lists); centring twice removes it
        centred = centred - (a[..., None] * centred).sum(dim=-2, keepdim=True)
        variance = (a[..., None] * centred.square()).sum(dim=-2, keepdim=True)
        if self.query_norm == "stable":
            return centred * torch.rsqrt(variance + STABLE_EPSILON**2)
        # the gradient of sqrt at 0 is infinite: a dimension that is constant over the list takes the other branch
        positive = variance > 0
        sigma = torch.where(positive, torch.sqrt(torch.where(positive, variance, 1.0)), 0.0)
        return centred / (sigma + PAPER_EPSILON)

    def score(self, normalised: Float[Tensor, "B L W"]) -> Float[Tensor, "B L"]:
        """Logits of eq. (9), monotone in its softmax."""
        logits: Tensor = self.ranking(self.dropout(normalised)).squeeze(-1)
        return logits


class Qilcm(nn.Module):
    """Preprocessing and network over padded batches of raw lists.

    Args:
        schema: of the first D input columns.
        rows: ``(R, E)`` training rows that fix the scaling.
        spec: of the recipe.
    """

    def __init__(self, schema: FeatureSchema, rows: Float[np.ndarray, "R E"], spec: QilcmSpec) -> None:
        super().__init__()
        self.preprocess = Preprocess(schema, rows)
        self.network = QilcmNetwork(self.preprocess.width, spec)

    def forward(
        self, raw: Float[Tensor, "B L E"], mask: Bool[Tensor, "B L"]
    ) -> tuple[Float[Tensor, "B L"], Float[Tensor, "B L W"]]:
        """Logits and normalised representations of a padded batch.

        Args:
            raw: ``(B, L, E)`` raw features; NaN means missing. Padding may hold anything, NaN included.
            mask: ``(B, L)`` True = real candidate.

        Returns:
            ``(B, L)`` logits, :data:`MASKED_LOGIT` on padding, and ``(B, L, W)`` representations for the confusion
            loss, to be used under the same mask.
        """
        raw = raw.masked_fill(~mask[..., None], 0.0)  # masking only the output would let NaN into the gradients
        normalised = self.network.represent(self.preprocess(raw), mask).normalised
        return self.network.score(normalised).masked_fill(~mask, MASKED_LOGIT), normalised


class Unbatched(nn.Module):
    """One list without padding, ``(L, E) -> (L,)``: the form that is exported. Shares the weights of ``model``."""

    def __init__(self, model: Qilcm) -> None:
        super().__init__()
        self.model = model

    def forward(self, features: Float[Tensor, "L E"]) -> Float[Tensor, " L"]:
        """``(L,)`` logits of one list."""
        normalised = self.model.network.represent(self.model.preprocess(features)[None]).normalised
        return self.model.network.score(normalised)[0]


def mlp(width: int, hidden: tuple[int, ...]) -> nn.Sequential:
    """ELU layers of the given widths and one linear output, as in eqs. (3) and (9)."""
    layers: list[nn.Module] = []
    for size in hidden:
        layers += [nn.Linear(width, size), nn.ELU()]
        width = size
    return nn.Sequential(*layers, nn.Linear(width, 1))
