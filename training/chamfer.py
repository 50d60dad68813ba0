"""The query confusion loss of QILCM, eqs. (13) and (14), at the cost of about one matrix product.

The Chamfer distance takes, for every candidate of one list, the nearest candidate of another. The gradient flows only
through the chosen neighbours, so the search runs without gradient, list against all later lists, each block serving
both directions. What remains is a quadratic form over a sparse graph of chosen pairs, whose value and gradient both
come from one product of the graph's adjacency with the representations: memory stays O(rows x width) beside one block.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional


def confusion_loss(
    normalised: Float[Tensor, "B L W"],
    mask: Bool[Tensor, "B L"],
    *,
    pairs: int | None = None,
    rng: np.random.Generator | None = None,
) -> Float[Tensor, ""]:
    """How far apart the representations of the batch's lists lie.

    Definition (QILCM, Zhu et al. 2019, eqs. 13 and 14):
        L_conf = |B|^-2 sum_{q1, q2} d_CH(q1, q2)
        d_CH   = sum_i min_j |h_1i - h_2j|^2 + sum_j min_i |h_1i - h_2j|^2

    Args:
        normalised: ``(B, L, W)`` representations, eq. (8); anything on padding.
        mask: ``(B, L)`` True = real candidate; every list has one at least.
        pairs: distinct unordered pairs of lists to sample; the result is unbiased. None takes all.
        rng: draws the pairs; needed only with ``pairs``.

    Returns:
        A scalar, once differentiable; 0 for fewer than two lists.

    Convention: a list's distance to itself is 0 and is skipped, but still counts in ``|B|^2``. Of equally near
    neighbours one is chosen, and the gradient is that choice's. Rounding is relative to ``|h|^2``, not to the distance:
    in float32 the value is good to 1e-5 as long as neighbours lie farther apart than 1 % of ``|h|``.
    """
    lists = len(normalised)
    every = lists * (lists - 1) // 2
    if every == 0:
        return normalised.masked_fill(~mask[..., None], 0.0).sum() * 0.0
    partners = _partners(lists, every if pairs is None else min(pairs, every), rng)
    sampled = sum(len(later) for later in partners)
    flat = normalised.reshape(-1, normalised.shape[-1])
    sources, targets = _nearest(normalised.detach(), mask, partners)
    total: Tensor = _SquaredDistances.apply(flat, sources, targets)  # type: ignore[no-untyped-call]
    return total * (2.0 * every / sampled / lists**2)


def normalised_weight(
    weight: float, *, mean_length: float, width: int, form: Literal["per_query", "paper"] = "per_query"
) -> float:
    """The lambda of eq. (10) that a weight lambda' of the normalised confusion loss equals.

    Eq. (13) is a sum over candidates and dimensions and dwarfs the ranking loss; ``L_conf / (2 n W)`` is of order 1
    for any data, with n the mean list length and W the width of the representation. The paper's 1/n form of the
    ranking loss is smaller by n, and so is its lambda.
    """
    value = weight / (2.0 * mean_length * width)
    return value / mean_length if form == "paper" else value


def _partners(lists: int, count: int, rng: np.random.Generator | None) -> list[Int[np.ndarray, " P"]]:
    """For every list, the later lists that it is compared with."""
    first, second = np.triu_indices(lists, k=1)
    if count < len(first):
        if rng is None:
            raise ValueError("sampling pairs needs a random generator")
        chosen = np.sort(rng.choice(len(first), size=count, replace=False))
        first, second = first[chosen], second[chosen]
    return [second[first == q] for q in range(lists)]


@torch.no_grad()
def _nearest(
    h: Float[Tensor, "B L W"], mask: Bool[Tensor, "B L"], partners: list[Int[np.ndarray, " P"]]
) -> tuple[Int[Tensor, " E"], Int[Tensor, " E"]]:
    """Chosen pairs, as flat row numbers: every candidate, and its nearest one in each list it is compared with."""
    length = h.shape[1]
    h = h.masked_fill(~mask[..., None], 0.0)
    norms = h.square().sum(dim=-1).masked_fill(~mask, torch.inf)  # (B, L) padding is never near
    starts = torch.arange(len(h), device=h.device) * length
    sources, targets = [], []
    for q, later in enumerate(partners):
        if len(later) == 0:
            continue
        others = slice(q + 1, len(h)) if len(later) == len(h) - q - 1 else torch.from_numpy(later).to(h.device)
        mine = torch.nonzero(mask[q]).squeeze(-1)  # (n,)
        there = h[others]  # (P, L, W)
        dots = h[q, mine] @ there.reshape(-1, h.shape[-1]).T  # (n, P L)
        dots = dots.reshape(len(mine), len(later), length).mul_(-2.0)
        # the source's own norm does not change which neighbour is nearest, so it is added in neither direction
        forth = (dots + norms[others]).min(dim=2).indices  # (n, P) three times as fast as argmin
        back = dots.add_(norms[q, mine][:, None, None]).min(dim=0).indices  # (P, L)
        base = starts[others]
        real = mask[others]
        sources += [(q * length + mine)[:, None].expand_as(forth).reshape(-1), (base[:, None] + _steps(real))[real]]
        targets += [(base + forth).reshape(-1), (q * length + mine[back])[real]]
    return torch.cat(sources), torch.cat(targets)


def _steps(real: Bool[Tensor, "P L"]) -> Int[Tensor, "P L"]:
    return torch.arange(real.shape[1], device=real.device).expand(real.shape)


class _SquaredDistances(torch.autograd.Function):
    """Sum of ``|f_s - f_t|^2`` over pairs: with degrees d and adjacency A, ``sum_i f_i . (d_i f_i - (A f)_i)``."""

    @staticmethod
    def forward(ctx: Any, f: Tensor, sources: Tensor, targets: Tensor) -> Tensor:
        rows = torch.cat([sources, targets])
        columns = torch.cat([targets, sources])
        degrees = torch.bincount(rows, minlength=len(f))
        by_row = columns[torch.argsort(rows, stable=True)]
        f = f.masked_fill((degrees == 0)[:, None], 0.0)  # padding may hold anything and must not enter
        neighbours = functional.embedding_bag(by_row, f, degrees.cumsum(0) - degrees, mode="sum")
        half = degrees.to(f.dtype)[:, None] * f - neighbours
        ctx.save_for_backward(half)
        return (half * f).sum().clamp(min=0.0)  # rounding may leave less than nothing of equal lists

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (half,) = ctx.saved_tensors
        return 2.0 * grad * half, None, None
