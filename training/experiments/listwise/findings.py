"""What the listwise suites conclude from what was measured, before anybody writes it down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np
from jaxtyping import Float
from scipy import stats

from listwright.training.evaluation.intervals import crossed_means, interval, verdict_of
from listwright.training.experiments.listwise.fits import TRUNCATED
from listwright.training.experiments.listwise.measured import CONVENTIONS, METRICS, Measured
from listwright.training.experiments.listwise.plans import (
    BASELINES,
    LAMBDAMART,
    LAMBDAMART_RELATIVE,
    OURS,
    WEIGHTS,
    weight_name,
)
from listwright.training.experiments.listwise.significance import PairedComparison

MOST_BINS = 10
FEWEST_IN_BIN = 20

VARIANTS = ("qilcm-v1", "qilcm-v2", "qilcm-v3")


def headline(found: Measured, ndcg_at: int) -> str:
    """The metric that the sentences are about."""
    return "hit@1" if found.is_choice else f"ndcg@{ndcg_at}"


def over_best_baseline(found: Measured, method: str, metrics: Sequence[str]) -> list[PairedComparison]:
    """A method against the best baseline of every metric, one family.

    Which baseline is the best is seen on the same queries: that favours the baseline, never the method.
    """
    return found.compared([(metric, method, found.best(BASELINES, metric)) for metric in metrics])


def over_lambdamart(found: Measured, metric: str) -> list[PairedComparison]:
    """LambdaMART with list-relative columns over that without, and ours over either, one family."""
    over = {LAMBDAMART: (LAMBDAMART_RELATIVE, *OURS), LAMBDAMART_RELATIVE: OURS}
    family = [(metric, method, rival) for rival, methods in over.items() for method in methods]
    return found.compared([names for names in family if set(names[1:]) <= set(found.methods)])


def over_variants(found: Measured, metrics: Sequence[str]) -> list[PairedComparison]:
    """QILCM against its variants in every metric, one family."""
    return found.compared([(metric, "qilcm", rival) for metric in metrics for rival in VARIANTS])


def over_no_confusion(found: Measured, metrics: Sequence[str]) -> list[PairedComparison]:
    """Every weight above 0 against 0 in every metric, one family."""
    none, *others = (weight_name(weight) for weight in WEIGHTS)
    return found.compared([(metric, name, none) for metric in metrics for name in others])


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


def growth(by_shift: Mapping[float | None, Measured], metric: str) -> list[Growth]:
    """For every variant; the queries of all shifts have the same labels, so that they are paired."""
    shifts = sorted(shift for shift in by_shift if shift is not None)
    found = []
    for rival in VARIANTS:
        ends = [by_shift[shift].differences("qilcm", rival, metric) for shift in (shifts[0], shifts[-1])]
        low, high = interval(crossed_means(ends[1] - ends[0]))
        at_weakest = interval(crossed_means(ends[0]))
        weakest, strongest = (float(end.mean()) for end in ends)
        vanishes = verdict_of(*map(float, at_weakest)) == "no difference shown"
        found.append(Growth(rival, weakest, strongest, strongest - weakest, float(low), float(high), vanishes))
    return found


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


def gaps(found: Measured, metric: str) -> Gaps:
    """Test queries in bins by anomaly score."""
    assert found.anomaly is not None
    rival = found.best(BASELINES, metric)
    by_seed = found.differences("qilcm", rival, metric)
    gained = by_seed.mean(axis=0)
    order = np.argsort(found.anomaly, kind="stable")
    parts = np.array_split(order, max(1, min(MOST_BINS, len(order) // FEWEST_IN_BIN)))
    bins = tuple(_bin(found.anomaly[part], by_seed[:, part]) for part in parts)
    if np.ptp(found.anomaly) == 0.0 or np.ptp(gained) == 0.0:
        return Gaps(metric, rival, bins, None, None)
    trend = stats.spearmanr(found.anomaly, gained)
    return Gaps(metric, rival, bins, float(trend.statistic), float(trend.pvalue))


def _bin(anomaly: Float[np.ndarray, " M"], gained: Float[np.ndarray, "S M"]) -> GapBin:
    low, high = interval(crossed_means(gained))
    return GapBin(float(anomaly.mean()), len(anomaly), float(gained.mean()), float(low), float(high))


def facts(found: Measured, comparisons: Sequence[PairedComparison], ndcg_at: int) -> dict[str, object]:
    """One data set as JSON: means, deviations and intervals, all conventions, and the comparisons."""
    return {
        "test_queries": found.queries,
        "without_relevant": found.empty,
        "seeds": found.seeds,
        "paired": "test queries; p: each the mean over seeds",
        "intervals": "95 % percentile bootstrap over queries and seeds",
        "methods": {
            name: {
                "means": {metric: _with_bounds(found, name, metric) for metric in METRICS},
                f"ndcg@{ndcg_at}": conventions(found, name, ndcg_at),
                "lambda_of_eq_10": found.lambdas[name],
                "seconds": round(found.seconds[name], 1),
                **({"chosen": found.chosen[name]} if name in found.chosen else {}),
            }
            for name in found.methods
        },
        "comparisons": [asdict(comparison) for comparison in comparisons],
    }


def _with_bounds(found: Measured, method: str, metric: str) -> dict[str, float | None]:
    low, high = found.bounds(method, metric)
    return _pair(*found.mean_sd(method, metric)) | {"low": low, "high": high}


def conventions(found: Measured, method: str, ndcg_at: int) -> dict[str, dict[str, float | None]]:
    """NDCG under every convention for empty queries and every ideal."""
    return {
        f"empty_queries={empty}, ideal={ideal}": _pair(*found.mean_sd(method, f"ndcg@{ndcg_at}{ending}", empty))
        for ideal, ending in (("full", ""), ("truncated", TRUNCATED))
        for empty in CONVENTIONS
    }


def _pair(mean: float, spread: float | None) -> dict[str, float | None]:
    return {"mean": mean, "sd": spread}
