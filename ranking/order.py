"""Orders by score, their tie-breaking, and scores as shares of a list; nothing else sorts."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float, Int


def rank_by_score(scores: Float[np.ndarray, " L"]) -> Int[np.ndarray, " L"]:
    """Return the indices of the candidates, best first.

    Args:
        scores: ``(L,)`` scores, higher is better; comparable within this list only.

    Returns:
        ``(L,)`` a permutation of ``0 .. L-1``.

    Convention: equal scores keep input order; NaN ranks below every number, in input order.
    """
    return np.argsort(-scores, kind="stable")


def best(
    count: int,
    by_first_stage: Int[np.ndarray, " L"],
    first_scores: Float[np.ndarray, " L"],
    features: Float[np.ndarray, "L D"],
) -> Int[np.ndarray, " C"]:
    """Return the ``count`` best candidates by the first stage, best first; all if there are no more.

    Which ones these are does not depend on input order. Among candidates with the score of the last one that is taken,
    the bytes of their feature values decide: an order that is always the same and prefers no feature.

    Args:
        count: Number of candidates, at least 1.
        by_first_stage: ``(L,)`` indices of the candidates, as :func:`rank_by_score` returns them.
        first_scores: ``(L,)`` scores of the first stage.
        features: ``(L, D)`` features of all candidates.

    Convention: candidates that are equal in score and in all features are taken in input order.
    """
    top = by_first_stage[:count]
    if not tied_after(count, by_first_stage, first_scores):
        return top
    last = first_scores[top[-1]]
    tied = np.flatnonzero(np.isnan(first_scores) if np.isnan(last) else first_scores == last)
    above = top[~np.isin(top, tied)]
    rows = features[tied] + np.float32(0.0)  # which makes 0.0 of -0.0
    rows[np.isnan(rows)] = np.nan  # there are many in bytes
    by_bytes = np.argsort(rows.astype("<f4", copy=False).view(f"V{4 * rows.shape[1]}")[:, 0], kind="stable")
    return np.concatenate([above, np.sort(tied[by_bytes[: count - len(above)]])])


def tied_after(count: int, by_first_stage: Int[np.ndarray, " L"], first_scores: Float[np.ndarray, " L"]) -> bool:
    """Return whether the candidates at ranks ``count`` and ``count + 1`` tie; arguments as of :func:`best`."""
    if count >= len(by_first_stage):
        return False
    last, following = first_scores[by_first_stage[count - 1 : count + 1]]
    return bool(last == following or (np.isnan(last) and np.isnan(following)))


def refined_order(
    scores: Float[np.ndarray, " C"], positions: Int[np.ndarray, " C"], by_first_stage: Int[np.ndarray, " L"]
) -> Int[np.ndarray, " L"]:
    """Return a whole list's order: a second stage's candidates first, by its scores, the others in first-stage order.

    Args:
        scores: ``(C,)`` scores of the second stage.
        positions: ``(C,)`` indices of the candidates that these belong to, in input order.
        by_first_stage: ``(L,)`` indices of all candidates, best first.
    """
    others = np.ones(len(by_first_stage), dtype=bool)
    others[positions] = False
    return np.concatenate([positions[rank_by_score(scores)], by_first_stage[others[by_first_stage]]])


def sort_keys(
    scores: Float[np.ndarray, " C"], positions: Int[np.ndarray, " C"], first_scores: Float[np.ndarray, " L"]
) -> Float[np.ndarray, " L"]:
    """Return numbers that order a whole list as :func:`refined_order` does, equal where only input order decides.

    Args:
        scores: ``(C,)`` scores of the second stage.
        positions: ``(C,)`` indices of the candidates that these belong to.
        first_scores: ``(L,)`` scores of the first stage.

    Returns:
        ``(L,)`` higher is better; for metrics, which share ranks among equals. Several lists can be given as one.
    """
    keys = np.where(np.isnan(first_scores), -np.inf, first_scores)
    reranked = np.zeros(len(keys), dtype=bool)
    keys[positions], reranked[positions] = scores, True
    order = np.lexsort((keys, reranked))
    ascending, stage = keys[order], reranked[order]
    steps = (ascending[1:] != ascending[:-1]) | (stage[1:] != stage[:-1])
    dense = np.empty(len(keys))
    dense[order] = np.cumsum(np.concatenate([[True], steps]))
    return dense


def ranks_of(order: Int[np.ndarray, " L"]) -> Int[np.ndarray, " L"]:
    """Return the 1-based rank of every candidate, in input order: the inverse of :func:`rank_by_score`."""
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[order] = np.arange(1, len(order) + 1)
    return ranks


def ranks_by_score(scores: Float[np.ndarray, " L"]) -> Int[np.ndarray, " L"]:
    """Return the 1-based rank of every candidate by its score, in input order; see :func:`rank_by_score`."""
    return ranks_of(rank_by_score(scores))


def relevance(scores: Float[np.ndarray, " L"], temperature: float = 1.0) -> Float[np.ndarray, " L"]:
    """Compute the softmax over the scored candidates (QILCM eq. 9), of scores over a temperature above 0.

    Where the temperature was fitted on choices, it is the probability of being chosen among them.

    Convention: NaN where there is no score; the others sum to 1. No temperature changes an order.
    """
    if np.isnan(scores).all():
        return scores
    weights: Float[np.ndarray, " L"] = np.exp((scores - np.fmax.reduce(scores)) / temperature)
    total = weights.sum()
    weights /= np.nansum(weights) if np.isnan(total) else total  # which takes longer
    return weights


def log_odds(
    scores: Float[np.ndarray, " L"], first_scores: Float[np.ndarray, " L"], temperature: float, first_temperature: float
) -> Float[np.ndarray, " L"]:
    """Return logarithms of the odds to be chosen, as a share of the best one's: those of a softmax over all candidates.

    Args:
        scores: ``(L,)`` scores of a ranker; NaN for candidates that it did not score, not for all.
        first_scores: ``(L,)`` scores of the first stage.
        temperature, first_temperature: Divisor of either's scores.

    Returns:
        ``(L,)`` at most 0. Candidates that the ranker did not score follow the last one that it did: the best of them
        with the same odds, the others as far below as the first stage has them.
    """
    odds: Float[np.ndarray, " L"] = (scores - np.fmax.reduce(scores)) / temperature
    below = np.isnan(scores)
    if below.any():
        first = first_scores[below]
        odds[below] = np.fmin.reduce(odds) - (first.max() - first) / first_temperature
    return odds


def finite_scores(scores: Float[np.ndarray, " L"], order: Int[np.ndarray, " S"]) -> Float[np.ndarray, " L"]:
    """Return scores that a stable sort, highest first, brings into an order.

    A candidate without a score gets a number for its place: the k-th of them is k below 0, or below the lowest score if
    that is below 0. Where the order is not that of the scores, the k-th place has the k-th highest of them. Where two
    are equal and would be sorted otherwise, the better place has the next larger number of their type.

    Args:
        scores: ``(L,)`` finite scores, or NaN where there is none.
        order: Indices of the candidates, best first, at least one.

    Returns:
        ``(L,)`` finite, of the type of ``scores``; candidates that are not in the order keep theirs.
    """
    along: Float[np.ndarray, " L"] = scores[order]
    if (along[1:] < along[:-1]).all() and along[0] == along[0]:  # neither is true of NaN
        return scores
    unscored = np.isnan(along)
    if unscored.any():
        along[unscored] = np.fmin.reduce(scores, initial=0.0) - np.arange(1, np.count_nonzero(unscored) + 1)
    if (along[1:] > along[:-1]).any():
        along = np.sort(along)[::-1]
    backwards = order[1:] < order[:-1]
    if ((along[1:] == along[:-1]) & backwards).any():
        along = _separated(along, backwards)
    placed = scores.copy()
    placed[order] = along
    return placed


def _separated(falling: Float[np.ndarray, " L"], apart: Bool[np.ndarray, " S"]) -> Float[np.ndarray, " L"]:
    """Raise falling numbers, as little as possible, where they must differ from the next one."""
    bits = falling.view(f"i{falling.itemsize}")
    zero = np.iinfo(bits.dtype).min  # the bits of -0.0
    counts = np.where(bits < 0, zero - bits, bits)  # neighbouring numbers have neighbouring counts
    steps = np.append(np.cumsum(apart[::-1], dtype=counts.dtype)[::-1], counts.dtype.type(0))
    counts = np.maximum.accumulate((counts - steps)[::-1])[::-1] + steps
    raised: Float[np.ndarray, " L"] = np.where(counts < 0, zero - counts, counts).view(falling.dtype)
    return raised


def mixture(scores: Float[np.ndarray, "C K"], weights: Float[np.ndarray, " K"]) -> Float[np.ndarray, " C"]:
    """Compute the log-probability of being drawn first from a mixture of Plackett-Luce rankers.

    Definition (from SRM, Jagerman et al., 2017, eq. 2, each ranker weighed by its probability):
        log sum_k p_k exp(f_k(i)) / sum_j exp(f_k(j))
    """
    shifted = scores.astype(np.float64) - scores.max(axis=0)
    first_choice = np.exp(shifted)
    first_choice /= first_choice.sum(axis=0)
    log_probability: Float[np.ndarray, " C"] = np.log(np.maximum(first_choice @ weights, np.finfo(np.float64).tiny))
    return log_probability
