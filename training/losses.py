"""Losses over padded batches, for any torch module that gives one score per candidate.

All take ``(scores, labels, mask)`` and give the mean over queries, a scalar::

    att_rank               AttRank, of QILCM and DLCM
    softmax_cross_entropy  ListNet's cross entropy with gain 2^y - 1, or gains of your own
    plackett_luce          exact likelihood of the labels, ties included

and :func:`training.chamfer.confusion_loss`, which looks at representations instead of scores, stands here too. What
padding holds never matters, be it NaN, and no mask means no padding. ``docs/rivals.md`` has an example.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from training.chamfer import confusion_loss
from training.model_config import RankLoss
from training.plackett_luce import log_likelihood

__all__ = ["att_rank", "confusion_loss", "plackett_luce", "ranking_loss", "softmax_cross_entropy"]


def att_rank(
    scores: Float[Tensor, "B L"],
    labels: Int[Tensor, "B L"],
    mask: Bool[Tensor, "B L"] | None = None,
    *,
    form: Literal["per_query", "paper"] = "per_query",
) -> Float[Tensor, ""]:
    """AttRank: cross entropy between the softmax of the scores and the normalised labels.

    Definition (QILCM, Zhu et al. 2019, eqs. 11 and 12; Ai et al. 2018):
        y~_i = psi(y_i) / sum_j psi(y_j), psi(y) = e^y if y > 0 else 0
        loss = mean over queries of -(1/n) sum_i y~_i log softmax(scores)_i

    Args:
        scores: ``(B, L)``; anything on padding.
        labels: ``(B, L)`` relevance labels, 0 = irrelevant; anything on padding.
        mask: ``(B, L)`` True = real candidate; None for all.
        form: ``paper`` keeps the factor 1/n, which plays down long lists; ``per_query`` leaves it out.

    Returns:
        A scalar.

    Convention: a list without a relevant candidate has loss 0 and still counts in the mean.
    """
    mask = _all_real(scores, mask)
    relevant = mask & (labels > 0)
    loss = _cross_entropy(scores, labels.to(scores.dtype), relevant, mask)
    if form == "paper":
        loss = loss / mask.sum(dim=-1).clamp(min=1)
    return loss.mean()


def softmax_cross_entropy(
    scores: Float[Tensor, "B L"],
    labels: Int[Tensor, "B L"],
    mask: Bool[Tensor, "B L"] | None = None,
    *,
    gains: Sequence[float] | None = None,
) -> Float[Tensor, ""]:
    """Cross entropy between the softmax of the scores and the gains of NDCG.

    Definition (ListNet's top-one form, Cao et al. 2007, with the target of Bruch et al. 2019):
        y~_i = g_i / sum_j g_j, g_i = 2^y_i - 1
        loss = mean over queries of -sum_i y~_i log softmax(scores)_i

    Args:
        scores, labels, mask: as for :func:`att_rank`.
        gains: g of label 0, 1 and so on, those above 0 positive; None for the definition's.

    Returns:
        A scalar.

    Convention: a list without a relevant candidate has loss 0 and still counts in the mean.
    """
    mask = _all_real(scores, mask)
    relevant = mask & (labels > 0)
    labels = labels.masked_fill(~relevant, 1)
    if gains is None:
        exponent = labels.to(scores.dtype) * _LOG_2
        log_gain = exponent + torch.log(-torch.expm1(-exponent))  # log(2^y - 1) without computing 2^y
    else:
        log_gain = torch.tensor(gains, dtype=scores.dtype, device=scores.device).log()[labels.long()]
    return _cross_entropy(scores, log_gain, relevant, mask).mean()


def plackett_luce(
    scores: Float[Tensor, "B L"],
    labels: Int[Tensor, "B L"],
    mask: Bool[Tensor, "B L"] | None = None,
    *,
    nodes: int = 32,
) -> Float[Tensor, ""]:
    """Negative log-likelihood of the labels under Plackett-Luce, exact where labels tie.

    Definition (the event of SRM, Jagerman et al. 2017, section 4.1; the integral is ours):
        loss = mean over queries of -log P(no candidate is drawn before one with a higher label)

    Args:
        scores, labels, mask: as for :func:`att_rank`.
        nodes: quadrature nodes; see :data:`training.plackett_luce.DEPTHS`.

    Returns:
        A scalar, once differentiable.

    Convention: a list whose labels are all equal has loss 0 and still counts in the mean.
    """
    return -log_likelihood(scores, labels, mask, nodes=nodes).mean()


def ranking_loss(
    name: RankLoss,
    scores: Float[Tensor, "B L"],
    labels: Int[Tensor, "B L"],
    mask: Bool[Tensor, "B L"] | None = None,
    *,
    gains: Sequence[float] | None = None,
) -> Float[Tensor, ""]:
    """The loss that a recipe names; only ``softmax`` looks at ``gains``."""
    match name:
        case "per_query" | "paper":
            return att_rank(scores, labels, mask, form=name)
        case "softmax":
            return softmax_cross_entropy(scores, labels, mask, gains=gains)
        case "plackett_luce":
            return plackett_luce(scores, labels, mask)


_LOG_2 = 0.6931471805599453


def _all_real(scores: Float[Tensor, "B L"], mask: Bool[Tensor, "B L"] | None) -> Bool[Tensor, "B L"]:
    return torch.ones_like(scores, dtype=torch.bool) if mask is None else mask


def _cross_entropy(
    scores: Float[Tensor, "B L"],
    log_target: Float[Tensor, "B L"],
    relevant: Bool[Tensor, "B L"],
    mask: Bool[Tensor, "B L"],
) -> Float[Tensor, " B"]:
    """Of each list, with a target that is known up to a factor; 0 where nothing is relevant."""
    lowest = torch.finfo(scores.dtype).min
    log_s = torch.log_softmax(scores.masked_fill(~mask, lowest), dim=-1)
    target = torch.softmax(log_target.masked_fill(~relevant, lowest), dim=-1)
    return -(target * log_s.masked_fill(~relevant, 0.0)).sum(dim=-1)
