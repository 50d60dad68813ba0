"""Bootstrap samples of the queries and of the seeds, crossed."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from listwright.training.evaluation.bootstrap import draw_counts


def resample_crossed_means(values: Float[np.ndarray, "seeds N *columns"]) -> Float[np.ndarray, " samples *columns"]:
    """Compute the means over bootstrap samples of the queries and, independently, of the seeds.

    So the interval covers another sample of queries and another fit. Every seed has every query. With a single seed
    only queries are drawn.

    Args:
        values: Measured values by seed and query.
    """
    seeds, queries = values.shape[:2]
    rng = np.random.default_rng(0)
    query_shares, seed_shares = (draw_counts(count, rng) / count for count in (queries, seeds))
    by_seed = np.tensordot(query_shares, values, axes=(1, 1))  # (samples, seeds, ...)
    means: Float[np.ndarray, " samples *columns"] = np.einsum("rs,rs...->r...", seed_shares, by_seed)
    return means
