"""Reliability of stated probabilities: log loss, and calibration error beside what chance alone gives.

Candidates of one list are not independent: what is relevant to one query comes together. So chance is drawn by lists:
the residuals of a whole list change their sign together (wild bootstrap).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist

import numpy as np
from jaxtyping import Bool, Float, Int

from listwright.training.evaluation.bootstrap import group_units
from listwright.training.evaluation.intervals import ALPHA, FEWEST

RELIABILITY = ("log_loss", "ece")
"""Metrics of probabilities; lower is better."""

MOST_BINS = 10

DRAWS = 999
"""Draws of the error that right probabilities have by chance."""

LISTS_PER_BIN = 5
"""Fewest lists of a bin; fewer lists get fewer bins."""

LEAST = 1e-12
"""Probability of what happened below which log loss grows no further."""


@dataclass(frozen=True)
class StatedProbabilities:
    """Probabilities of the candidates of N lists to be relevant, and whether they are.

    Candidates are put into bins by probability, so that each bin holds about as many expected relevant ones as any
    other; those of equal probability share one.

    Args:
        lengths: ``(N,)`` numbers of candidates of the lists.
        probability: ``(R,)`` stated probabilities, list by list.
        relevant: ``(R,)`` whether each candidate is relevant.
        weights: ``(N,)`` weights of the lists' candidates; if all are 0, the error is that of equal ones.
    """

    lengths: Int[np.ndarray, " N"]
    probability: Float[np.ndarray, " R"]
    relevant: Bool[np.ndarray, " R"]
    weights: Float[np.ndarray, " N"]

    @cached_property
    def _list_of(self) -> Int[np.ndarray, " R"]:
        return np.repeat(np.arange(len(self.lengths)), self.lengths)

    @cached_property
    def _row_weights(self) -> Float[np.ndarray, " R"]:
        return np.repeat(self.weights if self.weights.any() else np.ones(len(self.weights)), self.lengths)

    def select(self, lists: Int[np.ndarray, " M"]) -> StatedProbabilities:
        """Return the probabilities of some lists, given by their numbers in rising order."""
        rows = np.isin(self._list_of, lists)
        return StatedProbabilities(
            self.lengths[lists], self.probability[rows], self.relevant[rows], self.weights[lists]
        )

    @property
    def candidate_weights(self) -> Float[np.ndarray, " N"]:
        """Weights of the lists in means over candidates."""
        weights: Float[np.ndarray, " N"] = self.weights * self.lengths
        return weights

    def log_losses(self) -> Float[np.ndarray, " N"]:
        """Return the mean log loss of each list's candidates."""
        losses = -np.log(np.maximum(np.where(self.relevant, self.probability, 1.0 - self.probability), LEAST))
        means: Float[np.ndarray, " N"] = np.bincount(self._list_of, losses, len(self.lengths)) / self.lengths
        return means

    @cached_property
    def bins(self) -> Int[np.ndarray, " R"]:
        """Number of each candidate's bin."""
        group = np.unique(self.probability, return_inverse=True)[1]
        expected = np.bincount(group, self.probability * self._row_weights)
        middle = (np.cumsum(expected) - expected / 2.0) / expected.sum()
        most = max(1, min(MOST_BINS, len(self.lengths) // LISTS_PER_BIN))
        places = np.minimum((middle * most).astype(np.int64), most - 1)
        return np.unique(places, return_inverse=True)[1][group]

    @cached_property
    def _sums(self) -> tuple[Float[np.ndarray, "units bins"], ...]:
        """Candidates, probability and relevant ones of each list in each bin; of many lists, of groups of them."""
        count, size = int(self.bins.max()) + 1, len(self.lengths)
        place = self._list_of * count + self.bins
        columns = [
            np.bincount(place, values * self._row_weights, size * count).reshape(size, count)
            for values in (np.ones(len(place)), self.probability, self.relevant)
        ]
        grouped = group_units(np.concatenate(columns, axis=1), np.random.default_rng(0))
        return tuple(np.split(grouped, 3, axis=1))

    @cached_property
    def _signs(self) -> Float[np.ndarray, "draws units"]:
        return np.random.default_rng(0).choice([-1.0, 1.0], (DRAWS, len(self._sums[0])))

    @cached_property
    def ece(self) -> float:
        """Expected calibration error: ``sum_bins share of candidates * |mean probability - share of relevant ones|``.

        Noise adds to it, so it is above 0 even if every probability is right.
        """
        candidates, stated, relevant = self._sums
        return float(np.abs((stated - relevant).sum(axis=0)).sum() / candidates.sum())

    @cached_property
    def by_chance(self) -> Float[np.ndarray, " draws"]:
        """Errors that right probabilities would have by chance."""
        candidates, stated, relevant = self._sums
        errors: Float[np.ndarray, " draws"] = np.abs(self._signs @ (stated - relevant)).sum(axis=1) / candidates.sum()
        return errors

    def facts(self) -> dict[str, object]:
        """Return the expected calibration error and the bins of the diagram.

        Returns:
            ``ece``; ``by_chance``, the mean and the 95 % quantile of it if all probabilities are right; ``p``, the
            share of draws, the data among them, whose error is at least that of the data; per bin: candidates, mean
            probability, share of relevant ones and its 95 % interval over lists.
        """
        candidates, stated, relevant = (of_lists.sum(axis=0) for of_lists in self._sums)
        with np.errstate(invalid="ignore", divide="ignore"):  # a bin may have lists of weight 0 alone
            shares = relevant / candidates
            gaps = self._signs @ (self._sums[2] - shares * self._sums[0]) / candidates
            half = np.quantile(np.abs(gaps), 1.0 - ALPHA, axis=0)
            ends = np.clip([shares - half, shares + half], 0.0, 1.0)
            rows = np.round([stated / candidates, shares, *ends], 6).T[candidates > 0.0].tolist()
        sizes = np.bincount(self.bins)[candidates > 0.0].tolist()
        return {
            "ece": self.ece,
            "by_chance": {"mean": float(self.by_chance.mean()), "high": float(np.quantile(self.by_chance, 1 - ALPHA))},
            "p": float((1 + np.count_nonzero(self.by_chance >= self.ece * (1.0 - 1e-9))) / (1 + DRAWS)),
            "columns": ["candidates", "probability", "chosen", "low", "high"],
            "bins": [[size, *row] for size, row in zip(sizes, rows, strict=True)],
        }

    def error_interval(self, alpha: float = ALPHA) -> tuple[float, float]:
        """Return an interval of the expected calibration error without noise, for these bins.

        The lower end subtracts what chance gives. The upper end is the normal bound over lists of the signed
        residuals, which noise makes too large rather than too small.

        Args:
            alpha: Probability that the error lies outside.
        """
        if np.count_nonzero(self.weights) < FEWEST:
            return 0.0, 1.0
        candidates, stated, relevant = self._sums
        signed = (stated - relevant) @ np.where((stated - relevant).sum(axis=0) < 0.0, -1.0, 1.0)
        spread = float(np.linalg.norm(signed - self.ece * candidates.sum(axis=1)) / candidates.sum())
        low = self.ece - float(np.quantile(self.by_chance, 1.0 - alpha / 2.0))
        return max(0.0, low), min(1.0, self.ece + NormalDist().inv_cdf(1.0 - alpha / 2.0) * spread)


def join_lists(parts: Sequence[StatedProbabilities]) -> StatedProbabilities:
    """Return the probabilities of the lists of all parts."""
    columns = zip(*((part.lengths, part.probability, part.relevant, part.weights) for part in parts), strict=True)
    return StatedProbabilities(*map(np.concatenate, columns))
