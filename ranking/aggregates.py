"""Aggregates of a list, of a fixed number: what the router and the anomaly score see of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import combinations

import numpy as np
from jaxtyping import Float, Int

from listwright.ranking.features import FeatureSchema
from listwright.ranking.order import best, rank_by_score
from listwright.ranking.scorers import Scorer

TOP = 10
"""How many of the first stage's best (:func:`listwright.ranking.order.best`) make up "the top"."""

MAX_CATEGORIES = 32
"""A categorical feature with more values has no aggregates: a share of each would drown the others."""

_STATISTICS = ("mean", "std", "min", "max")


class Aggregates:
    """List aggregates in one fixed order.

    For every numeric feature mean, standard deviation, minimum and maximum, over the list and over its top; the share
    of missing values where training saw some; the share of every category. Of the first stage's scores: best, gap
    between the best two, standard deviation, and entropy of their softmax. The list's length. The anomaly score. Every
    specialist's entropy, and Kendall's tau of every two specialists over the top: where they agree, routing does not
    matter.

    Args:
        schema: of the feature columns.
        specialists: K.
    """

    def __init__(self, schema: FeatureSchema, specialists: int) -> None:
        numeric = list(schema.numeric)
        self._numeric = np.array(numeric, dtype=np.int32)
        self._holey = [d for d in numeric if schema.features[d].missing_in_training]
        self._categorical = [
            (d, len(schema.features[d].categories) + 1)
            for d in schema.categorical
            if len(schema.features[d].categories) <= MAX_CATEGORIES
        ]
        self.names = self._names(schema, specialists)

    @property
    def numeric(self) -> int:
        """How many numeric features there are: the width of :meth:`top_means`."""
        return len(self._numeric)

    def _names(self, schema: FeatureSchema, specialists: int) -> tuple[str, ...]:
        numbers = [schema.names[d] for d in self._numeric]
        names = [f"{what} of {name}{over}" for over in ("", " in the top") for what in _STATISTICS for name in numbers]
        names += [f"share of {schema.names[d]} missing" for d in self._holey]
        for d, _ in self._categorical:
            values = ("unknown", *schema.features[d].categories)
            names += [f"share of {schema.names[d]} = {value}" for value in values]
        names += [f"first stage {what}" for what in ("best", "gap", "std", "entropy")]
        names += ["length", "anomaly"]
        names += [f"entropy of specialist {k}" for k in range(specialists)]
        names += [f"tau of specialists {j} and {k}" for j, k in combinations(range(specialists), 2)]
        return tuple(names)

    def top_means(
        self,
        features: Float[np.ndarray, "L D"],
        first_scores: Float[np.ndarray, " L"],
        by_first_stage: Int[np.ndarray, " L"],
    ) -> Float[np.ndarray, " M"]:
        """Mean of every numeric feature over the first stage's top: what the anomaly score looks at.

        Args:
            features, first_scores, by_first_stage: as for :meth:`of`.

        Convention: NaN where all of them are missing.
        """
        top = features[best(TOP, by_first_stage, first_scores, features)]
        means: Float[np.ndarray, " M"] = _statistics(top[:, self._numeric])[0].astype(np.float32)
        return means

    def of(
        self,
        features: Float[np.ndarray, "L D"],
        first_scores: Float[np.ndarray, " L"],
        by_first_stage: Int[np.ndarray, " L"],
        anomaly: Callable[[Float[np.ndarray, " M"]], float],
        scores: Float[np.ndarray, "C K"],
        scored: Int[np.ndarray, " C"],
    ) -> Float[np.ndarray, " A"]:
        """Return the aggregates of one list.

        Args:
            features: raw, in schema order.
            first_scores: of the first stage.
            by_first_stage: the order that they give.
            anomaly: from :meth:`top_means` to the anomaly score.
            scores: of the K specialists.
            scored: the candidates that these belong to.

        Returns:
            ``(A,)`` float32, in the order of :attr:`names`; NaN where a feature has no value in the list.
        """
        top = best(TOP, by_first_stage, first_scores, features)
        numbers = features[:, self._numeric]
        over_list = _statistics(numbers)
        over_top = over_list if len(top) == len(features) else _statistics(numbers[top])
        at = top if len(scored) == len(features) else np.searchsorted(scored, top[np.isin(top, scored)])
        parts = (
            over_list.ravel(),
            over_top.ravel(),
            list(self._shares(features)),
            _score_summary(first_scores, top),
            (len(features), anomaly(over_top[0].astype(np.float32))),
            _agreement(scores, at),
        )
        return np.concatenate(parts).astype(np.float32)

    def _shares(self, features: Float[np.ndarray, "L D"]) -> Iterator[float]:
        """Of missing values, and of every category."""
        for column in self._holey:
            yield float(np.isnan(features[:, column]).mean())
        for column, size in self._categorical:
            codes = np.nan_to_num(features[:, column]).astype(np.int64)
            codes[(codes < 0) | (codes >= size)] = 0
            yield from np.bincount(codes, minlength=size) / len(codes)


def _statistics(numbers: Float[np.ndarray, "L M"]) -> Float[np.ndarray, "4 M"]:
    """Mean, standard deviation, minimum and maximum of the values of each column that are there; NaN where none is."""
    values = numbers.astype(np.float64)
    missing = np.isnan(values)
    if not missing.any():
        mean = values.sum(axis=0) / len(values)
        apart = values - mean
        spread = np.sqrt((apart * apart).sum(axis=0) / len(values))
        return np.stack([mean, spread, values.min(axis=0), values.max(axis=0)])
    count = len(values) - missing.sum(axis=0)
    absent = count == 0
    count[absent] = 1
    mean = np.where(missing, 0.0, values).sum(axis=0) / count
    apart = np.where(missing, 0.0, values - mean)
    spread = np.sqrt((apart * apart).sum(axis=0) / count)
    low, high = (np.where(missing, end, values) for end in (np.inf, -np.inf))
    statistics = np.stack([mean, spread, low.min(axis=0), high.max(axis=0)])
    statistics[:, absent] = np.nan
    return statistics


def _score_summary(scores: Float[np.ndarray, " L"], top: Int[np.ndarray, " T"]) -> tuple[float, float, float, float]:
    """Best, gap between the best two, standard deviation and entropy of the softmax, in nats."""
    highest = scores[top[0]]
    weights = np.exp(scores - highest)
    entropy = np.log(weights.sum()) - weights @ (scores - highest) / weights.sum()
    return highest, highest - scores[top[1]] if len(top) > 1 else 0.0, scores.std(), entropy


def _agreement(scores: Float[np.ndarray, "C K"], at: Int[np.ndarray, " T"]) -> Float[np.ndarray, " S"]:
    """Return the entropy of the softmax of every column, in nats; then Kendall's tau-a of every two over the rows
    ``at``, 1 for a single row.
    """
    shifted = scores.astype(np.float64) - scores.max(axis=0)
    weights = np.exp(shifted)
    total = weights.sum(axis=0)
    entropies = np.log(total) - (weights * shifted).sum(axis=0) / total
    pairs = _pairs(scores.shape[1])
    one, other = _pairs(len(at))
    if len(one) == 0:
        return np.concatenate([entropies, np.ones(len(pairs[0]))])
    signs = np.sign(scores[at[one]] - scores[at[other]])
    return np.concatenate([entropies, (signs.T @ signs)[pairs] / len(one)])


@lru_cache
def _pairs(count: int) -> tuple[Int[np.ndarray, " P"], Int[np.ndarray, " P"]]:
    """Every two of so many, in the order of :func:`itertools.combinations`."""
    one, other = np.triu_indices(count, k=1)
    return one, other


class AnomalyScore:
    """Higher is stranger, in (0, 1) for a fitted forest. Threads may share it.

    Args:
        aggregates: give what the forest looks at.
        graph: ``(1, M) -> (1, 1)``.
    """

    def __init__(self, aggregates: Aggregates, graph: Scorer) -> None:
        self._aggregates, self._graph = aggregates, graph

    def of(self, features: Float[np.ndarray, "L D"], first_scores: Float[np.ndarray, " L"]) -> float:
        """Return the score of one list.

        Args:
            features: raw, in schema order.
            first_scores: of the first stage, finite.

        Raises:
            ScoringError: if the graph fails.
        """
        return float(self.of_means(self.means(features, first_scores)[None])[0])

    def means(
        self, features: Float[np.ndarray, "L D"], first_scores: Float[np.ndarray, " L"]
    ) -> Float[np.ndarray, " M"]:
        """Return what the score looks at: each numeric feature's mean over the first stage's top; see :meth:`of`."""
        return self._aggregates.top_means(features, first_scores, rank_by_score(first_scores))

    def of_means(self, means: Float[np.ndarray, "n M"]) -> Float[np.ndarray, " n"]:
        """``(n,)`` the score of each row of means.

        Raises:
            ScoringError: if the graph fails.
        """
        return self._graph.score(means)[:, 0]
