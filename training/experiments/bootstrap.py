"""Intervals by resampling queries, jointly for everything that is measured on them."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

RESAMPLES = 2000
LEVELS = (0.025, 0.975)


def resampled_means(values: Float[np.ndarray, N * columns]) -> Float[np.ndarray, R * columns]:
    """Means over :data:`RESAMPLES` bootstrap samples of the queries; seeded, the same samples for every column."""
    rng = np.random.default_rng(0)
    counts = rng.multinomial(len(values), np.full(len(values), 1.0 / len(values)), size=RESAMPLES)
    means: Float[np.ndarray, R * columns] = np.tensordot(counts, values, axes=1) / len(values)
    return means


def interval(means: Float[np.ndarray, R * columns]) -> Float[np.ndarray, 2 * columns]:
    """95 % percentile interval."""
    bounds: Float[np.ndarray, 2 * columns] = np.quantile(means, LEVELS, axis=0)
    return bounds
