"""Draws ``docs/exact-plackett-luce.svg`` from the committed results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from listwright_lab import machine
from listwright_lab.science.drawing import GREY, page, plain

PATH = machine.CHECKOUT / "docs" / "exact-plackett-luce.svg"

LINES = {
    "breslow": ("Breslow", "#bf8700", ":"),
    "efron": ("Efron", "#bf8700", "--"),
    "sampling_1000": ("1,000 samples", "#e5534b", ":"),
    "sampling_10000": ("10,000 samples", "#e5534b", "--"),
    "subsets": ("subsets", "#8957e5", "-"),
    "exact_32": ("integral, 32 nodes", "#2f81f7", "-"),
    "exact_64": ("integral, 64 nodes", "#2da44e", "-"),
}
TIMED = ("sampling_1000", "sampling_10000", "subsets", "exact_32", "exact_64")


def draw() -> Path:
    """Draw error and time of every way against the size of the label group."""
    rows = json.loads((machine.RESULTS / "plackett_luce.json").read_text(encoding="utf-8"))["methods"]
    with page(PATH, 9.0, 4.4, salt="plackett_luce") as figure:
        error, seconds = figure.subplots(1, 2)
        for way, (name, colour, dashes) in LINES.items():
            _line(error, rows, "largest_error", way, label=name, color=colour, linestyle=dashes)
            if way in TIMED:
                _line(seconds, rows, "seconds", way, color=colour, linestyle=dashes)
        error.set_title("Largest error of log A, in nats")
        seconds.set_title("Seconds for one list")
        for axes in (error, seconds):
            axes.set(xscale="log", yscale="log", xlabel="candidates in the label group")
            plain(axes)
        figure.legend(loc="outside lower center", ncols=4, frameon=False, labelcolor=GREY)
    return PATH


def _line(axes: Any, rows: list[dict[str, Any]], measure: str, way: str, **style: str) -> None:
    points = [(row["group"], max(row[measure][way], 1e-16)) for row in rows if way in row[measure]]
    axes.plot(*zip(*points, strict=True), marker="o", markersize=3, linewidth=1.6, **style)
