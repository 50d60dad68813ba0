"""The results of a listwise suite as arrays: seeds by queries, for every method and metric."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from jaxtyping import Float, Int

from listwright.ranking.metrics import EmptyQueries, EvalProtocol
from listwright.training.evaluation.evaluate import OTHERS
from listwright.training.evaluation.intervals import crossed_means, interval
from listwright.training.experiments.listwise.fits import NDCG_AT, TRUNCATED
from listwright.training.experiments.listwise.significance import PairedComparison, compare

CONVENTIONS: tuple[EmptyQueries, ...] = (0, 1, "drop")

METRICS = (*(f"ndcg@{k}" for k in NDCG_AT), *OTHERS)
"""All of them, under the full ideal."""

_METRICS = (*METRICS, *(f"ndcg@{k}{TRUNCATED}" for k in NDCG_AT))


@dataclass(frozen=True, slots=True)
class Measured:
    """Everything that was measured on one data set.

    Args:
        methods: in the order of the suite.
        seeds: S.
        values: ``values[method][metric]`` is ``(S, N)``, the queries in the same order everywhere; NDCG is NaN for a
            query without a relevant candidate.
        candidates, relevant: ``(N,)`` of every query.
        anomaly: ``(N,)`` mean over seeds; None where the suite does not ask for it.
        lambdas: the lambda of eq. (10) that each method's confusion weight equals, mean over fits.
        seconds: wall clock of a fit by method, mean over fits.
        chosen: of a method that takes over another one's results: which, and in how many seeds and folds.
        all_queries, features: of the data set with all its splits.
    """

    methods: tuple[str, ...]
    seeds: int
    values: Mapping[str, Mapping[str, Float[np.ndarray, "S N"]]]
    candidates: Int[np.ndarray, " N"]
    relevant: Int[np.ndarray, " N"]
    anomaly: Float[np.ndarray, " N"] | None
    lambdas: Mapping[str, float]
    seconds: Mapping[str, float]
    chosen: Mapping[str, Mapping[str, int]]
    all_queries: int
    features: int

    @property
    def queries(self) -> int:
        """N, the test queries of all folds."""
        return len(self.candidates)

    @property
    def empty(self) -> int:
        """Test queries without a relevant candidate."""
        return int((self.relevant == 0).sum())

    @property
    def is_choice(self) -> bool:
        """Whether a query has one relevant candidate at most: the paper's user-choice ranking."""
        return int(self.relevant.max()) <= 1

    def metrics(self) -> tuple[str, ...]:
        """Those that the paper has for such data, and MRR where one candidate is right."""
        if self.is_choice:
            return ("hit@1", "hit@5", "mrr")
        deepest = int(self.candidates.max())
        return tuple(f"ndcg@{k}" for k in NDCG_AT if k <= 10 or k <= deepest)

    def each(self, method: str, metric: str) -> Float[np.ndarray, "S N"]:
        """Per seed and query, empty queries counted 0."""
        return np.stack([EvalProtocol().apply(row) for row in self.values[method][metric]])

    def mean_sd(self, method: str, metric: str, empty: EmptyQueries = 0) -> tuple[float, float | None]:
        """Mean over queries, then mean and standard deviation over seeds; none of a single seed.

        Which queries are empty under the truncated ideal may differ by seed.
        """
        protocol = EvalProtocol(empty_queries=empty)
        over_queries = np.array([protocol.apply(row).mean() for row in self.values[method][metric]])
        spread = float(over_queries.std(ddof=1)) if self.seeds > 1 else None
        return float(over_queries.mean()), spread

    def mean(self, method: str, metric: str) -> float:
        """As :meth:`mean_sd`, empty queries counted 0."""
        return self.mean_sd(method, metric)[0]

    def best(self, methods: Sequence[str], metric: str) -> str:
        """The method with the highest mean, of those that are there."""
        return max((name for name in methods if name in self.methods), key=lambda name: self.mean(name, metric))

    def differences(self, method: str, rival: str, metric: str) -> Float[np.ndarray, "S N"]:
        """Per seed and query."""
        found: Float[np.ndarray, "S N"] = self.each(method, metric) - self.each(rival, metric)
        return found

    def bounds(self, method: str, metric: str) -> tuple[float, float]:
        """95 % interval of the mean, over queries and seeds."""
        low, high = interval(crossed_means(self.each(method, metric)))
        return float(low), float(high)

    def compared(self, family: Sequence[tuple[str, str, str]]) -> list[PairedComparison]:
        """Paired comparisons, each of metric, method and rival, corrected as one family."""
        one, other = (np.stack([self.each(names[place], names[0]) for names in family], axis=2) for place in (1, 2))
        return compare(family, one, other)


def by_shift(results: pl.DataFrame, methods: Sequence[str]) -> dict[float | None, Measured]:
    """The results of every planted shift; under None where nothing is planted."""
    return {
        shift: _measured(results.filter(pl.col("shift").eq_missing(pl.lit(shift, dtype=pl.Float64))), tuple(methods))
        for shift in results["shift"].unique(maintain_order=True).to_list()
    }


def _measured(results: pl.DataFrame, methods: tuple[str, ...]) -> Measured:
    seeds = results["seed"].n_unique()
    parts = {name: results.filter(pl.col("method") == name).sort("seed", "fold", "qid") for name in methods}
    first = parts[methods[0]]
    queries = len(first) // seeds
    keys = first.select("fold", "qid")
    assert all(part.select("fold", "qid").equals(keys) for part in parts.values()), "methods are paired by query"

    def square(part: pl.DataFrame, column: str) -> Float[np.ndarray, "S N"]:
        return part[column].cast(pl.Float64).fill_null(float("nan")).to_numpy().reshape(seeds, queries)

    anomaly = None if first["anomaly"].null_count() else square(first, "anomaly").mean(axis=0)
    return Measured(
        methods=methods,
        seeds=seeds,
        values={name: {metric: square(part, metric) for metric in _METRICS} for name, part in parts.items()},
        candidates=first["candidates"].to_numpy()[:queries],
        relevant=first["relevant"].to_numpy()[:queries],
        anomaly=anomaly,
        lambdas={name: _mean_of(part, "lambda_of_eq_10") for name, part in parts.items()},
        seconds={name: _mean_of(part, "seconds") for name, part in parts.items()},
        chosen={name: _counted(part) for name, part in parts.items() if part["chosen"].null_count() == 0},
        all_queries=int(first["all_queries"][0]),
        features=int(first["features"][0]),
    )


def _mean_of(part: pl.DataFrame, column: str) -> float:
    return float(part[column].to_numpy().mean())


def _counted(part: pl.DataFrame) -> dict[str, int]:
    once = part.unique(["seed", "fold"])["chosen"].value_counts(sort=True)
    return dict(once.iter_rows())
