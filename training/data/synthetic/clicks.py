"""Clicks that are made up: the position-based model, with a known examination of each place."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float, Int


def examination(count: int, strength: float) -> Float[np.ndarray, " K"]:
    """``(K,)`` probability that a place is looked at: ``1 / k ** strength`` at place k (Joachims et al. 2017, 6.1).

    Args:
        count: K, places.
        strength: 0 for none; 1 is that of the paper.
    """
    places: Float[np.ndarray, " K"] = np.arange(1, count + 1, dtype=np.float64) ** -strength
    return places


def attractiveness(labels: Int[np.ndarray, "*rows"], *, highest: int, noise: float = 0.1) -> Float[np.ndarray, "*rows"]:
    """Probability of a click on a candidate that is looked at.

    Definition (Ai et al. 2018, eq. 13): ``noise + (1 - noise) (2^y - 1) / (2^highest - 1)``.

    Args:
        labels: true relevance labels.
        highest: the largest label that there is, at least 1.
        noise: probability of a click on an irrelevant candidate, in [0, 1].
    """
    share: Float[np.ndarray, "*rows"] = (np.exp2(labels) - 1.0) / (2.0**highest - 1.0)
    return noise + (1.0 - noise) * share


def clicked(
    attraction: Float[np.ndarray, "*rows"], examined: Float[np.ndarray, "*rows"], rng: np.random.Generator
) -> Bool[np.ndarray, "*rows"]:
    """One draw for each shown candidate: a click is a look and an attraction, independent of each other."""
    drawn: Bool[np.ndarray, "*rows"] = rng.random(attraction.shape) < attraction * examined
    return drawn
