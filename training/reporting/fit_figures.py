"""The figures of a run's page, drawn from ``report.json``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from listwright.ranking.errors import plain_text
from listwright.training.evaluation.intervals import Verdict, verdict_of
from listwright.training.reporting.page import COLOURS, HEIGHT, INK, SOFT, WIDTH, legend, plot, style, svg

Facts = dict[str, Any]
"""A part of ``report.json``."""

SELDOM = 0.01
"""Ranks that hold a smaller share of the candidates are left out of the plot of movement: they would only jump."""

LONGEST_NAME = 24
"""Letters of a name beside a figure."""

BLUE, ORANGE, GREEN = COLOURS[:3]

COLOUR_OF: dict[Verdict, str] = {"gain": BLUE, "harm": ORANGE, "no difference shown": SOFT}


@style()
def learning(history: Facts, best_epoch: int, ndcg_at: int) -> str:
    """Draw training losses and validation NDCG by epoch, one above the other; the dot is the selected epoch."""
    number, rank_loss, confusion_loss, valid = zip(*history["epochs"], strict=True)
    curves = [("rank loss", rank_loss, ORANGE), ("confusion loss", confusion_loss, GREEN)]
    curves = [curve for curve in curves if any(curve[1])]
    figure = Figure(figsize=(WIDTH, 1.6 + 1.2 * len(curves)), layout="constrained")
    plots = figure.subplots(1 + len(curves), sharex=True, squeeze=False)[:, 0]
    for axes, (name, values, colour) in zip(plots, curves, strict=False):
        axes.plot(number, values, color=colour, **_dots(number))
        axes.set_ylabel(name)
    plots[-1].plot(number, valid, color=BLUE, **_dots(number))
    if best_epoch in number:  # 0: no epoch was better than the start
        plots[-1].plot(best_epoch, valid[number.index(best_epoch)], "o", color=BLUE, markersize=7)
    plots[-1].set(xlabel="epoch", ylabel=f"NDCG@{ndcg_at}")
    plots[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
    figure.align_ylabels()
    return svg(figure, "learning", f"Losses and validation NDCG over {number[-1]} epochs; epoch {best_epoch} was kept")


def gains(rows: list[Facts]) -> str:
    """Draw every metric's gain over the first stage with its interval."""
    return draw_intervals(
        [(gain["mean"], gain["low"], gain["high"]) for gain in rows],
        [metric_name(gain["metric"]) for gain in rows],
        "gain over the first stage",
        ("gains", "Gain over the first stage with its interval, by metric"),
    )


def importance(rows: list[list[Any]]) -> str:
    """Draw what shuffling each feature loses, with its interval."""
    return draw_intervals(
        [(loss, low, high) for *_, loss, low, high in rows],
        [drawable(name) for name, *_ in rows],
        "NDCG@10 lost where the feature is shuffled",
        ("importance", "NDCG lost where a feature is shuffled, with its interval, by feature"),
    )


def by_segment(rows: list[tuple[float, float, float]], names: list[str], measured: str, *, gains: bool) -> str:
    """Draw the mean of each segment with its interval; of gains, in the colour of its verdict."""
    says = ("segments", f"{measured} with its interval, by segment")
    return draw_intervals(rows, [drawable(name) for name in names], measured, says, around_zero=gains)


def drawable(name: str) -> str:
    """Return a name of the data for display: short, and of letters that can be drawn."""
    name = plain_text(name)
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"


@plot()
def wins(axes: Axes, facts: Facts) -> tuple[str, str]:
    """Draw every query's gain, worst first."""
    share = [100.0 * value for value in facts["share"]]
    gain = facts["gain"]
    axes.fill_between(share, gain, 0.0, where=[g >= 0 for g in gain], color=BLUE, alpha=0.25, linewidth=0)
    axes.fill_between(share, gain, 0.0, where=[g <= 0 for g in gain], color=ORANGE, alpha=0.25, linewidth=0)
    for sign, colour in ((1, BLUE), (-1, ORANGE)):
        axes.plot(share, [g if sign * g > 0 else float("nan") for g in gain], color=colour)
    axes.axhline(0.0, color=INK, linewidth=1)
    axes.set(xlabel="queries, worst first, %", ylabel=f"gain in {metric_name(facts['metric'])}", xlim=(0, 100))
    return "wins", f"{facts['won']} queries gain and {facts['lost']} lose of {facts['queries']}"


@plot(legend_columns=2)
def movement(axes: Axes, facts: Facts) -> tuple[str, str]:
    """Draw the ranks gained against the first stage's rank, by relevance; the bands hold the middle half."""
    centres = [(first + last) / 2.0 for first, last in facts["ranks"]]
    for name, colour in (("relevant", BLUE), ("irrelevant", ORANGE)):
        least = max(1.0, SELDOM * facts[name]["candidates"])
        rows = [(x, *row[1:]) for x, row in zip(centres, facts[name]["by_rank"], strict=True) if row[0] >= least]
        _banded(axes, rows, colour, name)
    axes.axhline(0.0, color=INK, linewidth=1)
    axes.set(xlabel="rank in the first stage", ylabel="ranks gained")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    return "movement", "Ranks gained by relevant and irrelevant candidates, by first-stage rank"


@style()
def scores(facts: Facts, second: str) -> str:
    """Draw the distributions of relevant and irrelevant candidates' scores, in either stage."""
    figure = Figure(figsize=(WIDTH, HEIGHT + 0.6), layout="constrained")
    plots = figure.subplots(2, sharex=True, sharey=True)
    edges = facts["edges"]
    for axes, stage, name in zip(plots, ("first_stage", "second_stage"), ("first stage", second), strict=True):
        for relevance, colour in (("irrelevant", ORANGE), ("relevant", BLUE)):
            counts = facts[stage][relevance]
            share = [100.0 * count / max(1, sum(counts)) for count in counts]
            axes.stairs(share, edges, color=colour, fill=True, alpha=0.25)
            axes.stairs(share, edges, color=colour, linewidth=1.6, label=relevance if stage == "first_stage" else None)
        axes.set_ylabel(f"{name}, %")
    plots[-1].set(xlabel="score, standard deviations of its list", xlim=(edges[0], edges[-1]))
    legend(figure, columns=2)
    return svg(figure, "scores", "Scores of relevant and irrelevant candidates in both stages")


@plot()
def attention(axes: Axes, facts: Facts) -> tuple[str, str]:
    """Draw attention times list length against the first stage's rank."""
    _banded(axes, [(rank, *row[1:]) for rank, row in enumerate(facts["by_rank"], start=1)], BLUE, "")
    axes.axhline(1.0, color=INK, linewidth=1)
    axes.set(xlabel="rank in the first stage", ylabel="attention; 1 = an even share")
    axes.set_ylim(bottom=0.0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    return "attention", "Attention by first-stage rank"


@plot()
def anomaly(axes: Axes, facts: Facts, metric: str) -> tuple[str, str]:
    """Draw the gain over the first stage, from the most usual queries to the strangest."""
    for place, (_queries, _from, _to, gain, low, high) in enumerate(facts["bins"]):
        axes.plot([place, place], [low, high], color=BLUE, linewidth=2.2, solid_capstyle="butt")
        axes.plot(place, gain, "o", color=BLUE, markersize=6)
    axes.axhline(0.0, color=INK, linewidth=1)
    labels = [f"{row[1]:.2f} to\n{row[2]:.2f}" for row in facts["bins"]]
    axes.set_xticks(range(len(labels)), labels, fontsize=8.5)
    axes.set(xlabel="anomaly score of the query", ylabel=f"gain in {metric_name(metric)}")
    axes.set_xlim(-0.5, len(labels) - 0.5)
    axes.grid(visible=False, axis="x")
    return "anomaly", "Gain over the first stage by anomaly score of the query"


@plot(height=HEIGHT + 0.6, legend_columns=2)
def reliability(axes: Axes, curves: Mapping[str, Facts], event: str) -> tuple[str, str]:
    """Draw the share of an event against its stated probability, by name of the curve; on the line they are equal."""
    for (name, facts), colour in zip(curves.items(), (ORANGE, BLUE, GREEN), strict=False):
        _candidates, stated, share, low, high = zip(*facts["bins"], strict=True)
        axes.vlines(stated, low, high, color=colour, linewidth=1.2, alpha=0.6)
        axes.plot(stated, share, "o-", color=colour, markersize=5, label=f"{drawable(name)}: {facts['ece']:.4f}")
    most = max(value for facts in curves.values() for row in facts["bins"] for value in (row[1], row[4]))
    axes.plot([0.0, most], [0.0, most], color=INK, linewidth=1)
    axes.set(xlabel="probability", ylabel=f"share {event}", xlim=(0.0, None), ylim=(0.0, None))
    return "reliability", f"Share {event} by probability: {', '.join(curves)}"


@plot(legend_columns=2)
def latency(axes: Axes, facts: Facts) -> tuple[str, str]:
    """Draw milliseconds against list length."""
    length, median, slow = zip(*facts["rows"], strict=True)
    axes.plot(length, slow, color=ORANGE, **_dots(length), label="95 % are faster")
    axes.plot(length, median, color=BLUE, **_dots(length), label="median")
    axes.set(xlabel="candidates in the list", ylabel="milliseconds")
    axes.set(xlim=(0, None), ylim=(0.0, None))
    return "latency", "Milliseconds for a list, by its length"


def metric_name(name: str) -> str:
    """Return a metric's name for display: ``NDCG@10``, ``hit@1``, ``MRR``, ``NDCG@10[margin]``."""
    kind, *goal = name.partition("[")
    kind = kind.upper() if kind.startswith(("ndcg", "mrr", "map", "err", "ece")) else kind.replace("_", " ")
    return "".join((kind, *goal))


@style()
def draw_intervals(
    rows: list[tuple[float, float, float]],
    names: list[str],
    measured: str,
    figure_name: tuple[str, str],
    *,
    around_zero: bool = True,
    verdicts: Sequence[Verdict] | None = None,
) -> str:
    """Draw one mean with its interval below the other, around 0 in the colour of its verdict."""
    verdicts = verdicts or [verdict_of(low, high) for _, low, high in rows]
    figure = Figure(figsize=(WIDTH, 0.7 + 0.29 * len(rows)), layout="constrained")
    axes = figure.add_subplot()
    for place, (mean, low, high) in enumerate(rows):
        colour = COLOUR_OF[verdicts[place]] if around_zero else BLUE
        axes.plot([low, high], [place, place], color=colour, linewidth=2.2, solid_capstyle="butt")
        axes.plot(mean, place, "o", color=colour, markersize=6)
    if around_zero:
        axes.axvline(0.0, color=INK, linewidth=1)
    axes.set_yticks(range(len(rows)), names, parse_math=False)
    axes.set(xlabel=measured, ylim=(len(rows) - 0.5, -0.5))
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)
    axes.xaxis.set_major_locator(MaxNLocator(6))
    return svg(figure, *figure_name)


def _banded(axes: Axes, rows: list[tuple[float, float, float, float]], colour: str, name: str) -> None:
    """Draw a line with its band; a band of few points is a bar of its own at each."""
    if not rows:
        return
    x, mean, low, high = zip(*rows, strict=True)
    axes.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
    axes.plot(x, mean, color=colour, label=name or None, **_dots(x))


def _dots(x: tuple[float, ...]) -> dict[str, Any]:
    """Return the style of dots where they are few enough to be told apart."""
    return {"marker": "o", "markersize": 3.5} if len(x) <= 30 else {}
