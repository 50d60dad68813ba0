"""A label group's probability in eighty digits, by another rule than the one it judges.

The integral of :mod:`listwright.training.losses.exact_plackett_luce` by the trapezoidal rule over all of log-time, in
mpmath's arithmetic: no window, no Gauss-Legendre nodes, no logarithm of a factor. The integrand is entire and falls off
exponentially on the left and twice exponentially on the right, so each halving of the step about doubles the number of
correct digits.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from mpmath import mp, mpf  # type: ignore[import-untyped]

DIGITS = 80
"""Of the arithmetic: ``1 - e^-s`` loses up to fifty of them."""

AGREED = 1e-11
"""Largest relative change at the last halving; the error that remains is about its square."""

NEGLIGIBLE = 1e-25
"""Terms below this share of the largest are left out; they lie in both tails."""


class Truth(NamedTuple):
    """The result of :func:`group`.

    Args:
        log_mass: log A.
        gradient: ``(members + below,)`` its derivative in the scores, the group's members first.
    """

    log_mass: float
    gradient: Float[np.ndarray, " candidates"]


def group(members: Float[np.ndarray, " members"], below: Float[np.ndarray, " below"]) -> Truth:
    """Return ``log P(all members are drawn before any candidate below)`` and its gradient.

    Args:
        members: ``(members,)`` scores of the group; equal ones are computed once.
        below: ``(below,)`` scores of all that stands below it.
    """
    distinct, where, counts = np.unique(members, return_inverse=True, return_counts=True)
    with mp.workdps(DIGITS):
        weights_below = [mp.exp(mpf(float(score))) for score in below]
        total_below = mp.fsum(weights_below)
        weights = [mp.exp(mpf(float(score))) / total_below for score in distinct]
        mass, pulls = _converged(weights, counts.tolist())
        log_mass = float(mp.log(mass))
        pull = np.array([float(p / mass) for p in pulls])[where]
        share = np.array([float(weight / total_below) for weight in weights_below])
    return Truth(log_mass, np.concatenate([pull, -share * pull.sum()]))


def _converged(weights: list[mpf], counts: list[int]) -> tuple[mpf, list[mpf]]:
    step = mpf(1) / 2
    mass, pulls = _sum(weights, counts, step, mpf(0))
    while True:
        between, pulls_between = _sum(weights, counts, step, step / 2)
        mass, before = (mass + between) / 2, mass
        pulls = [(old + new) / 2 for old, new in zip(pulls, pulls_between, strict=True)]
        step /= 2
        if abs(mass - before) <= AGREED * mass:
            return mass, pulls


def _sum(weights: list[mpf], counts: list[int], step: mpf, start: mpf) -> tuple[mpf, list[mpf]]:
    """Sum by the trapezoidal rule on ``start + n step``: upwards, then downwards from 0, the mode bracket's left end.

    The integrand is log-concave: once it has fallen to next to nothing it does not come back.
    """
    mass, largest = mpf(0), mpf(0)
    pulls = [mpf(0)] * len(weights)
    for y, move in ((start, step), (start - step, -step)):
        while True:
            term, phi = _integrand(weights, counts, mp.exp(y))
            largest = max(largest, term)
            if term < NEGLIGIBLE * largest:
                break
            mass += term
            pulls = [pull + term * p for pull, p in zip(pulls, phi, strict=True)]
            y += move  # noqa: PLW2901 the walk's own position
    return mass * step, [pull * step for pull in pulls]


def _integrand(weights: list[mpf], counts: list[int], time: mpf) -> tuple[mpf, list[mpf]]:
    """Return ``t e^-t prod(1 - e^-(w_i t))``, and ``phi`` of each distinct member."""
    term = time * mp.exp(-time)
    phi = []
    for weight, count in zip(weights, counts, strict=True):
        s = weight * time
        left = mp.exp(-s)
        drawn = 1 - left
        term *= drawn**count
        phi.append(s * left / drawn)
    return term, phi
