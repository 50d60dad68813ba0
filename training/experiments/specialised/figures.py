"""The figures of the suites, as SVG text that stands inside a page."""

from __future__ import annotations

from listwright.training.evaluation.routing import RoutingEvaluation
from listwright.training.experiments.specialised import oracle, routing
from listwright.training.reporting.drawing import COLOURS, INK, legend, one, style, svg


@style()
def oracle_curves(summary: oracle.Summary, ndcg_at: int) -> str:
    """NDCG against the oracle's accuracy, one curve per K, with the two single rankers as lines."""
    figure, axes = one()
    accuracy = oracle.ACCURACIES * 100
    for colour, curve in zip(COLOURS, (c for c in summary.curves if c.specialists > 1), strict=False):
        axes.plot(accuracy, curve.mean, color=colour, label=f"SRM, K = {curve.specialists}")
        axes.fill_between(accuracy, curve.low, curve.high, color=colour, alpha=0.13, linewidth=0)
        if curve.break_even is not None and 0.0 <= curve.break_even[0] <= 1.0:
            axes.plot(curve.break_even[0] * 100, summary.single[0], "o", color=colour, markersize=5)
    for name, line, dash in (("LambdaMART", summary.lambdamart, "--"), ("one linear ranker", summary.single, ":")):
        axes.axhline(line[0], color=INK, linestyle=dash, linewidth=1.3, label=name)
        axes.axhspan(line[1], line[2], color=INK, alpha=0.05, linewidth=0)
    axes.set(xlabel="accuracy of the oracle, %", ylabel=f"NDCG@{ndcg_at}", xlim=(0, 100))
    legend(figure, columns=2)
    return svg(figure, "oracle", f"NDCG@{ndcg_at} against the accuracy of an oracle that picks the specialist")


@style()
def coverage(found: RoutingEvaluation) -> str:
    """Gain over the generalist against the share of queries that is routed; the dot is where the bundle stands."""
    curve = routing.coverage_curve(found)
    figure, axes = one()
    share = routing.COVERAGES * 100
    axes.plot(share, curve.gain, color=COLOURS[0], label="routed by estimated gain")
    axes.fill_between(share, curve.low, curve.high, color=COLOURS[0], alpha=0.15, linewidth=0)
    axes.axhline(0.0, color=INK, linewidth=1)
    gain = float((found.routed - found.generalist).mean())
    axes.plot(found.coverage * 100, gain, "o", color=COLOURS[1], label="the bundle's own margin")
    axes.set(xlabel="coverage: share of queries routed, %", ylabel="mean gain, NDCG", xlim=(0, 100))
    legend(figure)
    return svg(figure, "coverage", "Gain over the generalist against the share of queries routed")


@style()
def reliability(found: RoutingEvaluation) -> str:
    """How often the most probable specialist is a best one, against how sure the router was."""
    bins = routing.calibration(found)
    figure, axes = one(height=4.0)
    axes.set_aspect("equal")
    axes.plot([0, 1], [0, 1], color=INK, linewidth=1)
    errors = [bins.right - bins.low, bins.high - bins.right]
    axes.errorbar(bins.confidence, bins.right, yerr=errors, fmt="o", color=COLOURS[0], capsize=3)
    axes.set(
        xlabel="stated probability", ylabel="share of queries where it was a best one", xlim=(0, 1), ylim=(0, 1.02)
    )
    return svg(figure, "reliability", "Stated probability against how often it was right")
