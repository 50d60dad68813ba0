"""Suite ``routing``: does a router that sees only the list pay, on queries that nothing was fitted on?

Every unit is one whole run: first stage, generalist, specialists and router, sealed in a bundle and measured through
it. Over the folds every query is tested once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from jaxtyping import Float

from listwright.training.evaluation.intervals import interval, resampled_means
from listwright.training.evaluation.routing import RoutingEvaluation

COVERAGES = np.linspace(0.0, 1.0, 101)
BINS = 8
"""Of the calibration plot, with equally many queries each."""


def to_frame(found: RoutingEvaluation, qids: tuple[str, ...]) -> pl.DataFrame:
    """One row per query."""
    return pl.DataFrame(
        {
            "qid": list(qids),
            "generalist": found.generalist,
            "routed": found.routed,
            "hard": found.hard,
            "mixture": found.mixture,
            "chosen": found.chosen,
            "specialists": found.specialists.tolist(),
            "probabilities": found.probabilities.tolist(),
            "gains": found.gains.tolist(),
        }
    )


def from_frame(results: pl.DataFrame) -> RoutingEvaluation:
    """The queries of all units as one evaluation; a query that several seeds tested stays one query."""
    columns: dict[str, Any] = {
        name: results[name].to_numpy() for name in ("generalist", "routed", "hard", "mixture", "chosen")
    }
    columns |= {name: np.array(results[name].to_list()) for name in ("specialists", "probabilities", "gains")}
    _, query = np.unique(results["qid"].to_numpy(), return_inverse=True)
    return RoutingEvaluation(**columns, default=columns["generalist"], query=query)


@dataclass(frozen=True, slots=True)
class CoverageCurve:
    """Mean gain over all queries if the share c with the largest estimated gains is routed.

    Args:
        gain, low, high: ``(C,)`` at :data:`COVERAGES`, with the 95 % interval over queries.
    """

    gain: Float[np.ndarray, " C"]
    low: Float[np.ndarray, " C"]
    high: Float[np.ndarray, " C"]


def coverage_curve(found: RoutingEvaluation) -> CoverageCurve:
    """Coverage against gain, by the router's own order of its estimates."""
    each = np.arange(len(found.chosen))
    choice = found.probabilities.argmax(axis=1)
    estimated, gained = found.gains[each, choice], found.hard - found.generalist
    place = np.empty(len(each))
    place[np.argsort(-estimated, kind="stable")] = (each + 1) / len(each)
    routed = place[:, None] <= COVERAGES + 1e-12
    taken = routed * gained[:, None]
    low, high = interval(resampled_means(taken, found.query))
    return CoverageCurve(taken.mean(axis=0), low, high)


@dataclass(frozen=True, slots=True)
class Calibration:
    """Stated confidence against how often it was right, in bins of equally many queries.

    Args:
        confidence, right: ``(B,)`` means of every bin; equal bests count as right in equal shares.
        low, high: ``(B,)`` 95 % interval of ``right``.
        error: mean absolute difference, weighed by the bins' queries.
    """

    confidence: Float[np.ndarray, " B"]
    right: Float[np.ndarray, " B"]
    low: Float[np.ndarray, " B"]
    high: Float[np.ndarray, " B"]
    error: float


def calibration(found: RoutingEvaluation) -> Calibration:
    """Of the most probable specialist's probability."""
    each = np.arange(len(found.chosen))
    choice = found.probabilities.argmax(axis=1)
    confidence = found.probabilities[each, choice]
    right = (found.best / found.best.sum(axis=1, keepdims=True))[each, choice]
    bins = np.array_split(np.argsort(confidence, kind="stable"), min(BINS, max(1, len(each) // 20)))
    queries = [np.unique(found.query[rows], return_inverse=True)[1] for rows in bins]
    bounds = np.array([interval(resampled_means(right[rows], of)) for rows, of in zip(bins, queries, strict=True)])
    means = np.array([[confidence[rows].mean(), right[rows].mean(), len(rows)] for rows in bins])
    error = float((np.abs(means[:, 0] - means[:, 1]) * means[:, 2]).sum() / len(each))
    return Calibration(means[:, 0], means[:, 1], bounds[:, 0], bounds[:, 1], error)
