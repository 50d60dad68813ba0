"""Losses over padded batches, for any torch module that returns one score per candidate.

All take ``(scores, labels, mask)``, and but for the last ``weights``, and give the mean over queries, a scalar::

    att_rank               AttRank, of QILCM and DLCM
    softmax_cross_entropy  ListNet's cross entropy with gain 2^y - 1, or gains of your own
    plackett_luce          exact likelihood of the labels, ties included

and :func:`listwright.training.losses.confusion.confusion_loss`, which looks at representations instead of scores,
stands here too. What padding holds never matters, be it NaN, and no mask means no padding. ``docs/rivals.md`` has an
example.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from listwright.training.losses.confusion import confusion_loss
from listwright.training.losses.exact_plackett_luce import log_likelihood
from listwright.training.recipe.model import RankLoss

__all__ = ["att_rank", "confusion_loss", "plackett_luce", "softmax_cross_entropy"]


def att_rank(
    scores: Float[Tensor, "B L"],
    labels: Int[Tensor, "B L"],
    mask: Bool[Tensor, "B L"] | None = None,
    *,
    form: Literal["per_query", "paper"] = "per_query",
    weights: Float[Tensor, "B L"] | None = None,
) -> Float[Tensor, ""]:
    """Return the AttRank loss: cross entropy between the softmax of the scores and the normalised labels.

    Definition (QILCM, Zhu et al. 2019, eqs. 11 and 12; Ai et al. 2018):
        y~_i = psi(y_i) / sum_j psi(y_j), psi(y) = e^y if y > 0 else 0
        loss = mean over queries of -(1/n) sum_i y~_i log softmax(scores)_i
        with weights: y~_i = w_i psi(y_i) / sum_j w_j psi(y_j), and each query's loss times the mean of its w

    Args:
        scores: ``(B, L)``; anything on padding.
        labels: ``(B, L)`` relevance labels, 0 = irrelevant; anything on padding.
        mask: ``(B, L)`` True = real candidate; None for all.
        form: ``paper`` keeps the factor 1/n, which plays down long lists; ``per_query`` leaves it out.
        weights: ``(B, L)`` how much each candidate counts, 0 or more; anything on padding. None: all alike.

    Returns:
        A scalar.

    Convention: a list without a relevant candidate has loss 0 and still counts in the mean.
    """
    mask = _all_real(scores, mask)
    relevant = mask & (labels > 0)
    loss = _cross_entropy(scores, labels.to(scores.dtype), relevant, mask, weights)
    if form == "paper":
        loss = loss / mask.sum(dim=-1).clamp(min=1)
    return _apply_weights(loss, mask, weights).mean()


def softmax_cross_entropy(
    scores: Float[Tensor, "B L"],
    labels: Int[Tensor, "B L"],
    mask: Bool[Tensor, "B L"] | None = None,
    *,
    weights: Float[Tensor, "B L"] | None = None,
    gains: Sequence[float] | None = None,
) -> Float[Tensor, ""]:
    """Return the cross entropy between the softmax of the scores and the gains of NDCG.

    Definition (ListNet's top-one form, Cao et al. 2007, with the target of Bruch et al. 2019):
        y~_i = g_i / sum_j g_j, g_i = 2^y_i - 1
        loss = mean over queries of -sum_i y~_i log softmax(scores)_i

    Args:
        scores, labels, mask, weights: See :func:`att_rank`; a weight multiplies the gain.
        gains: Gain of label 0, 1 and so on, those above 0 positive; None for the definition's.

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
    return _apply_weights(_cross_entropy(scores, log_gain, relevant, mask, weights), mask, weights).mean()


def plackett_luce(
    scores: Float[Tensor, "B L"],
    labels: Int[Tensor, "B L"],
    mask: Bool[Tensor, "B L"] | None = None,
    *,
    nodes: int = 32,
    weights: Float[Tensor, "B L"] | None = None,
) -> Float[Tensor, ""]:
    """Return the negative log-likelihood of the labels under Plackett-Luce, exact where labels tie.

    Definition (the event of SRM, Jagerman et al. 2017, section 4.1; the integral is ours):
        loss = mean over queries of -log P(no candidate is drawn before one with a higher label)

    Args:
        scores, labels, mask: See :func:`att_rank`.
        nodes: Number of quadrature nodes; see :data:`listwright.training.losses.exact_plackett_luce.DEPTHS`.
        weights: See :func:`att_rank`; only their mean over a query counts, as the number of times that its labels were
            seen.

    Returns:
        A scalar, once differentiable.

    Convention: a list whose labels are all equal has loss 0 and still counts in the mean.
    """
    loss = -log_likelihood(scores, labels, mask, nodes=nodes)
    return _apply_weights(loss, _all_real(scores, mask), weights).mean()


def ranking_loss(
    name: RankLoss,
    scores: Float[Tensor, "B L"],
    labels: Int[Tensor, "B L"],
    mask: Bool[Tensor, "B L"] | None = None,
    *,
    weights: Float[Tensor, "B L"] | None = None,
    gains: Sequence[float] | None = None,
) -> Float[Tensor, ""]:
    """Return the loss that a recipe names; only ``softmax`` uses ``gains``."""
    match name:
        case "per_query" | "paper":
            return att_rank(scores, labels, mask, form=name, weights=weights)
        case "softmax":
            return softmax_cross_entropy(scores, labels, mask, weights=weights, gains=gains)
        case "plackett_luce":
            return plackett_luce(scores, labels, mask, weights=weights)


_LOG_2 = 0.6931471805599453


def _all_real(scores: Float[Tensor, "B L"], mask: Bool[Tensor, "B L"] | None) -> Bool[Tensor, "B L"]:
    return torch.ones_like(scores, dtype=torch.bool) if mask is None else mask


def _cross_entropy(
    scores: Float[Tensor, "B L"],
    log_target: Float[Tensor, "B L"],
    relevant: Bool[Tensor, "B L"],
    mask: Bool[Tensor, "B L"],
    weights: Float[Tensor, "B L"] | None,
) -> Float[Tensor, " B"]:
    """Return each list's cross entropy with a target known up to a factor; 0 where nothing relevant counts."""
    if weights is not None:
        relevant = relevant & (weights > 0)
        log_target = log_target + weights.log()
    lowest = torch.finfo(scores.dtype).min
    log_s = torch.log_softmax(scores.masked_fill(~mask, lowest), dim=-1)
    target = torch.softmax(log_target.masked_fill(~relevant, lowest), dim=-1)
    return -(target * log_s.masked_fill(~relevant, 0.0)).sum(dim=-1)


def _apply_weights(
    loss: Float[Tensor, " B"], mask: Bool[Tensor, "B L"], weights: Float[Tensor, "B L"] | None
) -> Float[Tensor, " B"]:
    """Multiply each list's loss by the mean weight of its candidates."""
    if weights is None:
        return loss
    return loss * weights.masked_fill(~mask, 0.0).sum(dim=-1) / mask.sum(dim=-1).clamp(min=1)
