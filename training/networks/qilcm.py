"""QILCM, the Query-Invariant Listwise Context Model (Zhu, Chen, He, AAAI 2019), equations (1) to (9).

Every query is a domain, and the network removes what differs between queries. Three things to know before trusting it:

- **Query normalisation erases every input that is constant over a list.** Query-level features act only through the
  encoder's non-linearity, the attention weights and the sign of the context.
- **It also cancels the size of the context**: it works per dimension, so normalised ``c * h`` is ``sign(c)`` times
  normalised ``h`` up to epsilon. Half of the refined representation is nearly a signed copy of the other half, and
  logits jump where a component of ``c`` crosses 0.
- With one candidate the normalised representation is 0 and the score says nothing, as it should.

Variant 1 has plain means and variances in (4), (6) and (7), variant 3 no query normalisation; of variant 2 only the
training differs.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from listwright.training.networks.encoder import MASKED_LOGIT, Encoder, Output, mlp
from listwright.training.recipe.model import QilcmSpec

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
    normalised: Tensor  # h bar, eq. (8); h tilde in variant 3
    gain: Tensor  # (B, H): normalised is [gain * u ; u] up to rounding, whatever the list holds


class QilcmNetwork(nn.Module):
    """Equations (1) to (9) over dense inputs.

    Args:
        width: X, columns of the dense input.
        spec: widths and switches of the recipe.
    """

    def __init__(self, width: int, spec: QilcmSpec) -> None:
        super().__init__()
        self.query_norm = None if spec.variant == "V3" else spec.query_norm
        self.encoder = Encoder(width, spec.encoder_width)
        self.width = 2 * self.encoder.encoded
        self.attention = None if spec.variant == "V1" else mlp(self.encoder.encoded, spec.hidden)
        self.ranking = mlp(self.width, spec.hidden)
        self.dropout = nn.Dropout(spec.dropout)

    def forward(
        self, x: Float[Tensor, "B L X"], mask: Bool[Tensor, "B L"] | None, _first: Float[Tensor, "B L"] | None
    ) -> Output:
        """Logits and normalised representations; the first stage's order does not matter."""
        found = self.represent(x, mask)
        return Output(self.score(found.normalised), found.normalised, found.gain)

    def represent(self, x: Float[Tensor, "B L X"], mask: Bool[Tensor, "B L"] | None = None) -> Representation:
        """Everything up to the normalised representation.

        Args:
            x: ``(B, L, X)`` dense inputs; finite, padding included.
            mask: ``(B, L)`` True = real candidate; None if there is no padding.
        """
        h = self.encoder(x)  # (B, L, H)
        logits = torch.zeros_like(h[..., 0]) if self.attention is None else self.attention(h).squeeze(-1)  # (B, L)
        if mask is not None:
            logits = logits.masked_fill(~mask, MASKED_LOGIT)
        a = torch.softmax(logits, dim=-1)  # (B, L) exactly 0 on padding
        c = (a[..., None] * h).sum(dim=-2)  # (B, H)
        refined = torch.cat([c[..., None, :] * h, h], dim=-1)  # (B, L, 2H)
        if self.query_norm is None:
            return Representation(h, a, c, refined, refined, c)
        normalised, scale = self._normalise(refined, a)
        of_product, alone = scale.squeeze(-2).chunk(2, dim=-1)  # (B, H) each
        return Representation(h, a, c, refined, normalised, c * of_product / alone)

    def _normalise(
        self, refined: Float[Tensor, "B L W"], a: Float[Tensor, "B L"]
    ) -> tuple[Float[Tensor, "B L W"], Float[Tensor, "B 1 W"]]:
        """Query normalisation, eqs. (6) to (8), and what it multiplies by after centring."""
        centred = refined - (a[..., None] * refined).sum(dim=-2, keepdim=True)
        # attention sums to 1 only up to rounding: what that leaves of a constant dimension would be blown up by
        # 1 / epsilon (measured: logits off by 1e-3 on constant lists); centring twice removes it
        centred = centred - (a[..., None] * centred).sum(dim=-2, keepdim=True)
        variance = (a[..., None] * centred.square()).sum(dim=-2, keepdim=True)
        if self.query_norm == "stable":
            scale = torch.rsqrt(variance + STABLE_EPSILON**2)
            return centred * scale, scale
        # the gradient of sqrt at 0 is infinite: a dimension that is constant over the list takes the other branch
        positive = variance > 0
        sigma = torch.where(positive, torch.sqrt(torch.where(positive, variance, 1.0)), 0.0)
        scale = 1.0 / (sigma + PAPER_EPSILON)
        return centred * scale, scale

    def score(self, normalised: Float[Tensor, "B L W"]) -> Float[Tensor, "B L"]:
        """Logits of eq. (9), monotone in its softmax."""
        logits: Tensor = self.ranking(self.dropout(normalised)).squeeze(-1)
        return logits
