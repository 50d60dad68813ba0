"""Suite ``routing``: the gain of a router that reads only the list, on queries that nothing was fitted on.

Each unit is one whole fit: first stage, generalist, specialists and router, sealed in a bundle and measured through it.
Over the folds every query is tested once.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from jaxtyping import Float
from matplotlib.axes import Axes
from rich.console import Console

from listwright.training.console.progress import Task
from listwright.training.evaluation.bootstrap import percentile_interval, resample_means
from listwright.training.evaluation.routing import RoutingEvaluation, evaluate_routing
from listwright.training.job_folder import folder_of
from listwright.training.pipeline.run import run
from listwright.training.pipeline.steps import load
from listwright.training.recipe.config import Recipe
from listwright.training.reporting.page import COLOURS, INK, PageFigure, PageSection, PageTable, plot, render
from listwright.training.reporting.report import verdict
from listwright_lab.suites.splits import measurable

COVERAGES = np.linspace(0.0, 1.0, 101)

BINS = 8
"""Bins of the calibration plot, with equally many queries each."""


def measure(recipe: Recipe, sources: Sequence[str], state: Path, task: Task) -> pl.DataFrame:
    """Run a whole fit in a folder of its own, and return its bundle's results."""
    test = measurable(load(recipe, sources)).test
    unit = f"seed {recipe.seed}, fold {recipe.fold}"
    task.note(f"{unit}: first stage, QILCM, specialists, router")
    assert recipe.router is not None
    out = state / recipe.name / "1"
    if not out.exists():  # an interruption may come after the bundle was published
        quiet = Console(file=io.StringIO())
        run(recipe, sources, out, resume=folder_of(out).exists(), console=quiet)
    task.note(f"{unit}: testing")
    evaluation = evaluate_routing(out, test, ndcg_at=recipe.router.ndcg_at)
    assert evaluation is not None
    return to_frame(evaluation, test.qids)


def to_frame(evaluation: RoutingEvaluation, qids: tuple[str, ...]) -> pl.DataFrame:
    """Return the evaluation as a frame with one row per query."""
    return pl.DataFrame(
        {
            "qid": list(qids),
            "generalist": evaluation.generalist,
            "routed": evaluation.routed,
            "hard": evaluation.hard,
            "mixture": evaluation.mixture,
            "chosen": evaluation.route,
            "specialists": evaluation.specialists.tolist(),
            "probabilities": evaluation.probabilities.tolist(),
            "gains": evaluation.gains.tolist(),
        }
    )


def from_frame(results: pl.DataFrame) -> RoutingEvaluation:
    """Return the queries of all units as one evaluation; a query that several seeds tested stays one query."""
    columns: dict[str, Any] = {
        name: results[name].to_numpy() for name in ("generalist", "routed", "hard", "mixture")
    } | {"route": results["chosen"].to_numpy()}
    columns |= {name: np.array(results[name].to_list()) for name in ("specialists", "probabilities", "gains")}
    _, query = np.unique(results["qid"].to_numpy(), return_inverse=True)
    return RoutingEvaluation(**columns, default=columns["generalist"], query=query)


@dataclass(frozen=True, slots=True)
class CoverageCurve:
    """Mean gain over all queries if the share c with the largest estimated gains is routed.

    Args:
        gain: ``(coverages,)`` mean gain at each of :data:`COVERAGES`.
        low, high: ``(coverages,)`` ends of the 95 % interval over queries.
    """

    gain: Float[np.ndarray, " coverages"]
    low: Float[np.ndarray, " coverages"]
    high: Float[np.ndarray, " coverages"]


def coverage_curve(evaluation: RoutingEvaluation) -> CoverageCurve:
    """Return coverage against gain, in the order of the router's own estimates."""
    each = np.arange(len(evaluation.route))
    choice = evaluation.probabilities.argmax(axis=1)
    estimated, gained = evaluation.gains[each, choice], evaluation.hard - evaluation.generalist
    rank_share = np.empty(len(each))
    rank_share[np.argsort(-estimated, kind="stable")] = (each + 1) / len(each)
    routed = rank_share[:, None] <= COVERAGES + 1e-12
    gains = routed * gained[:, None]
    low, high = percentile_interval(resample_means(gains, evaluation.query))
    return CoverageCurve(gains.mean(axis=0), low, high)


@dataclass(frozen=True, slots=True)
class Calibration:
    """Calibration of the router's confidence, in bins of equally many queries.

    Args:
        confidence: ``(bins,)`` mean probability that the router states.
        right: ``(bins,)`` share of queries in which its choice is the best; equally good ones share a query.
        low, high: ``(bins,)`` ends of the 95 % interval of ``right``.
        error: Mean absolute difference of confidence and ``right``, weighted by queries.
    """

    confidence: Float[np.ndarray, " bins"]
    right: Float[np.ndarray, " bins"]
    low: Float[np.ndarray, " bins"]
    high: Float[np.ndarray, " bins"]
    error: float


def calibration(evaluation: RoutingEvaluation) -> Calibration:
    """Return the calibration of the most probable specialist's probability."""
    each = np.arange(len(evaluation.route))
    choice = evaluation.probabilities.argmax(axis=1)
    confidence = evaluation.probabilities[each, choice]
    right = (evaluation.best / evaluation.best.sum(axis=1, keepdims=True))[each, choice]
    bins = np.array_split(np.argsort(confidence, kind="stable"), min(BINS, max(1, len(each) // 20)))
    queries = [np.unique(evaluation.query[rows], return_inverse=True)[1] for rows in bins]
    bounds = np.array(
        [percentile_interval(resample_means(right[rows], of)) for rows, of in zip(bins, queries, strict=True)]
    )
    means = np.array([[confidence[rows].mean(), right[rows].mean(), len(rows)] for rows in bins])
    error = float((np.abs(means[:, 0] - means[:, 1]) * means[:, 2]).sum() / len(each))
    return Calibration(means[:, 0], means[:, 1], bounds[:, 0], bounds[:, 1], error)


def page(data: str, evaluation: RoutingEvaluation, *, ndcg_at: int, **repeat: Any) -> str:
    """Return the page: verdict, coverage curve, and the router's calibration; ``repeat`` goes to :func:`render`."""
    facts = evaluation.facts()
    values = facts["ndcg"]
    assert isinstance(values, dict)
    names = {
        "generalist": "generalist alone (QILCM)",
        "routed": "routed: specialist or abstention",
        "hard_route": "always the most probable specialist",
        "mixture": "always the mixture by the router's probabilities",
        "mean_specialist": "a random specialist",
        "oracle": "the best specialist, known afterwards",
    }
    rows = [[name, f"{values[key]:.4f}"] for key, name in names.items()]
    judged = [
        ["coverage", f"{evaluation.coverage:.0%}"],
        ["most probable specialist is a best one", f"{evaluation.top1:.1%} (chance {evaluation.chance:.1%})"],
        ["accuracy on the oracle's axis", _percent(evaluation.accuracy)],
        ["value on the oracle's axis, (hard - random) / (oracle - random)", _percent(evaluation.value)],
        ["calibration error of the probability", f"{calibration(evaluation).error:.3f}"],
        ["mixture over the hard route, NDCG", _gain(facts["mixture_over_hard_route"])],
        ["routed over generalist, NDCG", _gain(facts["gain_over_generalist"])],
    ]
    return render(
        f"Routing to specialists: {data}",
        [verdict(evaluation)],
        [
            PageSection(
                figures=[
                    PageFigure(
                        coverage_figure(evaluation),
                        "Mean gain over the generalist, over all queries, if the most promising share is routed. "
                        "Band: 95 % over queries.",
                    ),
                    PageFigure(
                        reliability_figure(evaluation),
                        "How often the most probable specialist was the best one, in bins of equally many queries. "
                        "Of several that are equally good each counts its share.",
                    ),
                ],
                tables=[
                    PageTable(f"NDCG@{ndcg_at}, {len(evaluation.route)} test queries", ["", "mean"], rows),
                    PageTable("The router", ["", ""], judged),
                ],
            )
        ],
        **repeat,
    )


@plot(legend_columns=1)
def coverage_figure(axes: Axes, evaluation: RoutingEvaluation) -> tuple[str, str]:
    """Draw the gain over the generalist against the share of queries routed; the dot is the bundle's own coverage."""
    curve = coverage_curve(evaluation)
    share = COVERAGES * 100
    axes.plot(share, curve.gain, color=COLOURS[0], label="routed by estimated gain")
    axes.fill_between(share, curve.low, curve.high, color=COLOURS[0], alpha=0.15, linewidth=0)
    axes.axhline(0.0, color=INK, linewidth=1)
    gain = float((evaluation.routed - evaluation.generalist).mean())
    axes.plot(evaluation.coverage * 100, gain, "o", color=COLOURS[1], label="the bundle's own margin")
    axes.set(xlabel="coverage: share of queries routed, %", ylabel="mean gain, NDCG", xlim=(0, 100))
    return "coverage", "Gain over the generalist against the share of queries routed"


@plot(height=4.0)
def reliability_figure(axes: Axes, evaluation: RoutingEvaluation) -> tuple[str, str]:
    """Draw how often the most probable specialist is a best one, against its stated probability."""
    bins = calibration(evaluation)
    axes.set_aspect("equal")
    axes.plot([0, 1], [0, 1], color=INK, linewidth=1)
    errors = [bins.right - bins.low, bins.high - bins.right]
    axes.errorbar(bins.confidence, bins.right, yerr=errors, fmt="o", color=COLOURS[0], capsize=3)
    axes.set(
        xlabel="stated probability", ylabel="share of queries where it was a best one", xlim=(0, 1), ylim=(0, 1.02)
    )
    return "reliability", "Stated probability against how often it was right"


def _percent(value: float | None) -> str:
    return "none" if value is None else f"{value:.1%}"


def _gain(values: object) -> str:
    assert isinstance(values, dict)
    return f"{values['mean']:+.4f} [{values['low']:+.4f}, {values['high']:+.4f}]"
