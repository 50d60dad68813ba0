"""A second stage as a whole: preprocessing and network over padded batches of raw lists, or over one list."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float
from torch import Tensor, nn

from listwright.ranking.errors import RecipeError
from listwright.ranking.features import FeatureSchema
from listwright.training.networks.encoder import MASKED_LOGIT, Output
from listwright.training.networks.pointwise import PointwiseNetwork
from listwright.training.networks.preprocess import Preprocess
from listwright.training.networks.qilcm import QilcmNetwork
from listwright.training.networks.qilcm2 import Qilcm2Network
from listwright.training.networks.recurrent import DcmNetwork, DlcmNetwork
from listwright.training.recipe.model import DcmSpec, DlcmSpec, MlpSpec, NetworkSpec, Qilcm2Spec, QilcmSpec
from listwright.training.stored.rows import Features


class Ranker(nn.Module):
    """Preprocessing and network.

    Args:
        schema: of the first D input columns.
        rows: ``(R, E)`` training rows that fix the scaling.
        spec: of the recipe.
        score_column: which of the E columns holds the first stage's score; None where none does.
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
        """Logits of a padded batch.

        Args:
            raw: ``(B, L, E)`` raw features; NaN means missing. Padding may hold anything, NaN included.
            mask: ``(B, L)`` True = real candidate.

        Returns:
            ``(B, L)`` logits, :data:`listwright.training.networks.encoder.MASKED_LOGIT` on padding, and ``(B, L, W)``
            representations for the confusion loss, to be used under the same mask; None from all but QILCM.
        """
        raw = raw.masked_fill(~mask[..., None], 0.0)  # masking only the output would let NaN into the gradients
        found: Output = self.network(self.preprocess(raw), mask, self.first_scores(raw))
        return found._replace(logits=found.logits.masked_fill(~mask, MASKED_LOGIT))

    def first_scores(self, raw: Float[Tensor, "*batch E"]) -> Float[Tensor, "*batch"] | None:
        """The first stage's scores, where they are among the columns."""
        return None if self.score_column is None else raw[..., self.score_column]


class Unbatched(nn.Module):
    """One list without padding, ``(L, E) -> (L,)``: what is exported. Shares the weights of ``model``."""

    def __init__(self, model: Ranker) -> None:
        super().__init__()
        self.model = model

    def forward(self, features: Float[Tensor, "L E"]) -> Float[Tensor, " L"]:
        """``(L,)`` logits of one list."""
        raw = features[None]
        found: Output = self.model.network(self.model.preprocess(raw), None, self.model.first_scores(raw))
        return found.logits[0]


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
            return DlcmNetwork(width, spec) if isinstance(spec, DlcmSpec) else DcmNetwork(width, spec)
