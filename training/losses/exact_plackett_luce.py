"""The probability that a Plackett-Luce ranker puts no candidate above one with a higher label: exact, in linear time.

Weights ``w_i = exp(f_i)``; a list's label groups ``G_1 > G_2 > ...``; ``R_l`` everything below group l, ``W_l`` its
total weight. A stage of the model depends only on what is left, so ``P = prod_l A_l`` with ``A_l`` the probability that
all of ``G_l`` is drawn before any of ``R_l``. With exponential clocks, in log-time ``y`` and ``a_i = f_i - log W``:

    A = integral of exp(y - e^y) prod_{i in G} (1 - exp(-e^(a_i + y))) dy

Its integrand is log-concave, so Gauss-Legendre nodes in the window around its mode give any accuracy that is asked
for (``docs/exact-plackett-luce.md``). The events are those of Jagerman et al., 2017, section 4.1; the integral is the
exact likelihood of tied survival times.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Real
from torch import Tensor

from listwright.training.losses.label_groups import LabelGroups

DEPTHS = {16: 10.0, 24: 14.0, 32: 16.0, 48: 20.0, 64: 25.0}
"""Nodes per group, and how many nats below its peak the integrand is cut off.

Measured largest error of a group's log A over hard cases: 6e-4, 2e-5, 9e-7, 2e-9, 2e-10; of an ordinary one a tenth of
that and less (``docs/exact-plackett-luce.md``).
"""

LARGEST_S = 80.0
"""Beyond it ``log(1 - e^-s)`` and its derivative are 0; without a clamp e^(a + y) overflows."""

_CHUNK = 8_192
"""Members integrated at a time: their nodes fit a cache."""


class Likelihood(NamedTuple):
    """What :func:`evaluate` finds.

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
    """Log-probability that sampling without replacement by ``exp(scores)`` respects the labels; differentiable once.

    Args:
        scores: ``(B, L)`` float32 or float64.
        labels: ``(B, L)`` higher is better; equal labels tie.
        mask: ``(B, L)`` True for real candidates; all by default. What padding holds does not matter, even NaN.
        nodes: quadrature nodes per label group, one of :data:`DEPTHS`.

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
        found = evaluate(scores.detach(), groups, nodes=nodes)
        ctx.save_for_backward(found.gradient)
        return found.value

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, None, None]:
        (gradient,) = ctx.saved_tensors
        return upstream[0][:, None] * gradient, None, None


def evaluate(scores: Float[Tensor, "B L"], groups: LabelGroups, *, nodes: int = 32) -> Likelihood:
    """Value and gradient together, without autograd: what EM calls again and again.

    Args:
        scores: ``(B, L)``; padding may hold anything.
        groups: of the labels; kept while only scores change.
        nodes: as for :func:`log_likelihood`.
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
    """``log(1 - e^-s)`` and its derivative in t, ``phi = s / (e^s - 1)``, for ``s = e^t``: accurate for every t."""
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
    """Runs of whole groups with about :data:`_CHUNK` members."""
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
    """Log of each group's integral, and the mean of phi of each member under its normalised integrand."""
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
    """Where the log-integrand g of each group is within ``depth`` of its peak, slightly too wide.

    g is strictly concave: Newton's steps to its peak stay in a bracket, and those to the window's ends come from
    outside and stay there. (Windows kept from scores that were near save too little to be worth
    their state.)
    """
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
    """g, the log-integrand of each group, at one point each."""
    return (y - torch.exp(y)).index_add_(0, groups.group_of, log1mexp(a + y[groups.group_of])[0])


def _slope(
    a: Float[Tensor, " M"], y: Float[Tensor, " G"], groups: LabelGroups
) -> tuple[Float[Tensor, " G"], Float[Tensor, " G"]]:
    """g' and g'' at one point of each group."""
    t = a + y[groups.group_of]
    _, phi = log1mexp(t)
    s = torch.exp(t.clamp(max=float(np.log(LARGEST_S))))
    first = (1 - torch.exp(y)).index_add_(0, groups.group_of, phi)
    return first, (-torch.exp(y)).index_add_(0, groups.group_of, phi * (1 - s - phi))
