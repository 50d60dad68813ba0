"""List aggregates of a fixed number: the input of the router and of the anomaly score."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from itertools import combinations
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from listwright.ranking.compiled import list_statistics
from listwright.ranking.features import FeatureSchema
from listwright.ranking.order import best, rank_by_score
from listwright.ranking.scorers import Scorer

list_summary: Any
try:
    list_summary = import_module("listwright.ranking.compiled.list_summary")
except ImportError:  # there was no C compiler
    list_summary = None

statistics: Any = list_summary or list_statistics

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
        schema: Schema of the feature columns.
        specialists: Number K of specialists.
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
        self._top_means = slice(4 * len(numeric), 5 * len(numeric))
        self.names = self._names(schema, specialists)

    @property
    def numeric(self) -> int:
        """Number of numeric features: the width of :meth:`top_means`."""
        return len(self._numeric)

    def _names(self, schema: FeatureSchema, specialists: int) -> tuple[str, ...]:
        numeric = [schema.names[d] for d in self._numeric]
        names = [f"{what} of {name}{over}" for over in ("", " in the top") for what in _STATISTICS for name in numeric]
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
        """Return the mean of every numeric feature over the first stage's top: the input of the anomaly score.

        Convention: NaN where all of them are missing.
        """
        values = np.empty(8 * self.numeric, dtype=np.float32)
        statistics.numbers(features, self._numeric, best(TOP, by_first_stage, first_scores, features), values)
        return values[self._top_means]

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
            features: ``(L, D)`` raw features, in schema order.
            first_scores: ``(L,)`` scores of the first stage.
            by_first_stage: ``(L,)`` indices of the candidates in the order that these scores give.
            anomaly: Function from the result of :meth:`top_means` to the anomaly score.
            scores: ``(C, K)`` scores of the K specialists.
            scored: ``(C,)`` indices of the candidates that these scores belong to.

        Returns:
            ``(A,)`` float32, in the order of :attr:`names`; NaN where a feature has no value in the list.
        """
        top = best(TOP, by_first_stage, first_scores, features)
        values = np.empty(len(self.names), dtype=np.float32)
        end = 8 * self.numeric
        statistics.numbers(features, self._numeric, top, values[:end])
        if self._holey or self._categorical:
            shares = list(self._shares(features))
            values[end : end + len(shares)] = shares
            end += len(shares)
        statistics.first_stage(first_scores, top, values[end : end + 4])
        values[end + 4] = len(features)
        values[end + 5] = anomaly(values[self._top_means])
        at = top if len(scored) == len(features) else np.searchsorted(scored, top[np.isin(top, scored)])
        statistics.agreement(scores, at, values[end + 6 :])
        return values

    def _shares(self, features: Float[np.ndarray, "L D"]) -> Iterator[float]:
        """Yield the share of missing values of each column that may have some, then the share of every category."""
        for column in self._holey:
            yield float(np.isnan(features[:, column]).mean())
        for column, size in self._categorical:
            codes = np.nan_to_num(features[:, column]).astype(np.int64)
            codes[(codes < 0) | (codes >= size)] = 0
            yield from np.bincount(codes, minlength=size) / len(codes)


class AnomalyScore:
    """Anomaly score of a list, in (0, 1): the higher, the less it is like the training queries. Threads may share it.

    Args:
        aggregates: List aggregates, which are the forest's input.
        graph: ONNX graph ``(1, M) -> (1, 1)`` of the forest.
    """

    def __init__(self, aggregates: Aggregates, graph: Scorer) -> None:
        self._aggregates, self._graph = aggregates, graph

    def of(self, features: Float[np.ndarray, "L D"], first_scores: Float[np.ndarray, " L"]) -> float:
        """Return the score of one list.

        Args:
            features: ``(L, D)`` raw features, in schema order.
            first_scores: ``(L,)`` finite scores of the first stage.

        Raises:
            ScoringError: if the graph fails.
        """
        return float(self.of_means(self.means(features, first_scores)[None])[0])

    def means(
        self, features: Float[np.ndarray, "L D"], first_scores: Float[np.ndarray, " L"]
    ) -> Float[np.ndarray, " M"]:
        """Return the input of the score: each numeric feature's mean over the first stage's top; see :meth:`of`."""
        return self._aggregates.top_means(features, first_scores, rank_by_score(first_scores))

    def of_means(self, means: Float[np.ndarray, "rows M"]) -> Float[np.ndarray, " rows"]:
        """Return ``(rows,)`` the score of each row of means.

        Raises:
            ScoringError: if the graph fails.
        """
        return self._graph.score(means)[:, 0]
