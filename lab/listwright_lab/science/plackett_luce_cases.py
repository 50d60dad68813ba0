"""Label groups that are hard on a quadrature rule: large, at the edges of the range, split, or all equal.

The hardest known are large groups of equal scores a few nats above all below together: from the left the integrand
rises like a cliff, and then it stays flat.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from scipy.special import logsumexp
from torch import Tensor

SIZES = (1, 2, 5, 20, 100, 300, 1000)
RANGES = (10.0, 30.0)
OFFSETS = range(-8, 13)
"""Score of each member of a group of equals, less the log-weight of all below."""


class Case(NamedTuple):
    """A label group and the candidates below it.

    Args:
        name: what is hard about it.
        members: ``(members,)`` scores, exact in float32.
        below: ``(below,)`` likewise.
    """

    name: str
    members: Float[np.ndarray, " members"]
    below: Float[np.ndarray, " below"]


def hard_cases() -> list[Case]:
    """Return the same cases at every call."""
    rng = np.random.default_rng(0)
    cases = []
    for size in SIZES:
        for reach in RANGES:
            low, high = np.full(size, -reach), np.full(size, reach)
            for name, members, below in (
                ("uniform", rng.uniform(-reach, reach, size), 10),
                ("uniform, 1 below", rng.uniform(-reach, reach, size), 1),
                ("all lowest", low, 10),
                ("all highest", high, 10),
                ("half lowest, half highest", np.where(np.arange(size) % 2 == 0, low, high), 10),
            ):
                scores_below = rng.uniform(-reach, reach, below)
                cases.append(_rounded(f"{size} of ±{reach:.0f}, {name}", members, scores_below))
        for offset in OFFSETS:
            scores_below = rng.normal(size=10)
            members = np.full(size, logsumexp(scores_below) + offset)
            cases.append(_rounded(f"{size} equal, {offset:+d} nats", members, scores_below))
    return cases


def padded(cases: list[Case]) -> tuple[Float[Tensor, "B L"], Int[Tensor, "B L"], Bool[Tensor, "B L"]]:
    """Return scores, labels and mask of all cases as one batch, the group first in each list."""
    lengths = [len(case.members) + len(case.below) for case in cases]
    scores = torch.zeros(len(cases), max(lengths), dtype=torch.float64)
    labels, mask = torch.zeros(scores.shape, dtype=torch.int64), torch.zeros(scores.shape, dtype=torch.bool)
    for n, (case, length) in enumerate(zip(cases, lengths, strict=True)):
        scores[n, :length] = torch.from_numpy(np.concatenate([case.members, case.below]))
        labels[n, : len(case.members)] = 1
        mask[n, :length] = True
    return scores, labels, mask


def _rounded(name: str, members: Float[np.ndarray, " members"], below: Float[np.ndarray, " below"]) -> Case:
    """Round scores to what both precisions hold exactly, so that only the rule is judged."""
    return Case(name, *(scores.astype(np.float32).astype(np.float64) for scores in (members, below)))
