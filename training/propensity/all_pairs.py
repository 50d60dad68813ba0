"""The all-pairs estimator: from click rates of the same candidates at two places to the places' examination."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int
from scipy.optimize import minimize

_EDGE = 1e-6
"""Examination and relevance stay so far from 0 and 1: a logarithm of each is taken."""


def all_pairs(
    pairs: Int[np.ndarray, "P 2"], evidence: Float[np.ndarray, "P 3"], places: int
) -> Float[np.ndarray, " K"]:
    """Examination of each place, relative to the first.

    Definition (AllPairs of Agarwal, Zaitsev, Wang, Li, Najork, Joachims 2019, eq. 9): p and r maximise
        sum over pairs k, k' of c_k log(p_k r) + (n - c_k) log(1 - p_k r), and the same for k'
    with one relevance r for each pair, as both places held the same candidates equally often.

    Args:
        pairs: ``(P, 2)`` places from 0.
        evidence: ``(P, 3)`` of each pair: n, expected clicks at its first place, and at its second, of n displays each.
        places: K.

    Returns:
        ``(K,)`` ``p_k / p_1``. A place is above 1 where it is clicked more than the first for the same candidates.

    Convention: of places that no pair links with the first, it says nothing of use; who calls sees to that.
    """
    n, clicks = evidence[:, 0], evidence[:, 1:]
    scale = 1.0 / max(float(n.sum()), _EDGE)
    n, clicks = scale * n[:, None], scale * clicks

    def loss(x: Float[np.ndarray, " X"]) -> tuple[float, Float[np.ndarray, " X"]]:
        p, r = x[:places], x[places:, None]
        seen = p[pairs]
        share = seen * r
        value = -float((clicks * np.log(share) + (n - clicks) * np.log1p(-share)).sum())
        slope = -(clicks / share - (n - clicks) / (1.0 - share))
        of_places = np.bincount(pairs.ravel(), (slope * r).ravel(), places)
        return value, np.concatenate([of_places, (slope * seen).sum(axis=1)])

    start = np.full(places + len(pairs), 0.5)
    start[places:] = np.clip(evidence[:, 1:].sum(axis=1) / np.maximum(evidence[:, 0], _EDGE), 0.01, 0.99)
    bounds = [(_EDGE, 1.0 - _EDGE)] * len(start)
    options = {"maxiter": 2000, "maxfun": 10_000, "ftol": 1e-14, "gtol": 1e-9}
    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options).x[:places]
    relative: Float[np.ndarray, " K"] = found / found[0]
    return relative
