"""What a router sees of a list: a fixed number of aggregates of its candidates and of their scores."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from jaxtyping import Float, Int

from ranking.features import FeatureSchema

TOP = 10
"""How many of the first stage's best make up "the top"."""

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
        self._numeric = [d for d in range(len(schema)) if d not in schema.categorical]
        self._holey = [i for i, d in enumerate(self._numeric) if schema.features[d].missing_in_training]
        self._shares = [
            (d, len(schema.features[d].categories) + 1)
            for d in schema.categorical
            if len(schema.features[d].categories) <= MAX_CATEGORIES
        ]
        self._pairs = tuple(np.array(list(combinations(range(specialists), 2))).reshape(-1, 2).T)
        self.names = self._names(schema, specialists)

    @property
    def numeric(self) -> int:
        """How many numeric features there are: the width of :meth:`top_means`."""
        return len(self._numeric)

    def _names(self, schema: FeatureSchema, specialists: int) -> tuple[str, ...]:
        numbers = [schema.names[d] for d in self._numeric]
        names = [f"{what} of {name}{over}" for over in ("", " in the top") for what in _STATISTICS for name in numbers]
        names += [f"share of {numbers[i]} missing" for i in self._holey]
        for d, _ in self._shares:
            values = ("unknown", *schema.features[d].categories)
            names += [f"share of {schema.names[d]} = {value}" for value in values]
        names += [f"first stage {what}" for what in ("best", "gap", "std", "entropy")]
        names += ["length", "anomaly"]
        names += [f"entropy of specialist {k}" for k in range(specialists)]
        names += [f"tau of specialists {j} and {k}" for j, k in combinations(range(specialists), 2)]
        return tuple(names)

    def top_means(
        self, features: Float[np.ndarray, "L D"], by_first_stage: Int[np.ndarray, " L"]
    ) -> Float[np.ndarray, " M"]:
        """Mean of every numeric feature over the first stage's top: what the anomaly score looks at.

        Convention: NaN where all of them are missing.
        """
        means: Float[np.ndarray, " M"] = _statistics(features[by_first_stage[:TOP]][:, self._numeric])[0]
        return means.astype(np.float32)

    def of(
        self,
        features: Float[np.ndarray, "L D"],
        first_scores: Float[np.ndarray, " L"],
        by_first_stage: Int[np.ndarray, " L"],
        anomaly: float,
        scores: Float[np.ndarray, "C K"],
        scored: Int[np.ndarray, " C"],
    ) -> Float[np.ndarray, " A"]:
        """The aggregates of one list.

        Args:
            features: raw, in schema order.
            first_scores: of the first stage.
            by_first_stage: the order that they give.
            anomaly: of this list.
            scores: of the K specialists.
            scored: the candidates that these belong to.

        Returns:
            ``(A,)`` float32, in the order of :attr:`names`; NaN where a feature has no value in the list.
        """
        top = by_first_stage[:TOP]
        numbers = features[:, self._numeric]
        parts = [*_statistics(numbers), *_statistics(numbers[top])]
        parts.append(np.isnan(numbers[:, self._holey]).mean(axis=0))
        for column, size in self._shares:
            codes = np.nan_to_num(features[:, column]).astype(np.int64)
            codes[(codes < 0) | (codes >= size)] = 0
            parts.append(np.bincount(codes, minlength=size) / len(codes))
        best = first_scores[top]
        gap = best[0] - best[1] if len(best) > 1 else 0.0
        parts.append(np.array([best[0], gap, first_scores.std(), entropy(first_scores[:, None])[0]]))
        parts.append(np.array([len(features), anomaly]))
        parts.append(entropy(scores))
        parts.append(self._tau(scores[np.isin(scored, top, assume_unique=True)]))
        return np.concatenate(parts).astype(np.float32)

    def _tau(self, scores: Float[np.ndarray, "T K"]) -> Float[np.ndarray, " P"]:
        """Kendall's tau-a of every two columns; 1 for a single candidate."""
        one, other = np.triu_indices(len(scores), k=1)
        if len(one) == 0:
            return np.ones(len(self._pairs[0]))
        signs = np.sign(scores[one] - scores[other]).astype(np.float64)
        tau: Float[np.ndarray, "K K"] = (signs.T @ signs) / len(one)
        pairs: Float[np.ndarray, " P"] = tau[self._pairs]
        return pairs


def entropy(scores: Float[np.ndarray, "C K"]) -> Float[np.ndarray, " K"]:
    """Entropy of the softmax of every column, in nats."""
    shifted = scores.astype(np.float64) - scores.max(axis=0)
    weights = np.exp(shifted)
    total = weights.sum(axis=0)
    found: Float[np.ndarray, " K"] = np.log(total) - (weights * shifted).sum(axis=0) / total
    return found


def _statistics(numbers: Float[np.ndarray, "L M"]) -> Float[np.ndarray, "4 M"]:
    """Mean, standard deviation, minimum and maximum of what is there in every column; NaN where nothing is."""
    values = numbers.astype(np.float64)
    missing = np.isnan(values)
    if not missing.any():
        return np.stack([values.mean(axis=0), values.std(axis=0), values.min(axis=0), values.max(axis=0)])
    count = len(values) - missing.sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(missing, 0.0, values).sum(axis=0) / count
        spread = np.sqrt(np.where(missing, 0.0, np.square(values - mean)).sum(axis=0) / count)
    low = np.where(missing, np.inf, values).min(axis=0)
    high = np.where(missing, -np.inf, values).max(axis=0)
    absent = count == 0
    return np.stack([mean, spread, np.where(absent, np.nan, low), np.where(absent, np.nan, high)])
