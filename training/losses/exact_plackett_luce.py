"""The probability that a Plackett-Luce ranker puts no candidate above one with a higher label: exact, in linear time.

Weights ``w_i = exp(f_i)``; a list's label groups ``G_1 > G_2 > ...``; ``R_l`` everything below group l, ``W_l`` its
total weight. A stage of the model depends only on what is left, so ``P = prod_l A_l`` with ``A_l`` the probability that
all of ``G_l`` is drawn before any of ``R_l``. With exponential clocks, in log-time ``y`` and ``a_i = f_i - log W``:

    A = integral of exp(y - e^y) prod_{i in G} (1 - exp(-e^(a_i + y))) dy

Its integrand is log-concave, so Gauss-Legendre nodes in the window around its mode give any accuracy that is asked
for (``docs/exact-plackett-luce.md``). The events are those of Jagerman et al., 2017, section 4.1; the integral is the
exact likelihood of tied survival times.

Of the paper's top-m event (section 4.4, "Top-m") only the first m draws agree with the labels, whatever comes after
them. Label groups that end within the first m ranks must be drawn whole, as in the full event. Of the one that
straddles rank m only ``c`` candidates, those that still fit, must come before everything below. With each member drawn
by log-time y with probability ``p_i = 1 - exp(-e^(a_i + y))`` the product over the group becomes ``P(at least c of it
are drawn)``, a Poisson-binomial tail (the integral is ours). Unlike the full event it is not concave in the scores.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Real
from torch import Tensor

DEPTHS = {16: 10.0, 24: 14.0, 32: 16.0, 48: 20.0, 64: 25.0}
"""Nodes per group, and how many nats below its peak the integrand is cut off.

Measured largest error of a group's log A over hard cases: 6e-4, 2e-5, 9e-7, 2e-9, 2e-10; of an ordinary one a tenth of
that and less (``docs/exact-plackett-luce.md``).
"""

LARGEST_S = 80.0
"""Beyond it ``log(1 - e^-s)`` and its derivative are 0; without a clamp e^(a + y) overflows."""

_CHUNK = 8_192
"""Members integrated at a time: their nodes fit a cache."""

NEVER = -1e30
"""Log of a probability of 0 that, unlike -inf, has differences: no NaN in gradients."""


class Likelihood(NamedTuple):
    """The result of :func:`evaluate`.

    Args:
        value: ``(B,)`` log-probability of each list.
        gradient: ``(B, L)`` its derivative in the scores; 0 on padding.
    """

    value: Float[Tensor, " B"]
    gradient: Float[Tensor, "B L"]


def log_likelihood(
    scores: Float[Tensor, "B L"],
    labels: Real[Tensor, "B L"],
    mask: Bool[Tensor, "B L"] | None = None,
    *,
    nodes: int = 32,
) -> Float[Tensor, " B"]:
    """Return the log-probability that sampling without replacement by ``exp(scores)`` respects the labels;
    differentiable once.

    Args:
        scores: ``(B, L)`` float32 or float64.
        labels: ``(B, L)`` higher is better; equal labels tie.
        mask: ``(B, L)`` True for real candidates; all by default. What padding holds does not matter, even NaN.
        nodes: Number of quadrature nodes for each label group, one of :data:`DEPTHS`.

    Returns:
        ``(B,)``; 0 for a list whose labels are all equal.

    Raises:
        ValueError: for another number of nodes.
    """
    groups = LabelGroups.of(labels, mask)
    value: Tensor = _Exact.apply(scores, groups, nodes)  # type: ignore[no-untyped-call]
    return value


def sample(
    scores: Float[Tensor, "B L"], mask: Bool[Tensor, "B L"] | None = None, *, generator: torch.Generator | None = None
) -> Int[Tensor, "B L"]:
    """Draw one ranking per list, best first: positions in input order, padding last (the Gumbel trick)."""
    uniform = torch.rand(scores.shape, generator=generator, dtype=scores.dtype, device=scores.device)
    keys = scores - torch.log(-torch.log(uniform.clamp_min(torch.finfo(scores.dtype).tiny)))
    if mask is not None:
        keys = keys.masked_fill(~mask, -torch.inf)
    return keys.argsort(dim=-1, descending=True, stable=True)


class _Exact(torch.autograd.Function):
    """Closed-form gradient: PyTorch would keep every node of every candidate."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, groups: LabelGroups, nodes: int) -> Tensor:
        evaluated = evaluate(scores.detach(), groups, nodes=nodes)
        ctx.save_for_backward(evaluated.gradient)
        return evaluated.value

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, None, None]:
        (gradient,) = ctx.saved_tensors
        return upstream[0][:, None] * gradient, None, None


def evaluate(scores: Float[Tensor, "B L"], groups: LabelGroups, *, nodes: int = 32) -> Likelihood:
    """Return value and gradient together, without autograd, as EM needs them repeatedly.

    Args:
        scores: ``(B, L)``; padding may hold anything.
        groups: Groups of the labels; kept while only scores change.
        nodes: Number of quadrature nodes, see :func:`log_likelihood`.
    """
    if nodes not in DEPTHS:
        raise ValueError(f"nodes {nodes}: expected one of {', '.join(map(str, DEPTHS))}")
    scores = groups.clean(scores)
    log_below = groups.log_weight_below(scores)
    a = scores.flatten()[groups.members] - log_below[groups.group_of]
    low, high = _windows(a, groups, DEPTHS[nodes])
    log_mass = torch.empty_like(log_below)
    pull = torch.empty_like(a)  # E_q[phi_i], what each member gains from a higher score
    for part in _chunks(groups):
        log_mass[part.groups], pull[part.members] = _integrate(
            a[part.members], part.group_of, low[part.groups], high[part.groups], nodes
        )
    value = torch.zeros(scores.shape[0], dtype=scores.dtype, device=scores.device)
    value.index_add_(0, groups.list_of, log_mass)
    return Likelihood(value, groups.gradient(scores, log_below, pull))


def log1mexp(t: Float[Tensor, "*"]) -> tuple[Float[Tensor, "*"], Float[Tensor, "*"]]:
    """Return ``log(1 - e^-s)`` and its derivative in t, ``phi = s / (e^s - 1)``, for ``s = e^t``, accurately."""
    s = torch.exp(t.clamp(max=float(np.log(LARGEST_S))))
    small = t < -8.0  # the next term of each series is below float64's last digit
    complement = -torch.expm1(-s)
    log = torch.where(small, t - s / 2 + s * s / 24, torch.log(complement))
    phi = torch.where(small, 1 - s / 2 + s * s / 12, s * (1 - complement) / complement)
    return log, phi


class _Part(NamedTuple):
    groups: slice
    members: slice
    group_of: Int[Tensor, " M"]


def _chunks(groups: LabelGroups) -> Iterator[_Part]:
    """Yield runs of whole groups with about :data:`_CHUNK` members."""
    ends = groups.ends.tolist()
    first, start = 0, 0
    for group, end in enumerate(ends):
        if end - start >= _CHUNK or group == len(ends) - 1:
            yield _Part(slice(first, group + 1), slice(start, end), groups.group_of[start:end] - first)
            first, start = group + 1, end


@lru_cache
def _rule(nodes: int) -> tuple[np.ndarray, np.ndarray]:
    x, weight = np.polynomial.legendre.leggauss(nodes)
    return x, np.log(weight)


def _integrate(
    a: Float[Tensor, " M"],
    group_of: Int[Tensor, " M"],
    low: Float[Tensor, " G"],
    high: Float[Tensor, " G"],
    nodes: int,
) -> tuple[Float[Tensor, " G"], Float[Tensor, " M"]]:
    """Return the log of each group's integral, and the mean of phi of each member under its normalised integrand."""
    x, log_weight = (torch.as_tensor(v, dtype=a.dtype, device=a.device) for v in _rule(nodes))
    half = (high - low) / 2
    y = ((high + low) / 2)[:, None] + half[:, None] * x
    log, phi = log1mexp(a[:, None] + y[group_of])
    terms = (y - torch.exp(y) + log_weight).index_add_(0, group_of, log)
    log_mass = torch.logsumexp(terms, dim=1)
    q = torch.exp(terms - log_mass[:, None])
    return log_mass + torch.log(half), (q[group_of] * phi).sum(dim=1)


def _windows(
    a: Float[Tensor, " M"], groups: LabelGroups, depth: float
) -> tuple[Float[Tensor, " G"], Float[Tensor, " G"]]:
    """Return where the log-integrand g of each group is within ``depth`` of its peak, slightly too wide."""
    # g is strictly concave: Newton's steps to its peak stay in a bracket, and those to the window's ends come from
    # outside and stay there; windows kept from scores that were near save too little to be worth their state
    ceiling = torch.log1p(groups.sizes.to(a.dtype))
    floor, mode = torch.zeros_like(ceiling), ceiling / 2
    for _ in range(8):
        slope, curvature = _slope(a, mode, groups)
        floor, ceiling = torch.where(slope > 0, mode, floor), torch.where(slope > 0, ceiling, mode)
        step = mode - slope / curvature
        mode = torch.where((step >= floor) & (step <= ceiling), step, (floor + ceiling) / 2)
    ratio = depth * torch.exp(-mode)  # away from its peak, g falls at least as fast as e^mode (1 + y - e^y)
    low, high = mode - ratio - torch.sqrt(2 * ratio), mode + torch.log1p(ratio + torch.sqrt(2 * ratio))
    bottom = _height(a, mode, groups) - depth
    for _ in range(3):
        low = low - (_height(a, low, groups) - bottom) / _slope(a, low, groups)[0]
        high = high - (_height(a, high, groups) - bottom) / _slope(a, high, groups)[0]
    return low, high


def _height(a: Float[Tensor, " M"], y: Float[Tensor, " G"], groups: LabelGroups) -> Float[Tensor, " G"]:
    """Return g, the log-integrand of each group, at one point each."""
    return (y - torch.exp(y)).index_add_(0, groups.group_of, log1mexp(a + y[groups.group_of])[0])


def _slope(
    a: Float[Tensor, " M"], y: Float[Tensor, " G"], groups: LabelGroups
) -> tuple[Float[Tensor, " G"], Float[Tensor, " G"]]:
    """Return g' and g'' at one point of each group."""
    t = a + y[groups.group_of]
    _, phi = log1mexp(t)
    s = torch.exp(t.clamp(max=float(np.log(LARGEST_S))))
    first = (1 - torch.exp(y)).index_add_(0, groups.group_of, phi)
    return first, (-torch.exp(y)).index_add_(0, groups.group_of, phi * (1 - s - phi))


def log_likelihood_of_top(
    scores: Float[Tensor, "B L"],
    labels: Real[Tensor, "B L"],
    mask: Bool[Tensor, "B L"] | None = None,
    *,
    top: int,
    nodes: int = 32,
) -> Float[Tensor, " B"]:
    """Return the log-probability that the first ``top`` draws agree with the labels; differentiable.

    Args:
        scores, labels, mask, nodes: See :func:`listwright.training.losses.exact_plackett_luce.log_likelihood`.
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
    opened_at = groups.ends - groups.sizes
    before = opened_at - opened_at[torch.searchsorted(groups.list_of, groups.list_of)]  # of its list, above each group
    straddles = (before < top) & (before + groups.sizes > top)
    flat = scores.masked_fill(~real, 0.0)
    # below the first m nothing matters: one label for all of it, and for the straddling group
    known = labels.to(torch.float64).masked_fill(~real, 0.0)
    cut = torch.full_like(known, float(known.min()) - 1.0 if known.numel() else 0.0)
    whole = (before + groups.sizes <= top)[groups.group_of]
    inside = groups.members[whole]
    cut.view(-1)[inside] = known.flatten()[inside]
    value = log_likelihood(flat, cut, real, nodes=nodes)
    return value + _straddling(flat, groups, straddles, top - before, nodes)


def _straddling(
    scores: Float[Tensor, "B L"],
    groups: LabelGroups,
    straddles: Bool[Tensor, " G"],
    needed: Int[Tensor, " G"],
    nodes: int,
) -> Float[Tensor, " B"]:
    """Return the log-probability of the straddling groups, list by list."""
    log_below = groups.log_weight_below(scores)
    parts = []
    at = []
    for group in straddles.nonzero().flatten().tolist():
        end, size = int(groups.ends[group]), int(groups.sizes[group])
        a = scores.flatten()[groups.members[end - size : end]] - log_below[group]
        parts.append(_log_at_least(a, int(needed[group]), nodes=nodes))
        at.append(int(groups.list_of[group]))
    result = scores.new_zeros(len(scores))
    if not parts:
        return result
    return result.index_add(0, torch.tensor(at, device=scores.device), torch.stack(parts))


def _log_at_least(a: Float[Tensor, " members"], count: int, *, nodes: int = 32) -> Float[Tensor, ""]:
    """Return the log-probability that at least ``count`` of a group are drawn before anything below it."""
    # ``a`` is the score less log W, the log-weight of all below
    with torch.no_grad():
        low, high = _window(a, count, DEPTHS[nodes])
    x, weight = np.polynomial.legendre.leggauss(nodes)
    half = (high - low) / 2
    y = (high + low) / 2 + half * torch.as_tensor(x, dtype=a.dtype, device=a.device)
    log_weight = torch.as_tensor(np.log(weight), dtype=a.dtype, device=a.device)
    return torch.logsumexp(y - torch.exp(y) + _log_tail(a, y, count) + log_weight, dim=0) + torch.log(half)


def _window(a: Float[Tensor, " members"], count: int, depth: float) -> tuple[Tensor, Tensor]:
    """Return where the log-integrand is within ``depth`` of its peak, found on grids: its slope would cost as much."""
    # the peak lies in [0, log(1 + count)], and the bounds of the full event's window hold
    reach = depth + float(np.sqrt(2 * depth))
    low, high = a.new_tensor(-reach), a.new_tensor(float(np.log1p(count) + np.log1p(reach)))
    for _ in range(2):
        grid = torch.linspace(0, 1, 65, dtype=a.dtype, device=a.device) * (high - low) + low
        g = grid - torch.exp(grid) + _log_tail(a, grid, count)
        inside = (g >= g.max() - depth).nonzero().flatten()
        low = grid[max(int(inside[0]) - 1, 0)]
        high = grid[min(int(inside[-1]) + 1, len(grid) - 1)]
    return low, high


def _log_tail(a: Float[Tensor, " members"], y: Float[Tensor, " nodes"], count: int) -> Float[Tensor, " nodes"]:
    """Return ``log P(at least count drawn by y)``: state j is "j drawn so far", and ``count`` absorbs."""
    # all terms are probabilities, nothing cancels; in logarithms nothing underflows
    t = a[:, None] + y
    log_drawn, log_left = _LogDrawn.apply(t), -torch.exp(t.clamp(max=80.0))  # type: ignore[no-untyped-call]
    state = torch.full((count + 1, len(y)), NEVER, dtype=a.dtype, device=a.device)
    state[0] = 0.0
    for log_p, log_q in zip(log_drawn, log_left, strict=True):
        moved = state[:-1] + log_p
        stayed = torch.cat([state[:-1] + log_q, state[-1:]])
        arrived = torch.cat([torch.full_like(moved[:1], NEVER), moved])
        state = torch.logaddexp(stayed, arrived)
    return state[-1]


class _LogDrawn(torch.autograd.Function):
    """``log(1 - e^-e^t)`` with the accurate derivative of :func:`log1mexp`."""

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
        """Build the groups from labels, higher is better; ``mask`` is True for real candidates, by default all."""
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
        """Replace the scores of padding by 0."""
        return scores.masked_fill(~self.mask, 0.0)

    def log_weight_below(self, scores: Float[Tensor, "B L"]) -> Float[Tensor, " G"]:
        """Return ``log W``, the logarithm of the summed ``exp(score)`` of all candidates below each group."""
        ordered = scores.masked_fill(~self.mask, -torch.inf).gather(1, self.order)
        return ordered.flip(1).logcumsumexp(1).flip(1).flatten()[self.below]

    def gradient(
        self, scores: Float[Tensor, "B L"], log_below: Float[Tensor, " G"], pull: Float[Tensor, " M"]
    ) -> Float[Tensor, "B L"]:
        """Return the derivative of the lists' log-probabilities in the scores.

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
