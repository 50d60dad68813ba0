"""The paper's top-m event: the first m draws agree with the labels, whatever comes after them.

Label groups that end within the first m ranks must be drawn whole, as in the full event. Of the one that straddles rank
m only ``c`` candidates, those that still fit, must come before everything below. With each member drawn by log-time y
with probability ``p_i = 1 - exp(-e^(a_i + y))`` the product over the group becomes ``P(at least c of it are drawn)``, a
Poisson-binomial tail (Jagerman et al., 2017, section 4.4, "Top-m"; the integral is ours). Unlike the full event it is
not concave in the scores.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Real
from torch import Tensor

from listwright.training.losses.exact_plackett_luce import DEPTHS, log1mexp, log_likelihood
from listwright.training.losses.label_groups import LabelGroups

NEVER = -1e30
"""Log of a probability of 0 that, unlike -inf, has differences: no NaN in gradients."""


def log_likelihood_of_top(
    scores: Float[Tensor, "B L"],
    labels: Real[Tensor, "B L"],
    mask: Bool[Tensor, "B L"] | None = None,
    *,
    top: int,
    nodes: int = 32,
) -> Float[Tensor, " B"]:
    """Log-probability that the first ``top`` draws agree with the labels; differentiable.

    Args:
        scores, labels, mask, nodes: as for :func:`listwright.training.losses.exact_plackett_luce.log_likelihood`.
        top: m of the paper; from the list's length on it is the full event.

    Returns:
        ``(B,)``. Cost grows with (size of the straddling group) x (its candidates within the first m).

    Raises:
        ValueError: if ``top`` is below 1.
    """
    if top < 1:
        raise ValueError(f"top {top}: expected a rank, 1 or more")
    real = torch.ones_like(scores, dtype=torch.bool) if mask is None else mask
    groups = LabelGroups.of(labels, real)
    before = _candidates_above(groups)
    straddles = (before < top) & (before + groups.sizes > top)
    flat = scores.masked_fill(~real, 0.0)
    # below the first m nothing matters: one label for all of it, and for the straddling group
    known = labels.to(torch.float64).masked_fill(~real, 0.0)
    cut = torch.full_like(known, float(known.min()) - 1.0 if known.numel() else 0.0)
    whole = (before + groups.sizes <= top)[groups.group_of]
    kept = groups.members[whole]
    cut.view(-1)[kept] = known.flatten()[kept]
    value = log_likelihood(flat, cut, real, nodes=nodes)
    return value + _straddling(flat, groups, straddles, top - before, nodes)


def _candidates_above(groups: LabelGroups) -> Int[Tensor, " G"]:
    """How many candidates of its list stand above each group."""
    opened_at = groups.ends - groups.sizes
    first = torch.searchsorted(groups.list_of, groups.list_of)
    return opened_at - opened_at[first]


def _straddling(
    scores: Float[Tensor, "B L"],
    groups: LabelGroups,
    straddles: Bool[Tensor, " G"],
    needed: Int[Tensor, " G"],
    nodes: int,
) -> Float[Tensor, " B"]:
    """Log-probability of the straddling groups, list by list."""
    log_below = groups.log_weight_below(scores)
    parts = []
    at = []
    for group in straddles.nonzero().flatten().tolist():
        end, size = int(groups.ends[group]), int(groups.sizes[group])
        a = scores.flatten()[groups.members[end - size : end]] - log_below[group]
        parts.append(log_at_least(a, int(needed[group]), nodes=nodes))
        at.append(int(groups.list_of[group]))
    result = scores.new_zeros(len(scores))
    if not parts:
        return result
    return result.index_add(0, torch.tensor(at, device=scores.device), torch.stack(parts))


def log_at_least(a: Float[Tensor, " S"], count: int, *, nodes: int = 32) -> Float[Tensor, ""]:
    """Log-probability that at least ``count`` of a group are drawn before anything below it.

    Args:
        a: ``(S,)`` score less log W, the log-weight of all below.
        count: 1 to S.
        nodes: one of :data:`listwright.training.losses.exact_plackett_luce.DEPTHS`.
    """
    with torch.no_grad():
        low, high = _window(a, count, DEPTHS[nodes])
    x, weight = np.polynomial.legendre.leggauss(nodes)
    half = (high - low) / 2
    y = (high + low) / 2 + half * torch.as_tensor(x, dtype=a.dtype, device=a.device)
    log_weight = torch.as_tensor(np.log(weight), dtype=a.dtype, device=a.device)
    return torch.logsumexp(y - torch.exp(y) + _log_tail(a, y, count) + log_weight, dim=0) + torch.log(half)


def _window(a: Float[Tensor, " S"], count: int, depth: float) -> tuple[Tensor, Tensor]:
    """Where the log-integrand is within ``depth`` of its peak, found on grids: its slope would cost as much.

    The peak lies in [0, log(1 + count)], and the bounds of the full event's window hold.
    """
    reach = depth + float(np.sqrt(2 * depth))
    low, high = a.new_tensor(-reach), a.new_tensor(float(np.log1p(count) + np.log1p(reach)))
    for _ in range(2):
        grid = torch.linspace(0, 1, 65, dtype=a.dtype, device=a.device) * (high - low) + low
        g = grid - torch.exp(grid) + _log_tail(a, grid, count)
        inside = (g >= g.max() - depth).nonzero().flatten()
        low = grid[max(int(inside[0]) - 1, 0)]
        high = grid[min(int(inside[-1]) + 1, len(grid) - 1)]
    return low, high


def _log_tail(a: Float[Tensor, " S"], y: Float[Tensor, " Q"], count: int) -> Float[Tensor, " Q"]:
    """``log P(at least count drawn by y)``: state j of the recursion is "j drawn so far", and ``count`` absorbs.

    All terms are probabilities, nothing cancels; in logarithms nothing underflows.
    """
    t = a[:, None] + y
    log_drawn, log_left = _LogDrawn.apply(t), -torch.exp(t.clamp(max=80.0))  # type: ignore[no-untyped-call]
    state = torch.full((count + 1, len(y)), NEVER, dtype=a.dtype, device=a.device)
    state[0] = 0.0
    for drawn, left in zip(log_drawn, log_left, strict=True):
        moved = state[:-1] + drawn
        stayed = torch.cat([state[:-1] + left, state[-1:]])
        arrived = torch.cat([torch.full_like(moved[:1], NEVER), moved])
        state = torch.logaddexp(stayed, arrived)
    return state[-1]


class _LogDrawn(torch.autograd.Function):
    """``log(1 - e^-e^t)`` with the accurate derivative of
    :func:`listwright.training.losses.exact_plackett_luce.log1mexp`."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, t: Tensor) -> Tensor:
        log, phi = log1mexp(t)
        ctx.save_for_backward(phi)
        return log

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, *upstream: Tensor) -> Tensor:
        phi: Tensor
        (phi,) = ctx.saved_tensors  # type: ignore[attr-defined]
        return upstream[0] * phi
