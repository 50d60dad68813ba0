"""From scores to shares of a list: probabilities of being chosen, where a temperature was fitted on choices."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float


def relevance(scores: Float[np.ndarray, " L"], temperature: float = 1.0) -> Float[np.ndarray, " L"]:
    """Softmax over the scored candidates (QILCM eq. 9), of the scores divided by a temperature above 0.

    Where the temperature was fitted on choices, it is the probability of being chosen among them.

    Convention: NaN where there is no score; the others sum to 1. No temperature changes an order.
    """
    if np.isnan(scores).all():
        return scores
    weights: Float[np.ndarray, " L"] = np.exp((scores - np.nanmax(scores)) / temperature)
    weights /= np.nansum(weights)
    return weights


def mixture(scores: Float[np.ndarray, "C K"], weights: Float[np.ndarray, " K"]) -> Float[np.ndarray, " C"]:
    """Log-probability of being drawn first from a mixture of Plackett-Luce rankers.

    Definition (from SRM, Jagerman et al., 2017, eq. 2, each ranker weighed by its probability):
        log sum_k p_k exp(f_k(i)) / sum_j exp(f_k(j))
    """
    shifted = scores.astype(np.float64) - scores.max(axis=0)
    first_choice = np.exp(shifted)
    first_choice /= first_choice.sum(axis=0)
    found: Float[np.ndarray, " C"] = np.log(np.maximum(first_choice @ weights, np.finfo(np.float64).tiny))
    return found
