"""Click rates of the same candidates at two places: what both ways of finding them have in common."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float, Int

from listwright.training.comparing.estimates import resamples

MOST_GROUPS = 500
"""Units, or requests, are dealt to so many groups, which the bootstrap draws."""

Way = Literal["swaps", "harvest"]


@dataclass(frozen=True, slots=True)
class Evidence:
    """Sums over groups of queries; the groups are the same in all strata.

    Args:
        way: how the pairs came about.
        pairs: ``(P, 2)`` places from 0, the upper one first.
        strata: of each stratum ``(G, P, 2, 3)``: of each group, pair and variant the displays, and the clicks at the
            upper and at the lower place. A swap has two variants, as ranked and swapped, whose rates are averaged.
            Harvested pairs have one stratum. Their
            first variant has sums of click rates over candidates, their second the displays and clicks themselves.
        queries: that were looked at.
        used: swaps; or the requests that came in different orders.
    """

    way: Way
    pairs: Int[np.ndarray, "P 2"]
    strata: tuple[Float[np.ndarray, "_ P 2 3"], ...]
    queries: int
    used: int

    def whole(self) -> Float[np.ndarray, "P 3"]:
        """``(P, 3)`` of each pair: n, clicks at its upper place, clicks at its lower place, as if of n displays."""
        sums = [stratum.sum(axis=0)[None] for stratum in self.strata]
        (found,) = self._balanced(sums)
        whole: Float[np.ndarray, "P 3"] = found
        return whole

    def resampled(self, samples: int, rng: np.random.Generator) -> Iterator[Float[np.ndarray, "P 3"]]:
        """The same in bootstrap samples of the groups, which are the same in all strata."""
        times = resamples(len(self.strata[0]), samples, rng)
        drawn = []
        for stratum in self.strata:
            parts = [counts @ stratum.reshape(len(stratum), -1) for counts in times]
            drawn.append(np.concatenate(parts).reshape(samples, *stratum.shape[1:]))
        yield from self._balanced(drawn)

    def _balanced(self, sums: list[Float[np.ndarray, "M P 2 3"]]) -> Float[np.ndarray, "M P 3"]:
        """Both variants of a swap count alike, so that each place held the same candidates equally often."""
        if self.way == "harvest":
            rates: Float[np.ndarray, "M P 3"] = sums[0][:, :, 0]
            return rates
        total: Float[np.ndarray, "M P 3"] = np.zeros((len(sums[0]), len(self.pairs), 3))
        for one in sums:
            shown = one[..., 0]  # (M, P, 2)
            rates = one[..., 1:] / np.maximum(shown, 1.0)[..., None]
            both = shown.prod(axis=2) / np.maximum(shown.sum(axis=2), 1.0)  # variance of a mean of two rates
            total += np.concatenate([both[..., None], both[..., None] * rates.mean(axis=2)], axis=2)
        return total
