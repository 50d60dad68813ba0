"""QILCM, the Query-Invariant Listwise Context Model (Zhu, Chen, He, AAAI 2019), equations (1) to (9); and QILCM2.

Every query is a domain, and the network removes what differs between queries. Three things to know before trusting it:

- **Query normalisation erases every input that is constant over a list.** Query-level features act only through the
  encoder's non-linearity, the attention weights and the sign of the context.
- **It also cancels the size of the context**: it works per dimension, so normalised ``c * h`` is ``sign(c)`` times
  normalised ``h`` up to epsilon. Half of the refined representation is nearly a signed copy of the other half, and
  logits jump where a component of ``c`` crosses 0.
- With one candidate the normalised representation is 0 and the score carries no information, as intended.

Variant 1 has plain means and variances in (4), (6) and (7), variant 3 no query normalisation; of variant 2 only the
training differs.

QILCM2, a stronger set model of this family (ours), keeps what QILCM throws away. Several attentions, or two blocks of
self-attention, see the list instead of one weighted mean. Query normalisation comes *before* the product with the
context, whose size therefore survives, and a learned mix per dimension lets through what normalisation would erase. And
the score is what the network adds to the first stage's: its last layer starts at 0, so that training starts from the
first stage's very order.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from listwright.training.recipe.model import Qilcm2Spec, QilcmSpec

STABLE_EPSILON = 1e-3
"""Epsilon in ``1 / sqrt(var + eps^2)``: float32 leaves 3e-8 in ``h - c``, which 1e-8 would amplify to O(1)."""

PAPER_EPSILON = 1e-6
"""Epsilon in ``1 / (sigma + eps)``; the paper gives no value."""

MASKED_LOGIT = -1e30
"""Logit of padding: finite, because -inf makes NaN of a row that is all padding, in torch and in ONNX Runtime."""


class Representation(NamedTuple):
    """Intermediate results of the network for a list; ``(B, L, .)`` but for ``context``, ``(B, .)``."""

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
        spec: Network of the recipe: widths and switches.
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
        """Return logits and normalised representations; the first stage's order does not matter."""
        parts = self.represent(x, mask)
        return Output(self.score(parts.normalised), parts.normalised, parts.gain)

    def represent(self, x: Float[Tensor, "B L X"], mask: Bool[Tensor, "B L"] | None = None) -> Representation:
        """Return everything up to the normalised representation.

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
        self, refined: Float[Tensor, "B L width"], a: Float[Tensor, "B L"]
    ) -> tuple[Float[Tensor, "B L width"], Float[Tensor, "B 1 width"]]:
        """Apply query normalisation, eqs. (6) to (8); return also its factor after centring."""
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

    def score(self, normalised: Float[Tensor, "B L width"]) -> Float[Tensor, "B L"]:
        """Return the logits of eq. (9), monotone in its softmax."""
        logits: Tensor = self.ranking(self.dropout(normalised)).squeeze(-1)
        return logits


class Output(NamedTuple):
    """A network's output for padded lists.

    Args:
        logits: ``(B, L)``, higher is better.
        representation: ``(B, L, width)`` what the confusion loss looks at; None where a model has no such thing.
        gain: ``(B, half)`` where the representation is ``[gain * u ; u]``, for
            :func:`listwright.training.losses.confusion.confusion_loss`.
        members: ``(members, B, L)`` logits of the networks whose mean ``logits`` are; None where there is one network.
    """

    logits: Tensor
    representation: Tensor | None = None
    gain: Tensor | None = None
    members: Tensor | None = None


class Encoder(nn.Sequential):
    """Two ELU layers, eq. (1) of QILCM, beside the input itself, eq. (2): ``(..., X) -> (..., H)``.

    Args:
        width: X, number of columns of the input.
        size: Widths of the two layers; H is the sum of X and both.
    """

    def __init__(self, width: int, size: int) -> None:
        super().__init__(nn.Linear(width, size), nn.ELU(), nn.Linear(size, size), nn.ELU())
        self.encoded = width + size

    def forward(self, x: Float[Tensor, "*batch X"]) -> Float[Tensor, "*batch H"]:
        """Return ``[x ; encoded x]``."""
        encoded = x
        for layer in self:
            encoded = layer(encoded)
        return torch.cat([x, encoded], dim=-1)


def mlp(width: int, hidden: tuple[int, ...]) -> nn.Sequential:
    """Build ELU layers of the given widths and one linear output, as in QILCM's eqs. (3) and (9)."""
    layers: list[nn.Module] = []
    for size in hidden:
        layers += [nn.Linear(width, size), nn.ELU()]
        width = size
    return nn.Sequential(*layers, nn.Linear(width, 1))


class Qilcm2Network(nn.Module):
    """The mean of the scores of several members: the same network with other initial weights and dropout.

    While training, each member has the loss of its own scores
    (:attr:`listwright.training.networks.qilcm.Output.members`), so that they stay different; the epoch is chosen by
    their mean. They share the embeddings of categories.

    Args:
        width, scores: See :class:`Member`.
        spec: Network of the recipe, with the number of ``members``.
    """

    def __init__(self, width: int, spec: Qilcm2Spec, scores: Float[np.ndarray, " R"] | None) -> None:
        super().__init__()
        self.members = nn.ModuleList(Member(width, spec, scores) for _ in range(spec.members))

    def forward(
        self, x: Float[Tensor, "B L X"], mask: Bool[Tensor, "B L"] | None, first: Float[Tensor, "B L"] | None
    ) -> Output:
        """Return ``(B, L)`` logits, and ``(members, B, L)`` of the members."""
        logits = torch.stack([member(x, mask, first) for member in self.members])
        return Output(logits.mean(dim=0), members=logits)

    def attention(self, x: Float[Tensor, "B L X"]) -> Float[Tensor, "B L"]:
        """Return ``(B, L)`` attention to each candidate, 1 in sum: the mean over members."""
        attentions = [member.attention(x) for member in self.members if isinstance(member, Member)]
        return torch.stack(attentions).mean(dim=0)


class Member(nn.Module):
    """The network over dense inputs.

    Definition (the encoder is QILCM's; latent cross: Beutel et al., WSDM 2018; set attention: Lee et al., ICML 2019):
        h_i = [x_i ; encoded x_i]
        c_i = what h_i sees of the list, by seeds or blocks
        g_i = m * (h_i - mean) / sqrt(var + eps^2) + (1 - m) * h_i,  m = sigmoid of a learned vector
        score_i = e^t z_i + MLP(g_i * (1 + c_i)),  z_i = standardised first-stage score

    Args:
        width: X, columns of the dense input.
        spec: Network of the recipe.
        scores: ``(R,)`` first-stage scores of the training rows, which fix the scale of z; None for a score without
            that term.
    """

    mean: Tensor
    scale: Tensor

    def __init__(self, width: int, spec: Qilcm2Spec, scores: Float[np.ndarray, " R"] | None) -> None:
        super().__init__()
        self.encoder = Encoder(width, spec.encoder_width)
        encoded = self.encoder.encoded
        if spec.context == "seeds":
            self.context: _Seeds | _Blocks = _Seeds(encoded, spec.seeds)
        else:
            self.context = _Blocks(encoded, spec.encoder_width, spec.heads)
        self.mix = nn.Parameter(torch.zeros(encoded))
        self.ranking = mlp(encoded, spec.hidden)
        self.dropout = nn.Dropout(spec.dropout)
        self.input_noise = spec.input_noise
        self.log_weight = None if scores is None else nn.Parameter(torch.zeros(()))
        if scores is not None:
            nn.init.zeros_(self.ranking[-1].weight)  # type: ignore[arg-type]
            nn.init.zeros_(self.ranking[-1].bias)  # type: ignore[arg-type]
            deviation = float(scores.std(dtype=np.float64))
            self.register_buffer("mean", torch.tensor(float(scores.mean(dtype=np.float64))))
            self.register_buffer("scale", torch.tensor(1.0 / deviation if deviation > 0.0 else 1.0))

    def forward(
        self, x: Float[Tensor, "B L X"], mask: Bool[Tensor, "B L"] | None, first: Float[Tensor, "B L"] | None
    ) -> Float[Tensor, "B L"]:
        """Return ``(B, L)`` logits."""
        if self.training and self.input_noise > 0.0:
            x = x + self.input_noise * torch.randn_like(x)
        h = self.encoder(x)
        mix = torch.sigmoid(self.mix)
        mixed = mix * _normalised(h, mask) + (1.0 - mix) * h
        crossed = mixed * (1.0 + self.context(h, mask))
        logits: Tensor = self.ranking(self.dropout(crossed)).squeeze(-1)
        if self.log_weight is not None:
            assert first is not None
            logits = logits + torch.exp(self.log_weight) * ((first - self.mean) * self.scale)
        return logits

    def attention(self, x: Float[Tensor, "B L X"]) -> Float[Tensor, "B L"]:
        """Return ``(B, L)`` attention to each candidate, 1 in sum: the mean over seeds, or over the heads of the first
        block and the attending candidates.
        """
        attention: Tensor = self.context.attended(self.encoder(x))
        return attention


class _Seeds(nn.Module):
    """Seeds that each pool the list by an attention of their own: ``(B, L, H) -> (B, 1, H)``."""

    def __init__(self, encoded: int, seeds: int) -> None:
        super().__init__()
        self.attention = nn.Linear(encoded, seeds)
        self.out = nn.Linear(seeds * encoded, encoded)

    def forward(self, h: Float[Tensor, "B L H"], mask: Bool[Tensor, "B L"] | None) -> Float[Tensor, "B 1 H"]:
        pooled = self._weights(h, mask) @ h  # (B, seeds, H)
        context: Tensor = self.out(pooled.flatten(1))
        return context[:, None]

    def attended(self, h: Float[Tensor, "B L H"]) -> Float[Tensor, "B L"]:
        """Return ``(B, L)`` the mean over the seeds."""
        return self._weights(h, None).mean(dim=1)

    def _weights(self, h: Float[Tensor, "B L H"], mask: Bool[Tensor, "B L"] | None) -> Float[Tensor, "B seeds L"]:
        logits = self.attention(h).transpose(1, 2)
        if mask is not None:
            logits = logits.masked_fill(~mask[:, None], MASKED_LOGIT)
        return torch.softmax(logits, dim=-1)


class _Blocks(nn.Module):
    """Two blocks of self-attention: ``(B, L, H) -> (B, L, H)``."""

    def __init__(self, encoded: int, width: int, heads: int) -> None:
        super().__init__()
        self.into = nn.Linear(encoded, width)
        self.blocks = nn.ModuleList(_Block(width, heads) for _ in range(2))
        self.out = nn.Linear(width, encoded)

    def forward(self, h: Float[Tensor, "B L H"], mask: Bool[Tensor, "B L"] | None) -> Float[Tensor, "B L H"]:
        z = self.into(h)
        for block in self.blocks:
            z = block(z, mask)
        context: Tensor = self.out(z)
        return context

    def attended(self, h: Float[Tensor, "B L H"]) -> Float[Tensor, "B L"]:
        """Return ``(B, L)`` the mean over the heads of the first block and the attending candidates."""
        first = self.blocks[0]
        assert isinstance(first, _Block)
        return first.weights(self.into(h), None)[0].mean(dim=(1, 2))


class _Block(nn.Module):
    """Attention of every candidate to every real one, then a layer of its own; both added to what came in."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        attended = heads * -(-width // heads)  # every head has as many dimensions
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.project = nn.Linear(width, 3 * attended)
        self.out = nn.Linear(attended, width)
        self.feed = nn.Sequential(nn.Linear(width, 2 * width), nn.ELU(), nn.Linear(2 * width, width))

    def forward(self, z: Float[Tensor, "B L width"], mask: Bool[Tensor, "B L"] | None) -> Float[Tensor, "B L width"]:
        weights, value = self.weights(z, mask)
        attended = weights @ value
        z = z + self.out(attended.transpose(1, 2).flatten(2))
        fed: Tensor = z + self.feed(self.between(z))
        return fed

    def weights(
        self, z: Float[Tensor, "B L width"], mask: Bool[Tensor, "B L"] | None
    ) -> tuple[Float[Tensor, "B heads L L"], Float[Tensor, "B heads L size"]]:
        """Return each head's attention weights and values."""
        parts = self.project(self.before(z)).unflatten(-1, (3, self.heads, -1))  # (B, L, 3, heads, d)
        query, key, value = parts.permute(2, 0, 3, 1, 4)  # (B, heads, L, d) each
        logits = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5
        if mask is not None:
            logits = logits.masked_fill(~mask[:, None, None], MASKED_LOGIT)
        return torch.softmax(logits, dim=-1), value


def _normalised(h: Float[Tensor, "B L H"], mask: Bool[Tensor, "B L"] | None) -> Float[Tensor, "B L H"]:
    """Apply query normalisation with plain means over the real candidates."""
    if mask is None:
        centred = h - h.mean(dim=1, keepdim=True)
        centred = centred - centred.mean(dim=1, keepdim=True)  # rounding left something of a constant: as in QILCM
        variance = centred.square().mean(dim=1, keepdim=True)
    else:
        real = mask.to(h.dtype)[..., None]
        share = real / real.sum(dim=1, keepdim=True).clamp(min=1.0)  # (B, L, 1)
        centred = h - (share * h).sum(dim=1, keepdim=True)
        centred = centred - (share * centred).sum(dim=1, keepdim=True)
        variance = (share * centred.square()).sum(dim=1, keepdim=True)
    return centred * torch.rsqrt(variance + STABLE_EPSILON**2)
