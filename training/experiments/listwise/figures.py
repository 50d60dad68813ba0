"""The figures of the listwise suites, as SVG text that stands inside a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.ticker import MaxNLocator

from listwright.training.experiments.listwise.findings import VARIANTS, Gaps
from listwright.training.experiments.listwise.measured import Measured
from listwright.training.experiments.listwise.plans import WEIGHTS, title, weight_name
from listwright.training.experiments.listwise.significance import PairedComparison
from listwright.training.reporting.drawing import COLOURS, INK, legend, one, style, svg
from listwright.training.reporting.fit_figures import COLOUR_OF, metric_name

BLUE, ORANGE, GREEN = COLOURS[:3]


@style()
def gains(found: Sequence[PairedComparison], name: str, said: str) -> str:
    """Every gain with its interval; blue and orange are beyond doubt by Holm's correction."""
    figure, axes = one(height=0.8 + 0.31 * len(found))
    for place, gain in enumerate(found):
        colour = COLOUR_OF[gain.verdict]
        axes.plot([gain.low, gain.high], [place, place], color=colour, linewidth=2.2, solid_capstyle="butt")
        axes.plot(gain.gain, place, "o", color=colour, markersize=6)
    axes.axvline(0.0, color=INK, linewidth=1)
    axes.set_yticks(range(len(found)), [f"{metric_name(gain.metric)} over {title(gain.rival)}" for gain in found])
    axes.set(xlabel="gain", ylim=(len(found) - 0.5, -0.5))
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)
    axes.xaxis.set_major_locator(MaxNLocator(4))
    return svg(figure, name, said)


@style()
def gain_by_shift(by_shift: Mapping[float, Sequence[PairedComparison]], metric: str) -> str:
    """Gain of QILCM over its variants against the planted shift."""
    figure, axes = one()
    for colour, rival in zip((GREEN, ORANGE, BLUE), VARIANTS, strict=True):
        points = [(shift, c) for shift, row in by_shift.items() for c in row if (c.rival, c.metric) == (rival, metric)]
        shifts, gained = zip(*sorted(points, key=lambda point: point[0]), strict=True)
        errors = [[c.gain - c.low for c in gained], [c.high - c.gain for c in gained]]
        label = f"over {title(rival)}"
        axes.errorbar(shifts, [c.gain for c in gained], yerr=errors, fmt="-o", color=colour, capsize=3, label=label)
    axes.axhline(0.0, color=INK, linewidth=1)
    axes.set(xlabel="planted shift s", ylabel=f"gain of QILCM, {metric_name(metric)}")
    legend(figure, columns=3)
    return svg(figure, "shift", "Gain of QILCM over its variants against the planted shift")


@style()
def gap_by_anomaly(found: Gaps, name: str) -> str:
    """Gap of QILCM to the best baseline against the anomaly score."""
    figure, axes = one()
    errors = [[part.gap - part.low for part in found.bins], [part.high - part.gap for part in found.bins]]
    places = [part.anomaly for part in found.bins]
    axes.errorbar(places, [part.gap for part in found.bins], yerr=errors, fmt="-o", color=BLUE, capsize=3)
    axes.axhline(0.0, color=INK, linewidth=1)
    label = f"QILCM - {title(found.rival)}, {metric_name(found.metric)}"
    axes.set(xlabel="mean anomaly score of the bin", ylabel=label)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    return svg(figure, name, f"Gap of QILCM to {title(found.rival)} in {metric_name(found.metric)}, by anomaly")


@style()
def by_weight(found: Measured, metric: str) -> str:
    """Mean over seeds with its standard deviation against the confusion weight, LambdaMART as a line."""
    figure, axes = one()
    means, spreads = zip(*(found.mean_sd(weight_name(weight), metric) for weight in WEIGHTS), strict=True)
    places, bars = range(len(WEIGHTS)), [spread or 0.0 for spread in spreads]
    axes.errorbar(places, means, yerr=bars, fmt="-o", color=BLUE, capsize=3, label="QILCM")
    axes.axhline(found.mean("lambdamart", metric), color=INK, linestyle="--", linewidth=1.3, label="LambdaMART")
    axes.set_xticks(places, [f"{weight:g}" for weight in WEIGHTS])
    axes.set(xlabel="weight lambda' of the confusion loss", ylabel=metric_name(metric))
    legend(figure, columns=2)
    return svg(figure, "weights", f"{metric_name(metric)} against the weight of the confusion loss")
