"""What the pages of the two suites say."""

from __future__ import annotations

from typing import Any

from listwright.training.evaluation.routing import RoutingEvaluation
from listwright.training.experiments.specialised import figures, oracle, routing
from listwright.training.reporting.page import PageFigure, PageSection, PageTable, render
from listwright.training.reporting.report import verdict


def oracle_page(data: str, summary: oracle.Summary, *, ndcg_at: int, **repeat: Any) -> str:
    """Curves, the table behind them, and what they mean; ``repeat`` as for :func:`render`."""
    rows = [
        [
            f"SRM, K = {curve.specialists}",
            f"{curve.average:.4f}",
            f"{curve.oracle:.4f}",
            "" if curve.break_even is None else _triple(curve.break_even),
            *(_accuracy(a) if curve.specialists > 1 else "" for a in (curve.beats_single, curve.beats_lambdamart)),
        ]
        for curve in summary.curves
    ]
    head = ["", "a = 0", "a = 100 %", "break-even a*", "> one linear", "> LambdaMART"]
    lines = [
        ["one linear ranker (K = 1)", _triple(summary.single)],
        ["LambdaMART", _triple(summary.lambdamart)],
    ]
    caption = (
        "Expected NDCG if an oracle of this accuracy picks the specialist: it is right with this probability and "
        "random otherwise. Bands: 95 % over queries. Dots: break-even with one linear ranker."
    )
    note = (
        "a: accuracy of the oracle. The last two columns: the smallest one at which the paired 95 % interval of the "
        "gain lies above 0. A classifier that is right in a share p of the queries has a = (p - 1/K) / (1 - 1/K)."
    )
    return render(
        f"Specialists behind a noisy oracle: {data}",
        [oracle_sentence(summary)],
        [
            PageSection(
                figures=[PageFigure(figures.oracle_curves(summary, ndcg_at), caption)],
                tables=[
                    PageTable(f"NDCG@{ndcg_at} and accuracies", head, rows, note),
                    PageTable("Without specialists", ["", f"NDCG@{ndcg_at}"], lines),
                ],
            )
        ],
        **repeat,
    )


def oracle_sentence(summary: oracle.Summary) -> str:
    """What the curves say, in one sentence."""
    several = [curve for curve in summary.curves if curve.specialists > 1]
    beaten = [curve for curve in several if curve.beats_lambdamart is not None]
    if not several:
        return "Nothing to choose among: every K is 1."
    if not beaten:
        return "No oracle, not even a perfect one, lifts the specialists above LambdaMART beyond doubt."
    best = min(beaten, key=lambda curve: curve.beats_lambdamart or 0.0)
    if best.beats_lambdamart == 0.0:
        return f"Even a random choice among {best.specialists} linear specialists beats LambdaMART beyond doubt."
    return (
        f"An oracle must be right in {_accuracy(best.beats_lambdamart)} of the cases (chance taken off) before "
        f"{best.specialists} linear specialists beat LambdaMART beyond doubt; a perfect one reaches {best.oracle:.3f} "
        f"where LambdaMART has {summary.lambdamart[0]:.3f}."
    )


def routing_page(data: str, found: RoutingEvaluation, *, ndcg_at: int, **repeat: Any) -> str:
    """Whether routing pays, the curve behind it, and how far the router can be believed; ``repeat`` as above."""
    said = found.facts()
    values = said["ndcg"]
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
        ["coverage", f"{found.coverage:.0%}"],
        ["most probable specialist is a best one", f"{found.top1:.1%} (chance {found.chance:.1%})"],
        ["accuracy on the oracle's axis", _percent(found.accuracy)],
        ["value on the oracle's axis, (hard - random) / (oracle - random)", _percent(found.value)],
        ["calibration error of the probability", f"{routing.calibration(found).error:.3f}"],
        ["mixture over the hard route, NDCG", _gain(said["mixture_over_hard_route"])],
        ["routed over generalist, NDCG", _gain(said["gain_over_generalist"])],
    ]
    return render(
        f"Routing to specialists: {data}",
        [verdict(found)],
        [
            PageSection(
                figures=[
                    PageFigure(
                        figures.coverage(found),
                        "Mean gain over the generalist, over all queries, if the most promising share is routed. "
                        "Band: 95 % over queries.",
                    ),
                    PageFigure(
                        figures.reliability(found),
                        "How often the most probable specialist was the best one, in bins of equally many queries. "
                        "Of several that are equally good each counts its share.",
                    ),
                ],
                tables=[
                    PageTable(f"NDCG@{ndcg_at}, {len(found.chosen)} test queries", ["", "mean"], rows),
                    PageTable("The router", ["", ""], judged),
                ],
            )
        ],
        **repeat,
    )


def _triple(values: tuple[float, float, float] | None) -> str:
    return "none" if values is None else f"{values[0]:.3f} [{values[1]:.3f}, {values[2]:.3f}]"


def _accuracy(value: float | None) -> str:
    return "never" if value is None else f"{value:.0%}"


def _percent(value: float | None) -> str:
    return "none" if value is None else f"{value:.1%}"


def _gain(values: object) -> str:
    assert isinstance(values, dict)
    return f"{values['mean']:+.4f} [{values['low']:+.4f}, {values['high']:+.4f}]"
