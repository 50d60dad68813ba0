"""The results of a listwise suite as arrays, seeds by queries, and their comparisons.

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
from listwright.training.evaluation.bootstrap import percentile_interval, resample_crossed_means
from listwright.training.evaluation.intervals import Verdict, verdict_of
from listwright.training.evaluation.protocol import OTHERS
from listwright_lab.suites.listwise.fits import NDCG_AT, TRUNCATED
from listwright_lab.suites.listwise.plans import (
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
    """All measurements on one data set.

    Args:
        methods: in the order of the suite.
        seeds: how many.
        values: ``values[method][metric]`` is ``(seeds, N)``, queries in the same order everywhere; NDCG is NaN for a
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
    values: Mapping[str, Mapping[str, Float[np.ndarray, "seeds N"]]]
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
        """Return the paper's metrics for such data, and MRR where one candidate is right."""
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

    def compared(self, family: Sequence[tuple[str, str, str]]) -> list[PairedComparison]:
        """Return paired comparisons, each of metric, method and rival, corrected as one family."""
        one, other = (np.stack([self.each(names[place], names[0]) for names in family], axis=2) for place in (1, 2))
        return compare(family, one, other)


def by_shift(results: pl.DataFrame, methods: Sequence[str]) -> dict[float | None, Results]:
    """Return the results of every planted shift; under None where nothing is planted."""
    return {
        shift: _measured(results.filter(pl.col("shift").eq_missing(pl.lit(shift, dtype=pl.Float64))), tuple(methods))
        for shift in results["shift"].unique(maintain_order=True).to_list()
    }


def _measured(results: pl.DataFrame, methods: tuple[str, ...]) -> Results:
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
        chosen={name: _counted(part) for name, part in parts.items() if part["chosen"].null_count() == 0},
        all_queries=int(first["all_queries"][0]),
        features=int(first["features"][0]),
    )


def _mean_of(part: pl.DataFrame, column: str) -> float:
    return float(part[column].to_numpy().mean())


def _counted(part: pl.DataFrame) -> dict[str, int]:
    once = part.unique(["seed", "fold"])["chosen"].value_counts(sort=True)
    return dict(once.iter_rows())


@dataclass(frozen=True, slots=True)
class PairedComparison:
    """One method against another in one metric.

    Args:
        metric, method, rival: what is compared.
        queries: how many are paired.
        gain, low, high: mean difference of the queries, with its 95 % bootstrap interval over queries and seeds.
        improvement: the gain as a share of the rival's mean; None where that is 0.
        p: of the paired t-test, two-sided; None for fewer than two queries.
        holm: p after Holm's correction over the family that was tested; None where p is.
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
        """Whether it is a gain or a loss beyond doubt: Holm's p below 5 %."""
        return self.holm is not None and self.holm < 0.05

    @property
    def verdict(self) -> Verdict:
        """A gain or harm beyond doubt, or neither shown."""
        return verdict_of(self.gain, self.gain) if self.proven else "no difference shown"


def compare(
    names: Sequence[tuple[str, str, str]], one: Float[np.ndarray, "seeds N M"], other: Float[np.ndarray, "seeds N M"]
) -> list[PairedComparison]:
    """Pair the queries of two methods, M times, as one family: with Holm's p over all that could be tested.

    Args:
        names: M times metric, method, rival.
        one, other: ``(seeds, N, M)`` values by seed of the same queries in the same order. Intervals are over queries
            and seeds; p is of the queries, each its mean over seeds.
    """
    low, high = percentile_interval(resample_crossed_means(one - other))
    difference = (one - other).mean(axis=0)
    means, gains = other.mean(axis=(0, 1)), difference.mean(axis=0)
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
    return results.compared([(metric, method, results.best(BASELINES, metric)) for metric in metrics])


def over_lambdamart(results: Results, metric: str) -> list[PairedComparison]:
    """Compare LambdaMART with list-relative columns with that without, and ours with either, as one family."""
    over = {LAMBDAMART: (LAMBDAMART_RELATIVE, *OURS), LAMBDAMART_RELATIVE: OURS}
    family = [(metric, method, rival) for rival, methods in over.items() for method in methods]
    return results.compared([names for names in family if set(names[1:]) <= set(results.methods)])


def over_variants(results: Results, metrics: Sequence[str]) -> list[PairedComparison]:
    """Compare QILCM with its variants in every metric, as one family."""
    return results.compared([(metric, "qilcm", rival) for metric in metrics for rival in VARIANTS])


def over_no_confusion(results: Results, metrics: Sequence[str]) -> list[PairedComparison]:
    """Compare every weight above 0 with 0 in every metric, as one family."""
    none, *others = (weight_name(weight) for weight in WEIGHTS)
    return results.compared([(metric, name, none) for metric in metrics for name in others])


@dataclass(frozen=True, slots=True)
class Growth:
    """How much larger a gain is at the strongest planted shift than at the weakest, on the same queries.

    Args:
        rival: over which QILCM gains.
        weakest, strongest: the gain at both ends.
        grows, low, high: their difference with its 95 % interval.
        vanishes: whether the gain's own interval at the weakest shift holds 0.
    """

    rival: str
    weakest: float
    strongest: float
    grows: float
    low: float
    high: float
    vanishes: bool


def growth(by_shift: Mapping[float | None, Results], metric: str) -> list[Growth]:
    """Return the growth over every variant; the queries of all shifts have the same labels, so that they are paired."""
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
    """Queries of like anomaly.

    Args:
        anomaly: their mean score.
        queries: how many.
        gap, low, high: mean gain of QILCM over the baseline, with its 95 % interval.
    """

    anomaly: float
    queries: int
    gap: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Gaps:
    """The paper's Figure 2 for one metric.

    Args:
        metric, rival: the gain of QILCM over the best baseline in this metric.
        bins: equally many queries each, from the usual to the strange.
        trend, p: Spearman's correlation of anomaly and gain over the queries; None where either never varies.
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
    gained = by_seed.mean(axis=0)
    order = np.argsort(results.anomaly, kind="stable")
    parts = np.array_split(order, max(1, min(MOST_BINS, len(order) // FEWEST_IN_BIN)))
    bins = tuple(_bin(results.anomaly[part], by_seed[:, part]) for part in parts)
    if np.ptp(results.anomaly) == 0.0 or np.ptp(gained) == 0.0:
        return Gaps(metric, rival, bins, None, None)
    trend = stats.spearmanr(results.anomaly, gained)
    return Gaps(metric, rival, bins, float(trend.statistic), float(trend.pvalue))


def _bin(anomaly: Float[np.ndarray, " M"], gained: Float[np.ndarray, "seeds M"]) -> GapBin:
    low, high = percentile_interval(resample_crossed_means(gained))
    return GapBin(float(anomaly.mean()), len(anomaly), float(gained.mean()), float(low), float(high))


def facts(results: Results, comparisons: Sequence[PairedComparison], ndcg_at: int) -> dict[str, object]:
    """Return one data set as JSON: means, deviations and intervals, all conventions, and the comparisons."""
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
                **({"chosen": results.chosen[name]} if name in results.chosen else {}),
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
