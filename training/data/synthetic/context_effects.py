"""What the other candidates of a list do to the utility of one, as consumer research finds it: planted, with a truth.

No column of one candidate shows these effects, not even one that compares it with the list feature by feature: each
depends on which *other* candidate holds which values *together*.
"""

from __future__ import annotations

import itertools

import numpy as np
from jaxtyping import Float, Int

from listwright.training.recipe.data import SyntheticData

NEAR = 0.75
"""How far a decoy lies below a candidate in each of the two features at most, in their standard deviations."""


def context_effects(
    spec: SyntheticData,
    better: Float[np.ndarray, "R F"],
    kinds: Int[np.ndarray, " R"],
    offsets: Int[np.ndarray, " O"],
) -> Float[np.ndarray, " R"]:
    """What the list adds to the utility of every candidate.

    Definition, with a and b the last two numeric features, higher is better:
        decoy       + decoy * D_i, D_i = 1 if some j has 0 < a_i - a_j < NEAR and 0 < b_i - b_j < NEAR, else 0
                    (asymmetric dominance: a candidate that is slightly worse in both makes this one attractive)
        similarity  - similarity * log2 n_i, n_i candidates of the list are of the kind of i, itself included
                    (candidates of one kind take from each other)
        cheapest    + cheapest * C_i, C_i = 1 if n_i > 1 and none of its kind has a higher b, else 0
                    (the best offer of a kind draws attention, where there is something to compare it with)

    Args:
        spec: the three strengths.
        better: latent numeric features, each signed so that higher is better.
        kinds: the first categorical feature.
        offsets: query n owns rows ``offsets[n] : offsets[n + 1]``.

    Returns:
        ``(R,)`` float64; all 0 where all strengths are 0, and in lists of one candidate.
    """
    found = np.zeros(len(better))
    if not (spec.decoy or spec.similarity or spec.cheapest):
        return found
    for start, end in itertools.pairwise(offsets.tolist()):
        rows = slice(start, end)
        same = kinds[rows, None] == kinds[None, rows]
        counts = same.sum(axis=1)
        if spec.decoy:
            above = better[rows, None, -2:] - better[None, rows, -2:]  # (L, L, 2)
            found[rows] += spec.decoy * ((above > 0.0) & (above < NEAR)).all(axis=2).any(axis=1)
        b = better[rows, -1]
        best = (~same | (b[None, :] <= b[:, None])).all(axis=1)
        found[rows] -= spec.similarity * np.log2(counts)
        found[rows] += spec.cheapest * (best & (counts > 1))
    return found
