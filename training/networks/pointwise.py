"""The pointwise rival: QILCM's encoder and an MLP, one candidate at a time."""

from __future__ import annotations

from jaxtyping import Bool, Float
from torch import Tensor, nn

from listwright.training.networks.encoder import Encoder, Output, mlp
from listwright.training.recipe.model import MlpSpec


class PointwiseNetwork(nn.Module):
    """``score_i = MLP([x_i ; encoded x_i])``; a candidate's score depends on nothing else.

    Args:
        width: X, columns of the dense input.
        spec: of the recipe.
    """

    def __init__(self, width: int, spec: MlpSpec) -> None:
        super().__init__()
        self.encoder = Encoder(width, spec.encoder_width)
        self.ranking = mlp(self.encoder.encoded, spec.hidden)
        self.dropout = nn.Dropout(spec.dropout)

    def forward(
        self, x: Float[Tensor, "B L X"], _mask: Bool[Tensor, "B L"] | None, _first: Float[Tensor, "B L"] | None
    ) -> Output:
        """``(B, L)`` logits."""
        return Output(self.ranking(self.dropout(self.encoder(x))).squeeze(-1))
