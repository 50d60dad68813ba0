"""How much of a feature's variance lies between lists: the intraclass correlation of its values, lists as classes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from listwright.training.data.dataset import Dataset
from listwright.training.stored.rows import columns


@dataclass(frozen=True, slots=True)
class Spread:
    """What is known of one numeric feature.

    Args:
        feature: its name.
        between: the intraclass correlation, in [0, 1]; None where it is not defined.
        missing: share of the rows without a value.
    """

    feature: str
    between: float | None
    missing: float


def spreads(data: Dataset) -> tuple[Spread, ...]:
    """The numeric features, the one with the largest share between lists first; those without a share last."""
    list_of = np.repeat(np.arange(len(data)), data.lengths)
    found = []
    for feature, values in zip(data.schema.features, columns(data.features), strict=True):
        if feature.kind == "numeric":
            share = intraclass_correlation(values, list_of)
            found.append(Spread(feature.name, share, float(np.isnan(values).mean())))
    return tuple(sorted(found, key=lambda spread: -1.0 if spread.between is None else spread.between, reverse=True))


def intraclass_correlation(values: Float[np.ndarray, " R"], list_of: Int[np.ndarray, " R"]) -> float | None:
    """ICC(1) of one-way analysis of variance with lists of unequal length (Donner, Int. Stat. Rev. 54, 1986).

    Definition, over N values in k lists of n_1 .. n_k values; missing values and lists without values are left out:
        MSB = sum_j n_j (mean_j - mean)^2 / (k - 1)
        MSW = sum_ij (x_ij - mean_j)^2 / (N - k)
        n_0 = (N - sum_j n_j^2 / N) / (k - 1)
        ICC = (MSB - MSW) / (MSB + (n_0 - 1) MSW), clipped to [0, 1]

    Args:
        values: ``(R,)`` NaN = missing; no value is infinite.
        list_of: ``(R,)`` number of each value's list.

    Returns:
        1 for values that are constant within lists only, about 0 for values that do not depend on the list; None if
        it is not defined: all values equal, fewer than two lists, or no list with two values.

    Convention: an estimate below 0, which chance gives where the list does not matter, counts as 0.
    """
    present = ~np.isnan(values)
    _, places, counts = np.unique(list_of[present], return_inverse=True, return_counts=True)
    kept = values[present].astype(np.float64)
    lists, total = len(counts), len(kept)
    if lists < 2 or total == lists or kept.min() == kept.max():
        return None
    kept = kept - kept.mean()  # a large level would cost the squares their digits
    kept /= np.abs(kept).max()
    means = np.bincount(places, weights=kept) / counts
    between = float(counts @ (means - kept.mean()) ** 2) / (lists - 1)
    within = float(((kept - means[places]) ** 2).sum()) / (total - lists)
    length = (total - float(counts @ counts) / total) / (lists - 1)
    return float(np.clip((between - within) / (between + (length - 1.0) * within), 0.0, 1.0))
