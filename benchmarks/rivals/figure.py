"""The 99th percentile against offered load, one line per server and format."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.rivals.report import Result
from listwright_lab.science.drawing import GREY, page, plain

COLOURS = ("#bf8700", "#e5534b", "#8957e5", "#2da44e", "#db61a2")
"""Of the rivals, in their order."""

OURS, DASHES = "#2f81f7", ("-", "--", ":", "-.")
"""Of our formats, in their order."""

TICKS = [digit * 10.0**power for power in range(-1, 5) for digit in (1, 2, 5)]


def draw(results: Sequence[Result], limit_ms: float, path: Path) -> Path:
    """Draw percentiles against load.

    Loads at which more than next to nothing was lost are hollow: their percentile is of the answered ones only.
    """
    with page(path, 8.0, 4.8, salt="rivals") as figure:
        axes = figure.subplots()
        for dashes, result in zip(DASHES, (one for one in results if one.ours), strict=False):
            _line(axes, result, color=OURS, linestyle=dashes, linewidth=2.2)
        for colour, result in zip(COLOURS, (one for one in results if not one.ours), strict=False):
            _line(axes, result, color=colour, linestyle="-", linewidth=1.4)
        axes.axhline(limit_ms, color=GREY, linewidth=1.0, linestyle=(0, (2, 3)))
        axes.annotate(f"{limit_ms:g} ms", (1.0, limit_ms), xycoords=("axes fraction", "data"), ha="right", va="bottom")
        axes.set(yscale="log", xlabel="offered load, requests a second", ylabel="99th percentile, ms")
        axes.set_xlim(left=0)
        low, high = axes.get_ylim()
        axes.set_yticks([tick for tick in TICKS if low <= tick <= high])
        axes.yaxis.set_major_formatter("{x:g}")
        plain(axes)
        figure.legend(loc="outside lower center", ncols=4, frameon=False, labelcolor=GREY)
    return path


def _line(axes: Any, result: Result, *, color: str, **style: Any) -> None:
    steps = [(one.offered, one.step.p99_ms, one) for one in result.steps if one.step.p99_ms is not None]
    axes.plot([x for x, _, _ in steps], [y for _, y, _ in steps], label=result.label, color=color, **style)
    for x, y, one in steps:
        whole = one.sustained(float("inf"))
        axes.plot(x, y, marker="o", markersize=4, color=color, markerfacecolor=color if whole else "none")
