"""Results of a listwise suite as arrays, seeds by queries, and their paired comparisons.

A paired comparison of two methods has Student's t, a bootstrap interval, and Holm's correction for asking many times.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import polars as pl
from jaxtyping import Float, Int
from scipy import stats

from listwright.ranking.metrics import EmptyQueries, EvalProtocol
from listwright.training.evaluation.bootstrap import percentile_interval
from listwright.training.evaluation.intervals import Verdict, verdict_of
from listwright.training.evaluation.protocol import OTHERS
from listwright_lab.crossed_means import resample_crossed_means
from listwright_lab.suites.listwise.measurement import NDCG_AT, TRUNCATED
from listwright_lab.suites.listwise.methods import (
    BASELINES,
    LAMBDAMART,
    LAMBDAMART_RELATIVE,
    OURS,
    WEIGHTS,
    weight_name,
)

CONVENTIONS: tuple[EmptyQueries, ...] = (0, 1, "drop")

METRICS = (*(f"ndcg@{k}" for k in NDCG_AT), *OTHERS)
"""All metrics, under the full ideal."""

_METRICS = (*METRICS, *(f"ndcg@{k}{TRUNCATED}" for k in NDCG_AT))

MOST_BINS = 10

FEWEST_IN_BIN = 20

VARIANTS = ("qilcm-v1", "qilcm-v2", "qilcm-v3")


@dataclass(frozen=True, slots=True)
class Results:
    """Measurements of all methods on one data set.

    Args:
        methods: Names of the methods, in the order of the suite.
        seeds: Number of seeds.
        values: Metrics: ``values[method][metric]`` is ``(seeds, N)``, queries in the same order everywhere; NDCG is NaN
            for a query without a relevant candidate.
        candidates: ``(N,)`` number of candidates of each query.
        relevant: ``(N,)`` number of relevant candidates of each query.
        anomaly: ``(N,)`` anomaly score of each query, mean over seeds; None where the suite does not compute it.
        lambdas: Lambda of eq. (10) that each method's confusion weight equals, mean over fits.
        seconds: Seconds of a fit by method, wall clock, mean over fits.
        shipped_counts: Number of seeds and folds in which each ranker is chosen, by the method that chooses.
        all_queries: Number of queries of the data set, all splits together.
        features: Number of features of the data set.
    """

    methods: tuple[str, ...]
    seeds: int
    values: Mapping[str, Mapping[str, Float[np.ndarray, "seeds N"]]]
    candidates: Int[np.ndarray, " N"]
    relevant: Int[np.ndarray, " N"]
    anomaly: Float[np.ndarray, " N"] | None
    lambdas: Mapping[str, float]
    seconds: Mapping[str, float]
    shipped_counts: Mapping[str, Mapping[str, int]]
    all_queries: int
    features: int

    @property
    def queries(self) -> int:
        """Number N of test queries, all folds together."""
        return len(self.candidates)

    @property
    def empty(self) -> int:
        """Number of test queries without a relevant candidate."""
        return int((self.relevant == 0).sum())

    @property
    def is_choice(self) -> bool:
        """Whether every query has at most one relevant candidate: the paper's user-choice ranking."""
        return int(self.relevant.max()) <= 1

    def metrics(self) -> tuple[str, ...]:
        """Return the paper's metrics for the kind of data, and MRR for user-choice ranking."""
        if self.is_choice:
            return ("hit@1", "hit@5", "mrr")
        deepest = int(self.candidates.max())
        return tuple(f"ndcg@{k}" for k in NDCG_AT if k <= 10 or k <= deepest)

    def each(self, method: str, metric: str) -> Float[np.ndarray, "seeds N"]:
        """Return ``(seeds, N)`` values per seed and query; empty queries count 0."""
        return np.stack([EvalProtocol().apply(row) for row in self.values[method][metric]])

    def mean_sd(self, method: str, metric: str, empty: EmptyQueries = 0) -> tuple[float, float | None]:
        """Return mean and standard deviation over seeds of the mean over queries; no deviation for a single seed.

        Which queries are empty under the truncated ideal may differ by seed.
        """
        protocol = EvalProtocol(empty_queries=empty)
        over_queries = np.array([protocol.apply(row).mean() for row in self.values[method][metric]])
        spread = float(over_queries.std(ddof=1)) if self.seeds > 1 else None
        return float(over_queries.mean()), spread

    def mean(self, method: str, metric: str) -> float:
        """Return the mean, see :meth:`mean_sd`; empty queries count 0."""
        return self.mean_sd(method, metric)[0]

    def best(self, methods: Sequence[str], metric: str) -> str:
        """Return the method with the highest mean, of those with results."""
        return max((name for name in methods if name in self.methods), key=lambda name: self.mean(name, metric))

    def differences(self, method: str, rival: str, metric: str) -> Float[np.ndarray, "seeds N"]:
        """Return ``(seeds, N)`` differences per seed and query."""
        result: Float[np.ndarray, "seeds N"] = self.each(method, metric) - self.each(rival, metric)
        return result

    def bounds(self, method: str, metric: str) -> tuple[float, float]:
        """Return the 95 % interval of the mean, over queries and seeds."""
        low, high = percentile_interval(resample_crossed_means(self.each(method, metric)))
        return float(low), float(high)

    def compare(self, family: Sequence[tuple[str, str, str]]) -> list[PairedComparison]:
        """Return a paired comparison for each metric, method and rival, corrected as one family."""
        methods, rivals = (np.stack([self.each(names[n], names[0]) for names in family], axis=2) for n in (1, 2))
        return compare(family, methods, rivals)


def by_shift(results: pl.DataFrame, methods: Sequence[str]) -> dict[float | None, Results]:
    """Return the results by planted shift; None is the key where nothing is planted."""
    return {
        shift: _results_of(results.filter(pl.col("shift").eq_missing(pl.lit(shift, dtype=pl.Float64))), tuple(methods))
        for shift in results["shift"].unique(maintain_order=True).to_list()
    }


def _results_of(results: pl.DataFrame, methods: tuple[str, ...]) -> Results:
    seeds = results["seed"].n_unique()
    parts = {name: results.filter(pl.col("method") == name).sort("seed", "fold", "qid") for name in methods}
    first = parts[methods[0]]
    queries = len(first) // seeds
    keys = first.select("fold", "qid")
    assert all(part.select("fold", "qid").equals(keys) for part in parts.values()), "methods are paired by query"

    def square(part: pl.DataFrame, column: str) -> Float[np.ndarray, "seeds N"]:
        return part[column].cast(pl.Float64).fill_null(float("nan")).to_numpy().reshape(seeds, queries)

    anomaly = None if first["anomaly"].null_count() else square(first, "anomaly").mean(axis=0)
    return Results(
        methods=methods,
        seeds=seeds,
        values={name: {metric: square(part, metric) for metric in _METRICS} for name, part in parts.items()},
        candidates=first["candidates"].to_numpy()[:queries],
        relevant=first["relevant"].to_numpy()[:queries],
        anomaly=anomaly,
        lambdas={name: _mean_of(part, "lambda_of_eq_10") for name, part in parts.items()},
        seconds={name: _mean_of(part, "seconds") for name, part in parts.items()},
        shipped_counts={name: _count_choices(part) for name, part in parts.items() if part["chosen"].null_count() == 0},
        all_queries=int(first["all_queries"][0]),
        features=int(first["features"][0]),
    )


def _mean_of(part: pl.DataFrame, column: str) -> float:
    return float(part[column].to_numpy().mean())


def _count_choices(part: pl.DataFrame) -> dict[str, int]:
    counts = part.unique(["seed", "fold"])["chosen"].value_counts(sort=True)
    return dict(counts.iter_rows())


@dataclass(frozen=True, slots=True)
class PairedComparison:
    """Comparison of two methods in one metric, paired by query.

    Args:
        metric: Name of the metric.
        method: Name of the method.
        rival: Name of the method that it is compared with.
        queries: Number of paired queries.
        gain: Mean difference over the queries, method less rival.
        low, high: Ends of the gain's 95 % bootstrap interval over queries and seeds.
        improvement: Gain as a share of the rival's mean; None where that mean is 0.
        p: Two-sided p-value of the paired t-test; None for fewer than two queries.
        holm: p-value after Holm's correction over the tested family; None where ``p`` is None.
    """

    metric: str
    method: str
    rival: str
    queries: int
    gain: float
    low: float
    high: float
    improvement: float | None
    p: float | None
    holm: float | None

    @property
    def proven(self) -> bool:
        """Whether the difference is significant: Holm's p below 5 %."""
        return self.holm is not None and self.holm < 0.05

    @property
    def verdict(self) -> Verdict:
        """Significant gain, significant harm, or no difference shown."""
        return verdict_of(self.gain, self.gain) if self.proven else "no difference shown"


def compare(
    names: Sequence[tuple[str, str, str]],
    values: Float[np.ndarray, "seeds N M"],
    rival_values: Float[np.ndarray, "seeds N M"],
) -> list[PairedComparison]:
    """Compare M pairs of methods as one family, with Holm's correction over all that could be tested.

    Intervals are over queries and seeds. The t-test is over queries, each with its mean over seeds.

    Args:
        names: M times metric, method, rival.
        values: ``(seeds, N, M)`` metric of the method for each query.
        rival_values: ``(seeds, N, M)`` metric of the rival for the same queries.
    """
    low, high = percentile_interval(resample_crossed_means(values - rival_values))
    difference = (values - rival_values).mean(axis=0)
    means, gains = rival_values.mean(axis=(0, 1)), difference.mean(axis=0)
    p_values = [paired_p(column) for column in difference.T]
    adjusted = iter(holm([p for p in p_values if p is not None]))
    return [
        PairedComparison(
            *names[n],
            queries=len(difference),
            gain=float(gains[n]),
            low=float(low[n]),
            high=float(high[n]),
            improvement=None if means[n] == 0.0 else float(gains[n] / means[n]),
            p=p,
            holm=None if p is None else next(adjusted),
        )
        for n, p in enumerate(p_values)
    ]


def paired_p(difference: Float[np.ndarray, " N"]) -> float | None:
    """Return the two-sided p of the paired t-test.

    Convention: None for fewer than two queries; where all differences are equal, 1 if they are 0 and 0 if not.
    """
    if len(difference) < 2:
        return None
    if np.ptp(difference) == 0.0:
        return 1.0 if difference[0] == 0.0 else 0.0
    return float(stats.ttest_1samp(difference, 0.0).pvalue)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return adjusted p-values (Holm, 1979): the i-th smallest of m times ``m - i + 1``, never below the one before."""
    order = np.argsort(p_values, kind="stable")
    factors = np.arange(len(order), 0, -1)
    adjusted = np.minimum(1.0, np.maximum.accumulate(np.asarray(p_values, dtype=np.float64)[order] * factors))
    result = np.empty(len(order))
    result[order] = adjusted
    return [float(p) for p in result]


def headline(results: Results, ndcg_at: int) -> str:
    """Return the metric of the headline."""
    return "hit@1" if results.is_choice else f"ndcg@{ndcg_at}"


def over_best_baseline(results: Results, method: str, metrics: Sequence[str]) -> list[PairedComparison]:
    """Compare a method with the best baseline of every metric, as one family.

    Which baseline is the best is seen on the same queries: that favours the baseline, never the method.
    """
    return results.compare([(metric, method, results.best(BASELINES, metric)) for metric in metrics])


def over_lambdamart(results: Results, metric: str) -> list[PairedComparison]:
    """Compare LambdaMART with list-relative columns with that without, and ours with either, as one family."""
    over = {LAMBDAMART: (LAMBDAMART_RELATIVE, *OURS), LAMBDAMART_RELATIVE: OURS}
    family = [(metric, method, rival) for rival, methods in over.items() for method in methods]
    return results.compare([names for names in family if set(names[1:]) <= set(results.methods)])


def over_variants(results: Results, metrics: Sequence[str]) -> list[PairedComparison]:
    """Compare QILCM with its variants in every metric, as one family."""
    return results.compare([(metric, "qilcm", rival) for metric in metrics for rival in VARIANTS])


def over_no_confusion(results: Results, metrics: Sequence[str]) -> list[PairedComparison]:
    """Compare every weight above 0 with 0 in every metric, as one family."""
    none, *others = (weight_name(weight) for weight in WEIGHTS)
    return results.compare([(metric, name, none) for metric in metrics for name in others])


@dataclass(frozen=True, slots=True)
class Growth:
    """Growth of QILCM's gain from the weakest planted shift to the strongest, on the same queries.

    Args:
        rival: Name of the method that QILCM is compared with.
        weakest, strongest: Gain at the weakest and at the strongest shift.
        grows: Gain at the strongest shift less that at the weakest.
        low, high: Ends of the 95 % interval of ``grows``.
        vanishes: Whether the interval of the gain at the weakest shift contains 0.
    """

    rival: str
    weakest: float
    strongest: float
    grows: float
    low: float
    high: float
    vanishes: bool


def growth(by_shift: Mapping[float | None, Results], metric: str) -> list[Growth]:
    """Return the growth of the gain over each variant; queries are paired, as labels are equal at all shifts."""
    shifts = sorted(shift for shift in by_shift if shift is not None)
    growths = []
    for rival in VARIANTS:
        ends = [by_shift[shift].differences("qilcm", rival, metric) for shift in (shifts[0], shifts[-1])]
        low, high = percentile_interval(resample_crossed_means(ends[1] - ends[0]))
        at_weakest = percentile_interval(resample_crossed_means(ends[0]))
        weakest, strongest = (float(end.mean()) for end in ends)
        vanishes = verdict_of(*map(float, at_weakest)) == "no difference shown"
        growths.append(Growth(rival, weakest, strongest, strongest - weakest, float(low), float(high), vanishes))
    return growths


@dataclass(frozen=True, slots=True)
class GapBin:
    """Queries of similar anomaly score.

    Args:
        anomaly: Mean anomaly score.
        queries: Number of queries.
        gap: Mean gain of QILCM over the baseline.
        low, high: Ends of the 95 % interval of the gap.
    """

    anomaly: float
    queries: int
    gap: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Gaps:
    """Gain of QILCM over the best baseline by anomaly score, in one metric: Figure 2 of the paper.

    Args:
        metric: Name of the metric.
        rival: Name of the best baseline in the metric.
        bins: Bins with equally many queries, by increasing anomaly score.
        trend: Spearman's correlation of anomaly score and gain over the queries; None where either is constant.
        p: Two-sided p-value of the correlation; None where ``trend`` is None.
    """

    metric: str
    rival: str
    bins: tuple[GapBin, ...]
    trend: float | None
    p: float | None


def gaps(results: Results, metric: str) -> Gaps:
    """Return the gaps of test queries, in bins by anomaly score."""
    assert results.anomaly is not None
    rival = results.best(BASELINES, metric)
    by_seed = results.differences("qilcm", rival, metric)
    gains = by_seed.mean(axis=0)
    order = np.argsort(results.anomaly, kind="stable")
    parts = np.array_split(order, max(1, min(MOST_BINS, len(order) // FEWEST_IN_BIN)))
    bins = tuple(_bin(results.anomaly[part], by_seed[:, part]) for part in parts)
    if np.ptp(results.anomaly) == 0.0 or np.ptp(gains) == 0.0:
        return Gaps(metric, rival, bins, None, None)
    trend = stats.spearmanr(results.anomaly, gains)
    return Gaps(metric, rival, bins, float(trend.statistic), float(trend.pvalue))


def _bin(anomaly: Float[np.ndarray, " M"], gains: Float[np.ndarray, "seeds M"]) -> GapBin:
    low, high = percentile_interval(resample_crossed_means(gains))
    return GapBin(float(anomaly.mean()), len(anomaly), float(gains.mean()), float(low), float(high))


def facts(results: Results, comparisons: Sequence[PairedComparison], ndcg_at: int) -> dict[str, object]:
    """Return the results on one data set as JSON: means, deviations and intervals, conventions, comparisons."""
    return {
        "test_queries": results.queries,
        "without_relevant": results.empty,
        "seeds": results.seeds,
        "paired": "test queries; p: each the mean over seeds",
        "intervals": "95 % percentile bootstrap over queries and seeds",
        "methods": {
            name: {
                "means": {metric: _with_bounds(results, name, metric) for metric in METRICS},
                f"ndcg@{ndcg_at}": conventions(results, name, ndcg_at),
                "lambda_of_eq_10": results.lambdas[name],
                "seconds": round(results.seconds[name], 1),
                **({"chosen": results.shipped_counts[name]} if name in results.shipped_counts else {}),
            }
            for name in results.methods
        },
        "comparisons": [asdict(comparison) for comparison in comparisons],
    }


def _with_bounds(results: Results, method: str, metric: str) -> dict[str, float | None]:
    low, high = results.bounds(method, metric)
    return _pair(*results.mean_sd(method, metric)) | {"low": low, "high": high}


def conventions(results: Results, method: str, ndcg_at: int) -> dict[str, dict[str, float | None]]:
    """Return NDCG under every convention for empty queries and every ideal."""
    return {
        f"empty_queries={empty}, ideal={ideal}": _pair(*results.mean_sd(method, f"ndcg@{ndcg_at}{ending}", empty))
        for ideal, ending in (("full", ""), ("truncated", TRUNCATED))
        for empty in CONVENTIONS
    }


def _pair(mean: float, spread: float | None) -> dict[str, float | None]:
    return {"mean": mean, "sd": spread}
