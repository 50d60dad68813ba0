"""Which candidates of a list tie by label, and which stand below whom: what stays while scores change."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int, Real
from torch import Tensor


@dataclass(frozen=True, slots=True)
class LabelGroups:
    """The label groups of B lists of at most L candidates.

    A list's lowest group is above nothing and is not counted. The G others stand list by list, highest label first;
    their M members stand group by group.

    Args:
        mask: ``(B, L)`` True for real candidates.
        order: ``(B, L)`` positions by falling label, padding last.
        rank: ``(B, L)`` how many groups of its list stand above a candidate; 0 on padding.
        members: ``(M,)`` flat positions ``b * L + i``.
        group_of: ``(M,)`` group of each member.
        sizes, ends: ``(G,)`` members of each group, and where they end in ``members``.
        list_of: ``(G,)`` list b of each group.
        below: ``(G,)`` flat place in ``order`` of the first candidate below.
    """

    mask: Bool[Tensor, "B L"]
    order: Int[Tensor, "B L"]
    rank: Int[Tensor, "B L"]
    members: Int[Tensor, " M"]
    group_of: Int[Tensor, " M"]
    sizes: Int[Tensor, " G"]
    ends: Int[Tensor, " G"]
    list_of: Int[Tensor, " G"]
    below: Int[Tensor, " G"]

    @classmethod
    def of(cls, labels: Real[Tensor, "B L"], mask: Bool[Tensor, "B L"] | None = None) -> LabelGroups:
        """From labels, higher is better; ``mask`` is True for real candidates, by default all."""
        if mask is None:
            mask = torch.ones(labels.shape, dtype=torch.bool, device=labels.device)
        width = labels.shape[1]
        keys = labels.to(torch.float64).masked_fill(~mask, -torch.inf)
        order = keys.argsort(dim=1, descending=True, stable=True)
        by_label, real = keys.gather(1, order), mask.gather(1, order)
        starts = torch.zeros_like(real)  # a candidate that opens a group below another
        starts[:, 1:] = (by_label[:, 1:] < by_label[:, :-1]) & real[:, 1:]
        ranks = starts.cumsum(dim=1)
        lowest = ranks.amax(dim=1, keepdim=True) if width else ranks
        inside = (ranks < lowest) & real
        list_at, place = inside.nonzero(as_tuple=True)
        first_of_list = torch.cat([lowest.new_zeros(1), lowest.flatten().cumsum(0)])[:-1] if width else ranks.flatten()
        group_of = first_of_list[list_at] + ranks[list_at, place]
        sizes = torch.bincount(group_of, minlength=int(lowest.sum())) if width else group_of
        opened = starts.nonzero(as_tuple=True)
        rank = torch.zeros_like(ranks).scatter(1, order, ranks.masked_fill(~real, 0))
        return cls(
            mask=mask,
            order=order,
            rank=rank,
            members=list_at * width + order[list_at, place],
            group_of=group_of,
            sizes=sizes,
            ends=sizes.cumsum(0),
            list_of=opened[0],
            below=opened[0] * width + opened[1],
        )

    def clean(self, scores: Float[Tensor, "B L"]) -> Float[Tensor, "B L"]:
        """Scores with whatever padding held replaced by 0."""
        return scores.masked_fill(~self.mask, 0.0)

    def log_weight_below(self, scores: Float[Tensor, "B L"]) -> Float[Tensor, " G"]:
        """``log W``, the logarithm of the summed ``exp(score)`` of all that stands below each group."""
        ordered = scores.masked_fill(~self.mask, -torch.inf).gather(1, self.order)
        return ordered.flip(1).logcumsumexp(1).flip(1).flatten()[self.below]

    def gradient(
        self, scores: Float[Tensor, "B L"], log_below: Float[Tensor, " G"], pull: Float[Tensor, " M"]
    ) -> Float[Tensor, "B L"]:
        """Derivative of the lists' log-probabilities in the scores.

        Args:
            scores: ``(B, L)`` clean.
            log_below: ``(G,)`` log W.
            pull: ``(M,)`` derivative of each group's log A in its own members' scores. Whoever stands below a group
                loses ``w_j / W`` of the sum of its pulls.
        """
        groups_per_list = int(self.rank.max()) if self.rank.numel() else 0
        above = scores.new_full((len(scores), groups_per_list + 1), -torch.inf)
        log_share = torch.log(torch.zeros_like(log_below).index_add_(0, self.group_of, pull)) - log_below
        number = torch.arange(len(log_below), device=scores.device)
        first = torch.searchsorted(self.list_of, self.list_of)
        above[self.list_of, number - first + 1] = log_share
        above = above.logcumsumexp(1)
        gradient = -torch.exp(scores + above.gather(1, self.rank))
        gradient = gradient.flatten().index_add_(0, self.members, pull).view_as(scores)
        return gradient.masked_fill(~self.mask, 0.0)
