"""What a training loop says of an epoch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Epoch:
    """One pass over the training queries.

    Args:
        number: counted from 1.
        rank_loss, confusion_loss: means over batches; the second before weighting, 0 where it is not used.
        valid_ndcg: of the validation queries after this epoch (empty queries count 0).
        best_ndcg: the best so far.
        seconds: wall clock of the training batches, without validation.
    """

    number: int
    rank_loss: float
    confusion_loss: float
    valid_ndcg: float
    best_ndcg: float
    seconds: float
