"""The query confusion loss of QILCM, eqs. (13) and (14), at the cost of about one matrix product.

The Chamfer distance takes, for every candidate of one list, the nearest candidate of another. The gradient flows only
through the chosen neighbours, so the search runs without gradient: as many lists at a time as fit the cache, against
all later lists, each block serving both directions. What remains is a quadratic form over a sparse graph of chosen
pairs, whose value and gradient both come from one product of the graph's adjacency with the representations: memory
stays O(rows x width) beside one block.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

CELLS = 100_000
"""Distances computed at a time on a CPU: few enough to stay in the cache."""

TURN = 64
"""Candidates, about, whose partners are searched at a time on a CPU: more lists at a time are fewer steps, and more
distances that are not used.
"""

GPU_CELLS = 2**26
"""The same on a GPU, where larger steps pay."""


def confusion_loss(
    normalised: Float[Tensor, "B L width"],
    mask: Bool[Tensor, "B L"],
    *,
    gain: Float[Tensor, "B half"] | None = None,
    pairs: int | None = None,
    rng: np.random.Generator | None = None,
) -> Float[Tensor, ""]:
    """Return how far apart the representations of the batch's lists lie.

    Definition (QILCM, Zhu et al. 2019, eqs. 13 and 14):
        L_conf = |B|^-2 sum_{q1, q2} d_CH(q1, q2)
        d_CH   = sum_i min_j |h_1i - h_2j|^2 + sum_j min_i |h_1i - h_2j|^2

    Args:
        normalised: ``(B, L, width)`` representations, eq. (8); anything on padding.
        mask: ``(B, L)`` True = real candidate; every list has one at least.
        gain: ``(B, half)`` where every list's representation is ``[gain * u ; u]`` up to rounding, as QILCM's is: the
            search then takes half the work, ``h . h' = sum_k (1 + gain_k gain'_k) u_k u'_k``. None for any other.
        pairs: Number of distinct unordered pairs of lists to sample, every list in about as many; the result is
            unbiased. None takes all.
        rng: Generator of the pairs; needed only with ``pairs``.

    Returns:
        A scalar, once differentiable; 0 for fewer than two lists.

    Convention: a list's distance to itself is 0 and is skipped, but still counts in ``|B|^2``. Of equally near
    neighbours one is chosen, and the gradient is that choice's. Rounding is relative to ``|h|^2``, not to the distance:
    in float32 the value is good to 1e-5 as long as neighbours lie farther apart than 1 % of ``|h|``.
    """
    lists = len(normalised)
    every = lists * (lists - 1) // 2
    if not mask.all():
        normalised = normalised.masked_fill(~mask[..., None], 0.0)  # padding may hold anything and must not enter
    if every == 0:
        return normalised.sum() * 0.0
    sampled = every if pairs is None else min(pairs, every)
    order = np.arange(lists)
    if sampled < every:
        if rng is None:
            raise ValueError("sampling pairs needs a random generator")
        order = rng.permutation(lists)
    sources, targets = _nearest(normalised.detach(), None if gain is None else gain.detach(), mask, order, sampled)
    flat = normalised.reshape(-1, normalised.shape[-1])
    total: Tensor = _SquaredDistances.apply(flat, sources, targets)  # type: ignore[no-untyped-call]
    return total * (2.0 * every / sampled / lists**2)


def normalised_weight(
    weight: float, *, mean_length: float, width: int, form: Literal["per_query", "paper"] = "per_query"
) -> float:
    """Return the lambda of eq. (10) that a weight lambda' of the normalised confusion loss equals.

    Eq. (13) is a sum over candidates and dimensions and dwarfs the ranking loss; ``L_conf / (2 n W)`` is of order 1
    for any data, with n the mean list length and W the width of the representation. The paper's 1/n form of the
    ranking loss is smaller by n, and so is its lambda.
    """
    value = weight / (2.0 * mean_length * width)
    return value / mean_length if form == "paper" else value


@torch.no_grad()
def _nearest(
    h: Float[Tensor, "B L width"],
    gain: Float[Tensor, "B half"] | None,
    mask: Bool[Tensor, "B L"],
    order: Int[np.ndarray, " B"],
    pairs: int,
) -> tuple[Int[Tensor, " pairs"], Int[Tensor, " pairs"]]:
    """Return pairs as flat row numbers: every candidate, and its nearest one in each list it is compared with."""
    # the lists stand in a ring, in a random order where pairs are sampled, and each is compared with the next ones:
    # every pair is as likely as any other, and the partners lie side by side
    lists, length, width = h.shape
    each, more = divmod(pairs, lists)  # the first ``more`` lists have one partner more
    most = each + (more > 0)
    cells = GPU_CELLS if h.is_cuda else CELLS
    turn = lists if h.is_cuda else min(lists, TURN // length + 1)
    turn = max(1, min(turn, cells // ((most + turn) * length**2)))  # lists whose partners are searched at a time
    block = most if turn > 1 else min(most, max(1, cells // length**2))  # partners of a list that are
    ring = torch.from_numpy(np.resize(order, lists + most)).to(h.device)
    norms = torch.linalg.vector_norm(h, dim=-1).square_().masked_fill_(~mask, torch.inf)[ring]  # padding is never near
    rows, gains = h, None
    if gain is not None and turn == 1:  # one list against others: scaled by both gains, u is as good as h
        rows, gains = h[..., width // 2 :], gain[ring]
    rows = rows[ring]
    distances = h.new_empty(turn * (block + turn - 1) * length**2)
    scaled = torch.empty_like(rows[:block])
    slots = torch.arange(block, device=h.device)
    forth, back = torch.zeros((2, lists, most, length), dtype=torch.int64, device=h.device)
    for q in range(0, lists, turn):
        here = slice(q, min(lists, q + turn))
        lines = torch.arange(here.stop - q, device=h.device)[:, None]
        for start in range(0, most, block):
            stop = min(most, start + block)
            there = slice(q + 1 + start, here.stop + stop)  # the partners of all that are here, and some that are not
            others = rows[there]
            if gains is not None:
                others = torch.mul(others, (1.0 + gains[q] * gains[there])[:, None], out=scaled[: len(others)])
            products = distances[: len(lines) * len(others) * length**2].view(len(lines) * length, -1)
            torch.addmm(  # the source's own norm does not change which neighbour is nearest
                norms[there].reshape(-1), rows[here].flatten(0, 1), others.flatten(0, 1).T, alpha=-2.0, out=products
            )
            by_list = products.view(len(lines), length, -1, length)
            places = lines, lines + slots[: stop - start]
            near = by_list.min(dim=3).indices  # (turns, L, partners) three times as fast as argmin
            forth[here, start:stop] = near.transpose(1, 2)[places]
            back[here, start:stop] = by_list.add_(norms[here, :, None, None]).min(dim=1).indices[places]
    steps = torch.arange(length, device=h.device)
    slots = torch.arange(1, most + 1, device=h.device)
    first = (ring * length)[:lists, None, None]  # (B, 1, 1) row of each list's first candidate
    partner = (ring * length)[torch.arange(lists, device=h.device)[:, None] + slots][..., None]  # (B, partners, 1)
    sources, targets = (
        torch.cat([ends[:, :, :each].reshape(-1), ends[:, :more, each:].reshape(-1)])
        for ends in (
            torch.stack([(first + steps).expand_as(forth), partner + steps]),  # (2, B, partners, L)
            torch.stack([partner + forth, first + back]),
        )
    )
    if mask.all():
        return sources, targets
    real = mask.reshape(-1)[sources]
    return sources[real], targets[real]


class _SquaredDistances(torch.autograd.Function):
    """Sum of ``|f_s - f_t|^2`` over pairs: with degrees d and adjacency A, ``sum_i f_i . (d_i f_i - (A f)_i)``."""

    @staticmethod
    def forward(ctx: Any, f: Tensor, sources: Tensor, targets: Tensor) -> Tensor:
        rows = torch.cat([sources, targets])
        degrees = torch.bincount(rows, minlength=len(f))
        order = torch.sort(rows.int(), stable=True).indices  # 32 bits are sorted in half the time
        by_row = torch.cat([targets, sources])[order]
        half = functional.embedding_bag(by_row, f, degrees.cumsum(0) - degrees, mode="sum").neg_()
        half.addcmul_(degrees.to(f.dtype)[:, None], f)
        ctx.save_for_backward(half)
        return torch.einsum("rw,rw->r", half, f).sum().clamp(min=0.0)  # rounding may leave less than nothing

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (half,) = ctx.saved_tensors
        return (2.0 * grad) * half, None, None
