"""Losses over padded batches, for any torch module that returns one score per candidate: the public names.

:mod:`listwright.training.losses.listwise` documents them. ``log_likelihood`` is the exact Plackett-Luce likelihood of
tied labels (``docs/exact-plackett-luce.md``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from listwright.exports import on_demand

if TYPE_CHECKING:
    from listwright.training.losses.confusion import confusion_loss
    from listwright.training.losses.exact_plackett_luce import log_likelihood
    from listwright.training.losses.listwise import att_rank, plackett_luce, softmax_cross_entropy

__all__ = ["att_rank", "confusion_loss", "log_likelihood", "plackett_luce", "softmax_cross_entropy"]

__getattr__ = on_demand(
    __name__,
    {
        "att_rank": "listwise",
        "confusion_loss": "confusion",
        "log_likelihood": "exact_plackett_luce",
        "plackett_luce": "listwise",
        "softmax_cross_entropy": "listwise",
    },
    extra="training",
)
