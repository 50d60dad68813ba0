"""Ranking losses over padded batches; each works with any torch module that gives one logit per candidate."""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


def attrank(
    logits: Float[Tensor, "B L"],
    labels: Int[Tensor, "B L"],
    mask: Bool[Tensor, "B L"],
    *,
    form: Literal["per_query", "paper"] = "per_query",
) -> Float[Tensor, ""]:
    """AttRank: cross entropy between the softmax of the logits and the normalised labels.

    Definition (QILCM, Zhu et al. 2019, eqs. 11 and 12; Ai et al. 2018):
        y~_i = psi(y_i) / sum_j psi(y_j), psi(y) = e^y if y > 0 else 0
        loss = mean over queries of -(1/n) sum_i y~_i log softmax(logits)_i

    Args:
        logits: ``(B, L)``; anything on padding.
        labels: ``(B, L)`` relevance labels, 0 = irrelevant; anything on padding.
        mask: ``(B, L)`` True = real candidate.
        form: ``paper`` keeps the factor 1/n, which plays down long lists; ``per_query`` leaves it out.

    Returns:
        A scalar.

    Convention: a list without a relevant candidate has loss 0 and still counts in the mean.
    """
    lowest = torch.finfo(logits.dtype).min
    log_s = torch.log_softmax(logits.masked_fill(~mask, lowest), dim=-1)
    relevant = mask & (labels > 0)
    log_psi = labels.to(logits.dtype).masked_fill(~relevant, lowest)
    target = torch.softmax(log_psi, dim=-1)
    loss = -(target * log_s.masked_fill(~relevant, 0.0)).sum(dim=-1)  # (B,)
    if form == "paper":
        loss = loss / mask.sum(dim=-1).clamp(min=1)
    return loss.mean()
