"""Statistics of :mod:`listwright.ranking.aggregates` in NumPy, where ``ranking.compiled.list_summary`` is not built."""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations

import numpy as np
from jaxtyping import Float, Int


def numbers(
    features: Float[np.ndarray, "L D"],
    columns: Int[np.ndarray, " M"],
    top: Int[np.ndarray, " top"],
    out: Float[np.ndarray, " statistics"],
) -> None:
    """Write mean, standard deviation, minimum and maximum of every column into ``out``, over the list and its top.

    Convention: of the values that are there; NaN where none is.
    """
    selected = features[:, columns]
    whole, of_top = np.split(out, 2)
    whole[:] = _statistics(selected).ravel()
    of_top[:] = whole if len(top) == len(features) else _statistics(selected[top]).ravel()


def first_stage(scores: Float[np.ndarray, " L"], top: Int[np.ndarray, " top"], out: Float[np.ndarray, " 4"]) -> None:
    """Write best, gap between the best two, standard deviation and entropy of the softmax into ``out``."""
    best = scores[top[0]]
    weights = np.exp(scores - best)
    entropy = np.log(weights.sum()) - weights @ (scores - best) / weights.sum()
    out[:] = best, best - scores[top[1]] if len(top) > 1 else 0.0, scores.std(), entropy


def agreement(
    scores: Float[np.ndarray, "C K"], at: Int[np.ndarray, " top"], out: Float[np.ndarray, " statistics"]
) -> None:
    """Write the entropy of every column's softmax and Kendall's tau-a of every two columns into ``out``.

    Entropies are in nats; tau is over the rows ``at``, and 1 for a single row.
    """
    shifted = scores.astype(np.float64) - scores.max(axis=0)
    weights = np.exp(shifted)
    total = weights.sum(axis=0)
    count = scores.shape[1]
    out[:count] = np.log(total) - (weights * shifted).sum(axis=0) / total
    first, second = _every_two(len(at))
    if len(first) == 0:
        out[count:] = 1.0
        return
    signs = np.sign(scores[at[first]] - scores[at[second]])
    tau = (signs.T @ signs) / len(first)
    out[count:] = [tau[pair] for pair in combinations(range(count), 2)]


@lru_cache
def _every_two(count: int) -> tuple[np.ndarray, np.ndarray]:
    first, second = np.triu_indices(count, k=1)
    return first, second


def _statistics(columns: Float[np.ndarray, "L M"]) -> Float[np.ndarray, "4 M"]:
    values = columns.astype(np.float64)
    missing = np.isnan(values)
    count = len(values) - missing.sum(axis=0)
    absent = count == 0
    count[absent] = 1
    mean = np.where(missing, 0.0, values).sum(axis=0) / count
    apart = np.where(missing, 0.0, values - mean)
    spread = np.sqrt((apart * apart).sum(axis=0) / count)
    low, high = (np.where(missing, end, values) for end in (np.inf, -np.inf))
    summary = np.stack([mean, spread, low.min(axis=0), high.max(axis=0)])
    summary[:, absent] = np.nan
    return summary
