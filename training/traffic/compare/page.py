"""A comparison as one self-contained page."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from datetime import date

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from listwright.training.reporting.page import COLOURS, INK, SOFT, PageFigure, PageSection, PageTable, plot, render
from listwright.training.traffic.compare.estimates import FEWEST_ACTIVE, FEWEST_UNITS, Look, TrafficComparison
from listwright.training.traffic.compare.text import (
    advice,
    check_sentences,
    interval,
    json_values,
    metric_name,
    metric_row,
    more,
    needed_name,
    p_text,
    signed,
    title,
    verdict,
)

_CAPTION = (
    "Inner band: 95 % interval for a single look, to be read at one planned day only. Outer band: the interval that "
    "holds at every look together. Days with too few units are left out."
)


def page(comparison: TrafficComparison, *, command: str) -> str:
    """Return the page as HTML.

    Args:
        command: Command that repeats the comparison.
    """
    settings = json_values(comparison)
    del settings["looks"]
    return render(
        title(comparison),
        [verdict(comparison), *advice(comparison)],
        [_course(comparison), _metrics(comparison), _checks(comparison), _power(comparison)],
        command=command,
        facts=_facts(comparison),
        settings=json.dumps(settings, indent=1),
        key_figures=_key_figures(comparison),
    )


def _key_figures(comparison: TrafficComparison) -> list[tuple[str, str]]:
    look = comparison.effects[0].look
    cells = [
        (signed(look.estimate), f"change in {metric_name(comparison.effects[0].metric)}"),
        (interval(look.estimate, look.always), "always-valid 95 % interval"),
        (f"{comparison.queries:,}", "queries"),
        (f"{comparison.units:,}", "units"),
    ]
    return cells if comparison.decision not in ("mismatch", "too_few") else cells[2:]


def _course(comparison: TrafficComparison) -> PageSection:
    ready = [look for look in comparison.looks if look.enough and math.isfinite(look.always)]
    if not ready:
        return PageSection("No day had enough units yet", ["A figure of the course needs one."])
    first = next((look for look in comparison.looks if look.decision in ("challenger", "control")), None)
    sentence = "At no look did the always-valid interval exclude 0."
    if first is not None:
        sentence = f"The always-valid interval excluded 0 first on {first.day.isoformat()}."
    heading = f"{metric_name(comparison.effects[0].metric).capitalize()} from day to day"
    return PageSection(heading, [sentence], [PageFigure(_course_figure(ready), _CAPTION)])


@plot(legend_columns=3)
def _course_figure(axes: Axes, ready: Sequence[Look]) -> tuple[str, str]:
    """Draw estimate, interval for one look and confidence sequence, by day."""
    days = [look.day.toordinal() for look in ready]
    middle = [look.estimate for look in ready]
    for name, alpha, halves in (
        ("at every look", 0.18, [look.always for look in ready]),
        ("at one look", 0.35, [look.fixed for look in ready]),
    ):
        low, high = ([m + sign * half for m, half in zip(middle, halves, strict=True)] for sign in (-1.0, 1.0))
        if len(ready) == 1:
            axes.errorbar(days, middle, yerr=halves, color=COLOURS[0], alpha=2 * alpha, label=name, capsize=4)
        else:
            axes.fill_between(days, low, high, color=COLOURS[0], alpha=alpha, linewidth=0, label=name)
    axes.plot(days, middle, color=COLOURS[0], label="estimate", marker="o" if len(ready) == 1 else "")
    axes.axhline(0.0, color=INK, linewidth=1)
    reach = 1.6 * sorted(look.always for look in ready)[len(ready) // 2] + max(
        abs(m) for m in middle[len(middle) // 2 :]
    )
    axes.set_ylim(-reach, reach)
    axes.set_ylabel("challenger less control", color=SOFT)
    if len(ready) == 1:  # the axis would be chosen as wide as the number of the day
        axes.set_xlim(days[0] - 1, days[0] + 1)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.xaxis.set_major_formatter(lambda number, _: f"{date.fromordinal(int(number)):%d %b}")
    return "course", "The difference and its two intervals, day by day"


def _metrics(comparison: TrafficComparison) -> PageSection:
    head = ["", "control", "challenger", "change", "at any look, 95 %", "at one look, 95 %"]
    rows = [metric_row(effect) for effect in comparison.effects]
    note = "The first metric decides. The others were not corrected for their number."
    if comparison.kind == "interleaving":
        head, rows = [head[0], *head[3:]], [[row[0], *row[3:]] for row in rows]
    return PageSection(tables=[PageTable("All metrics", head, rows, note if len(rows) > 1 else "")])


def _checks(comparison: TrafficComparison) -> PageSection:
    tables = []
    if comparison.wins is not None:
        preferences = zip(("challenger", "control", "neither"), comparison.wins, strict=True)
        rows = [[name, f"{count:,}"] for name, count in preferences]
        rows += [[f"{name}, one look", f"p = {p_text(p)}"] for name, p in comparison.tests]
        tables = [PageTable("Units by what they prefer", ["", ""], rows)]
    mismatch = comparison.ratio.failed or comparison.crossed
    heading = "The shares are not as planned" if mismatch else "The shares are as planned"
    return PageSection(heading, check_sentences(comparison), tables=tables)


def _power(comparison: TrafficComparison) -> PageSection:
    rows = [
        [needed_name(each), *map(more, (each.always, each.fixed, each.same_always, each.same_fixed))]
        for each in comparison.effects[0].needed
    ]
    head = ["difference", "at any look", "at one planned look", "these units, any look", "these units, one look"]
    note = (
        "More queries beyond those there are, for a probability of 80 %. The first two columns hold if new units come "
        "as fast as queries; the last two if only these units come back: what sets units apart stays then."
    )
    return PageSection("How many more queries would show a difference", tables=[PageTable("", head, rows, note)])


def _facts(comparison: TrafficComparison) -> list[str]:
    bundles = comparison.bundles
    return [
        *([] if bundles is None else [f"Control: {bundles[0]}. Challenger: {bundles[1]}."]),
        "All variances are over units. The interval for one look is a bootstrap over units.",
        "The interval for every look is the asymptotic confidence sequence of Waudby-Smith et al. (2024), theorem 2.2.",
        f"A verdict needs {FEWEST_UNITS} units a side, {FEWEST_ACTIVE} of them with a value other than 0.",
    ]
