"""Intervals by resampling queries, jointly for everything that is measured on them."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

RESAMPLES = 2000
LEVELS = (0.025, 0.975)


def resampled_means(
    values: Float[np.ndarray, N * columns], query: Int[np.ndarray, " N"] | None = None
) -> Float[np.ndarray, " R *columns"]:
    """Means over :data:`RESAMPLES` bootstrap samples of the queries; seeded, the same samples for every column.

    Args:
        values: rows.
        query: number of each row's query, where one query has several rows (several seeds): they are drawn together,
            as they are no independent witnesses. By default every row is a query of its own.
    """
    rng = np.random.default_rng(0)
    query = np.arange(len(values)) if query is None else query
    rows = np.bincount(query).astype(np.float64)
    totals = np.zeros((len(rows), *values.shape[1:]))
    np.add.at(totals, query, values)
    counts = rng.multinomial(len(rows), np.full(len(rows), 1.0 / len(rows)), size=RESAMPLES).astype(np.float64)
    drawn = (counts @ rows).reshape(-1, *(1 for _ in values.shape[1:]))
    means: Float[np.ndarray, " R *columns"] = np.tensordot(counts, totals, axes=1) / drawn
    return means


def crossed_means(values: Float[np.ndarray, "S N *columns"]) -> Float[np.ndarray, " R *columns"]:
    """Means over :data:`RESAMPLES` samples of the queries and, independently, of the seeds.

    So both count: another sample of queries, and another fit. Every seed has every query. A single seed says nothing
    of others, and only queries are drawn.

    Args:
        values: ``(S, N, ...)`` seeds by queries.
    """
    seeds, queries = values.shape[:2]
    rng = np.random.default_rng(0)
    of_queries, of_seeds = (
        rng.multinomial(count, np.full(count, 1.0 / count), size=RESAMPLES) / count for count in (queries, seeds)
    )
    by_seed = np.tensordot(of_queries, values, axes=(1, 1))  # (R, S, ...)
    means: Float[np.ndarray, " R *columns"] = np.einsum("rs,rs...->r...", of_seeds, by_seed)
    return means


def interval(means: Float[np.ndarray, " R *columns"]) -> Float[np.ndarray, 2 * columns]:
    """95 % percentile interval; of a ratio that is 0/0 in some samples, over the others."""
    bounds: Float[np.ndarray, 2 * columns] = np.nanquantile(means, LEVELS, axis=0)
    return bounds
