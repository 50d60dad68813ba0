"""What a router sees of a list: a fixed number of aggregates of its candidates and of their scores."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
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
        self._all_numeric = len(self._numeric) == len(schema)
        self._holey = [i for i, d in enumerate(self._numeric) if schema.features[d].missing_in_training]
        self._shares = [
            (d, len(schema.features[d].categories) + 1)
            for d in schema.categorical
            if len(schema.features[d].categories) <= MAX_CATEGORIES
        ]
        self._pairs = tuple(np.array(list(combinations(range(specialists), 2)), dtype=np.int64).reshape(-1, 2).T)
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
        return _means(_statistics(features[by_first_stage[:TOP]][:, self._numeric]))

    def of(
        self,
        features: Float[np.ndarray, "L D"],
        first_scores: Float[np.ndarray, " L"],
        by_first_stage: Int[np.ndarray, " L"],
        anomaly: Callable[[Float[np.ndarray, " M"]], float],
        scores: Float[np.ndarray, "C K"],
        scored: Int[np.ndarray, " C"],
    ) -> Float[np.ndarray, " A"]:
        """The aggregates of one list.

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
        top = by_first_stage[:TOP]
        numbers = features if self._all_numeric else features[:, self._numeric]
        whole = _statistics(numbers)
        of_top = whole if len(top) == len(features) else _statistics(numbers[top])
        best = first_scores[top]
        gap = best[0] - best[1] if len(best) > 1 else 0.0
        shares = []
        for column, size in self._shares:
            codes = np.nan_to_num(features[:, column]).astype(np.int64)
            codes[(codes < 0) | (codes >= size)] = 0
            shares.append(np.bincount(codes, minlength=size) / len(codes))
        seen: Float[np.ndarray, " A"] = np.concatenate(
            [
                whole.ravel(),
                of_top.ravel(),
                np.isnan(numbers[:, self._holey]).mean(axis=0) if self._holey else (),
                *shares,
                (best[0], gap, first_scores.std(), entropy(first_scores[:, None])[0]),
                (len(features), anomaly(_means(of_top))),
                entropy(scores),
                self._tau(scores[np.searchsorted(scored, top[: len(scored)])]),
            ],
            dtype=np.float32,
            casting="same_kind",
        )
        return seen

    def _tau(self, scores: Float[np.ndarray, "T K"]) -> Float[np.ndarray, " P"]:
        """Kendall's tau-a of every two columns; 1 for a single candidate."""
        one, other = _every_two(len(scores))
        if len(one) == 0:
            return np.ones(len(self._pairs[0]))
        signs = np.sign(scores[one] - scores[other])
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


def _means(statistics: Float[np.ndarray, "4 M"]) -> Float[np.ndarray, " M"]:
    means: Float[np.ndarray, " M"] = statistics[0].astype(np.float32)
    return means


@lru_cache
def _every_two(count: int) -> tuple[np.ndarray, np.ndarray]:
    one, other = np.triu_indices(count, k=1)
    return one, other


def _statistics(numbers: Float[np.ndarray, "L M"]) -> Float[np.ndarray, "4 M"]:
    """Mean, standard deviation, minimum and maximum of what is there in every column; NaN where nothing is."""
    found = np.empty((4, numbers.shape[1]))
    mean, spread, low, high = found
    values = numbers.astype(np.float64)
    np.add.reduce(values, axis=0, out=mean)
    if np.isnan(mean).any():
        return _of_present(values, found)
    mean /= len(values)
    np.minimum.reduce(values, axis=0, out=low)
    np.maximum.reduce(values, axis=0, out=high)
    values -= mean
    np.sqrt(np.einsum("lm,lm->m", values, values) / len(values), out=spread)
    return found


def _of_present(values: Float[np.ndarray, "L M"], found: Float[np.ndarray, "4 M"]) -> Float[np.ndarray, "4 M"]:
    """The same where values are missing."""
    missing = np.isnan(values)
    count = len(values) - missing.sum(axis=0)
    absent = count == 0
    count[absent] = 1
    mean = np.where(missing, 0.0, values).sum(axis=0) / count
    centred = np.where(missing, 0.0, values - mean)
    found[0] = mean
    found[1] = np.sqrt(np.einsum("lm,lm->m", centred, centred) / count)
    found[2] = np.where(missing, np.inf, values).min(axis=0)
    found[3] = np.where(missing, -np.inf, values).max(axis=0)
    found[:, absent] = np.nan
    return found
