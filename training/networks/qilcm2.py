"""QILCM2: a stronger set model in QILCM's family (ours).

It keeps what QILCM throws away. Several attentions, or two blocks of self-attention, see the list instead of one
weighted mean. Query normalisation comes *before* the product with the context, whose size therefore survives, and a
learned mix per dimension lets through what normalisation would erase. And the score is what the network adds to the
first stage's: its last layer starts at 0, so that training starts from the first stage's very order.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from listwright.training.networks.encoder import MASKED_LOGIT, Encoder, Output, mlp
from listwright.training.networks.qilcm import STABLE_EPSILON
from listwright.training.recipe.model import Qilcm2Spec


class Qilcm2Network(nn.Module):
    """The mean of the scores of several members: the same network with other initial weights and dropout.

    While training, each member has the loss of its own scores
    (:attr:`listwright.training.networks.encoder.Output.members`), so that they stay different; the epoch is chosen by
    their mean. They share the embeddings of categories.

    Args:
        width, scores: as of :class:`Member`.
        spec: of the recipe; ``members`` of them.
    """

    def __init__(self, width: int, spec: Qilcm2Spec, scores: Float[np.ndarray, " R"] | None) -> None:
        super().__init__()
        self.members = nn.ModuleList(Member(width, spec, scores) for _ in range(spec.members))

    def forward(
        self, x: Float[Tensor, "B L X"], mask: Bool[Tensor, "B L"] | None, first: Float[Tensor, "B L"] | None
    ) -> Output:
        """``(B, L)`` logits; ``(M, B, L)`` of the members."""
        logits = torch.stack([member(x, mask, first) for member in self.members])
        return Output(logits.mean(dim=0), members=logits)

    def attention(self, x: Float[Tensor, "B L X"]) -> Float[Tensor, "B L"]:
        """``(B, L)`` how much each candidate is attended to, 1 in sum: the mean over members."""
        found = [member.attention(x) for member in self.members if isinstance(member, Member)]
        return torch.stack(found).mean(dim=0)


class Member(nn.Module):
    """The network over dense inputs.

    Definition (the encoder is QILCM's; latent cross: Beutel et al., WSDM 2018; set attention: Lee et al., ICML 2019):
        h_i = [x_i ; encoded x_i]
        c_i = what h_i sees of the list, by seeds or blocks
        g_i = m * (h_i - mean) / sqrt(var + eps^2) + (1 - m) * h_i,  m = sigmoid of a learned vector
        score_i = e^t z_i + MLP(g_i * (1 + c_i)),  z_i = standardised first-stage score

    Args:
        width: X, columns of the dense input.
        spec: of the recipe.
        scores: ``(R,)`` first-stage scores of the training rows, which fix the scale of z; None: no such term.
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
        """``(B, L)`` logits."""
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
        """``(B, L)`` how much each candidate is attended to, 1 in sum: the mean over seeds, or over the heads of the
        first block and the candidates that look.
        """
        found: Tensor = self.context.attended(self.encoder(x))
        return found


class _Seeds(nn.Module):
    """Every seed pools the list by an attention of its own: ``(B, L, H) -> (B, 1, H)``."""

    def __init__(self, encoded: int, seeds: int) -> None:
        super().__init__()
        self.attention = nn.Linear(encoded, seeds)
        self.out = nn.Linear(seeds * encoded, encoded)

    def forward(self, h: Float[Tensor, "B L H"], mask: Bool[Tensor, "B L"] | None) -> Float[Tensor, "B 1 H"]:
        pooled = self._weights(h, mask) @ h  # (B, seeds, H)
        found: Tensor = self.out(pooled.flatten(1))
        return found[:, None]

    def attended(self, h: Float[Tensor, "B L H"]) -> Float[Tensor, "B L"]:
        """``(B, L)`` mean over the seeds."""
        return self._weights(h, None).mean(dim=1)

    def _weights(self, h: Float[Tensor, "B L H"], mask: Bool[Tensor, "B L"] | None) -> Float[Tensor, "B S L"]:
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
        found: Tensor = self.out(z)
        return found

    def attended(self, h: Float[Tensor, "B L H"]) -> Float[Tensor, "B L"]:
        """``(B, L)`` mean over the heads of the first block and the candidates that look."""
        first = self.blocks[0]
        assert isinstance(first, _Block)
        return first.weights(self.into(h), None)[0].mean(dim=(1, 2))


class _Block(nn.Module):
    """Attention of every candidate to every real one, then a layer of its own; both added to what came in."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        seen = heads * -(-width // heads)  # every head has as many dimensions
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.project = nn.Linear(width, 3 * seen)
        self.out = nn.Linear(seen, width)
        self.feed = nn.Sequential(nn.Linear(width, 2 * width), nn.ELU(), nn.Linear(2 * width, width))

    def forward(self, z: Float[Tensor, "B L W"], mask: Bool[Tensor, "B L"] | None) -> Float[Tensor, "B L W"]:
        weights, value = self.weights(z, mask)
        seen = weights @ value
        z = z + self.out(seen.transpose(1, 2).flatten(2))
        fed: Tensor = z + self.feed(self.between(z))
        return fed

    def weights(
        self, z: Float[Tensor, "B L W"], mask: Bool[Tensor, "B L"] | None
    ) -> tuple[Float[Tensor, "B H L L"], Float[Tensor, "B H L D"]]:
        """What each candidate looks at by each head, and what it finds there."""
        parts = self.project(self.before(z)).unflatten(-1, (3, self.heads, -1))  # (B, L, 3, heads, d)
        query, key, value = parts.permute(2, 0, 3, 1, 4)  # (B, heads, L, d) each
        logits = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5
        if mask is not None:
            logits = logits.masked_fill(~mask[:, None, None], MASKED_LOGIT)
        return torch.softmax(logits, dim=-1), value


def _normalised(h: Float[Tensor, "B L H"], mask: Bool[Tensor, "B L"] | None) -> Float[Tensor, "B L H"]:
    """Query normalisation with plain means over the real candidates."""
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
