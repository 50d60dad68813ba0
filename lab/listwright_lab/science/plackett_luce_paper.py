"""Likelihood of :mod:`listwright.training.losses.exact_plackett_luce` in the SRM paper's own ways, to check it.

Jagerman, Oosterhuis, de Rijke, 2017, section 4.4: dynamic programming over subsets, and importance sampling. One list
at a time, float64. (The third way, top-m, is :mod:`listwright.training.losses.exact_plackett_luce`.)
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int
from scipy.special import logsumexp

MAX_GROUP = 24
"""Largest label group for the dynamic program: 2^24 subsets are 128 MB."""


def by_subsets(scores: Float[np.ndarray, " L"], labels: Int[np.ndarray, " L"]) -> float:
    """Compute the exact log-probability by a dynamic program over the drawn subsets of each label group.

    The paper runs over the subsets of the whole list, O(2^L); what remains after a group does not depend on its order,
    so each group has its own program, O(2^|G|).

    Raises:
        ValueError: if a group that is not the lowest has more than :data:`MAX_GROUP` candidates.
    """
    return sum(
        _group_by_subsets(scores[labels == label], _log_below(scores, labels, label)) for label in _above(labels)
    )


def by_sampling(
    scores: Float[np.ndarray, " L"], labels: Int[np.ndarray, " L"], samples: int, rng: np.random.Generator
) -> float:
    """Log of the importance-sampling estimate of the probability; biased low, as the logarithm is concave.

    Rankings are drawn from the ranker itself within each label group, hence always correct ones, and weighed by how
    much likelier the draw was than under the ranker of the whole list.

    Args:
        scores: ``(L,)`` scores of the candidates.
        labels: ``(L,)`` relevance labels.
        samples: Number of rankings to draw.
        rng: Random generator.
    """
    log_weight = np.zeros(samples)
    for label in _above(labels):
        group, below = scores[labels == label], _log_below(scores, labels, label)
        keys = group + rng.gumbel(size=(samples, len(group)))
        ordered = group[np.argsort(-keys, axis=1)]
        inside = np.logaddexp.accumulate(ordered[:, ::-1], axis=1)[:, ::-1]  # log weight of what is left of the group
        log_weight += (inside - np.logaddexp(inside, below)).sum(axis=1)
    return float(logsumexp(log_weight) - np.log(samples))


def _above(labels: Int[np.ndarray, " L"]) -> Int[np.ndarray, " G"]:
    """Return the labels that have others below, highest first."""
    return np.unique(labels)[:0:-1]


def _log_below(scores: Float[np.ndarray, " L"], labels: Int[np.ndarray, " L"], label: int) -> float:
    return float(logsumexp(scores[labels < label]))


def _group_by_subsets(group: Float[np.ndarray, " members"], log_below: float) -> float:
    """Return ``log P(all of the group is drawn before anything below)``.

    ``reached[subset]``: log-probability that the first draws are exactly this subset, in any order.
    """
    size = len(group)
    if size > MAX_GROUP:
        raise ValueError(f"a label group has {size} candidates: the dynamic program takes at most {MAX_GROUP}")
    subsets = np.arange(2**size)
    is_drawn = (subsets[:, None] >> np.arange(size)) & 1 == 1
    left = logsumexp(np.where(is_drawn, -np.inf, group), axis=1)  # -inf once the group is empty
    log_total = np.logaddexp(left, log_below)
    reached = np.full(2**size, -np.inf)
    reached[0] = 0.0
    for count in range(1, size + 1):
        now = subsets[is_drawn.sum(axis=1) == count]
        came = np.full((len(now), size), -np.inf)
        for i in range(size):
            has = is_drawn[now, i]
            before = now[has] - (1 << i)
            came[has, i] = reached[before] + group[i] - log_total[before]
        reached[now] = logsumexp(came, axis=1)
    return float(reached[-1])
